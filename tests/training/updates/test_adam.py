"""Adam without the compiler takes torch's steps."""

import pytest
import torch

from meshwright.training.updates.adam import EagerAdam


@pytest.mark.parametrize("options", [{}, {"fused": True, "eps": 1e-5}, {"weight_decay": 0.1, "amsgrad": True}])
def test_its_steps_and_state_are_those_of_torch(options):
    torch.manual_seed(0)
    first, second = (torch.nn.Linear(5, 3) for _ in range(2))
    second.load_state_dict(first.state_dict())
    ours, theirs = EagerAdam(first.parameters(), lr=0.01, **options), torch.optim.Adam(second.parameters(), lr=0.01, **options)
    for _ in range(5):
        inputs = torch.randn(7, 5)
        for network, optimizer in ((first, ours), (second, theirs)):
            optimizer.zero_grad()
            network(inputs).square().sum().backward()
            optimizer.step()
    for own, its in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(own, its)
        assert own.grad_fn is None
        assert own.requires_grad
    theirs.load_state_dict(ours.state_dict())
    assert ours.state_dict()["param_groups"] == theirs.state_dict()["param_groups"]


def test_a_closure_is_asked_and_no_gradient_is_recorded():
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = EagerAdam([weight], lr=0.1)

    def loss():
        optimizer.zero_grad()
        value = weight.square().sum()
        value.backward()
        return value

    assert optimizer.step(loss).item() == 2.0
    assert torch.allclose(weight.detach(), torch.full((2,), 0.9))
