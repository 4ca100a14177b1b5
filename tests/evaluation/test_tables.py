import csv
import io

import pytest

from meshwright.evaluation.evaluate import evaluate
from meshwright.evaluation.metrics import METRICS
from meshwright.evaluation.tables import to_csv, to_markdown, with_ends


@pytest.fixture(scope="module")
def results(small, scenario):
    return evaluate(small, ["fixed-2"], references=["linear-programme"], num_seeds=2, scenario=scenario).results


def test_csv_holds_every_figure_with_its_interval(results):
    rows = {row["policy"]: row for row in csv.DictReader(io.StringIO(to_csv(results)))}
    for row in results["rows"]:
        for metric in METRICS:
            for end in ("mean", "low", "high"):
                wanted = None if row[metric] is None else row[metric][end]
                assert rows[row["policy"]][f"{metric}_{end}"] == ("" if wanted is None else repr(wanted))


def test_markdown_has_a_line_for_each_policy_and_as_many_cells_in_each(results):
    lines = [line for line in to_markdown(results).splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(results["rows"])
    assert len({line.count(" | ") for line in lines}) == 1
    assert "clairvoyant reference" in next(line for line in lines if line.startswith("| linear-programme"))
    assert "the best baseline is" in to_markdown(results)


def test_a_name_cannot_break_the_table(results):
    renamed = [row | {"policy": "a|b`*\n", "kind": "baseline"} for row in results["rows"]]
    lines = [line for line in to_markdown(results | {"rows": renamed}).splitlines() if line.startswith("|")]
    assert all(line.startswith(r"| a\|b\`\*? |") for line in lines[2:])


def test_an_interval_is_shown_where_there_is_one():
    assert with_ends({"mean": 0.046, "low": 0.039, "high": 0.053}, 100.0, 1) == "4.6 [3.9, 5.3]"
    assert with_ends({"mean": 0.046, "low": None, "high": None}, 100.0, 1, sign="+") == "+4.6"
    assert with_ends(None, 100.0, 1) == "-"
