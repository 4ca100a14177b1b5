"""Results read back from disk."""

import json
from pathlib import Path

import pytest

from meshwright import files
from meshwright.errors import InputFileError
from meshwright.evaluation.saved_results import read_results

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
    found = json.loads((VALID / "results.json").read_text())
    at = found
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return found


def test_an_end_of_an_interval_may_be_as_near_to_zero_as_a_bootstrap_leaves_it(tmp_path):
    found = changed(("rows", 0, "metrics", "blocking_rate"), {"mean": 0.001, "low": 1.36e-20, "high": -1.36e-20})
    assert read(tmp_path, found) == found


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
        (("format_version",), 1, "is no result of evaluate of format 2; evaluate again"),
    ],
)
def test_what_cannot_be_is_refused_by_its_field(path, value, said, tmp_path):
    with pytest.raises(InputFileError, match=said) as error:
        read(tmp_path, changed(path, value))
    assert "\n" not in str(error.value)
