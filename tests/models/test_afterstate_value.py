"""The value of the state after a candidate: its features from profiles, and the scores and values that follow from it."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from meshwright.envs.static_features import static_features
from meshwright.errors import CheckpointError
from meshwright.models.afterstate_value import LEAST_SCALE
from meshwright.models.encoders import KnownProfileEncoder, ProfileEncoder
from meshwright.models.network import NOT_OFFERED
from meshwright.models.saved import SavedNetwork

from ..draws import draws
from .scenarios import set_scenario

KEYS = ("candidate_shapes", "candidate_any", "candidate_ends", "episode")


@pytest.fixture
def network(foreseeing, random_network):
    made = random_network(foreseeing, after=(12, 7))
    with torch.no_grad():
        made.log_sharpness.fill_(0.5)
    return made


# --- profiles ---


def encoder(seed=0, **sizes):
    torch.manual_seed(seed)
    return ProfileEncoder(**{"features": 3, "num_slots": 4, "width": 5, "hidden": 6, **sizes})


@draws(5)
@given(seed=st.integers(0, 1000), num_kinds=st.integers(1, 6))
def test_over_known_kinds_it_is_one_linear_layer(seed, num_kinds):
    encode, kinds = encoder(seed), torch.rand(num_kinds, 3)
    # A layer's weights are what it makes of one slot of one kind at a time.
    weights = encode(kinds, torch.eye(num_kinds * 4).reshape(-1, num_kinds, 4))
    profiles = torch.rand(7, num_kinds, 4)
    torch.testing.assert_close(encode(kinds, profiles), profiles.flatten(1) @ weights, rtol=1e-4, atol=1e-5)
    # Weights of each kind follow from its features alone, and the sum of many varies as that of few does.
    for kind in range(num_kinds):
        alone = encode(kinds[kind : kind + 1], profiles[:, kind : kind + 1])
        zeros = torch.zeros_like(profiles)
        zeros[:, kind] = profiles[:, kind]
        torch.testing.assert_close(encode(kinds, zeros), alone / num_kinds**0.5, rtol=1e-4, atol=1e-5)


def test_a_profile_worked_by_hand():
    encode = encoder(features=1, num_slots=2, width=1, hidden=1)
    with torch.no_grad():
        for layer, weight, bias in ((encode.weights[0], [[2.0]], [1.0]), (encode.weights[2], [[1.0], [10.0]], [0.0, 3.0])):
            layer.weight.copy_(torch.tensor(weight))
            layer.bias.copy_(torch.tensor(bias))
        # Kinds 0 and 1 have 2 x 0 + 1 = 1 and 2 x 1 + 1 = 3 inside, so slots weigh 1 and 13, 3 and 33:
        # (0.5 x 1 + 1 x 13 + 0 x 3 + 1 x 33) / sqrt(4) = 46.5 / 2
        result = encode(torch.tensor([[0.0], [1.0]]), torch.tensor([[[0.5, 1.0], [0.0, 1.0]]]))
    assert result.tolist() == [[23.25]]


def test_known_kinds_have_weights_of_their_own_wherever_they_stand_and_others_have_none():
    kinds, profiles, order = torch.rand(4, 3), torch.rand(7, 4, 4), torch.tensor([2, 0])
    encode = KnownProfileEncoder(kinds, 4, 5)
    torch.testing.assert_close(encode(kinds, profiles), profiles.flatten(1) @ encode.own.flatten(0, 1))
    assert torch.equal(encode.matrix(kinds[order]), encode.own[order])
    with pytest.raises(ValueError, match="not among those"):
        encode.matrix(torch.rand(2, 3))


# --- scores and values ---


def offered(seen, network):
    candidate_value = network.candidate_value_of(network.laid_out(seen))
    return candidate_value, (candidate_value.sample, candidate_value.candidate)


def test_a_score_is_what_a_candidate_is_worth_times_the_sharpness_and_a_correction(network, foreseeing, observations):
    seen = observations(foreseeing)
    with torch.no_grad():
        candidate_value, at = offered(seen, network)
        assert torch.equal(torch.stack(at), (seen["action_mask"] > 0).nonzero().T)
        corrections = []
        for sharpness in (0.25, 4.0):
            network.log_sharpness.fill_(torch.tensor(sharpness).log())
            scores = network(seen)[0]
            assert ((scores == NOT_OFFERED) == (seen["action_mask"] == 0)).all()
            corrections.append(scores[at] - sharpness * (candidate_value.immediate_reward + candidate_value.after))
        torch.testing.assert_close(*corrections, rtol=1e-3, atol=1e-4)
        assert corrections[0].abs().max() > 0.1
        network.score[-1].weight.zero_()
        network.score[-1].bias.zero_()
        torch.testing.assert_close(network(seen)[0][at], 4.0 * (candidate_value.immediate_reward + candidate_value.after))


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_a_value_is_the_expected_worth_in_the_unit_of_rewards_and_a_correction(network, foreseeing, observations, scale):
    seen = observations(foreseeing)
    with torch.no_grad():
        network.value_scale.fill_(scale)
        candidate_value, at = offered(seen, network)
        scores, values = network(seen)
        total = torch.zeros_like(scores)
        total[at] = candidate_value.immediate_reward + candidate_value.after
        expected = scale * (torch.softmax(scores, dim=1) * total).sum(dim=1)
        assert (values - expected).abs().max() > 0.1
        network.value[-1].weight.zero_()
        network.value[-1].bias.fill_(0.125)
        torch.testing.assert_close(network(seen)[1], expected + 0.125)
        torch.testing.assert_close(network.values(seen), expected + 0.125)


def taught(network):
    """The parts whose weights have a gradient."""
    return {name.split(".")[0] for name, weight in network.named_parameters() if weight.grad is not None and weight.grad.any()}


def test_ppo_teaches_the_sharpness_and_the_corrections_but_not_what_afterstates_are_worth(network, foreseeing, observations):
    scores, values = network(observations(foreseeing))
    (torch.log_softmax(scores, dim=1)[:, 0].sum() + values.sum()).backward()
    encoders = {"context", "graph_encoder", "device_encoder", "slot_encoder"}
    assert taught(network) == encoders | {"candidate", "candidate_context", "score", "value", "log_sharpness"}
    for name, weight in network.named_parameters():
        if not name.startswith(("after", "pays")):
            assert weight.grad.isfinite().all(), name
            assert weight.grad.any(), name
    # The errors of the value teach its own correction, not what is chosen.
    network.zero_grad()
    network(observations(foreseeing))[1].sum().backward()
    assert taught(network) == encoders | {"value"}
    # What afterstates are worth is taught by itself.
    network.zero_grad()
    candidate_value = network.candidate_value_of(network.laid_out(observations(foreseeing)))
    (candidate_value.immediate_reward + candidate_value.after).square().sum().backward()
    assert taught(network) == {"after", "pays"}


@pytest.mark.parametrize("key", KEYS)
def test_every_part_that_tells_of_the_future_matters(network, foreseeing, observations, key):
    seen = observations(foreseeing)
    with torch.no_grad():
        assert not torch.allclose(network(seen)[0], network(seen | {key: 1 - seen[key]})[0])


def test_the_worth_of_given_afterstates_is_that_of_the_candidates_that_lead_to_them(network, foreseeing, observations):
    seen = observations(foreseeing)
    with torch.no_grad():
        candidate_value, at = offered(seen, network)
        rows = {key: seen[key][at] for key in ("candidate_shapes", "candidate_any")}
        alone = network.afterstate_value({**rows, "episode": seen["episode"][candidate_value.sample]})
    torch.testing.assert_close(alone, candidate_value.after)


def test_shapes_and_degrees_are_told_by_their_features_and_not_by_their_places(network, foreseeing, observations):
    seen, static = observations(foreseeing), static_features(foreseeing)
    shapes, degrees = torch.randperm(len(static.shapes)), torch.randperm(len(static.degrees))
    with torch.no_grad():
        before = network.candidate_value_of(network.laid_out(seen))
        set_scenario(network, dataclasses.replace(static, shapes=static.shapes[shapes], degrees=static.degrees[degrees]))
        other = {
            "candidate_shapes": seen["candidate_shapes"][:, :, shapes],
            "candidate_any": seen["candidate_any"][:, :, degrees],
        }
        after = network.candidate_value_of(network.laid_out({**seen, **other}))
    torch.testing.assert_close(after.after, before.after)


def test_a_network_that_knows_one_cluster_alone_refuses_another(random_network, foreseeing, toy, changed, observations, tmp_path):
    network = random_network(foreseeing, after=(12, 7), kind_hidden=None)
    SavedNetwork.from_network(network, {"shape_slots": 6}).save(tmp_path / "policy.pt")
    saved = SavedNetwork.load(tmp_path / "policy.pt")
    back = saved.network(static_features(foreseeing))
    with torch.no_grad():
        torch.testing.assert_close(back(observations(foreseeing)), network(observations(foreseeing)), rtol=0, atol=0)
    fewer = changed(toy, shape_slots=6, max_degree=2)
    static = static_features(foreseeing)
    for other in (static_features(fewer), dataclasses.replace(static, shapes=static.shapes * 0.5)):
        with pytest.raises(CheckpointError, match="shapes of the cluster that it was trained on alone"):
            saved.network(other)


# --- observed ---


@pytest.mark.parametrize("kind_hidden", [None, 4])
@pytest.mark.parametrize("without", [(), ("time-to-free",)])
def test_the_observed_worth_is_that_of_the_layers(random_network, foreseeing, batch_of, without, kind_hidden):
    network, batch = random_network(foreseeing, after=(12, 7), without=without, kind_hidden=kind_hidden), batch_of(foreseeing)
    with torch.no_grad():
        seen = {key: torch.as_tensor(value) for key, value in batch.observations.current().items()}
        quick = {key: torch.as_tensor(value) for key, value in network.observed(batch.observations).items()}
        assert set(seen) - set(quick) == {"candidate_shapes", "candidate_any", "cluster_shapes", "cluster_any"}
        candidate_value, same = (
            network.candidate_value_of(network.laid_out(seen)),
            network.candidate_value_of(network.laid_out(quick)),
        )
        torch.testing.assert_close(same.after, candidate_value.after, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(same.hidden, candidate_value.hidden, rtol=1e-4, atol=1e-4)
        for slow, fast in zip(network(seen), network(quick), strict=True):
            torch.testing.assert_close(fast, slow, rtol=1e-3, atol=1e-3)
        assert candidate_value.after.std() > 0.01


@pytest.fixture
def recent(foreseeing, random_network, changed, batch_of):
    """A network that reads the latest arrivals in units of their spread over some episodes, and those arrivals."""
    seeing = changed(foreseeing, load_windows=(1.0, 4.0), deadline_windows=(2,), work_windows=(3.0,))
    network, batch = random_network(seeing, after=(12, 7), standardised=True), batch_of(seeing)
    reported = batch.observations.episode[:, 1:]
    network.after.standardise(reported)
    return network, batch, reported


def test_what_is_told_of_the_latest_arrivals_is_read_in_standard_deviations_from_its_mean(recent):
    network, batch, message = recent
    plain = network.after.episode(torch.as_tensor(batch.observations.episode))
    assert message.shape[1] == 5
    lifted = []
    network.after.second.register_forward_pre_hook(lambda _, values: lifted.append(torch.atanh(values[0])))
    seen = {key: torch.as_tensor(value.copy()) for key, value in batch.observations.current().items()}
    rows = {"candidate_shapes": seen["candidate_shapes"][:, 0], "candidate_any": seen["candidate_any"][:, 0]}
    with torch.no_grad():
        network.afterstate_value({**rows, "episode": seen["episode"]})
        weights, bias = network.after.episode.weight, network.after.episode.bias
        standard = (message - message.mean(axis=0)) / np.maximum(message.std(axis=0), LEAST_SCALE)
        expected = seen["episode"][:, :1] @ weights[:, :1].T + torch.as_tensor(standard) @ weights[:, 1:].T + bias
        others = network.after.shapes(network.static.shapes, rows["candidate_shapes"])
        others = others + network.after.degrees(network.static.degrees, rows["candidate_any"])
    torch.testing.assert_close(lifted[0], expected + others, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(plain, expected, atol=0.05)


def test_the_observed_worth_reads_the_latest_arrivals_as_the_layers_do(recent):
    network, batch, _ = recent
    seen = {key: torch.as_tensor(value.copy()) for key, value in batch.observations.current().items()}
    shown = {key: torch.as_tensor(value) for key, value in network.observed(batch.observations).items()}
    with torch.no_grad():
        torch.testing.assert_close(network(shown)[0], network(seen)[0], rtol=1e-4, atol=1e-4)


def test_how_far_it_varies_is_kept_with_the_weights(recent, tmp_path):
    network, _, message = recent
    trained = {"shape_slots": 6, "load_windows": [1.0, 4.0], "deadline_windows": [2], "work_windows": [3.0]}
    SavedNetwork.from_network(network, trained).save(tmp_path / "policy.pt")
    weights = SavedNetwork.load(tmp_path / "policy.pt").weights
    np.testing.assert_allclose(weights["after.recent_mean"].numpy(), message.mean(axis=0), rtol=1e-5)


def test_by_default_the_latest_arrivals_are_read_as_they_are(foreseeing, random_network, changed):
    network = random_network(changed(foreseeing, work_windows=(3.0,)), after=(12, 7))
    names = set(network.state_dict())
    network.after.standardise(np.float32([[1.0], [3.0]]))
    assert set(network.state_dict()) == names
    assert not any("recent" in name for name in names)
