"""A saved network in scenarios other than that of its training: what it needs, and what it chooses among."""

import numpy as np
import pytest
import torch

from meshwright.envs.batch import EpisodeBatch
from meshwright.envs.static_features import static_features
from meshwright.errors import CheckpointError
from meshwright.models.network import CandidateNetwork
from meshwright.models.saved import NetworkPolicy, SavedNetwork
from meshwright.models.settings import NetworkSettings
from meshwright.simulation.cluster.decision import decision

AFTER = {"after": (12, 7), "without": ("look-ahead",)}


@pytest.fixture
def foreseeing_network(foreseeing, random_network):
    return random_network(foreseeing, **AFTER)


@pytest.mark.parametrize("slots", [0, 5])
def test_a_scenario_that_does_not_tell_what_the_network_reads_is_refused(
    foreseeing, foreseeing_network, changed, tmp_path, slots
):
    path = tmp_path / "policy.pt"
    SavedNetwork.from_network(foreseeing_network, {"shape_slots": 6}).save(path)
    with pytest.raises(CheckpointError) as caught:
        NetworkPolicy("mine", SavedNetwork.load(path), changed(foreseeing, shape_slots=slots))
    assert str(caught.value) == (
        f"{path}: shape_slots: reads when blocks become free at 6 moments ahead: add --set scenario.shape_slots=6 (got {slots})"
    )


def test_a_scenario_whose_slots_grow_otherwise_is_refused(foreseeing, foreseeing_network, changed):
    saved = SavedNetwork.from_network(foreseeing_network, {"shape_slots": 6, "slot_growth": 1.5})
    NetworkPolicy("mine", saved, changed(foreseeing, slot_growth=1.5))
    with pytest.raises(CheckpointError) as caught:
        NetworkPolicy("mine", saved, foreseeing)
    assert str(caught.value) == (
        "slot_growth: reads slots that grow by a factor of 1.5: add --set scenario.slot_growth=1.5 (got 1.0)"
    )


def test_a_network_reads_the_windows_that_it_was_trained_with(foreseeing, changed, observations):
    seeing = changed(foreseeing, load_windows=(1.0, 16.0))
    torch.manual_seed(0)
    network = CandidateNetwork(NetworkSettings(after=(8, 4)), static_features(seeing))
    saved = SavedNetwork.from_network(network, {"shape_slots": 6, "load_windows": [1.0, 16.0]})
    policy = NetworkPolicy("mine", saved, seeing)
    seen = {key: value[0].numpy() for key, value in observations(seeing).items()}
    assert seen["episode"].shape == (3,)
    assert seen["action_mask"][policy.choose(None, seen)] == 1
    with pytest.raises(CheckpointError) as caught:
        NetworkPolicy("mine", saved, foreseeing)
    assert str(caught.value) == (
        "load_windows: reads of other recent arrivals: add --set 'scenario.load_windows=[1.0, 16.0]' (got [])"
    )


def test_all_that_a_scenario_does_not_tell_is_named_at_once(foreseeing, foreseeing_network, changed):
    trained = {"shape_slots": 6, "slot_growth": 1.5, "deadline_windows": [8], "work_windows": [2.5]}
    with pytest.raises(CheckpointError) as caught:
        NetworkPolicy("mine", SavedNetwork.from_network(foreseeing_network, trained), changed(foreseeing, shape_slots=0))
    assert str(caught.value) == (
        "shape_slots: reads when blocks become free at 6 moments ahead: add --set scenario.shape_slots=6 "
        "--set scenario.slot_growth=1.5 --set 'scenario.deadline_windows=[8]' --set 'scenario.work_windows=[2.5]' (got 0)"
    )


def test_a_network_without_afterstates_acts_whatever_else_is_told(foreseeing, network, observations):
    policy = NetworkPolicy("mine", SavedNetwork.from_network(network, {"shape_slots": 0}), foreseeing)
    seen = {key: value[0].numpy() for key, value in observations(foreseeing).items()}
    assert seen["action_mask"][policy.choose(None, seen)] == 1


def test_a_scenario_with_none_of_its_rules_is_refused(quickstart, network, changed):
    saved = SavedNetwork.from_network(network, {"rules": ["all-blocks", "aligned"]})
    with pytest.raises(CheckpointError) as caught:
        NetworkPolicy("mine", saved, quickstart)
    assert str(caught.value) == (
        "placement_rules: chooses among all-blocks, aligned; the benchmark's placement_rules have none of them "
        "(got ['first-fit', 'best-fit'])"
    )


def played(policy, scenario, seed):
    """The blocks of an episode's jobs, and the rules of the candidates that were taken."""
    batch, rules = EpisodeBatch(scenario, 1), []
    batch.reset(0, np.random.default_rng(seed))
    while not batch.is_over[0]:
        at = decision(scenario, batch.episodes, 0)
        choice = policy.choose(at, {key: value[0] for key, value in batch.observations.current().items()})
        rules.append(at.rule[choice] if at.can_place[choice] else "not offered")
        batch.step(np.array([choice]))
    return batch.record(0).block.tolist(), rules


ALL = ("first-fit", "best-fit", "aligned", "fastest", "all-blocks")


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("trained", "offered"),
    [
        (("best-fit",), ("first-fit", "best-fit")),
        (("all-blocks",), ("first-fit", "best-fit", "all-blocks")),
        (("best-fit", "aligned"), ALL),
        (("aligned", "all-blocks"), ALL),
        # Another order, and a rule that the scenario does not have.
        (("best-fit", "first-fit", "fastest"), ("first-fit", "best-fit", "aligned")),
    ],
)
def test_other_rules_of_the_scenario_change_nothing(quickstart, changed, network, trained, offered):
    # Where two rules take one block, the earlier one's candidate stands for both; the policy takes it for its own.
    common = tuple(rule for rule in trained if rule in offered)
    alone = changed(quickstart, placement_rules=common, max_listed_blocks=64, num_jobs=100)
    among = changed(quickstart, placement_rules=offered, max_listed_blocks=64, num_jobs=100)
    saved = SavedNetwork.from_network(network, {"rules": list(trained)})
    ours, rules = played(NetworkPolicy("mine", saved, among), among, 0)
    theirs, _ = played(NetworkPolicy("mine", saved, alone), alone, 0)
    assert ours == theirs
    assert sum(block >= 0 for block in ours) > 20
    assert "not offered" not in rules
    assert "first-fit" in rules  # in place of the rules that the policy was trained with


def test_a_policy_of_all_the_rules_of_a_scenario_sees_it_as_it_is(quickstart, network, observations):
    seen = {key: value[0].numpy() for key, value in observations(quickstart).items()}
    messages = [
        NetworkPolicy("mine", SavedNetwork.from_network(network, trained), quickstart)
        for trained in ({}, {"rules": list(ALL[:2])})
    ]
    assert len({policy.choose(None, seen) for policy in messages}) == 1
    assert torch.equal(messages[0].scores(seen), messages[1].scores(seen))
