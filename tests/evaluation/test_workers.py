"""Workers that play: their spellings, and policies carried to where they play."""

import importlib.util
import math
import pickle
import shutil
from functools import partial

import pytest

from meshwright.cli import run_command_line
from meshwright.errors import ConfigError, MeshwrightError
from meshwright.evaluation.cluster.episodes import policy_carried
from meshwright.evaluation.fleet.policies import carried_file as fleet_file
from meshwright.evaluation.workers import CarriedPolicies, Workers, worker_count
from meshwright.evaluation.worlds.evaluated_elastic import carried_file as elastic_file
from meshwright.evaluation.worlds.evaluated_elastic import elastic_policy
from meshwright.planning.policies import fleet_policy_file, policy_file
from meshwright.worlds.elastic.world import load_elastic_world


def test_a_policy_is_made_where_its_file_does_not_lie(tmp_path):
    file = tmp_path / "run" / "policy.json"
    file.parent.mkdir()
    shutil.copy(policy_file("shipped:learned-shares"), file)
    spec, make = str(file.parent), partial(elastic_policy, world=load_elastic_world("preset:elastic-published-1.0"))
    here = CarriedPolicies(make, elastic_file, [spec, "tiresias"])
    pickled = pickle.dumps(here)
    file.unlink()
    there = pickle.loads(pickled)
    assert there[spec].trained == make("shipped:learned-shares").trained
    assert there[spec] is there[spec]
    assert type(there["tiresias"]) is type(here["tiresias"])
    with pytest.raises(MeshwrightError):
        here[spec]


def test_what_of_a_spelling_is_carried(tmp_path):
    network, fleet = tmp_path / "policy.pt", tmp_path / "fleet" / "policy.pt"
    fleet.parent.mkdir()
    shutil.copy(policy_file("shipped:quickstart"), network)
    shutil.copy(fleet_policy_file("shipped:llm-256-prices"), fleet)
    at_home = ["max", "fixed-8@best-fit", "rollout", "rollout(max)", "python:mine:Rule", "shipped:quickstart"]
    assert [policy_carried(spec) for spec in at_home] == [None] * len(at_home)
    for around in ("{}", "without-graph({})", "rollout({})"):
        assert policy_carried(around.format(network)) == (str(network), network)
        assert policy_carried(around.format(tmp_path)) == (str(tmp_path), network)
    assert [fleet_file(spec) for spec in ("sjf", "random", "rollout:sjf", "shipped:llm-256-prices")] == [None] * 4
    assert fleet_file(str(fleet)) == (str(fleet), fleet)
    assert fleet_file(str(fleet.parent)) == (str(fleet.parent), fleet)


def test_a_spelling_of_workers_is_refused_before_anything_starts(monkeypatch, capsys):
    for wrong in (
        "local:0",
        "local:257",
        "local:x",
        "local:",
        "local",
        "head",
        "head:",
        "head:x",
        "ray://head:10001",
        "head:70000",
    ):
        with pytest.raises(ConfigError, match=r"^--jobs: is a number, HOST:PORT of a Ray cluster, or local:N of 1 to 256 CPUs"):
            worker_count(wrong)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert run_command_line(["evaluate", "max", "--jobs", "head:6379"]) == 2
    message = "meshwright: error: --jobs: Ray is not installed; the extra meshwright[ray] is (got 'head:6379')\n"
    assert capsys.readouterr().err == message


@pytest.mark.parametrize("jobs", [1, 2])
def test_tasks_are_kept_in_their_order_whoever_does_them(jobs):
    stored = []
    Workers(jobs).do(math.factorial, [5, 1, 4, 2, 3], lambda task, result: stored.append((task, result)))
    assert stored == [(5, 120), (1, 1), (4, 24), (2, 2), (3, 6)]
