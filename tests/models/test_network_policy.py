"""A saved network in scenarios other than that of its training: what it needs, and what it chooses among."""

import numpy as np
import pytest
import torch

from meshwright.envs.batch import EpisodeBatch
from meshwright.errors import CheckpointError
from meshwright.models.saved import NetworkPolicy, SavedNetwork
from meshwright.simulation.cluster.decision import decision


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
