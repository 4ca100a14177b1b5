"""Calls that are timed compute what they say: on small shapes, what a plain formula gives in float64."""

import pytest
import torch

from meshwright.evaluation.calibration.kernel_runs import DROPOUT, kernel_run
from meshwright.evaluation.calibration.layer_runs import GptLayer

from .kernel_formulas import FORMULAS, small

CPU = torch.device("cpu")


def error(found, expected):
    found, expected = found.detach().double(), expected.detach().double()
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("family", FORMULAS)
def test_every_family_computes_what_it_says(family):
    torch.manual_seed(0)
    for item in small(family):
        run = kernel_run(item, CPU)
        operands = {name: one.detach().clone() for name, one in run.operands.items()}
        result = run.call()
        result = result if isinstance(result, tuple) else (result,)
        if item.name == "dropout":
            operands["mask"] = result[1]
            assert abs(float(result[1].double().mean()) - (1 - DROPOUT)) < 0.05
        exact = {name: one.double() if one.is_floating_point() else one for name, one in operands.items()}
        if family == "optimizer":
            result = (result[0].double() - exact["master"],)
        expected = FORMULAS[family](item, exact)
        # bf16 keeps 8 bits (0.4 %)
        assert all(error(*pair) < 0.03 for pair in zip(result, expected, strict=False)), item.name


def test_a_layer_fused_and_unfused_is_the_same_in_float64():
    torch.manual_seed(0)
    items = {item.attention: item for item in small("layer")}
    plain = items["unfused"]
    exact = GptLayer(plain, device=CPU, dtype=torch.float64)
    exact_x = torch.randn((plain.micro_batch, plain.sequence_length, plain.hidden), dtype=torch.float64, requires_grad=True)
    expected = exact(exact_x)
    gradient = torch.randn_like(expected)
    wanted_gradients = torch.autograd.grad(expected, [exact_x, *exact.parameters()], gradient)
    for item in items.values():
        layer = GptLayer(item, device=CPU)
        layer.load_state_dict(exact.state_dict(), strict=False)
        x = exact_x.detach().to(torch.bfloat16).requires_grad_()
        result = layer(x)
        gradients = torch.autograd.grad(result, [x, *layer.parameters()], gradient.to(torch.bfloat16))
        assert error(result, expected) < 0.03
        assert all(error(*pair) < 0.1 for pair in zip(gradients, wanted_gradients, strict=True))  # all roundings of a layer
