"""The rows of every world as CSV, Markdown, cells and a page, and a metric that is added as one row of `METRICS`."""

import csv
import io
import re
from typing import get_args

import pytest

from meshwright.cli import output
from meshwright.cli.commands.evaluate import show
from meshwright.envs.fleet.reward import HIGHER_IS_BETTER
from meshwright.envs.fleet.settings import ObjectiveName
from meshwright.evaluation import metrics
from meshwright.evaluation.evaluate import evaluate
from meshwright.evaluation.metrics import DATA, FILES, LESS, METRICS, MORE, TERMINAL, Metric, metrics_of
from meshwright.evaluation.report.report import report_html
from meshwright.evaluation.statistics import tied_groups
from meshwright.evaluation.tables import result_cells, to_csv, to_markdown, with_ends
from meshwright.evaluation.worlds.evaluated_world import TIME
from meshwright.evaluation.worlds.registry import WORLDS

from .conftest import SPECS

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.mark.parametrize("world", SPECS)
def test_csv_holds_every_figure_with_its_interval(played, world):
    results = played(world).results
    rows = {row["policy"]: row for row in csv.DictReader(io.StringIO(to_csv(results)))}
    for row in results["rows"]:
        for metric in metrics_of(world):
            for end in ("mean", "low", "high"):
                expected = None if row["metrics"][metric] is None else row["metrics"][metric][end]
                assert rows[row["policy"]][f"{metric}_{end}"] == ("" if expected is None else repr(expected))


@pytest.mark.parametrize("world", SPECS)
def test_markdown_has_a_line_for_each_policy_and_as_many_cells_in_each(played, world):
    results = played(world).results
    head, rows = result_cells(results)
    assert len(rows) == len(tied_groups(results["rows"]))
    assert {len(row) for row in rows} == {len(head)}
    lines = to_markdown(results).split("\n\n")[2].splitlines()
    assert len(lines) == 2 + len(rows)
    assert len({line.count(" | ") for line in lines}) == 1
    assert results["verdict"] in to_markdown(results).replace("\\", "")


def test_references_are_named_and_the_best_baseline_too(played):
    for world, reference in (("cluster", "linear-programme"), ("fleet", "bound"), ("elastic", "published:pollux")):
        results = played(world).results
        lines = to_markdown(results).splitlines()
        assert re.search(r"\| (reference|published) \|", next(line for line in lines if line.startswith(f"| {reference}")))
        assert any("| best baseline" in line for line in lines)


def test_a_name_cannot_break_the_table(played):
    results = played("cluster").results
    renamed = [row | {"policy": "a|b`*\n", "kind": "baseline"} for row in results["rows"]]
    lines = [line for line in to_markdown(results | {"rows": renamed}).split("\n\n")[2].splitlines() if line.startswith("|")]
    assert all(line.startswith(r"| a\|b\`\*? |") for line in lines[2:])


def test_an_interval_is_shown_where_there_is_one():
    assert with_ends({"mean": 0.046, "low": 0.039, "high": 0.053}, 100.0, 1) == "4.6 [3.9, 5.3]"
    assert with_ends({"mean": 0.046, "low": None, "high": None}, 100.0, 1, sign="+") == "+4.6"
    assert with_ends(None, 100.0, 1) == "-"


def test_signs_units_and_worlds_of_metrics_are_consistent():
    assert set().union(*(one.worlds for one in METRICS.values())) == set(WORLDS)
    for name in get_args(ObjectiveName):
        assert "fleet" in METRICS[name].worlds
        assert METRICS[name].sign == (MORE if name in HIGHER_IS_BETTER else LESS)
    for name, one in METRICS.items():
        assert one.sign in (LESS, MORE)
        assert set(one.worlds.values()) <= {TERMINAL, FILES, DATA}
        if name.endswith("_s"):
            assert one.scale == {"min": 1 / 60, "h": 1 / 3600}[one.unit]
        if one.unit == "%":
            assert (one.scale, one.difference_unit) == (100.0, "points")
    for world in WORLDS.values():
        assert {name for pair in world.trade_offs for name in pair} <= {*metrics_of(world.name), TIME}
        headings = [one.column for one in metrics_of(world.name).values()]
        assert len(set(headings)) == len(headings)


@pytest.mark.parametrize(
    ("world", "of", "per_case"),
    [("cluster", lambda e: float(len(e.degree)), None), ("fleet", lambda e: e.device_hours / 2, "device_hours")],
)
def test_a_metric_is_one_row(world_of, world, of, per_case, monkeypatch, capsys):
    one = Metric("jobs_seen", {world: TERMINAL}, "jobs seen", "jobs", 1.0, 3, "jobs that were seen", MORE, of)
    monkeypatch.setitem(metrics.METRICS, one.name, one)
    results = evaluate(world_of(world), num_seeds=2).results
    for row in results["rows"]:
        values = row["per_case"]["jobs_seen"]
        assert len(values) == 2
        assert row["metrics"]["jobs_seen"]["mean"] == pytest.approx(sum(values) / 2)
        if per_case:
            assert values == [value / 2 for value in row["per_case"][per_case]]
    shown = f"{results['rows'][0]['metrics']['jobs_seen']['mean']:.3f}"
    assert f"{results['rows'][0]['metrics']['jobs_seen']['mean']!r}" in to_csv(results)
    show(output.console(None), results)
    for text in (capsys.readouterr().out, to_markdown(results), report_html(results)):
        assert "jobs seen" in text
        assert shown in text
