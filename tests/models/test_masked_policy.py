"""The network as a policy of MaskablePPO."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from meshwright.envs.batch import EpisodeBatch
from meshwright.envs.static_features import static_features
from meshwright.models.masked_policy import ScorePolicy
from meshwright.models.network import CandidateNetwork
from meshwright.models.settings import NetworkSettings


@pytest.fixture
def policy(quickstart):
    torch.manual_seed(0)
    network = CandidateNetwork(NetworkSettings(hidden=16), static_features(quickstart))
    made = ScorePolicy(
        EpisodeBatch(quickstart, 1).space,
        spaces.Discrete(quickstart.problem.num_candidates),
        lambda _: 1e-3,
        make_network=lambda: network,
    )
    torch.nn.init.normal_(made.network.score[-1].weight, std=3.0)
    return made


def test_a_candidate_that_is_not_offered_has_probability_zero(policy, observations, quickstart):
    seen = observations(quickstart, num=20)
    shares = policy.get_distribution(seen).distribution.probs
    masked = seen["action_mask"] == 0
    assert (shares[masked] == 0).all()
    assert (shares[~masked] > 0).all()
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(20))


def test_draws_follow_the_probabilities(policy, observations, quickstart):
    seen = observations(quickstart, num=1, steps=0)
    with torch.no_grad():
        shares = policy.get_distribution(seen).distribution.probs[0]
        drawn = policy({key: value.repeat(20_000, *([1] * (value.ndim - 1))) for key, value in seen.items()})[0]
    counted = torch.bincount(drawn, minlength=len(shares)) / 20_000
    # Five standard deviations of a share of one half.
    assert (counted - shares).abs().max() < 5 * (0.25 / 20_000) ** 0.5


def test_log_probabilities_and_entropy_agree_with_the_distribution(policy, observations, quickstart):
    seen = observations(quickstart)
    actions, values, log_share = policy(seen)
    again, log_share_again, entropy = policy.evaluate_actions(seen, actions)
    distribution = policy.get_distribution(seen)
    torch.testing.assert_close(values, again)
    assert values.shape == (6, 1)
    torch.testing.assert_close(log_share, log_share_again)
    torch.testing.assert_close(log_share, distribution.log_prob(actions))
    torch.testing.assert_close(entropy, distribution.entropy())
    torch.testing.assert_close(policy.predict_values(seen), values)
    # Entropy by hand: over the offered candidates alone.
    shares = torch.softmax(policy.network(seen)[0][0][seen["action_mask"][0] > 0], dim=0)
    torch.testing.assert_close(entropy[0], -(shares * shares.log()).sum())


def test_the_best_candidate_is_taken_without_chance(policy, observations, quickstart):
    seen = observations(quickstart)
    with torch.no_grad():
        best = policy.network(seen)[0].argmax(dim=1)
        assert torch.equal(policy(seen, deterministic=True)[0], best)
    one = {key: value[2].numpy() for key, value in seen.items()}
    assert int(policy.predict(one, deterministic=True)[0]) == int(best[2])


def test_changing_the_mode_drops_what_the_network_kept(policy):
    # The optimizer is fused in training, and PyTorch does not count what a fused one changes.
    with torch.no_grad():
        before = policy.network.graph_embeddings().clone()
    policy.set_training_mode(True)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.1, fused=True)
    policy.network.graph_embeddings().sum().backward()
    optimizer.step()
    policy.set_training_mode(False)
    with torch.no_grad():
        assert not torch.allclose(policy.network.graph_embeddings(), before)


def test_a_mask_of_the_caller_forbids_more(policy, observations, quickstart):
    seen = observations(quickstart)
    only_rejection = np.zeros(seen["action_mask"].shape, bool)
    only_rejection[:, 0] = True
    with torch.no_grad():
        actions, _, log_share = policy(seen, action_masks=only_rejection)
    assert actions.tolist() == [0] * 6
    torch.testing.assert_close(log_share, torch.zeros(6))
    one = {key: value[0].numpy() for key, value in seen.items()}
    assert int(policy.predict(one, action_masks=only_rejection[0])[0]) == 0


def test_where_only_the_rejection_is_offered_nothing_is_to_be_learnt(policy, observations, quickstart):
    seen = observations(quickstart)
    seen["action_mask"][:, 1:] = 0
    _, log_share, entropy = policy.evaluate_actions(seen, torch.zeros(6, dtype=torch.long))
    (log_share.sum() + entropy.sum()).backward()
    assert log_share.tolist() == [0.0] * 6
    assert entropy.tolist() == [0.0] * 6
    gradients = [weight.grad for weight in policy.parameters() if weight.grad is not None]
    assert all(gradient.isfinite().all() and not gradient.any() for gradient in gradients)
