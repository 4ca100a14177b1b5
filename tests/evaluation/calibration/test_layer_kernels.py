"""The kernels of a measured layer are those that PyTorch is asked for."""

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode  # nothing public sees each kernel

from meshwright.costs.work import layer as blocks
from meshwright.costs.work.operations import FusedAttention, Message, Product
from meshwright.evaluation.calibration.kernel_table import LayerItem
from meshwright.evaluation.calibration.layer_kernels import layer_kernels
from meshwright.evaluation.calibration.layer_runs import GptLayer
from meshwright.evaluation.validation.step_times.published_step import gpt
from meshwright.plans.partition import Layout

VIEWS = {
    "view",
    "_unsafe_view",
    "permute",
    "transpose",
    "unbind",
    "select",
    "t",
    "slice",
    "expand",
    "detach",
    "unsqueeze",
    "alias",
}
PRODUCTS = {"mm", "addmm", "bmm"}


def layer_item(attention, is_backward, **more):
    keys = {"hidden": 128, "num_heads": 8, "tp": 2, "micro_batch": 2, "sequence_length": 48, "has_dropout": False}
    shape = {"family": "layer", "name": "gpt layer", "attention": attention, "is_backward": is_backward}
    return LayerItem(**(keys | shape | more))


class Asked(TorchDispatchMode):
    """Operators that PyTorch runs, with the shapes of their tensors, without views."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name not in VIEWS:
            self.calls.append((name, tensors(args), tensors(out)))
        return out


def tensors(value):
    if isinstance(value, list | tuple):
        return [shape for one in value for shape in tensors(one)]
    return [tuple(value.shape)] if isinstance(value, torch.Tensor) else []


def asked(item):
    """The operators of one pass on the CPU."""
    layer = GptLayer(item, device=torch.device("cpu"))
    x = torch.randn(item.micro_batch, item.sequence_length, item.hidden, dtype=torch.bfloat16, requires_grad=True)
    with Asked() as forward:
        out = layer(x)
    gradient = torch.randn_like(x)
    with Asked() as backward:
        torch.autograd.grad(out, [x, *layer.parameters()], gradient)
    return (backward if item.is_backward else forward).calls


def product_of(name, operands, results):
    """As ``(batch, m, n, k)``."""
    first, second = operands[-2:]
    batch = first[0] if name == "bmm" else 1
    return batch, *results[0][-2:], first[-1] if first[-1] == second[-2] else None


def numbers(shapes):
    return sum(torch.Size(shape).numel() for shape in shapes)


@pytest.mark.filterwarnings("ignore:Flash attention kernel not used")
@pytest.mark.parametrize("attention", ["fused", "unfused"])
@pytest.mark.parametrize("is_backward", [False, True])
def test_the_kernels_are_those_that_pytorch_is_asked_for(attention, is_backward):
    item = layer_item(attention, is_backward)
    calls, kernels = asked(item), layer_kernels(item)
    products = Counter(product_of(*call) for call in calls if call[0] in PRODUCTS)
    assert products == Counter((kernel.batch, kernel.m, kernel.n, kernel.k) for kernel in kernels if isinstance(kernel, Product))
    fused = [call for call in calls if "scaled_dot_product" in call[0]]
    assert len(fused) == len([kernel for kernel in kernels if isinstance(kernel, FusedAttention)]) == (attention == "fused")
    rest = [call for call in calls if call[0] not in PRODUCTS and call not in fused]
    swept = [kernel for kernel in kernels if not isinstance(kernel, Product | FusedAttention)]
    # Statistics and weights of norms, and the mask that stands for all heads, are left out of the model's count; a norm's
    # gradient reads what it is given twice, once for each of its two kernels.
    moved = sorted(numbers(operands) + numbers(results) for _, operands, results in rest)
    counted = sorted(one.moved_bytes / 2 * (3 / 5 if one.num_kernels == 2 else 1) for one in swept)
    assert len(counted) == len(moved)
    assert counted == pytest.approx(moved, rel=0.1)


@pytest.mark.parametrize("attention", ["fused", "unfused"])
@pytest.mark.parametrize("is_backward", [False, True])
def test_dropout_is_a_kernel_after_each_half_and_on_unfused_scores(attention, is_backward):
    without, with_it = (layer_kernels(layer_item(attention, is_backward, has_dropout=drop)) for drop in (False, True))
    added = Counter(one.name for one in with_it) - Counter(one.name for one in without)
    assert sum(added.values()) == (3 if attention == "unfused" else 2)
    # 96 tokens of 128 numbers: two bytes read, two written and one of the mask.
    assert sum(one.moved_bytes for one in with_it if "mlp dropout" in one.name) == 5 * 96 * 128


@pytest.mark.parametrize("attention", ["fused", "unfused"])
@pytest.mark.parametrize("is_backward", [False, True])
def test_products_and_attention_are_those_of_a_layer_as_it_is_priced_in_a_step(attention, is_backward):
    item = layer_item(attention, is_backward)
    layout = Layout(tp=item.tp, micro_batch=item.micro_batch, global_batch=item.micro_batch, attention=attention)
    work = blocks.layer(gpt(1, 128, 8, 1024, 48), layout, 48)
    theirs = [one for one in (work.backward if is_backward else work.forward) if not isinstance(one, Message)]
    assert sum(getattr(one, "flops", 0) for one in layer_kernels(item)) == sum(getattr(their, "flops", 0) for their in theirs)
