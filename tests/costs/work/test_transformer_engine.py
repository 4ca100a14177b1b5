"""Megatron-LM's layers by Transformer Engine: what fp8 casts, sends and keeps, and whose kernels they launch."""

from dataclasses import replace

import pytest

from meshwright.costs.training_step.kernels import kernel_model
from meshwright.costs.training_step.uncertainty import operations
from meshwright.costs.work.activations.stage_activations import activation_bytes
from meshwright.costs.work.operations import FusedAttention, Message, Product, Sweep
from meshwright.costs.work.work import describe
from meshwright.devices import device_type
from meshwright.evaluation.validation.step_times.published_runs import LLAMA
from meshwright.evaluation.validation.step_times.published_step import gpt
from meshwright.planners.layouts.stage_devices import FastestKernels
from meshwright.plans.partition import Layout

SMALL = gpt(8, 512, 8, 1024, 128, **LLAMA, num_key_value_heads=2, feed_forward=1536, is_gated=True)
EXPERTS = SMALL.model_copy(update={"num_experts": 8, "experts_per_token": 2})
TOKENS = 2 * 128


def described(shape=SMALL, **keys):
    keys = {"micro_batch": 2, "global_batch": 32, "framework": "megatron", "precision": "fp8"} | keys
    return describe(shape, Layout(**keys), 128)


def items(work):
    return (*work.layer.forward, *work.layer.backward)


def test_each_operand_is_cast_once_worked_by_hand():
    # inputs 512, 512 (context), 512 and 1536, gradients 768 (joint), 512, 3072 (both halves) and 512 numbers of a token;
    # a cast reads two bytes of each and writes two
    casts = [one for one in items(described()) if isinstance(one, Sweep) and one.name.endswith(" cast")]
    assert len(casts) == 8
    assert sum(cast.moved_bytes for cast in casts) == 4 * TOKENS * (3 * 512 + 1536 + 768 + 512 + 3072 + 512)
    products = [one for one in items(described()) if isinstance(one, Product)]
    assert len(products) == 12
    assert all(product.is_fp8 and not product.fp8_casts for product in products)


@pytest.mark.parametrize("keys", [{"precision": "bf16"}, {"framework": "fsdp2"}, {"framework": None}])
def test_nothing_is_cast_apart_from_products_elsewhere(keys):
    result = items(described(**keys))
    assert not any(one.name.endswith(" cast") for one in result)
    assert {one.fp8_casts for one in result if isinstance(one, Product)} == {0 if "precision" in keys else 2}


@pytest.mark.parametrize(("shape", "tp"), [(SMALL, 1), (SMALL, 2), (EXPERTS, 1)])
def test_fp8_changes_no_number_of_operations(shape, tp):
    work = {precision: described(shape, tp=tp, precision=precision) for precision in ("bf16", "fp8")}
    flops = [sum(one.flops for one in items(of) if isinstance(one, Product)) for of in work.values()]
    assert flops[0] == flops[1]
    # of the peak in 16 bits those in fp8 take a half
    in_products = [operations([one for one in items(of) if isinstance(one, Product) and one.is_fp8]) for of in work.values()]
    assert in_products[0] == 0 < in_products[1] < flops[1]


def test_weights_are_cast_for_each_micro_batch_where_they_are_gathered_for_each():
    casts = [one.name for one in items(described(dp=4, zero=3)) if isinstance(one, Sweep)]
    assert "weights cast" in casts
    assert "weights cast" not in [one.name for one in items(described(dp=4, zero=1)) if isinstance(one, Sweep)]


def test_what_is_gathered_for_products_in_fp8_is_half_as_large():
    for operation, ratio in (("all_gather", 2), ("reduce_scatter", 1)):
        sent = [
            sum(one.payload_bytes for one in items(work) if isinstance(one, Message) and one.operation == operation)
            for work in (described(tp=2, sequence_parallel=True, precision=precision) for precision in ("bf16", "fp8"))
        ]
        assert sent[0] == ratio * sent[1] > 0


def test_inputs_of_linear_layers_are_kept_in_a_byte_worked_by_hand():
    # a byte less of two inputs of 512 and one of 1536; the context is kept in 16 bits by attention and in a byte by its product
    bf16, fp8, torchao = (
        activation_bytes(described(**keys)) for keys in ({"precision": "bf16"}, {}, {"framework": "fsdp2", "compile": True})
    )
    assert bf16 - fp8 == 8 * TOKENS * (2 * 512 + 1536 - 512)
    assert torchao == bf16


def test_megatron_takes_kernels_of_tuned_libraries_where_they_were_measured():
    model, tuned = (kernel_model(device_type("h100"), given) for given in (None, "h100-tuned"))
    for item in (Product("a", 4096, 4096, 4096), FusedAttention("b", 1e12, 1e8, length=8192, head_dim=128)):
        for _ in range(2):  # what is remembered of one framework is not taken for another
            assert model.under("megatron").kernel_s(item) == tuned.kernel_s(item) != model.kernel_s(item)
        assert model.under("fsdp2") is model.under(None) is model
        assert FastestKernels.among((model,)).under("megatron").kernel_s(item) == tuned.kernel_s(item)


@pytest.mark.parametrize(("device", "given"), [("a100", None), ("b200", None), ("h100", "h100"), ("h100", "h100-tuned")])
def test_constants_that_are_given_or_alone_hold_for_every_framework(device, given):
    model = kernel_model(device_type(device), given)
    assert model.under("megatron") is model
    assert replace(model).tuned is None


def test_megatrons_own_fsdp_hides_what_it_sends():
    plain = "dp=8,micro_batch=1,global_batch=8,framework=megatron"
    for zero, hides in ((0, False), (1, False), (2, True), (3, True)):
        assert Layout.parse(f"{plain},zero={zero}", hides_unasked=True).overlap_dp == hides
    assert not Layout.parse(f"{plain},zero=3,overlap_dp=false", hides_unasked=True).overlap_dp
