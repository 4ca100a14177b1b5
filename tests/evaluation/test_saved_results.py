"""Results read back from disk."""

import json
from pathlib import Path

import pytest

from meshwright.errors import InputFileError
from meshwright.evaluation.saved_results import read_results

VALID = json.loads((Path(__file__).resolve().parents[1] / "fuzz" / "valid" / "results.json").read_text())


def test_an_end_of_an_interval_may_be_as_near_to_zero_as_a_bootstrap_leaves_it(tmp_path):
    VALID["rows"][0]["blocking_rate"] = {"mean": 0.001, "low": 1.36e-20, "high": -1.36e-20}
    (tmp_path / "results.json").write_text(json.dumps(VALID))
    assert read_results(tmp_path / "results.json") == VALID


def test_an_interval_has_two_ends_or_none(tmp_path):
    VALID["rows"][0]["blocking_rate"] = {"mean": 0.001, "low": None, "high": 0.002}
    (tmp_path / "results.json").write_text(json.dumps(VALID))
    with pytest.raises(InputFileError, match=r"blocking_rate.*an interval has two ends, or none"):
        read_results(tmp_path / "results.json")
