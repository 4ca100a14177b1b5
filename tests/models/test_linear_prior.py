"""The linear scorer within a network: the same scores one by one and side by side, the same choices as by itself, its file."""

import dataclasses

import numpy as np
import pytest
import torch

from meshwright.envs.batch import EpisodeBatch
from meshwright.envs.benchmark import load_benchmark
from meshwright.envs.static_features import static_features
from meshwright.errors import CheckpointError, PolicyError
from meshwright.models.linear_prior import KEY, LinearPrior
from meshwright.models.saved import NetworkPolicy, SavedNetwork
from meshwright.planners.linear import FEATURES, LinearScorer, LinearWeights
from meshwright.simulation.cluster.decision import decision
from tests.small_benchmarks import with_events

RULES = ("first-fit", "best-fit")


@pytest.fixture
def weights():
    return LinearWeights(np.random.default_rng(5).normal(size=len(FEATURES)), RULES)


@pytest.fixture
def network(quickstart, random_network):
    return random_network(quickstart, has_prior=True)


def decisions(batch, seed, num_steps):
    """Decisions of two episodes, the second one a few jobs ahead, each with the batch as it is then."""
    rng = np.random.default_rng(seed)
    for e in range(2):
        batch.reset(e, np.random.default_rng(seed + e))
    for t in range(num_steps):
        for e in range(2):
            yield e, decision(batch.scenario, batch.episodes, e)
        actions = (rng.random(batch.observations.action_mask.shape) * batch.observations.action_mask).argmax(axis=1)
        batch.step(actions, np.array([t >= 5, True]))


@pytest.mark.parametrize("has_events", [False, True])  # a queue, failures and preemption
def test_scores_are_the_same_one_by_one_and_side_by_side(quickstart, weights, has_events):
    scenario = with_events(load_benchmark("preset:quickstart")).build() if has_events else quickstart
    batch, prior = EpisodeBatch(scenario, 2), LinearPrior(weights, scenario)
    for e, now in decisions(batch, 1, 40):
        result = prior.of_episodes(batch.episodes)[e]
        np.testing.assert_array_equal(result, prior.of_decision(now))
        assert result.dtype == np.float32
        assert (result[1:][~np.asarray(now.can_place)[1:]] == 0).all()


def test_the_arrival_that_ends_an_episode_is_scored_too(quickstart, weights):
    batch, prior = EpisodeBatch(quickstart, 1), LinearPrior(weights, quickstart)
    batch.reset(0, np.random.default_rng(0))
    while not batch.is_over.all():
        batch.step(batch.observations.action_mask.argmax(axis=1) * 0 + batch.observations.action_mask[:, 1:].argmax(axis=1) + 1)
    offered = batch.observations.action_mask[0] > 0
    assert (prior.of_episodes(batch.episodes)[0] != 0).tolist() == offered.tolist()
    assert offered[1:].any()


def test_a_candidate_of_several_blocks_scores_nothing(quickstart, weights):
    batch, prior = EpisodeBatch(quickstart, 1), LinearPrior(weights, quickstart)
    batch.reset(0, np.random.default_rng(0))
    now = decision(quickstart, batch.episodes, 0)
    several = now.block.copy()
    first = int(np.flatnonzero(now.can_place)[1])
    several[first] = quickstart.space.num_blocks + 3  # as the published rule numbers them
    result = prior.of_decision(dataclasses.replace(now, block=several))
    expected = prior.of_decision(now)
    assert expected[first] != 0
    np.testing.assert_array_equal(result, np.where(np.arange(len(result)) == first, 0, expected))


def test_episodes_with_candidates_of_several_blocks_are_not_scored(quickstart, weights, changed):
    several = changed(quickstart, placement_rules=("published", "first-fit"))
    with pytest.raises(PolicyError, match=r"placement_rules: a linear scorer reads candidates of single blocks .*'published'"):
        LinearPrior(weights, several).of_episodes(EpisodeBatch(quickstart, 1).episodes)


def test_a_network_that_hears_the_scorer_alone_chooses_as_it_does(quickstart, network, weights):
    with torch.no_grad():
        network.prior_sharpness.fill_(1e6)
    ours = NetworkPolicy("mine", SavedNetwork.from_network(network, {"rules": list(RULES)}, prior=weights), quickstart)
    theirs, prior = LinearScorer("linear", weights, quickstart), LinearPrior(weights, quickstart)
    batch, counts = EpisodeBatch(quickstart, 2), set()
    for e, now in decisions(batch, 2, 60):
        seen = {key: value[e] for key, value in batch.observations.current().items()}
        choice, scores = ours.choose(now, seen), prior.of_decision(now)
        assert scores[choice] == pytest.approx(scores[theirs.choose(now, {})], abs=1e-5)  # among equals any may be taken
        counts.add(choice)
    assert len(counts) > 2


def test_at_first_the_scorer_is_not_heard(quickstart, random_network, observations):
    network = random_network(quickstart, has_prior=True)
    with torch.no_grad():
        network.prior_sharpness.fill_(0.0)
    seen = observations(quickstart)
    results = [network({**seen, KEY: torch.full(seen["action_mask"].shape, figure)})[0] for figure in (0.0, 9.0)]
    torch.testing.assert_close(*results, rtol=0, atol=0)


def test_it_comes_back_from_a_file(network, weights, tmp_path):
    path = tmp_path / "policy.pt"
    SavedNetwork.from_network(network, {}, prior=weights).save(path)
    saved = SavedNetwork.load(path)
    np.testing.assert_array_equal(saved.prior.weights, weights.weights)
    assert saved.prior.placement_rules == RULES
    saved.save(tmp_path / "again.pt")
    assert (tmp_path / "again.pt").read_bytes() == path.read_bytes()


def test_a_file_without_it_is_refused(network, weights, quickstart, tmp_path):
    path = tmp_path / "policy.pt"
    saved = SavedNetwork.from_network(network, {}, prior=weights)
    dataclasses.replace(saved, prior=None).save(path)
    with pytest.raises(CheckpointError) as caught:
        SavedNetwork.load(path).network(static_features(quickstart))
    assert str(caught.value) == f"{path}: the weights do not fit the widths in the file"


def test_a_scorer_for_other_features_is_refused(network, weights, tmp_path):
    data = SavedNetwork.from_network(network, {}, prior=weights).to_data()
    data["prior"]["features"] = "others"
    with pytest.raises(CheckpointError, match="was tuned for other features than these; tune it again"):
        SavedNetwork.from_data(data, tmp_path / "policy.pt")
