"""Charts hold what the records and timelines hold, and a front is a front."""

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from meshwright.evaluation.plots.interactive import scatter_plot
from meshwright.evaluation.plots.interactive.gantt_charts import MOST_BARS, episode_chart, step_chart
from meshwright.evaluation.plots.interactive.scatter_charts import PolicyFigure, policies_chart, undominated
from meshwright.evaluation.plots.interactive.scatter_plot import scatter_svg
from meshwright.evaluation.plots.svg import canvas

from ..test_gantt import episode, scenario  # noqa: F401 - a fixture
from ..test_step_chart import job, step_of  # noqa: F401 - a fixture
from ..texts import texts

BLOCKED, TIME = PolicyFigure("blocked", "blocked, %", 100.0), PolicyFigure("time_s", "time, h", 1 / 3600)
figures = st.tuples(st.integers(0, 5).map(float), st.integers(0, 5).map(float))


def test_bars_hold_every_device_second_of_an_episode_once(scenario):  # noqa: F811
    record = episode(scenario, [4, 0, 2, 1], [1, 0, 0.5, 2])
    chart = json.loads(json.dumps(episode_chart(scenario, [("mine", record)]), allow_nan=False))
    (panel,) = chart["panels"]
    bars = panel["bars"]
    held_s = sum(n * (end - begin) for n, begin, end in zip(bars["count"], bars["begin"], bars["end"], strict=True))
    assert held_s == pytest.approx(3600 * (4 * 1 + 2 * 0.5 + 1 * 2))
    assert panel["num_lanes"] == scenario.cluster.num_devices
    assert [text.split(",")[0] for text in panel["marks"]["text"]] == ["job 1"]
    used = {*bars["type"], *panel["marks"]["type"]}
    assert used == set(range(len(chart["types"])))  # the legend names what is there
    assert (chart["begin"], chart["end"]) == (0.0, 5 * 3600.0)


def test_a_step_has_a_bar_for_all_that_ranks_compute(job):  # noqa: F811
    timeline = step_of(job, 4)
    chart = step_chart(timeline, job[1], ["h0/0", "h0/1"])
    (panel,) = chart["panels"]
    busy_s = np.zeros(timeline.execution.num_ranks)
    for lane, begin, end in zip(*(panel["bars"][key] for key in ("first", "begin", "end")), strict=True):
        if lane % 2 == 0:
            busy_s[lane // 2] += end - begin
    np.testing.assert_allclose(busy_s, timeline.compute_busy_s, rtol=1e-5)
    assert len(panel["bars"]["begin"]) <= MOST_BARS
    assert [group["name"] for group in panel["groups"]][:2] == ["rank 0 h0/0", "rank 1 h0/1"]


@given(points=st.lists(figures, min_size=1, max_size=12), more=st.tuples(st.booleans(), st.booleans()))
def test_what_is_off_the_front_is_beaten_and_what_is_on_it_is_not(points, more):
    front = undominated(points, more)

    def beats(one, other):
        pairs = [(b, a) if is_more else (a, b) for a, b, is_more in zip(one, other, more, strict=True)]
        return all(a <= b for a, b in pairs) and one != other

    for number, point in enumerate(points):
        assert (number in front) != any(beats(points[other], point) for other in front)


def rows(*of):
    ends = ("mean", "low", "high")
    return [
        {"policy": name, "kind": kind, "blocked": dict(zip(ends, (b, b, b), strict=True)), "time_s": dict.fromkeys(ends, t)}
        for name, kind, b, t in of
    ]


def test_policies_stand_where_their_figures_say_and_the_front_joins_the_best():
    found = rows(("a", "learned", 0.1, 7200.0), ("b", "baseline", 0.2, 3600.0), ("c", "baseline", 0.3, 7200.0))
    chart = policies_chart("trade", found, TIME, BLOCKED)
    front, *kinds = chart["series"]
    assert (front["x"], front["y"]) == ([2.0, 1.0], [10.0, 20.0])
    assert {one["name"]: [found[i]["policy"] for i in one["item"]] for one in kinds} == {
        "learned policy": ["a"],
        "baseline": ["b", "c"],
    }
    assert {"a", "b", "c", "time, h", "blocked, %"} <= set(texts(scatter_svg(chart, "trade")))
    assert scatter_svg(chart, "trade") == scatter_svg(chart, "trade")


def test_a_learned_policy_is_drawn_over_a_baseline_that_plays_alike():
    found = rows(("a", "learned", 0.1, 7200.0), ("b", "baseline", 0.1, 7200.0), ("c", "baseline", 0.2, 3600.0))
    chart = policies_chart("trade", found, TIME, BLOCKED)
    assert [one["name"] for one in chart["series"]] == ["Pareto front", "baseline", "learned policy"]
    drawing = scatter_svg(chart, "trade")
    (_, of_baselines), (_, of_learned) = [(one, drawing.rindex(one["colour"])) for one in chart["series"][1:]]
    assert of_learned > of_baselines


def test_a_name_stands_off_the_line_of_the_front_where_it_can():
    # From b on the line is nearly level, so that it lies over a name to the right of b; to the left it is steep.
    found = rows(("a", "baseline", 0.9, 3600.0), ("b" * 12, "baseline", 0.11, 7200.0), ("c", "baseline", 0.1, 10800.0))
    chart = policies_chart("trade", found, TIME, BLOCKED)
    with canvas(400, 300) as sheet:
        axes = sheet.axes(0, 0, 400, 300)
        axes.plot([1.0, 2.0, 3.0], [90.0, 11.0, 10.0])
        scatter_plot._names(axes, chart)
        front = scatter_plot._along_front(axes, chart)
        (name,) = [text for text in axes.texts if text.get_text() == "b" * 12]
        box = name.get_window_extent().extents
    assert not scatter_plot._holds_any((box[0], box[1] + 2, box[2], box[3]), front)


def test_the_front_runs_through_no_policy_that_is_beaten():
    # d is as good as a in jobs blocked and slower: on the way of a staircase from a to c, and above the line that joins them.
    found = rows(("c", "baseline", 0.1, 7200.0), ("a", "learned", 0.2, 3600.0), ("d", "baseline", 0.2, 5400.0))
    chart = policies_chart("trade", found, TIME, BLOCKED)
    assert [found[i]["policy"] for i in chart["series"][0]["item"]] == ["c", "a"]
    (front,) = re.findall(r'<path d="([^"]*)"[^>]*stroke-width: 1.2', scatter_svg(chart, "trade"))
    assert len(re.findall("[ML] ", front)) == 2, "a staircase has three"


def test_a_single_policy_trades_nothing():
    assert policies_chart("trade", rows(("a", "learned", 0.1, 1.0)), TIME, BLOCKED) is None
