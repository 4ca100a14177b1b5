"""Each family computes once on small shapes what a plain formula gives in float64; else nothing of it may be written."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from ...errors import MeasurementError
from .kernel_runs import DECAY, DROPOUT, EPSILON, MAX_NORM, RATE, kernel_run
from .kernel_suite import STREAMS, fused_attention_item, loss_item, stream_item
from .kernel_table import LayerItem, OptimizerItem, ProductItem
from .layer_runs import GptLayer

TOLERANCE = 0.03
"""Of the norm of the error over that of the result: bf16 keeps 8 bits (0.4 %), and a layer rounds a dozen times."""

LAYER_TOLERANCE = 0.1
"""The same of the gradients of a layer, through which all its roundings and those of its weights go (2 % on small shapes)."""


def check(family: str, device: torch.device) -> None:
    """Compare a family with float64; families that only measure time are not compared.

    Raises:
        MeasurementError: the result is wrong.
    """
    checks: dict[str, Callable[[torch.device], None]] = {
        "product": _check_product,
        "attention_product": _check_attention_product,
        "fused_attention": _check_fused_attention,
        "stream": _check_streams,
        "loss": _check_losses,
        "optimizer": _check_optimizer,
        "layer": _check_layer,
    }
    if family in checks:
        checks[family](device)


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


def _check_product(device: torch.device) -> None:
    for transposed in ("none", "first", "second"):
        shape = {"m": 130, "n": 72, "k": 200, "transposed": transposed}
        run = kernel_run(ProductItem.model_validate({"family": "product", "name": "check", **shape}), device)
        hold(f"product, transposed {transposed}", run.call(), run.operands["first"].double() @ run.operands["second"].double())


def _check_attention_product(device: torch.device) -> None:
    for transposed in ("none", "first", "second"):
        shape = {"m": 96, "n": 96, "k": 80, "batch": 3, "transposed": transposed}
        run = kernel_run(ProductItem.model_validate({"family": "attention_product", "name": "check", **shape}), device)
        wanted = run.operands["first"].double() @ run.operands["second"].double()
        hold(f"attention_product, transposed {transposed}", run.call(), wanted)


def _check_fused_attention(device: torch.device) -> None:
    for is_causal in (False, True):
        forward = kernel_run(fused_attention_item(2, 128, 64, is_causal=is_causal, is_backward=False), device)
        hold("fused_attention", forward.call(), _attention(forward.operands, is_causal))
        backward = kernel_run(fused_attention_item(2, 128, 64, is_causal=is_causal, is_backward=True), device)
        operands = {name: tensor.detach().double().requires_grad_() for name, tensor in backward.operands.items()}
        inputs = [operands[name] for name in "qkv"]
        wanted = torch.autograd.grad(_attention(operands, is_causal), inputs, operands["gradient"].detach())
        for name, one, other in zip("qkv", backward.call(), wanted, strict=True):
            hold(f"fused_attention, gradient of {name}", one, other)


def _attention(operands: dict[str, Tensor], is_causal: bool) -> Tensor:
    q, k, v = (operands[name].double() for name in "qkv")
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if is_causal:
        scores = scores + torch.full_like(scores, -math.inf).triu(1)
    return scores.softmax(-1) @ v


def _check_streams(device: torch.device) -> None:
    for name in STREAMS:
        run = kernel_run(stream_item(name, 64 * 128, 128), device)
        found = run.call()
        operands = {key: operand.double() for key, operand in run.operands.items()}
        if name == "dropout":
            share = float(found[1].double().mean())
            if not abs(share - (1 - DROPOUT)) < 0.05:
                raise MeasurementError(f"dropout keeps {share:.2f} of its numbers, not {1 - DROPOUT}; nothing is written")
            hold(name, found[0], operands["x"] * found[1] / (1 - DROPOUT))
        elif name == "dropout gradient":
            hold(name, found, operands["y"] * operands["mask"] / (1 - DROPOUT))
        elif name.endswith(" gradient"):
            inputs = [operands[key].requires_grad_() for key in ("x", "weight", "bias")]
            out = _streamed(name.removesuffix(" gradient"), operands)
            wanted = torch.autograd.grad(out, inputs, operands["y"], allow_unused=True)
            for one, other in zip(found if isinstance(found, tuple) else (found,), wanted, strict=False):
                assert other is not None
                hold(name, one, other)
        else:
            hold(name, found, _streamed(name, operands))


def _streamed(name: str, operands: dict[str, Tensor]) -> Tensor:
    """What an element-wise or reducing kernel is to give, in the operands' precision."""
    x, y, weight, bias = (operands[key] for key in ("x", "y", "weight", "bias"))
    match name:
        case "copy":
            return x
        case "add":
            return x + y
        case "norm":
            return functional.layer_norm(x, [x.shape[-1]], weight, bias)
        case "softmax":
            return x.softmax(-1)
        case _:
            return functional.gelu(x + bias if name == "bias and gelu" else x)


def _check_losses(device: torch.device) -> None:
    for operators in ("megatron", "torch"):
        for is_backward in (False, True):
            run = kernel_run(loss_item(operators, 32, 1000, is_backward=is_backward), device)
            logits = run.operands["logits"].detach().double().requires_grad_()
            loss = functional.cross_entropy(logits, run.operands["targets"], reduction="none")
            wanted = torch.autograd.grad(loss.sum(), logits)[0] if is_backward else loss.detach()
            found = run.call()
            hold(f"loss by {operators}", found[0] if isinstance(found, tuple) else found, wanted)


def _check_optimizer(device: torch.device) -> None:
    """The first step of AdamW moves each number by the rate, against its gradient's sign, after the decay."""
    for clipped in (False, True):
        item = OptimizerItem(family="optimizer", name="check", parameters=4096, num_tensors=1, is_clipped=clipped)
        run = kernel_run(item, device)
        gradient, master = run.operands["gradient"].double(), run.operands["master"].double()
        if clipped:
            gradient = gradient * min(1.0, MAX_NORM / float(gradient.norm()))
        wanted = master * (1 - RATE * DECAY) - RATE * gradient / (gradient.abs() + EPSILON)
        hold("optimizer", run.call().double() - master, wanted - master)


def _check_layer(device: torch.device) -> None:
    """Fused and unfused in bf16 against the same weights in float64, unfused; output and gradients."""
    shape = {"hidden": 128, "num_heads": 4, "tp": 2, "micro_batch": 2, "sequence_length": 64}
    kind = {"family": "layer", "name": "check", "has_dropout": False, "is_backward": False}
    plain = LayerItem.model_validate({**shape, **kind, "attention": "unfused"})
    wanted_layer = GptLayer(plain, device=device, dtype=torch.float64)
    wanted_x = torch.randn(2, 64, 128, device=device, dtype=torch.float64, requires_grad=True)
    wanted = wanted_layer(wanted_x)
    gradient = torch.randn_like(wanted)
    wanted_gradients = torch.autograd.grad(wanted, [wanted_x, *wanted_layer.parameters()], gradient)
    for attention in ("fused", "unfused"):
        layer = GptLayer(LayerItem.model_validate({**shape, **kind, "attention": attention}), device=device)
        layer.load_state_dict(wanted_layer.state_dict(), strict=False)
        x = wanted_x.detach().to(torch.bfloat16).requires_grad_()
        found = layer(x)
        hold(f"{attention} layer", found, wanted)
        gradients = torch.autograd.grad(found, [x, *layer.parameters()], gradient.to(torch.bfloat16))
        for one, other in zip(gradients, wanted_gradients, strict=True):
            hold(f"{attention} layer, gradient", one, other, LAYER_TOLERANCE)
