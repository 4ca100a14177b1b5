"""Each family computes once on small shapes what a plain formula gives in float64; else nothing of it may be written."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ...errors import MeasurementError
from .kernel_runs import DECAY, DROPOUT, EPSILON, MAX_NORM, RATE, kernel_run
from .kernel_suite import small
from .kernel_table import FusedAttentionItem, LayerItem, LossItem, OptimizerItem, ProductItem, StreamItem
from .layer_runs import GptLayer

TOLERANCE = 0.03
"""Of the norm of the error over that of the result: bf16 keeps 8 bits (0.4 %), and a layer rounds a dozen times."""

LAYER_TOLERANCE = 0.1
"""The same of the gradients of a layer, through which all its roundings and those of its weights go (2 % on small shapes)."""

Operands = dict[str, Tensor]


def check(family: str, device: torch.device) -> None:
    """Compare a family with float64; families that only measure time are not compared.

    Raises:
        MeasurementError: the result is wrong.
    """
    if family == "layer":
        _check_layer(device)
    for item in small(family) if family in _FORMULAS else ():
        run = kernel_run(item, device)  # type: ignore[arg-type]
        operands = {name: one.detach().clone() for name, one in run.operands.items()}
        found = run.call()
        found = found if isinstance(found, tuple) else (found,)
        if item.name == "dropout":
            _check_share(found[1])
            operands["mask"] = found[1]
        exact = {name: one.double() if one.is_floating_point() else one for name, one in operands.items()}
        if isinstance(item, OptimizerItem):
            found = (found[0].double() - exact["master"],)
        wanted = _FORMULAS[family](item, exact)
        for one, other in zip(found[: len(wanted)], wanted, strict=True):
            hold(f"{family}, {item.name}", one, other)


def hold(what: str, found: Tensor, wanted: Tensor, tolerance: float = TOLERANCE) -> None:
    """Refuse a result that is farther off than ``tolerance`` of its norm, or not finite.

    Raises:
        MeasurementError: it is.
    """
    found, wanted = found.detach().double(), wanted.detach().double()
    error = float((found - wanted).norm() / wanted.norm())
    if not error <= tolerance:
        raise MeasurementError(
            f"{what}: the result is wrong by {error:.2g} of its norm; nothing is written", field=str(found.device)
        )


def _check_share(mask: Tensor) -> None:
    share = float(mask.double().mean())
    if not abs(share - (1 - DROPOUT)) < 0.05:
        raise MeasurementError(f"dropout keeps {share:.2f} of its numbers, not {1 - DROPOUT}; nothing is written")


def _gradients(formula: Callable[[Operands], Tensor], operands: Operands, inputs: str, gradient: Tensor) -> tuple[Tensor, ...]:
    """Of a formula's result by its inputs that it depends on, named in one text."""
    wanted = [operands[name].requires_grad_() for name in inputs.split()]
    found = torch.autograd.grad(formula(operands), wanted, gradient, allow_unused=True)
    return tuple(one for one in found if one is not None)


def _product(item: ProductItem, operands: Operands) -> tuple[Tensor, ...]:
    return (operands["first"] @ operands["second"],)


def _fused_attention(item: FusedAttentionItem, operands: Operands) -> tuple[Tensor, ...]:
    def attention(of: Operands) -> Tensor:
        scores = of["q"] @ of["k"].mT / math.sqrt(of["q"].shape[-1])
        if item.is_causal:
            scores = scores + torch.full_like(scores, -math.inf).triu(1)
        return scores.softmax(-1) @ of["v"]

    return _gradients(attention, operands, "q k v", operands["gradient"]) if item.is_backward else (attention(operands),)


def _stream(item: StreamItem, operands: Operands) -> tuple[Tensor, ...]:
    x, y, bias = operands["x"], operands["y"], operands["bias"]
    if item.name.startswith("dropout"):
        return ((y if item.name.endswith("gradient") else x) * operands["mask"] / (1 - DROPOUT),)
    formulas: dict[str, Callable[[Operands], Tensor]] = {
        "copy": lambda of: x,
        "add": lambda of: x + y,
        "gelu": lambda of: functional.gelu(of["x"]),
        "bias and gelu": lambda of: functional.gelu(x + bias),
        "norm": lambda of: functional.layer_norm(of["x"], [x.shape[-1]], of["weight"], of["bias"]),
        "softmax": lambda of: of["x"].softmax(-1),
    }
    name = item.name.removesuffix(" gradient")
    return (formulas[name](operands),) if name == item.name else _gradients(formulas[name], operands, "x weight bias", y)


def _loss(item: LossItem, operands: Operands) -> tuple[Tensor, ...]:
    def loss(of: Operands) -> Tensor:
        return functional.cross_entropy(of["logits"], of["targets"], reduction="none")

    ones = torch.ones(item.tokens, dtype=torch.float64, device=operands["logits"].device)
    return _gradients(loss, operands, "logits", ones) if item.is_backward else (loss(operands),)


def _optimizer(item: OptimizerItem, operands: Operands) -> tuple[Tensor, ...]:
    """The change: the first step of AdamW moves each number by the rate, against its gradient's sign, after the decay."""
    gradient, master = operands["gradient"], operands["master"]
    if item.is_clipped:
        gradient = gradient * min(1.0, MAX_NORM / float(gradient.norm()))
    return (-master * RATE * DECAY - RATE * gradient / (gradient.abs() + EPSILON),)


_FORMULAS: dict[str, Callable[[Any, Operands], tuple[Tensor, ...]]] = {
    "product": _product,
    "attention_product": _product,
    "fused_attention": _fused_attention,
    "stream": _stream,
    "loss": _loss,
    "optimizer": _optimizer,
}


def _check_layer(device: torch.device) -> None:
    """Fused and unfused in bf16 against the same weights in float64, unfused; output and gradients."""
    items = {item.attention: item for item in small("layer") if isinstance(item, LayerItem)}
    plain = items["unfused"]
    wanted_layer = GptLayer(plain, device=device, dtype=torch.float64)
    shape = plain.micro_batch, plain.sequence_length, plain.hidden
    wanted_x = torch.randn(shape, device=device, dtype=torch.float64, requires_grad=True)
    wanted = wanted_layer(wanted_x)
    gradient = torch.randn_like(wanted)
    wanted_gradients = torch.autograd.grad(wanted, [wanted_x, *wanted_layer.parameters()], gradient)
    for attention, item in items.items():
        layer = GptLayer(item, device=device)
        layer.load_state_dict(wanted_layer.state_dict(), strict=False)
        x = wanted_x.detach().to(torch.bfloat16).requires_grad_()
        found = layer(x)
        hold(f"{attention} layer", found, wanted)
        gradients = torch.autograd.grad(found, [x, *layer.parameters()], gradient.to(torch.bfloat16))
        for one, other in zip(gradients, wanted_gradients, strict=True):
            hold(f"{attention} layer, gradient", one, other, LAYER_TOLERANCE)
