"""Imitation: what is learned of a baseline, and what cannot be."""

import numpy as np
import pytest
import torch

from meshwright.envs.batch import EpisodeBatch
from meshwright.envs.static_features import static_features
from meshwright.errors import PolicyError
from meshwright.models.ablation import ablated
from meshwright.models.network import CandidateNetwork
from meshwright.models.settings import NetworkSettings
from meshwright.planners.rules import rule_of_thumb
from meshwright.simulation.cluster.decision import decision
from meshwright.training.pretraining import cloning
from meshwright.training.pretraining.cloning import clone
from meshwright.training.pretraining.settings import RulePretraining
from meshwright.training.train import train
from meshwright.training.vec_env import JobPartitioningVecEnv
from meshwright.training.vec_env_wrappers import CentredReward

WIDTHS = {"graph_hidden": 4, "graph_embedding": 3, "graph_rounds": 1, "slot_hidden": 8, "device_hidden": 4, "hidden": 24}


def taught(scenario, tiny, rule, *, steps=2048, seed=0, without=(), look=lambda steps: None):
    torch.manual_seed(7)
    network = CandidateNetwork(NetworkSettings(**WIDTHS, without=without), static_features(scenario))
    chosen = RulePretraining(kind="rule", rule=rule, steps=steps, learning_rate=1e-2, rollout_steps=32, minibatch=64, epochs=3)
    clone(network, CentredReward(JobPartitioningVecEnv(scenario, 8, tiny.reward, 0)), chosen, seed, look)
    return network


def choices(network, scenario, rule, seeds):
    """What the network would choose and what the rule chooses, on the states that the rule comes to."""
    policy = rule_of_thumb(rule, degrees=scenario.space.degrees, placements=scenario.settings.placement_rules)
    batch, both = EpisodeBatch(scenario, 1), []
    for seed in seeds:
        batch.reset(0, np.random.default_rng(seed))
        while not batch.is_over[0]:
            seen = {key: torch.as_tensor(value) for key, value in batch.observations.current().items()}
            choice = policy.choose(decision(scenario, batch.episodes, 0), {})
            with torch.no_grad():
                both.append((int(network(seen)[0][0].argmax()), choice, int(seen["action_mask"].sum())))
            batch.step(np.array([choice]))
    return np.array(both)


def test_a_rule_is_learned_on_states_that_were_never_seen(scenario, tiny):
    rule = "fixed-2@best-fit"
    ours, theirs, offered = choices(taught(scenario, tiny, rule), scenario, rule, seeds=range(6)).T
    asked = offered > 1
    # 180 decisions, in about half of which the rejection is not the only candidate; the rule does not do the same in all.
    assert asked.sum() > 60
    assert (ours == theirs)[asked].mean() >= 0.95
    assert max(np.bincount(theirs[asked])) < 0.95 * asked.sum()
    untaught = CandidateNetwork(NetworkSettings(**WIDTHS), static_features(scenario))
    others, same, _ = choices(untaught, scenario, rule, seeds=range(6)).T
    assert (same == theirs).all()
    assert (others == theirs)[asked].mean() < 0.8


def test_the_same_seed_learns_the_same_bits_and_another_one_others(scenario, tiny):
    torch.rand(3)
    first, again, other = (taught(scenario, tiny, "random", steps=256, seed=seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_looks_are_taken_after_each_update_and_count_no_more_than_was_asked_for(scenario, tiny):
    seen = []
    taught(scenario, tiny, "min", steps=600, look=seen.append)
    assert seen == [256, 512, 600]


class Always:
    """Tries one candidate, whether it has a place or not."""

    def __init__(self, candidate):
        self.candidate = candidate

    def reset(self, seed):
        pass

    def choose(self, at, observation):
        return self.candidate


def test_a_candidate_that_has_no_place_is_learned_as_turning_the_job_away(scenario, tiny, monkeypatch):
    # As published, rules may try what their mask wrongly shows; the job is then turned away.
    four = 5
    assert (scenario.candidate_degree[four], scenario.candidate_rule[four]) == (4, "first-fit")
    monkeypatch.setattr(cloning, "teacher", lambda name, scenario: Always(four))
    network = taught(scenario, tiny, "any", steps=1024)
    batch = EpisodeBatch(scenario, 8)
    for e in range(8):
        batch.reset(e, np.random.default_rng(e))
    right, placed = [], 0
    for _ in range(30):
        seen = {key: torch.as_tensor(value) for key, value in batch.observations.current().items()}
        is_offered = seen["action_mask"][:, four] > 0
        with torch.no_grad():
            ours = network(seen)[0].argmax(dim=1)
        right += (ours == torch.where(is_offered, four, 0)).tolist()
        placed += int(is_offered.sum())
        batch.step(np.full(8, four))
    assert 20 < placed < 220
    assert np.mean(right) >= 0.95


def test_a_network_that_must_not_turn_jobs_away_learns_from_the_other_choices(scenario, tiny):
    # fixed-2 turns away jobs that two devices do not suit, though others would do: this cannot be learned, and does no harm.
    network = taught(scenario, tiny, "fixed-2@best-fit", without=("reject",))
    ours, theirs, offered = choices(network, scenario, "fixed-2@best-fit", seeds=range(6)).T
    assert ((theirs == 0) & (offered > 1)).sum() > 10
    assert (ours == theirs)[theirs > 0].mean() >= 0.95
    assert (ours > 0)[offered > 1].all()


def test_nothing_is_learned_where_nothing_can_be(scenario, tiny, monkeypatch):
    def can_reject(seen):
        return (ablated(seen, ("reject",))["action_mask"][:, 0] > 0).any()

    monkeypatch.setattr(cloning, "teacher", lambda name, scenario: Always(0))
    env = CentredReward(JobPartitioningVecEnv(scenario, 8, tiny.reward, 0))
    seen = {key: torch.as_tensor(value) for key, value in env.reset().items()}
    assert not can_reject(seen)  # an empty cluster: the rejection is not the only candidate
    torch.manual_seed(7)
    before = CandidateNetwork(NetworkSettings(**WIDTHS, without=("reject",)), static_features(scenario)).state_dict()
    learned = taught(scenario, tiny, "any", steps=8, without=("reject",)).state_dict()
    changed = [name for name, weight in before.items() if not torch.equal(weight, learned[name])]
    assert changed == []


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("fixd-2", "unknown policy"),
        ("fixed-3", "no block of 3 devices"),
        ("fixed-2@aligned", "is not among the scenario's placement rules"),
        ("best-fixed", "unknown policy"),
    ],
)
def test_a_baseline_that_cannot_be_imitated_is_told_in_one_line_and_leaves_no_run_folder(chosen, scenario, tmp_path, rule, told):
    wanted = chosen.model_copy(update={"pretraining": RulePretraining(kind="rule", rule=rule)})
    with pytest.raises(PolicyError, match=told) as caught:
        train(wanted, tmp_path / "run", scenario=scenario)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
