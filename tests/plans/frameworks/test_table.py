"""The table of what frameworks run: cases by hand, and that exports refuse by nothing else."""

import re
from pathlib import Path

import pytest

from meshwright.errors import PlanError
from meshwright.jobs.zoo.catalogue import zoo_shape
from meshwright.plans import Layout
from meshwright.plans.frameworks.limits import LayoutOfModel
from meshwright.plans.frameworks.numbering import as_layout, as_megatron, by_hosts, in_any_order
from meshwright.plans.frameworks.table import FRAMEWORKS, framework
from meshwright.plans.rank_order import ORDERS

LLAMA = zoo_shape("llama-7b")[0]
GROUPED = LLAMA.model_copy(update={"num_key_value_heads": 2})


def refused(name, text, shape=None, length=None):
    """The key for which a framework refuses a layout; None where it runs it."""
    rest = [f"{key}={value}" for key, value in (("micro_batch", 1), ("global_batch", 16)) if key not in text]
    request = LayoutOfModel(Layout.parse(",".join([text, *rest])), shape, length)
    result = FRAMEWORKS[name].refusal(request, as_priced=False)
    return result and result.key


@pytest.mark.parametrize(
    ("text", "by"),
    [
        # by: megatron, torchtitan, deepspeed, fsdp2, in this order
        ("dp=4,zero=3", ("zero", None, None, None)),
        ("dp=4,zero=2", ("zero", None, None, None)),
        ("dp=4,zero=1", (None, "zero", None, "zero")),
        ("dp=4", (None, None, None, "zero")),
        # DeepSpeed 0.19.8 partitions what its automatic tensor parallelism cuts; its own experts it does not under ZeRO-3
        ("dp=2,tp=2,zero=3", ("zero", "sequence_parallel", None, "tp")),
        ("dp=2,tp=2,zero=3,sequence_parallel=true", ("zero", None, None, "tp")),
        ("dp=2,tp=2,sequence_parallel=true", (None, "zero", None, "tp")),
        ("dp=2,pp=2", (None, "zero", None, "pp")),
        ("dp=2,pp=2,zero=2", ("zero", None, "zero", "pp")),
        ("pp=2,dp=2,zero=2,schedule=gpipe", ("schedule", None, "schedule", "pp")),
        ("pp=2,schedule=zb-h1", ("schedule", "schedule", "schedule", "pp")),
        ("pp=2,schedule=eager-1f1b,overlap_pp=true", ("schedule", "schedule", "schedule", "pp")),
        ("pp=4,schedule=interleaved,virtual_stages=2,precision=fp32", (None, None, "schedule", "pp")),
        # Megatron sends and receives between two stages at once unless transfers are hidden
        ("pp=2,dp=2,zero=1,schedule=interleaved,virtual_stages=2", ("overlap_pp", "zero", "schedule", "pp")),
        ("pp=2,dp=2,zero=1,schedule=interleaved,virtual_stages=2,overlap_pp=true", (None, "zero", "schedule", "pp")),
        ("pp=2,schedule=dualpipe", ("schedule", "schedule", "schedule", "pp")),
        ("pp=2,dp=2,zero=2,schedule=dualpipev", ("schedule", None, "schedule", "pp")),
        ("pp=2,dp=2,ep=2,zero=2,schedule=dualpipev,recompute=full", ("schedule", "recompute", "schedule", "pp")),
        ("pp=2,dp=2,ep=2,zero=2,schedule=dualpipev", ("schedule", None, "schedule", "pp")),
        ("cp=2,zero=3", ("zero", None, "context_parallel", "cp")),
        ("cp=2,context_parallel=ulysses", (None, "zero", None, "cp")),
        ("dp=4,zero=3,shard_group=2", ("zero", None, "shard_group", None)),
        ("dp=4,ep=2,zero=3", ("zero", None, "zero", "ep")),
        ("sp_d=2", ("sp_d", "sp_d", "sp_d", "sp_d")),
        ("dp=4,zero=3,framework=fsdp2", ("framework", None, "framework", None)),
        ("dp=4,zero=3,framework=deepspeed", ("framework", "framework", None, "framework")),
        ("framework=megatron", (None, "framework", "framework", "framework")),
        ("tp=2,dp=2,pp=2,micro_batch=4,stage_meshes=2x2/4x1,sequence_parallel=true,zero=0", ("stage_meshes",) * 4),
        ("compile=true", ("compile", None, "compile", None)),
        ("compile=false", ("compile", None, "compile", None)),
        ("recompute=selective", (None, "recompute", None, None)),
        ("recompute=selective-ops", ("recompute", None, "recompute", None)),
        ("recompute=full,recompute_method=block,recompute_num_layers=2", (None, "recompute_method", "recompute_method", None)),
        ("recompute=full,recompute_num_layers=2", (None, "recompute_num_layers", "recompute_num_layers", None)),
        ("precision=fp8", (None, None, "precision", None)),
        ("precision=fp16", (None, "precision", None, None)),
        # torchtitan hands 16 bits to FSDP, and to autocast where there is no other axis than dp
        ("tp=2,sequence_parallel=true", (None, "precision", None, "tp")),
        ("tp=2,sequence_parallel=true,precision=fp32", (None, None, None, "tp")),
        ("tp=2,cp=2,sequence_parallel=true,zero=3,context_parallel=all-gather", ("zero", None, "context_parallel", "tp")),
        ("dp=2,tp=2,sequence_parallel=true,zero=3,shard_group=1", ("zero", "shard_group", "shard_group", "tp")),
        ("dp=2,ep=2,zero=2,precision=fp16", ("zero", "precision", None, "ep")),
        ("dp=2,ep=2,precision=fp16,zero=1", ("precision", "zero", None, "ep")),
        ("dp=2,ep=2,zero=2,precision=fp8", ("zero", "precision", "precision", "ep")),
        ("dp=2,distributed_optimizer=true", (None, "distributed_optimizer", "distributed_optimizer", "distributed_optimizer")),
        ("cp=2,attention=unfused,zero=1,context_parallel=ulysses", ("attention", "zero", None, "cp")),
        # groups of experts inside the ranks that share a sample: two halves of four slices
        ("cp=4,ep=2,zero=3", ("zero", None, "zero", "cp")),
        # two copies of the optimizer, and a single replica of each expert
        ("dp=4,ep=4,zero=1,shard_group=2", ("shard_group", "zero", "shard_group", "ep")),
        ("dp=4,ep=2,zero=1,shard_group=2", (None, "zero", "shard_group", "ep")),
        (
            "tp=2,sequence_parallel=true,overlap_tp=true,dp=2,zero=2,framework=fsdp2",
            ("framework", "overlap_tp", "framework", "tp"),
        ),
        ("tp=2,sequence_parallel=true,overlap_tp=true,dp=2,zero=2,compile=true", ("compile", None, "compile", "tp")),
        ("loss_chunks=2", ("loss_chunks", "loss_chunks", "loss_chunks", None)),
        ("pp=2,precision=fp32,first_stage_less_layers=1", (None, None, "first_stage_less_layers", "pp")),
        ("pp=2,precision=fp32,stage_layers=3/1", (None, None, "stage_layers", "pp")),
        ("pp=2,precision=fp32,last_stage_less_layers=1", (None, None, "last_stage_less_layers", "pp")),
    ],
)
def test_which_framework_runs_what(text, by):
    assert tuple(refused(name, text) for name in FRAMEWORKS) == by


def test_what_the_model_and_its_sequence_rule_out():
    assert refused("megatron", "tp=4") is None
    assert refused("megatron", "tp=4", GROUPED) == "tp"
    assert refused("megatron", "tp=2", GROUPED) is None
    assert refused("deepspeed", "tp=4", GROUPED) is None
    assert refused("megatron", "cp=2", LLAMA, 6) == "cp"  # a rank has a piece of both halves: 2 x 2 pieces of 6 tokens
    assert refused("megatron", "cp=2", LLAMA, 8) is None
    # a sequence parallel rank has a whole number of tokens of every sequence, not only of the micro-batch
    assert refused("megatron", "tp=4,sequence_parallel=true,micro_batch=2", LLAMA, 6) == "sequence_parallel"
    assert refused("torchtitan", "dp=2,tp=2,zero=2,sequence_parallel=true", LLAMA, 6) == "cp"  # 2 x 2 x 1 pieces
    assert refused("torchtitan", "dp=2,tp=2,zero=2,sequence_parallel=true", LLAMA, 8) is None
    # 32 layers on four stages are 8 a stage: groups of 4 divide them, groups of 3 reach past the end
    again = "pp=4,recompute=full,recompute_num_layers={}"
    assert [refused("megatron", again.format(size), LLAMA) for size in (3, 4)] == ["recompute_num_layers", None]
    biased = LLAMA.model_copy(update={"num_experts": 4, "experts_per_token": 2, "mlp_bias": True})
    assert refused("megatron", "tp=2", biased) == "sequence_parallel"  # its layers with experts refuse to train
    assert refused("megatron", "tp=2,sequence_parallel=true", biased) == "tp"
    assert refused("megatron", "dp=2", biased) is None
    experts = LLAMA.model_copy(update={"num_experts": 4, "experts_per_token": 2})
    assert refused("torchtitan", "dp=2,zero=2,precision=fp8", experts) == "precision"


@pytest.mark.parametrize(
    ("text", "by"),
    [
        ("dp=2,overlap_dp=true", (None, "async_gradients", "overlap_dp", "async_gradients")),
        ("dp=2,zero=2,overlap_dp=true", (None, "async_gradients", None, "async_gradients")),
        # float32 sums of bf16 gradients are reduced by an optimizer of their own under ZeRO-1, at the end
        ("dp=2,zero=1,overlap_dp=true", (None, "async_gradients", "overlap_dp", "async_gradients")),
        ("dp=2,zero=1,overlap_dp=true,fp32_gradients=false", (None, "async_gradients", None, "async_gradients")),
        ("dp=2,zero=1,overlap_dp=true,precision=fp16", (None, "async_gradients", None, "async_gradients")),
        ("dp=2,pp=2,zero=1,overlap_dp=true", (None, "async_gradients", "overlap_dp", "async_gradients")),
        ("pp=2,overlap_pp=true", (None, "async_gradients", "overlap_pp", "async_gradients")),
        ("tp=2,sequence_parallel=true,overlap_tp=true", (None, "async_gradients", "overlap_tp", "async_gradients")),
        ("async_gradients=false,fused_accumulation=false", ("async_gradients", None, None, None)),
        ("async_gradients=false", ("async_gradients", "fused_accumulation", None, "fused_accumulation")),
        (
            "async_gradients=false,fused_accumulation=false,fp32_gradients=false",
            ("async_gradients", "fp32_gradients", None, None),
        ),
        ("async_gradients=false,fused_accumulation=false,attention=unfused", ("async_gradients", "attention", None, None)),
    ],
)
def test_what_a_framework_starts_and_does_otherwise_keeps_searches_only(text, by):
    def first(name):
        layout = Layout.parse(f"{text},micro_batch=1,global_batch=16")
        of_figures = [limit for limit in FRAMEWORKS[name].limits if limit.of_figures]
        return next((limit.key for limit in of_figures if limit.refusal(LayoutOfModel(layout)) is not None), None)

    assert tuple(first(name) for name in FRAMEWORKS) == by


@pytest.mark.parametrize("name", list(FRAMEWORKS))
def test_what_a_framework_has_of_keys_that_are_not_searched_it_runs(name):
    one, plain = FRAMEWORKS[name], {"micro_batch": 1, "global_batch": 8}
    for keys in ({"dp": 4, "zero": 2}, {"dp": 4, "zero": 1}, {"dp": 4}, {"dp": 2, "pp": 2}, {"cp": 2, "dp": 2, "zero": 2}):
        layout = Layout(**plain | keys, overlap_dp=True)
        figures = {**one.as_cut(vars(layout)), **one.as_run(vars(layout))}
        had = layout.model_copy(update=figures)
        assert not {refusal.key for refusal in one.refusals(LayoutOfModel(had))} & (figures.keys() | {"overlap_dp", "overlap_pp"})


def test_pytorch_wants_as_many_micro_batches_as_stages_and_whole_rounds():
    assert refused("torchtitan", "pp=4,micro_batch=8") == "schedule"  # two micro-batches of four stages
    assert refused("torchtitan", "pp=4,micro_batch=8,schedule=gpipe,precision=fp32") is None
    # seven micro-batches are three rounds of two stages, and 3 does not divide 7; six are three of two
    uneven = "pp=2,schedule=interleaved,virtual_stages=2,precision=fp32,global_batch={}"
    assert [refused("torchtitan", uneven.format(batch)) for batch in (7, 6)] == ["virtual_stages", None]


def test_the_documentation_has_a_row_for_every_key_of_a_layout():
    page = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text(encoding="utf-8")
    rows = page.split("| key of the layout |")[1].split("\n\n")[0].splitlines()
    named = {key for row in rows for key in re.findall(r"`([a-z0-9_]+)`", row.split("|")[1])}
    assert set(Layout.model_fields) <= named


def test_a_name_is_told_and_another_spelling_is_known():
    with pytest.raises(PlanError, match=r"--for: unknown framework \(got 'FSDP'\); did you mean 'fsdp2'\?"):
        framework("FSDP")
    with pytest.raises(PlanError, match="did you mean 'deepspeed'"):
        framework("deepsped")


def test_hosts_are_listed_as_the_framework_numbers_them():
    # a host of two devices: with tp fastest every host is a tensor-parallel group, whatever comes next
    layout = Layout.parse("tp=2,dp=2,pp=2,micro_batch=1,global_batch=2")
    assert {order for order in ORDERS if by_hosts(layout, order, 2)} == {order for order in ORDERS if _first(order) == "tp"}
    assert [order for order in ORDERS if as_layout(layout, order, 2) and order.split("-")[1] == "cp"] == ["tp-cp-dp-pp"]
    # a host of four: dp, then pp stands beside tp; the second is Megatron's other mapping
    assert by_hosts(layout, "tp-cp-dp-pp", 4)
    assert not by_hosts(layout, "tp-cp-pp-dp", 4)
    assert as_megatron(layout, "tp-cp-pp-dp", 4)
    assert not as_megatron(layout, "dp-cp-tp-pp", 4) or by_hosts(layout, "dp-cp-tp-pp", 4)
    assert all(in_any_order(layout, order, 4) for order in ORDERS)


def _first(order):
    return next(axis for axis in order.split("-") if axis != "cp")
