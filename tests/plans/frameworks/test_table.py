"""The table of what frameworks run: cases by hand, and that exports refuse by nothing else."""

import pytest

from meshwright.errors import PlanError
from meshwright.jobs.zoo.catalogue import zoo_shape
from meshwright.plans import Layout
from meshwright.plans.frameworks.limits import LayoutOfModel
from meshwright.plans.frameworks.numbering import as_megatron, as_the_layout, by_hosts, in_any_order
from meshwright.plans.frameworks.table import FRAMEWORKS, framework
from meshwright.plans.rank_order import ORDERS

LLAMA = zoo_shape("llama-7b")[0]
GROUPED = LLAMA.model_copy(update={"num_key_value_heads": 2})


def refused(name, text, shape=None, length=None):
    """The key for which a framework refuses a layout; None where it runs it."""
    rest = [f"{key}={value}" for key, value in (("micro_batch", 1), ("global_batch", 16)) if key not in text]
    found = FRAMEWORKS[name].refusal(LayoutOfModel(Layout.parse(",".join([text, *rest])), shape, length))
    return found and found.key


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
        ("pp=2,schedule=gpipe", ("schedule", None, "schedule", "pp")),
        ("pp=2,schedule=zb-h1", ("schedule", "schedule", "schedule", "pp")),
        ("pp=2,schedule=eager-1f1b,overlap_pp=true", ("schedule", "schedule", "schedule", "pp")),
        ("pp=2,schedule=interleaved,virtual_stages=2", (None, None, "schedule", "pp")),
        ("pp=2,schedule=dualpipe", ("schedule", "schedule", "schedule", "pp")),
        ("pp=2,schedule=dualpipev", ("schedule", None, "schedule", "pp")),
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
        (
            "recompute=full,recompute_method=block,recompute_num_layers=2",
            (None, "recompute_method", "recompute_method", None),
        ),
        ("recompute=full,recompute_num_layers=2", (None, "recompute_num_layers", "recompute_num_layers", None)),
        ("precision=fp8", ("precision", None, "precision", None)),
        ("loss_chunks=2", ("loss_chunks", "loss_chunks", "loss_chunks", None)),
        ("pp=2,first_stage_less_layers=1", ("first_stage_less_layers", None, "first_stage_less_layers", "pp")),
        ("pp=2,stage_layers=3/1", (None, "stage_layers", "stage_layers", "pp")),
        ("pp=2,last_stage_less_layers=1", ("last_stage_less_layers", None, "last_stage_less_layers", "pp")),
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


def test_pytorch_wants_as_many_micro_batches_as_stages_and_whole_rounds():
    assert refused("torchtitan", "pp=4,micro_batch=8") == "schedule"  # two micro-batches of four stages
    assert refused("torchtitan", "pp=4,micro_batch=8,schedule=gpipe") is None
    # seven micro-batches are three rounds of two stages, and 3 does not divide 7; six are three of two
    uneven = "pp=2,schedule=interleaved,virtual_stages=2,global_batch={}"
    assert [refused("torchtitan", uneven.format(batch)) for batch in (7, 6)] == ["virtual_stages", None]


def test_a_name_is_told_and_another_spelling_is_known():
    with pytest.raises(PlanError, match=r"--for: unknown framework \(got 'FSDP'\); did you mean 'fsdp2'\?"):
        framework("FSDP")
    with pytest.raises(PlanError, match="did you mean 'deepspeed'"):
        framework("deepsped")


def test_hosts_are_listed_as_the_framework_numbers_them():
    # a host of two devices: with tp fastest every host is a tensor-parallel group, whatever comes next
    layout = Layout.parse("tp=2,dp=2,pp=2,micro_batch=1,global_batch=2")
    assert {order for order in ORDERS if by_hosts(layout, order, 2)} == {order for order in ORDERS if _first(order) == "tp"}
    assert [order for order in ORDERS if as_the_layout(layout, order, 2) and order.split("-")[1] == "cp"] == ["tp-cp-dp-pp"]
    # a host of four: dp, then pp stands beside tp; the second is Megatron's other mapping
    assert by_hosts(layout, "tp-cp-dp-pp", 4)
    assert not by_hosts(layout, "tp-cp-pp-dp", 4)
    assert as_megatron(layout, "tp-cp-pp-dp", 4)
    assert not as_megatron(layout, "dp-cp-tp-pp", 4) or by_hosts(layout, "dp-cp-tp-pp", 4)
    assert all(in_any_order(layout, order, 4) for order in ORDERS)


def _first(order):
    return next(axis for axis in order.split("-") if axis != "cp")
