"""Layers of PyTorch's operators: norms of heads, windows by a mask, biases inside products, and FSDP2's hooks on the host."""

import pytest

from meshwright.costs.training_step.kernels import kernel_model
from meshwright.costs.training_step.passes import pass_time
from meshwright.costs.work.operations import Message, Sweep
from meshwright.costs.work.work import describe
from meshwright.devices import device_type
from meshwright.evaluation.validation.step_times.published_runs import LLAMA
from meshwright.evaluation.validation.step_times.published_step import gpt
from meshwright.plans.partition import Layout

SMALL = gpt(8, 512, 8, 1024, 128, **LLAMA, num_key_value_heads=2, feed_forward=1536, is_gated=True)
TOKENS = 2 * 128


def layer_of(shape=SMALL, **keys):
    keys = {"micro_batch": 2, "global_batch": 32, "framework": "fsdp2"} | keys
    return describe(shape, Layout(**keys), 128).layer


def named(items, name):
    return [item for item in items if isinstance(item, Sweep) and item.name == name]


@pytest.mark.parametrize(("compiled", "there", "back"), [(False, (36, 12), (84, 28)), (True, (4, 2), (10, 4))])
def test_norms_of_heads_run_as_those_of_the_residual_stream_worked_by_hand(compiled, there, back):
    # 8 heads of queries and 2 of keys, 64 wide; operator by operator 28 + 4 x 2 bytes of each number forward, 68 + 8 x 2 backward
    shape = SMALL.model_copy(update={"has_head_norms": True})
    layer = layer_of(shape, compile=compiled)
    for items, name, (moved, launches) in ((layer.forward, "head norms", there), (layer.backward, "head norms gradient", back)):
        (one,) = named(items, name)
        assert one.moved_bytes == moved * TOKENS * 64 * (8 + 2)
        assert one.num_kernels == launches


@pytest.mark.parametrize(("framework", "apart"), [(None, 1), ("megatron", 1), ("fsdp2", 0)])
def test_pytorch_adds_biases_inside_products(framework, apart):
    shape = SMALL.model_copy(update={"qkv_bias": True})
    assert len(named(layer_of(shape, framework=framework).forward, "qkv bias")) == apart


@pytest.mark.parametrize("zero", [0, 3])
def test_hooks_take_the_hosts_time_even_where_one_rank_shards(zero):
    layer = layer_of(zero=zero)
    hooked = [one for one in (*layer.forward, *layer.backward) if isinstance(one, Message) and one.is_hooked]
    assert len(hooked) == (3 if zero else 0)
    model = kernel_model(device_type("h200"))
    kernels = [one for one in layer.forward if not isinstance(one, Message)]
    with_, without = (pass_time(tuple(items), model, lambda _: 0.0, 2).host_s for items in (layer.forward, kernels))
    assert with_ - without == pytest.approx(model.host_us["host_us_per_hook"] / 1e6 if zero else 0.0)
    assert not any(isinstance(one, Message) and one.is_hooked for one in layer_of(framework="deepspeed", zero=3).backward)
