"""Accumulating Adam as it is exported: Adam where it accumulates nothing, and one cycle worked by hand."""

import pytest

from meshwright.export.training import ACCUMULATING_ADAM

torch = pytest.importorskip("torch")

GRADIENTS = ((1.0, -2.0), (0.5, 3.0), (-1.5, 1.0), (2.0, 0.25), (0.1, -0.2))


def _optimizer(params, **keys):
    made = {"torch": torch}
    exec(ACCUMULATING_ADAM.format(accum_iter=4), made)
    return made["AccumAdam"](params, **keys)


def _weights(make):
    weight = torch.nn.Parameter(torch.tensor([1.0, -1.0], dtype=torch.float64))
    optimizer, results = make([weight]), []
    for gradient in GRADIENTS:
        weight.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
        results.append(weight.detach().clone())
    return torch.stack(results)


def test_with_one_step_a_cycle_it_is_adam():
    ours = _weights(lambda params: _optimizer(params, lr=0.1, accum_iter=1))
    assert torch.allclose(ours, _weights(lambda params: torch.optim.Adam(params, lr=0.1)), rtol=1e-12, atol=0)
    assert not torch.allclose(ours, _weights(lambda params: _optimizer(params, lr=0.1, accum_iter=2)))


def test_two_steps_a_cycle_worked_by_hand():
    # First weight, betas 0.9 and 0.99, lr 1. Step 1: m = 0.1 x 1, v = 0.01 x 1, both corrected to 1: -1. Step 2, no flush yet and
    # the same correction: m = 0.05 / 0.1, v = 0.0025 / 0.01: 0.5 / 0.5. Then m = 0.9 x 0.1 x 0.75 = 0.0675 and v = 0.99 x 0.01 x
    # 0.5625 = 0.00556875. Step 3: (0.0675 - 0.15) / 0.19 over the root of (0.00556875 + 0.0225) / 0.0199.
    result = _weights(lambda params: _optimizer(params, lr=1.0, betas=(0.9, 0.99), eps=0.0, accum_iter=2))[:3, 0].tolist()
    third = (0.0675 - 0.15) / 0.19 / ((0.00556875 + 0.0225) / 0.0199) ** 0.5
    assert result == pytest.approx([0.0, -1.0, -1.0 - third])
