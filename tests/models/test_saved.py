"""Files of policies of every kind: what was saved comes back, and files that are no policies of it are refused."""

import json
import os
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from meshwright.envs.fleet.batch import FleetBatch
from meshwright.envs.static_features import static_features
from meshwright.errors import CheckpointError
from meshwright.models.fleet.network import FleetActor
from meshwright.models.fleet.saved import SavedFleetNetwork, load_fleet_policy
from meshwright.models.graph.graph_network import GraphNetwork
from meshwright.models.graph.hetero_gnn import GraphNetworkSettings
from meshwright.models.graph.saved_graph_policy import SavedGraphPolicy
from meshwright.models.saved import NetworkPolicy, SavedNetwork
from meshwright.models.settings import FleetNetworkSettings
from meshwright.models.tensor_file import load_tensors, save_tensors
from meshwright.planners.elastic.saved_shares import SHARE_RULES, SavedShares
from meshwright.worlds.tasklets.world import TaskletWorld

from ..draws import draws
from ..tiny_fleet import tiny_fleet

TRAINED = {"config": "test", "benchmark": "preset:quickstart", "seed": 3, "steps": 100, "validation_blocking_rate": 0.25}
KINDS = {
    "v0": "is no policy of version 2; train it again",
    "fleet": "is no policy of a fleet of version 1",
    "graph": "is no graph policy of version 1",
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request, random_network, quickstart, tmp_path_factory):
    """A class of files, a network, and what makes it of a file again."""
    world, fleet = TaskletWorld(), tiny_fleet(tmp_path_factory.mktemp("fleet"), num_jobs=20)
    of = {
        "v0": lambda: (SavedNetwork, random_network(quickstart), static_features(quickstart)),
        "fleet": lambda: (SavedFleetNetwork, FleetActor(FleetNetworkSettings(width=8, rounds=1), fleet), fleet),
        "graph": lambda: (SavedGraphPolicy, GraphNetwork(world.spec, GraphNetworkSettings(hidden=8)), world),
    }
    saved, network, played = of[request.param]()
    return SimpleNamespace(name=request.param, saved=saved, network=network, played=played, refused=KINDS[request.param])


@pytest.fixture
def file(kind, tmp_path):
    kind.saved.from_network(kind.network, TRAINED).save(tmp_path / "policy.pt")
    return tmp_path / "policy.pt"


def refused(kind, path, told, *, plays=False):
    with pytest.raises(CheckpointError, match=told) as caught:
        kind.saved.load(path).network(kind.played) if plays else kind.saved.load(path)
    assert plays or str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_saved_policy_comes_back_as_it_was_and_its_file_is_the_same_each_time(kind, file):
    for path in (file, file.parent):  # a run folder stands for its policy
        saved = kind.saved.load(path)
        assert (saved.trained, saved.settings) == (TRAINED, kind.network.settings)
        again = saved.network(kind.played).state_dict()
        assert all(torch.equal(again[name], weight) for name, weight in kind.network.state_dict().items())
    saved.save(file.with_name("again.pt"))
    assert file.with_name("again.pt").read_bytes() == file.read_bytes()
    first = next(iter(saved.weights))
    stored, own = kind.saved.from_network(kind.network, {}), kind.network.state_dict()[first]
    with torch.no_grad():
        before = own.clone()
        own.add_(1.0)
        assert torch.equal(stored.weights[first], before)
        own.copy_(before)


def test_a_missing_or_truncated_file_is_refused(kind, file, tmp_path):
    refused(kind, tmp_path / "absent.pt", "no such file")
    content = file.read_bytes()
    for share in (0.0, 0.5, 0.999):
        file.write_bytes(content[: int(share * len(content))])
        refused(kind, file, "is truncated or not a file of tensors")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 99}, None),
        ({"network": {"hiden": 16}}, r"network\.hiden: unknown key"),
        ({"network": {"hidden": 0, "width": 0}}, r"network\.(hidden|width)"),
        ({"network": None}, "must be a mapping"),
        ({"weights": []}, "is not what it should be"),
        ({"trained": []}, "is not what it should be"),
        ({"weights": {"a.b": 3}}, r"weights\.a\.b: holds something other than finite numbers"),
        ({"weights": {"a.b": torch.tensor([1.0, float("nan")])}}, "finite numbers"),
    ],
)
def test_a_policy_that_is_not_whole_is_refused(kind, file, change, message):
    save_tensors(file, load_tensors(file) | change)
    refused(kind, file, message or kind.refused)


def test_a_missing_part_is_named_and_weights_of_other_widths_are_refused(kind, file):
    whole = load_tensors(file)
    for part in {"features", "network", "weights", "trained"} & set(whole):
        save_tensors(file, {key: value for key, value in whole.items() if key != part})
        refused(kind, file, f"{part}: the policy lacks a part")
    save_tensors(file, whole | {"weights": {}})
    refused(kind, file, "weights", plays=True)
    for data in (None, [], torch.zeros(3)):
        save_tensors(file, data)
        refused(kind, file, kind.refused)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": "0" * 32}, "was trained on other features than this version observes"),
        ({"features": None}, "was trained on other features"),
        ({"trained": {"rules": 3}}, "trained: a part of the policy is not what it should be"),
        ({"trained": {"rules": ["worst-fit"]}}, "trained: a part of the policy"),
        ({"trained": {"arrivals_per_slot": "many"}}, "trained: a part of the policy"),
        ({"kind": "other"}, "no policy of a fleet"),
        ({"trained": {"candidate_features": "simulated"}}, "candidate features"),
        ({"world": "operators"}, "plays operators, not tasklets"),
        ({"world": 3}, "the policy lacks a part"),
        ({"digest": "0"}, "was trained on other features than this version observes"),
    ],
)
def test_what_only_some_kinds_hold_is_checked_too(kind, file, change, message):
    of = {
        "rules": "v0",
        "arrivals_per_slot": "v0",
        "candidate_features": "fleet",
        "kind": "fleet",
        "world": "graph",
        "digest": "graph",
    }
    (key,) = change["trained"] if isinstance(change.get("trained"), dict) else change
    if of.get(key, kind.name) != kind.name or (key == "features" and kind.name == "graph"):
        return
    save_tensors(file, load_tensors(file) | change)
    refused(kind, file, message, plays=True)


def test_a_policy_saved_on_one_scenario_acts_on_another(network, observations, toy, quickstart):
    for scenario in (toy, quickstart):
        policy = NetworkPolicy("mine", SavedNetwork.from_network(network, {}), scenario)
        policy.reset(0)
        seen = observations(scenario)
        for e in range(6):
            observation = {key: value[e].numpy() for key, value in seen.items()}
            choice = policy.choose(None, observation)
            assert seen["action_mask"][e, choice] == 1
            assert choice == int(policy.scores(observation).argmax())


def test_a_policy_of_a_fleet_takes_its_best_scores(tmp_path):
    fleet = tiny_fleet(tmp_path, num_jobs=20)
    made, batch = FleetActor(FleetNetworkSettings(width=8, rounds=1), fleet), FleetBatch(fleet, 2)
    SavedFleetNetwork.from_network(made, {"candidate_features": "analytic"}).save(tmp_path / "policy.pt")
    for e in range(2):
        batch.reset(e, np.random.default_rng(e))
    scores, _ = made({name: torch.as_tensor(values) for name, values in batch.observations._asdict().items()})
    assert load_fleet_policy(tmp_path, fleet)(batch).tolist() == scores.argmax(dim=1).tolist()


# --- files that were made to do harm ---


@draws(15)
@given(content=st.binary(max_size=200), protocol=st.sampled_from([b"", b"\x80\x02", b"\x80\x04", b"PK\x03\x04"]))
def test_random_bytes_are_refused(tmp_path_factory, content, protocol):
    path = tmp_path_factory.mktemp("random") / "policy.pt"
    path.write_bytes(protocol + content)
    with pytest.raises(CheckpointError):
        SavedNetwork.load(path)


class Code:
    """Unpickled by a reader that trusts it, this makes a folder."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def test_code_in_a_file_does_not_run(tmp_path):
    path, data = tmp_path / "policy.pt", {"format_version": 1, "weights": Code(str(tmp_path / "trace"))}
    for write, trusts in (
        (lambda: path.write_bytes(pickle.dumps(data)), lambda: pickle.loads(path.read_bytes())),
        (lambda: torch.save(data, path), lambda: torch.load(path, weights_only=False)),
    ):
        write()
        with pytest.raises(CheckpointError, match="is truncated or not a file of tensors"):
            SavedNetwork.load(path)
        assert not (tmp_path / "trace").exists()
        trusts()  # it is a real trap: a trusting reader runs it
        (tmp_path / "trace").rmdir()


# --- weights of shares ---


def test_saved_shares_are_read_as_written(tmp_path):
    weights = np.linspace(-1, 1, len(SHARE_RULES["expected-remaining"].names))
    SavedShares("expected-remaining", weights, {"config": "tiny"}).save(tmp_path / "policy.json")
    result = SavedShares.load(tmp_path / "policy.json")
    assert (result.rule, result.weights.tolist(), result.trained) == ("expected-remaining", weights.tolist(), {"config": "tiny"})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("kind", "linear scorer", "is no policy of elastic shares of version 1"),
        ("rule", "shortest", "rule: no such rule (got 'shortest'); did you mean 'shortest-remaining'?"),
        ("weights", {"size": 1.0}, "weights: the weight is missing"),
        ("weights", [1.0], "weights: must be a mapping"),
        ("trained", None, "trained: must be a mapping"),
    ],
)
def test_shares_of_something_else_are_refused(tmp_path, key, value, message):
    path = tmp_path / "policy.json"
    SavedShares("shortest-remaining", np.zeros(12)).save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(CheckpointError) as error:
        SavedShares.load(path)
    assert message in str(error.value)
