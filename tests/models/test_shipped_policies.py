"""The networks that come with the package: what they know, and which of them never learned to read a job graph."""

from pathlib import Path

import pytest
import torch

from meshwright.clusters import load_cluster
from meshwright.envs.fleet.benchmark import load_fleet_benchmark
from meshwright.envs.static_features import static_features
from meshwright.envs.training_conditions import KEY, TrainingConditions, condition_changes, read_conditions
from meshwright.models.fleet.saved import SavedFleetNetwork
from meshwright.models.network import CandidateNetwork
from meshwright.models.saved import SavedNetwork
from meshwright.planning.policies import fleet_policy_file, shipped_fleet_names, shipped_names

FOLDER = Path(__file__).parents[2] / "models" / "shipped"
NAMES = [name for name in shipped_names() if (FOLDER / f"{name}.pt").is_file()]
# All that lies between a job graph and a candidate's score.
READS_GRAPHS = ("graph_encoder.", "context.", "candidate_context.", "score.")
UNTRAINED = {"clos-256-philly", "pacml-physical-D", "zero-shot"}


def test_a_shipped_network_knows_the_benchmark_that_it_was_trained_on():
    for name in NAMES:
        trained = SavedNetwork.load(FOLDER / f"{name}.pt").trained
        known = read_conditions(trained[KEY], name)
        assert trained["benchmark"].removeprefix("preset:") in {one.benchmark for one in known}
        assert {condition_changes(name, known, one) for one in known} == {None}


def test_what_the_quickstart_network_knows_is_what_its_benchmark_is(quickstart):
    trained = SavedNetwork.load(FOLDER / "quickstart.pt").trained
    assert read_conditions(trained[KEY], "quickstart") == (TrainingConditions.from_scenario("quickstart", quickstart),)


def test_networks_of_several_settings_know_all_of_them():
    of = {name: read_conditions(SavedNetwork.load(FOLDER / f"{name}.pt").trained[KEY], name) for name in NAMES}
    assert {one.num_devices for one in of["zero-shot"]} == {32, 64, 256}
    assert len(of["zero-shot"]) == 14  # its training, and 13 settings that it never met there
    assert {one.benchmark for one in of["pacml-compat-all"]} == {f"pacml-compat-{letter}" for letter in "ABCD"}
    assert len({one.load for one in of["load-sweep"]}) == 6


def test_which_networks_score_candidates_by_weights_that_were_never_trained(foreseeing):
    result = set()
    for name in NAMES:
        saved = SavedNetwork.load(FOLDER / f"{name}.pt")
        torch.manual_seed(saved.trained["seed"])
        # What is made after the score, worth among it, changes nothing before.
        fresh = CandidateNetwork(saved.settings, static_features(foreseeing)).state_dict()
        weights = {key: weight for key, weight in saved.weights.items() if key.startswith(READS_GRAPHS)}
        assert len(weights) > 10
        if all(torch.equal(fresh[key], weight) for key, weight in weights.items()):
            result.add(name)
    assert result == UNTRAINED


@pytest.mark.parametrize("name", shipped_fleet_names())
def test_a_shipped_network_of_a_fleet_knows_its_benchmark_and_reads_by_messages(name):
    saved = SavedFleetNetwork.load(fleet_policy_file(f"shipped:{name}"))
    benchmark = load_fleet_benchmark(saved.trained["benchmark"])
    of_several = saved.trained["ground"].get("mixed", [])
    assert bool(of_several) == saved.settings.relative
    if not of_several:
        assert saved.trained["benchmark"] == f"preset:{name.removesuffix('-prices')}"
    assert saved.settings.prices == (name != benchmark.name or benchmark.fleet.elastic is not None)
    assert saved.trained["changes"] == []
    assert saved.trained["candidate_features"] == benchmark.fleet.candidate_features
    assert saved.trained["ground"]["cluster_digest"] == load_cluster(benchmark.fleet.cluster).digest
    unseen = {load_fleet_benchmark(f"preset:{one}").fleet.cluster for one in ("llm-1024", "rail-512", "torus-256")}
    assert not {one["cluster_digest"] for one in of_several} & {load_cluster(one).digest for one in unseen}
    assert saved.settings.messages
    assert f"`{name}.fleet.pt`" in (FOLDER / "README.md").read_text()
