"""Published figures of latency and tasklets: how many there are, and that ours agree."""

import pytest

from meshwright.evaluation.validation.placements.placed_latencies import (
    NUM_LATENCY_ROWS,
    TASKLETS_S,
    latency_rows,
    ratio_rows,
    tasklet_rows,
)
from meshwright.evaluation.validation.published_figures import PublishedFigure


def test_heft_is_as_near_the_critical_path_as_published():
    figures = [PublishedFigure("", *row) for row in ratio_rows()]
    assert [figure.figure for figure in figures if not figure.agrees] == []
    by_name = {figure.figure.partition(",")[0]: figure.ours for figure in figures}
    assert by_name["HEFT with insertion"] <= by_name["HEFT without insertion"] < by_name["best of 20 random"] < by_name["random"]


@pytest.mark.slow
@pytest.mark.reference
def test_every_published_figure_is_reached(reference):
    latencies = [PublishedFigure("", *row) for row in latency_rows(reference / "operators")]
    tasklets = [PublishedFigure("", *row) for row in tasklet_rows(reference / "operators")]
    assert len(latencies) == NUM_LATENCY_ROWS
    assert len(tasklets) == 3 * len(TASKLETS_S)
    assert [(figure.item, figure.figure) for figure in (*latencies, *tasklets) if not figure.agrees] == []
