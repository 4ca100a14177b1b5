"""Work of one call of PyTorch, forward and backward, counted while it runs on tensors without data.

Floating-point operations are those of matrix products, convolutions and attention, two per multiply-add. The formulas are those
that PyTorch registers for its own kernels (`torch.utils.flop_counter`). Attention is counted as its two products over all keys,
without the recomputation of fused kernels in the backward pass.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode  # nothing public sees each kernel, nor flattens nested inputs
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.flop_counter import flop_registry

ATTENTION = "scaled_dot_product_attention"
GROUPED = "grouped_mm"
"""Products of rows that are sorted by expert, each by its own expert's matrix; PyTorch registers no formula."""
_ACCUMULATOR_BYTES = 4
"""Of each number of its output that attention holds while it runs, in float32."""

_COPIES = ("clone", "empty_like", "empty", "copy", "_to_copy", "copy_", "native_dropout", "bernoulli_", "div_")


@dataclass(frozen=True)
class OpCost:
    """The cost of a call.

    Attributes:
        forward_flops: of the call itself.
        backward_flops: of the gradients of those inputs that need one.
        workspace_bytes: of intermediate results that it does not return.
        is_work: whether it launches anything; views, casts to the same type and checks do not.
        is_pointwise: whether a compiler can run it inside the op before it. Each number of its output then depends on the
            numbers at the same place.
    """

    forward_flops: float
    backward_flops: float
    workspace_bytes: float
    is_work: bool
    is_pointwise: bool


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts kernels below autograd."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0.0
        self.num_kernels = 0
        self.made_bytes = 0.0
        self.is_pointwise = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.overloadpacket not in flop_registry and func is not torch.ops.prim.device.default:
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        out = func(*args, **kwargs)
        if func.overloadpacket in flop_registry:
            self.flops += flop_registry[func.overloadpacket](*args, **kwargs, out_val=out)
        name = func.overloadpacket.__name__
        if name.strip("_").startswith(GROUPED):
            self.flops += _grouped_flops(*[value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)][:2])
        made = tensors_of(out)
        if made and not func.is_view and name not in ("detach", "alias", "lift_fresh"):
            self.num_kernels += 1
            self.made_bytes += sum(map(num_bytes, made))
            self.is_pointwise &= torch.Tag.pointwise in func.tags or name in _COPIES
        return out


def cost_of(func: Callable[..., Any], args: Any, kwargs: Any) -> OpCost:
    """Return the cost of a call by running it on copies of its arguments, which hold no data.

    Args:
        func: a function of PyTorch.
        args, kwargs: its arguments; tensors on the ``meta`` device.
    """
    leaves_given, spec = tree_flatten((args, kwargs))
    leaves: dict[int, Any] = {}
    copies: dict[int, Any] = {}
    for value in leaves_given:
        if isinstance(value, torch.Tensor) and id(value) not in leaves:
            leaf = value.detach()
            if value.requires_grad:
                leaf.requires_grad_(True)
            leaves[id(value)] = leaf
            copies[id(value)] = leaf.clone() if value.requires_grad else leaf  # in-place functions refuse leaves
    args, kwargs = tree_unflatten([copies.get(id(value), value) for value in leaves_given], spec)
    forward, backward = _Counter(), _Counter()
    with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH), torch.enable_grad():
        warnings.simplefilter("ignore")
        with forward:
            out = func(*args, **kwargs)
        made = [tensor for tensor in tensors_of(out) if tensor.requires_grad]
        target = [leaf for leaf in leaves.values() if leaf.requires_grad]
        if made and target:
            gradients = [torch.empty_like(tensor) for tensor in made]
            with backward:
                torch.autograd.grad(made, target, gradients, allow_unused=True)
    returned = sum(map(num_bytes, tensors_of(out)))
    workspace = max(forward.made_bytes - returned, 0.0)
    if name_of(func) == ATTENTION:
        workspace = float(_ACCUMULATOR_BYTES * sum(tensor.numel() for tensor in tensors_of(out)))
    return OpCost(forward.flops, backward.flops, workspace, forward.num_kernels > 0, forward.is_pointwise and not forward.flops)


def _grouped_flops(left: Any, right: Any) -> float:
    """Return two per multiply-add: each row of ``left`` ``(m, k)`` meets one of ``(e, k, n)``, experts their rows or columns."""
    if left.dim() == 3 and right.dim() == 2:
        return 2.0 * int(left.shape[1]) * int(right.numel())
    return 2.0 * int(left.numel()) * int(right.shape[-1])


def name_of(func: Any) -> str:
    """Return a function's name without the variant and the marks of a method: ``layer_norm``, ``add``."""
    name: str = getattr(getattr(func, "overloadpacket", func), "__name__", type(func).__name__)
    return name.strip("_") or "op"


def tensors_of(value: Any) -> list[Any]:
    """Return the tensors in a nest of lists, tuples and mappings."""
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]


def num_bytes(tensor: Any) -> float:
    """Return the bytes of a tensor's numbers."""
    return float(tensor.numel() * tensor.element_size())
