"""Arguments that make Megatron-LM run the priced layout: experts, the order of kernels, short ends."""

import pytest

from meshwright.errors import ExportError
from meshwright.export.frameworks.fronts import FRONTS
from meshwright.export.frameworks.megatron import arguments, rank_order
from meshwright.export.frameworks.model_arguments import megatron_words
from meshwright.export.options import ExportOptions
from meshwright.plans import Layout
from meshwright.plans.document import PlannedCluster
from meshwright.plans.transformer import PlannedTransformer

from ..grids import layer, plan_of, stage


def words(plan):
    return arguments(plan, rank_order(plan))


def test_tensor_and_context_parallel_kernels_run_in_the_order_of_their_launch():
    # before Blackwell validate_args of Megatron-LM ends a run without it; there one connection keeps streams waiting
    host = {"kind": "single-host", "num_devices": 2, "fabric": "switch", "bandwidth_gbytes_per_s": 900, "latency_us": 1}
    for axis, device, values in (("tp", "h100", ["1"]), ("cp", "a100", ["1"]), ("dp", "h100", []), ("tp", "gb200", ["32"])):
        plan = plan_of(Layout(**{axis: 2, "micro_batch": 1, "global_batch": 2}))
        cluster = PlannedCluster(name="c", data={"name": "c", "device": device, "topology": host})
        assert list(FRONT.part(plan.model_copy(update={"cluster": cluster}), ExportOptions()).environment.values()) == values


def test_short_ends_are_told_layer_by_layer_or_refused():
    layout = Layout(pp=2, micro_batch=1, global_batch=2, first_stage_less_layers=1)
    with pytest.raises(ExportError, match=r"layout.first_stage_less_layers: the plan's stages do not name the layers"):
        words(plan_of(layout))
    stages = [stage(0, 0, "embedding", *layer(0)), stage(1, 0, *layer(1), *layer(2), "head", ranks=(1,))]
    given_words = words(plan_of(layout, stages=stages))
    assert given_words[given_words.index("--pipeline-model-parallel-layout") + 1] == "Et|t*2L"


FRONT = FRONTS["megatron"]
CUT = {"cp": 2, "dp": 4, "micro_batch": 1, "global_batch": 4}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({}, []),  # Megatron's own default is a ring of p2p
        ({"context_parallel": "ulysses"}, ["--cp-comm-type", "a2a"]),
        ({"context_parallel": "all-gather"}, ["--cp-comm-type", "all_gather"]),
        ({"cp": 1, "context_parallel": "ulysses"}, []),
        ({"cp": 1, "context_parallel": "all-gather"}, []),
        # eight copies of what ZeRO shards, in halves and in quarters; whole or each by itself there is one instance
        ({"zero": 1, "shard_group": 4}, ["--use-distributed-optimizer", "--num-distributed-optimizer-instances", "2"]),
        ({"zero": 1, "shard_group": 2}, ["--use-distributed-optimizer", "--num-distributed-optimizer-instances", "4"]),
        ({"zero": 1, "shard_group": 8}, ["--use-distributed-optimizer"]),
        ({"zero": 1}, ["--use-distributed-optimizer"]),
        ({"distributed_optimizer": True}, ["--use-distributed-optimizer"]),
        (
            {"zero": 1, "optimizer_bytes": 2},
            [
                "--use-distributed-optimizer",
                "--use-precision-aware-optimizer",
                "--exp-avg-dtype",
                "bf16",
                "--exp-avg-sq-dtype",
                "bf16",
            ],
        ),
        (
            {"zero": 1, "offload": "optimizer"},
            [
                "--use-distributed-optimizer",
                "--optimizer-cpu-offload",
                "--optimizer-offload-fraction",
                "1.0",
                "--use-precision-aware-optimizer",
            ],
        ),
        ({"ep": 2}, ["--moe-token-dispatcher-type", "alltoall"]),
        ({"fp32_gradients": False}, ["--grad-reduce-in-bf16"]),
        ({"fp32_gradients": False, "precision": "fp32"}, []),
    ],
)
def test_sequences_and_what_is_sharded_are_cut_as_they_were_priced(changed, message):
    layout = Layout(**CUT | changed)
    assert words(plan_of(layout))[10:] == ["--micro-batch-size", "1", "--global-batch-size", "4", *message]


@pytest.mark.parametrize(
    ("precision", "message"),
    [("bf16", ["--bf16"]), ("fp16", ["--fp16"]), ("fp32", []), ("fp8", ["--bf16", "--fp8-format", "hybrid"])],
)
def test_the_model_s_arguments_and_its_precision_stand_behind_those_of_the_layout(precision, message):
    model = PlannedTransformer(
        **{"sequence_length": 8, "num_layers": 2, "hidden": 8, "num_heads": 2, "num_key_value_heads": 2, "head_dim": 4},
        **{"feed_forward": 16, "vocabulary": 100, "max_positions": 8, "is_parallel": True},
    )
    plan = plan_of(Layout(dp=2, micro_batch=1, global_batch=2, precision=precision))
    plan = plan.model_copy(update={"job": plan.job.model_copy(update={"transformer": model})})
    lines = FRONT.render(plan, ExportOptions())["megatron.args"].splitlines()
    given_words = [line for line in lines if not line.startswith("#")]
    assert given_words == [*words(plan), *megatron_words(model)[0], *message]
    assert "# Left out: attention and feed-forward layer side by side." in lines
