"""Laws of ``train`` with ``method: linear``: it tunes and resumes, and its run folder is a policy."""

import json

import pytest

from ....small_benchmarks import LINEAR


@pytest.fixture
def linear(work):
    """The config of a tiny tuning run."""
    (work / "linear.yaml").write_text(LINEAR)
    return "linear.yaml"


def test_tuning_tells_where_its_run_lies_and_the_run_is_a_policy(meshwright, linear):
    result = meshwright("train", linear, "--out", "run", "--json", "-")
    assert result.status == 0
    data = json.loads(result.out)
    assert (data["run"], data["policy"]) == ("run", "run/policy.json")
    assert [row["generation"] for row in data["learning_curve"]] == [0, 1, 2, 3]
    assert "Tuned scorer" in result.err
    assert "kept as policy.json" in result.err
    compared = ("evaluate", "run", "rollout(run)", "rollout(best-fixed)", "--benchmark", "benchmark.yaml", "--json", "-")
    rows = {row["policy"]: row["kind"] for row in json.loads(meshwright(*compared).out)["rows"]}
    assert rows["run"] == rows["max"] == "baseline"
    assert rows["rollout(run)"] == rows["rollout(best-fixed)"] == "planner"
    assert meshwright("plan", "--job", "graph.txt", "--cluster", "cluster.yaml", "--policy", "run").status == 0


def test_changes_reach_the_benchmark(meshwright, linear):
    result = meshwright("train", linear, "--set", "changes=[scenario.num_jobs=7]", "--out", "run", "--json", "-")
    assert json.loads(result.out)["learning_curve"][-1]["steps"] == 3 * 4 * 7  # generations, sets of weights, arrivals


def test_a_tuning_run_goes_on_and_ends_at_once(stays, linear, sandbox):
    stays("train", linear, "--out", "out/run")
    before = json.loads((sandbox / "out" / "run" / "policy.json").read_text())
    stays("train", "--resume", "out/run", "--json", "out/told.json")
    assert json.loads((sandbox / "out" / "run" / "policy.json").read_text()) == before


def test_a_tuning_run_is_of_its_method(meshwright, refused, linear):
    assert meshwright("train", linear, "--out", "run").status == 0
    assert refused("train", "train.yaml", "--resume", "run") == "run: method: differs from the config that the run was begun with"


def test_an_unknown_method_is_refused(refused, linear):
    message = "method: no such method; leave the key out for PPO, and take graph for ops (got 'lineal'); did you mean 'linear'?"
    assert refused("train", linear, "--set", "method=lineal") == f"{linear}: {message}"
    assert "unknown key" in refused("train", "train.yaml", "--set", "method=linear")
    assert refused("train", "missing.yaml").startswith("missing.yaml: no such file")
