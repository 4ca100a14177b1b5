"""The kernels of `kernel_table.suite` as calls of PyTorch on operands of their own: seeded normal numbers in bf16, never zeros.

Everything is made and run on the current stream, so that a CUDA graph can capture it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from .kernel_table import FusedAttentionItem, LossItem, OptimizerItem, PaceItem, ProductItem, StreamItem
from .kernel_timing import CallTimer

KernelItem = ProductItem | FusedAttentionItem | StreamItem | LossItem | OptimizerItem

DROPOUT = 0.1
RATE, DECAY, EPSILON = 1e-3, 0.01, 1e-8
"""AdamW's learning rate, weight decay and epsilon."""

MAX_NORM = 1.0
TINY, HOLD, QUEUED = 64, 8192, 300
"""Numbers of a tiny kernel; rows of the products that hold the device up while tiny ones are issued, and how many these are."""


@dataclass(frozen=True)
class KernelRun:
    """A call with what it works on.

    Attributes:
        call: runs the kernel and returns its result.
        operands: by name, for checks.
        operand_bytes: of everything that it reads or writes, once.
    """

    call: Callable[[], Any]
    operands: dict[str, Tensor]
    operand_bytes: float


def kernel_run(item: KernelItem, device: torch.device) -> KernelRun:
    """Return an item on new operands."""
    if isinstance(item, ProductItem):
        return _product(item, device)
    if isinstance(item, FusedAttentionItem):
        return _fused_attention(item, device)
    if isinstance(item, StreamItem):
        return _stream(item, device)
    if isinstance(item, LossItem):
        return _loss(item, device)
    return _optimizer(item, device)


def kernel_s(item: KernelItem, watch: CallTimer) -> float:
    """Return the seconds of an item, its operands not in the cache."""
    first = kernel_run(item, watch.device)
    others = [kernel_run(item, watch.device).call for _ in range(watch.num_sets(first.operand_bytes) - 1)]
    return watch.seconds([first.call, *others])


def pace_s(item: PaceItem, watch: CallTimer) -> float:
    """Return the seconds from one tiny kernel to the next, on the device or of the host."""
    tiny = _normal(watch.device, TINY)
    if item.family == "gap" and item.name == "in a graph":
        return watch.seconds([lambda: tiny.add_(1.0)])
    if item.family == "gap":
        size = HOLD if watch.is_cuda else TINY
        large = _normal(watch.device, size, size)
        out = torch.empty_like(large)

        def hold() -> None:
            for _ in range(4):
                torch.mm(large, large, out=out)

        return watch.queued_s(hold, lambda: tiny.add_(1.0), QUEUED)
    learned = _normal(watch.device, TINY).requires_grad_()
    square = _normal(watch.device, TINY, TINY)
    result = torch.empty_like(square)
    calls: dict[str, Callable[[], object]] = {
        "add": lambda: tiny.add_(1.0),
        "add with its gradient's graph": lambda: learned + 1.0,
        "product": lambda: torch.mm(square, square, out=result),
        "norm": lambda: functional.layer_norm(square, [TINY], tiny, tiny),
    }
    return watch.host_s(calls[item.name], QUEUED)


def _normal(device: torch.device, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(*shape, device=device, dtype=dtype)


def _product(item: ProductItem, device: torch.device) -> KernelRun:
    b, m, n, k = item.batch, item.m, item.n, item.k
    first = _normal(device, b, k, m).mT if item.transposed == "first" else _normal(device, b, m, k)
    second = _normal(device, b, n, k).mT if item.transposed == "second" else _normal(device, b, k, n)
    out = torch.empty(b, m, n, device=device, dtype=torch.bfloat16)
    if b == 1:
        first, second, out = first[0], second[0], out[0]
    multiply = torch.mm if b == 1 else torch.bmm
    operands = {"first": first, "second": second}
    return KernelRun(lambda: multiply(first, second, out=out), operands, 2.0 * b * (m * k + k * n + m * n))


def _fused_attention(item: FusedAttentionItem, device: torch.device) -> KernelRun:
    """Return one sequence of ``batch`` heads; numbers of one token lie side by side, as a joint product leaves them."""

    def made() -> Tensor:
        return (
            _normal(device, 1, item.sequence_length, item.batch, item.head_dim).transpose(1, 2).requires_grad_(item.is_backward)
        )

    q, k, v, gradient = made(), made(), made(), made().detach()

    def forward() -> Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=item.is_causal)

    operands = {"q": q, "k": k, "v": v, "gradient": gradient}
    if not item.is_backward:
        return KernelRun(forward, operands, item.moved_bytes)
    out = forward()
    return KernelRun(lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True), operands, item.moved_bytes)


def _stream(item: StreamItem, device: torch.device) -> KernelRun:
    aten = torch.ops.aten
    rows, columns = max(1, item.numbers // item.columns), item.columns
    x, y = _normal(device, rows, columns), _normal(device, rows, columns)
    weight, bias = _normal(device, columns), _normal(device, columns)
    operands = {"x": x, "y": y, "weight": weight, "bias": bias}
    calls: dict[str, Callable[[], Any]] = {
        "copy": lambda: y.copy_(x),
        "gelu": lambda: functional.gelu(x),
        "gelu gradient": lambda: aten.gelu_backward(y, x),
        "dropout": lambda: aten.native_dropout(x, DROPOUT, True),
        "norm": lambda: functional.layer_norm(x, [columns], weight, bias),
        "bias and gelu": lambda: functional.gelu(x + bias),
        "softmax": lambda: torch.softmax(x, -1),
    }
    if item.name == "add":
        out = torch.empty_like(x)
        calls["add"] = lambda: torch.add(x, y, out=out)
    elif item.name == "dropout gradient":
        mask = operands["mask"] = torch.rand(rows, columns, device=device) >= DROPOUT
        calls["dropout gradient"] = lambda: aten.native_dropout_backward(y, mask, 1 / (1 - DROPOUT))
    elif item.name == "norm gradient":
        _, mean, deviation = aten.native_layer_norm(x, [columns], weight, bias, 1e-5)
        target = [True, True, True]
        calls["norm gradient"] = lambda: aten.native_layer_norm_backward(y, x, [columns], mean, deviation, weight, bias, target)
    elif item.name == "softmax gradient":
        probabilities = operands["probabilities"] = torch.softmax(x, -1)
        calls["softmax gradient"] = lambda: aten._softmax_backward_data(y, probabilities, -1, torch.bfloat16)
    return KernelRun(calls[item.name], operands, item.moved_bytes / 2)


def _loss(item: LossItem, device: torch.device) -> KernelRun:
    """Time Megatron-LM's operators one by one, or `torch.nn.functional.cross_entropy` of logits brought to float32.

    The logits of a call become a gradient in place where Megatron-LM's do, so that a repeat works on another gradient.
    """
    logits = _normal(device, item.tokens, item.vocabulary)
    targets = torch.randint(item.vocabulary, (item.tokens,), device=device)
    operands = {"logits": logits, "targets": targets}
    size = float(logits.numel()) * 6
    rows = torch.arange(item.tokens, device=device)
    if item.operators == "megatron":

        def forward() -> tuple[Tensor, Tensor]:
            x = logits.float()
            x = x.sub_(x.max(-1, keepdim=True).values)
            target = x[rows, targets]
            exponentials = x.exp_()
            total = exponentials.sum(-1)
            return total.log() - target, exponentials.div_(total[:, None])

        if not item.is_backward:
            return KernelRun(forward, operands, size)
        probabilities = forward()[1]
        outer = torch.ones(item.tokens, 1, device=device)

        def backward() -> Tensor:
            probabilities[rows, targets] -= 1.0
            return probabilities.mul_(outer).to(torch.bfloat16)

        return KernelRun(backward, operands, size)
    logits.requires_grad_(item.is_backward)

    def loss() -> Tensor:
        return functional.cross_entropy(logits.float(), targets, reduction="none")

    if not item.is_backward:
        return KernelRun(loss, operands, size)
    out = loss()
    ones = torch.ones_like(out)
    return KernelRun(lambda: torch.autograd.grad(out, logits, ones, retain_graph=True)[0], operands, size)


def _optimizer(item: OptimizerItem, device: torch.device) -> KernelRun:
    """Return the gradients to float32, perhaps their norm and clipping by it, AdamW fused on the masters, masters to bf16."""
    size = item.parameters // item.num_tensors
    masters = [_normal(device, size, dtype=torch.float32).requires_grad_() for _ in range(item.num_tensors)]
    halves = [master.detach().to(torch.bfloat16) for master in masters]
    gradients = [_normal(device, size) for _ in masters]
    for master in masters:
        master.grad = torch.empty_like(master)
    adam = torch.optim.AdamW(masters, lr=RATE, weight_decay=DECAY, eps=EPSILON, fused=True, capturable=device.type == "cuda")

    def update() -> Tensor:
        for master, gradient in zip(masters, gradients, strict=True):
            assert master.grad is not None
            master.grad.copy_(gradient)
        if item.is_clipped:
            torch.nn.utils.clip_grad_norm_(masters, MAX_NORM, foreach=True)
        adam.step()
        with torch.no_grad():
            for half, master in zip(halves, masters, strict=True):
                half.copy_(master)
        return masters[0].detach()

    operands = {"master": masters[0].detach().clone(), "gradient": gradients[0]} if item.num_tensors == 1 else {}
    return KernelRun(update, operands, 20.0 * item.parameters)
