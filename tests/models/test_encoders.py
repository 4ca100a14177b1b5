"""Sets while they learn, against torch's own operations."""

from __future__ import annotations

import pytest
import torch

from meshwright.models.encoders import SetEncoder


@pytest.mark.parametrize("shape", [(1, 1, 1), (6, 40, 18), (32, 7, 2)])
def test_a_set_that_learns_has_the_values_and_gradients_of_torchs_own_operations(shape):
    torch.manual_seed(0)
    members, encoder = torch.randn(shape, dtype=torch.float64), SetEncoder(shape[2], 5).double()
    towards = torch.randn(shape[1], encoder.size, dtype=torch.float64)
    found = encoder(members)
    found.backward(towards)
    gradients = [weight.grad.clone() for weight in encoder.parameters()]
    encoder.zero_grad()
    lifted = torch.relu(encoder.lift(members))
    wanted = torch.cat([lifted.mean(dim=0), lifted.amax(dim=0)], dim=1)
    wanted.backward(towards)
    torch.testing.assert_close(found, wanted)
    for gradient, weight in zip(gradients, encoder.parameters(), strict=True):
        torch.testing.assert_close(gradient, weight.grad, rtol=1e-5, atol=1e-6)


def test_equal_members_pay_once_for_the_maximum_and_members_below_zero_not_at_all():
    encoder = SetEncoder(1, 1)
    with torch.no_grad():
        encoder.lift.weight.fill_(1.0)
        encoder.lift.bias.zero_()
    encoder(torch.tensor([[[2.0]], [[2.0]], [[-1.0]]])).backward(torch.tensor([[3.0, 1.0]]))
    # Mean: 3 / 3 x (2 + 2); maximum: 1 x 2, of one of the two; and the same of the bias without the members.
    assert encoder.lift.weight.grad.item() == pytest.approx(6.0)
    assert encoder.lift.bias.grad.item() == pytest.approx(3.0)
