"""``meshwright evaluate`` on a benchmark of a fleet."""

import json

import pytest

from ....fleet_samples import FAILURES, write_small_fleet

pytestmark = pytest.mark.usefixtures("undrawn")

RULES = ("fifo", "fixed-2")
FEW = ("--set", "policies=[]", "--seeds", "2")


@pytest.fixture
def fleet_file(work):
    return write_small_fleet(work)


def test_the_table_the_verdict_and_the_files_tell_the_same(meshwright, fleet_file, work):
    told = meshwright("evaluate", *RULES, "bound", "--benchmark", fleet_file.name, *FEW, "--out", "out", "--json", "-")
    assert told.status == 0
    found = json.loads(told.out)
    assert found == json.loads((work / "out" / "results.json").read_text())
    assert {row["policy"] for row in found["rows"]} == {*RULES, "bound"}
    assert found["verdict"] in " ".join(told.err.split())
    assert "lower bound" in told.err
    assert {path.name for path in (work / "out").iterdir()} == {"results.json", "results.md", "report.html"}
    for name in ("results.md", "report.html"):
        assert found["verdict"].split(";")[0] in (work / "out" / name).read_text()


@pytest.mark.usefixtures("drawn")
def test_hosts_that_fail_are_told_in_the_tables_and_drawn(meshwright, fleet_file, work):
    changes = [word for change in FAILURES for word in ("--set", change)]
    assert meshwright("evaluate", "fifo", "--benchmark", fleet_file.name, *FEW, *changes, "--out", "out").status == 0
    found = json.loads((work / "out" / "results.json").read_text())
    row = found["rows"][0]
    assert found["fleet"]["failures"] == {"mean_time_between_failures_h": 0.8, "repair_s": 400.0, "restart_s": None}
    assert 0 < row["failures_per_job"]["mean"] == row["restarts_per_job"]["mean"]
    assert 0 < row["devices_out"]["mean"] < 1
    assert "failures a job" in (work / "out" / "results.md").read_text()
    report = (work / "out" / "report.html").read_text()
    assert "Times of the counted jobs of 1 episode:" in report or "Times of the counted jobs of 2 episodes:" in report
    assert "out of order, %" in report
    assert "Light grey: the host has failed" in report
    assert report.count(">out of order<") == 1


def test_bad_input_is_told_in_one_line(refused, fleet_file):
    name = fleet_file.name
    assert "did you mean 'sjf'" in refused("evaluate", "sjff", "--benchmark", name)
    assert "--references: does not go with a benchmark of a fleet" in refused(
        "evaluate", "--references", "linear-programme", "--benchmark", name
    )
    assert "restart_s: the key is missing" in refused(
        "evaluate", "--benchmark", name, "--set", "fleet.elastic={every_s: 60, storage_gbytes_per_s: 1}"
    )
    assert "wants jobs with deadlines" in refused("evaluate", "--benchmark", name, "--set", "fleet.objective=deadline_met_rate")
    assert "failures.repair_s" in refused("evaluate", "--benchmark", name, "--set", "fleet.failures.repair_s=soon")
    assert "small has 8 devices" in refused("evaluate", "--benchmark", name, "--set", "fleet.menu.degrees=[16]")
    assert "unknown benchmark (got 'llm-265')" in refused("evaluate", "--benchmark", "preset:llm-265")
    assert "benchmark of a fleet" in refused("train", "train.yaml", "--set", f"benchmark={name}")
