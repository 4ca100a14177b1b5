"""The network there and back by hand is PyTorch's own, for every setting of the network.

What is held against is the network in double precision, which PyTorch differentiates by its own operations alone.
"""

import copy

import pytest
import torch

from meshwright.models.learned.network import NetworkPass
from meshwright.models.linear_prior import KEY as PRIOR

# Of the norm of what is compared. In single precision, sums that cancel round by up to 6e-6 of what is left of them.
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5}
AFTER = {"after": (12, 7)}
SETTINGS = {
    "plain": {},
    "one round": {"graph_rounds": 1},
    "no rounds": {"graph_rounds": 0},
    "after": AFTER,
    "after, own weights": {**AFTER, "kind_hidden": None},
    "after, other kinds": {**AFTER, "kind_hidden": 5},
    "after, standardised": {**AFTER, "standardised": True},
    "prior": {"prior": True},
    "prior and after": {**AFTER, "prior": True},
    "without graph": {"without": ("graph",)},
    "without look-ahead": {**AFTER, "without": ("look-ahead",)},
    "without time-to-free": {**AFTER, "without": ("time-to-free",)},
    "without reject": {"without": ("reject",)},
    "without any": {**AFTER, "prior": True, "without": ("graph", "look-ahead", "time-to-free", "reject")},
}


@pytest.fixture(scope="module")
def scenario(foreseeing, changed):
    return changed(foreseeing, num_recent=3)


@pytest.fixture(scope="module")
def seen(scenario, observations):
    found = observations(scenario)
    generator = torch.Generator().manual_seed(1)
    return found | {PRIOR: torch.randn(found["action_mask"].shape, generator=generator)}


@pytest.fixture
def drawn(scenario, random_network):
    """A network none of whose weights, nor its scale of values, is as begun."""

    def made(**chosen):
        network = random_network(scenario, **chosen)
        with torch.no_grad():
            for weight in network.parameters():
                weight.add_(0.1 * torch.randn_like(weight))
            for name, buffer in network.named_buffers():
                if name.endswith(("value_scale", "recent_mean", "recent_scale")):
                    buffer.add_(0.5)
        return network

    return made


def by_hand(network, seen, towards):
    """Scores, values and the gradient of each weight, where ``towards`` gives the gradients of scores and values."""
    for weight in network.parameters():
        weight.grad = torch.zeros_like(weight)
    one = NetworkPass(network)
    scores, values = one.there(network.laid_out(seen))
    one.back(*towards(scores, values))
    return scores, values, {name: weight.grad for name, weight in network.named_parameters()}


def by_torch(network, seen, towards):
    """The same by PyTorch."""
    network.zero_grad(set_to_none=True)
    scores, values = network.offered_scores(network.laid_out(seen))
    torch.autograd.backward((scores, values), towards(scores, values))
    gradients = {
        name: torch.zeros_like(weight) if weight.grad is None else weight.grad for name, weight in network.named_parameters()
    }
    return scores.detach(), values.detach(), gradients


def doubled(network, seen):
    """A copy of a network, and observations, in double precision."""
    twice = {key: value.double() if value.is_floating_point() else value for key, value in seen.items()}
    return copy.deepcopy(network).double(), twice


def drawn_direction(scores, values):
    generator = torch.Generator().manual_seed(2)
    return tuple(torch.randn(one.shape, generator=generator).to(one.dtype) for one in (scores, values))


def assert_near(ours, theirs, what):
    assert ours.shape == theirs.shape, what
    apart, norm = float((ours.double() - theirs).norm()), float(theirs.norm())
    assert apart <= TOLERANCES[ours.dtype] * norm, what


def assert_same_passes(network, seen, towards=drawn_direction):
    twice = doubled(network, seen)
    wanted_scores, wanted_values, wanted = by_torch(*twice, towards)
    for made in ((network, seen), twice):
        scores, values, gradients = by_hand(*made, towards)
        assert_near(scores, wanted_scores, "scores")
        assert_near(values, wanted_values, "values")
        assert gradients.keys() == wanted.keys()
        for name, gradient in wanted.items():
            assert_near(gradients[name], gradient, name)


@pytest.mark.every(3)
@pytest.mark.parametrize("chosen", SETTINGS.values(), ids=SETTINGS)
def test_values_and_every_gradient_are_those_of_torch(drawn, seen, chosen):
    assert_same_passes(drawn(**chosen), seen)


@pytest.mark.parametrize("chosen", [{}, {**AFTER, "prior": True}], ids=["plain", "prior and after"])
def test_one_decision_alone(drawn, seen, chosen):
    for number in (0, 3):
        assert_same_passes(drawn(**chosen), {key: value[number : number + 1] for key, value in seen.items()})


def test_values_computed_before(drawn, seen):
    generator = torch.Generator().manual_seed(3)
    made = torch.randn((*seen["action_mask"].shape, 1 + AFTER["after"][1]), generator=generator)
    assert_same_passes(drawn(**AFTER), seen | {"candidate_after": made})


def test_a_pass_adds_to_gradients_and_keeps_nothing_of_the_one_before(drawn, seen):
    network = drawn(**AFTER, prior=True)
    one, gradients = NetworkPass(network), []
    for weight in network.parameters():
        weight.grad = torch.zeros_like(weight)
    for samples in (slice(0, 4), slice(4, 6), slice(0, 4)):
        one.back(*drawn_direction(*one.there(network.laid_out({key: value[samples] for key, value in seen.items()}))))
        gradients.append(torch.cat([weight.grad.flatten() for weight in network.parameters()]))
    first, second, third = gradients
    assert not torch.allclose(first, second)
    torch.testing.assert_close(third - second, first, rtol=1e-4, atol=1e-4)
