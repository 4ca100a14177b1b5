"""Results read back from disk: what evaluations write, and what version 1 had in layouts of each world."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest

from meshwright import files
from meshwright.errors import InputFileError
from meshwright.evaluation.evaluate import FORMAT_VERSION
from meshwright.evaluation.report.report import report_html
from meshwright.evaluation.saved_results import read_results
from meshwright.evaluation.tables import to_csv, to_markdown
from meshwright.evaluation.verdict import BEST_BASELINE

from .conftest import SPECS

VALID = Path(__file__).resolve().parents[1] / "fuzz" / "valid"


def read(folder, content):
    (folder / "results.json").write_text(json.dumps(content))
    return read_results(folder / "results.json")


@pytest.mark.parametrize("world", SPECS)
def test_what_is_written_is_read_back(played, world, tmp_path):
    results = played(world).results
    files.write_json(tmp_path / "results.json", results)
    assert read_results(tmp_path / "results.json") == json.loads(files.json_text(results))


def changed(path, value):
    data = json.loads((VALID / "results.json").read_text())
    at = data
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return data


def test_an_end_of_an_interval_may_be_as_near_to_zero_as_a_bootstrap_leaves_it(tmp_path):
    result = changed(("rows", 0, "metrics", "blocking_rate"), {"mean": 0.001, "low": 1.36e-20, "high": -1.36e-20})
    assert read(tmp_path, result) == result


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (
            ("rows", 0, "metrics", "blocking_rate"),
            {"mean": 0.001, "low": None, "high": 0.002},
            "blocking_rate.*an interval has two ends, or none",
        ),
        (("rows", 0, "per_case", "blocking_rate"), [0.0], "has 1 values of blocking_rate for 2 episodes"),
        (("rows", 0, "policy"), "max", "rows: max appears twice"),
        (("objective",), "over_bound", "objective: over_bound is no metric of cluster"),
        (("world",), "moon", "world: .*moon"),
        (("format_version",), 3, "is no result of evaluate of format 2"),
    ],
)
def test_what_cannot_be_is_refused_by_its_field(path, value, said, tmp_path):
    with pytest.raises(InputFileError, match=said) as error:
        read(tmp_path, changed(path, value))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("world", SPECS)
def test_results_of_version_1_are_read_as_version_2_has_them(world, tmp_path):
    was = json.loads((VALID / f"results-1-{world}.json").read_text())
    result = read(tmp_path, was)
    assert (result["format_version"], result["world"]) == (FORMAT_VERSION, world)
    if world in ("operators", "tasklets"):
        assert result["objective"] == "over_best_known"
    else:
        assert result["objective"] == was.get("objective", "blocking_rate")
        assert result["best_baseline"] == was["best_baseline"]
        assert result["best_baselines"] == was.get("best_baselines", [was["best_baseline"]])
        assert [row["policy"] for row in result["rows"]] == [row["policy"] for row in was["rows"]]
    former = {row["policy"]: row for row in was["rows"]}
    for row in result["rows"]:
        its = former[row["policy"]]
        for name, value in row["metrics"].items():
            if name in its.get("per_seed", {}):
                assert row["per_case"][name] == its["per_seed"][name]
            if name in ("won", "without_value"):
                assert value["mean"] == its[{"won": "won", "without_value": "infeasible"}[name]]
            elif name == "over_best_rule":
                assert value["mean"] == pytest.approx(1.0 + its["against_best_rule"]["mean"])
            elif name in its:
                assert value == (its[name] if its[name] is None else pytest.approx(its[name]))
        difference = its.get("against_best_baseline") or its.get("against", {}).get(result["best_baseline"])
        if difference is not None:
            assert {end: row["against"][BEST_BASELINE][end] for end in ("mean", "low", "high")} == pytest.approx(
                {end: difference[end] for end in ("mean", "low", "high")}
            )
        if world in ("operators", "tasklets"):
            np.testing.assert_allclose(row["per_case"]["over_best_known"], np.array(its["values_s"]) / was["known_s"])
    for text in (to_markdown(result), to_csv(result), report_html(result)):
        assert all(row["policy"] in text.replace("\\", "") for row in was["rows"])
    spoilt = copy.deepcopy(was)
    del spoilt["rows"][0]["kind"]
    with pytest.raises(InputFileError, match="is a result of format 1 that lacks something"):
        read(tmp_path, spoilt)
