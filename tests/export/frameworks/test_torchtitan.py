"""torchtitan's configuration and the model's arguments of three frameworks, by hand."""

import json
import math
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import ExportError
from meshwright.export import export
from meshwright.export.frameworks.torchtitan import llama3
from meshwright.jobs.zoo.catalogue import zoo_shape
from meshwright.plans import Layout
from meshwright.plans.pipelines.layers import chunk_sizes
from meshwright.plans.transformer import PlannedTransformer

from ..grids import plan_of
from .torchtitan_modules import PACKAGE, module, read_table

LLAMA = PlannedTransformer.from_shape(zoo_shape("llama-7b")[0])


def config(layout):
    files = export(plan_of(layout, num_hosts=min(2, layout.world)), "torchtitan", {"name": "mine"})
    assert "--job.config_file $there/torchtitan.toml" in files["launch.sh"]
    return tomllib.loads(files["torchtitan.toml"])


def test_hybrid_shards_in_a_pipeline_worked_by_hand():
    # two replicas of cp=2 in four copies, shared by pairs: 2 x (1 x 2); 8 samples a replica in micro-batches of 2
    layout = Layout(
        **{"tp": 2, "cp": 2, "pp": 2, "dp": 2, "micro_batch": 2, "global_batch": 16, "zero": 3, "shard_group": 2},
        **{"sequence_parallel": True, "context_parallel": "all-gather", "recompute": "full"},
    )
    result = config(layout)
    assert result["parallelism"] == {
        "data_parallel_replicate_degree": 2,
        "data_parallel_shard_degree": 1,
        "fsdp_reshard_after_forward": "always",
        "tensor_parallel_degree": 2,
        "context_parallel_degree": 2,
        "context_parallel_rotate_method": "allgather",
        "pipeline_parallel_degree": 2,
        "pipeline_parallel_schedule": "1F1B",
        "pipeline_parallel_microbatch_size": 2,
        "pipeline_parallel_first_stage_less_layers": 0,
        "pipeline_parallel_last_stage_less_layers": 0,
        "expert_parallel_degree": 1,
    }
    assert result["training"] == {"local_batch_size": 8, "global_batch_size": 16, "mixed_precision_param": "bfloat16"}
    assert result["activation_checkpoint"] == {"mode": "full"}
    assert result["model"] == {"name": "llama3", "flavor": "mine"}


PLAIN = {
    **{"data_parallel_replicate_degree": 4, "data_parallel_shard_degree": 1, "fsdp_reshard_after_forward": "never"},
    **{"tensor_parallel_degree": 1, "context_parallel_degree": 1, "pipeline_parallel_degree": 1, "expert_parallel_degree": 1},
}
SHARDED = PLAIN | {"data_parallel_replicate_degree": 1, "data_parallel_shard_degree": 4}


@pytest.mark.parametrize(
    ("changed", "parallelism", "training"),
    [
        ({}, PLAIN, {}),
        ({"zero": 2}, SHARDED, {}),
        ({"zero": 3}, SHARDED | {"fsdp_reshard_after_forward": "always"}, {}),
        ({"zero": 2, "shard_group": 2}, SHARDED | {"data_parallel_replicate_degree": 2, "data_parallel_shard_degree": 2}, {}),
        ({"zero": 2, "cp": 2}, SHARDED | {"context_parallel_degree": 2, "context_parallel_rotate_method": "alltoall"}, {}),
        # FSDP over the pair of one sample alone: four copies
        (
            {"zero": 2, "cp": 2, "shard_group": 2},
            PLAIN | {"context_parallel_degree": 2, "context_parallel_rotate_method": "alltoall"},
            {},
        ),
        ({"zero": 2, "ep": 2}, SHARDED | {"expert_parallel_degree": 2}, {}),
        ({"zero": 2, "tp": 2, "sequence_parallel": True}, SHARDED | {"tensor_parallel_degree": 2}, {}),
        ({"micro_batch": 2, "precision": "fp32"}, PLAIN, {"local_batch_size": 2, "mixed_precision_param": "float32"}),
    ],
)
def test_each_degree_and_batch_is_its_own_key_worked_by_hand(changed, parallelism, training):
    # eight samples by four replicas, two of each, one or both at a time
    result = config(Layout(**({"dp": 4, "micro_batch": 1, "global_batch": 8} | changed)))
    expected = {"local_batch_size": 1, "global_batch_size": 8, "mixed_precision_param": "bfloat16"} | training
    # as text, for 2.0 is no whole number to torchtitan
    for table, keys in (("parallelism", parallelism), ("training", expected)):
        assert json.dumps(result[table], sort_keys=True) == json.dumps(keys, sort_keys=True)


def test_dualpipev_is_a_schedule_of_torchtitan_with_two_chunks_a_rank():
    keys = {
        "pp": 2,
        "dp": 2,
        "schedule": "dualpipev",
        "virtual_stages": 2,
        "overlap_pp": True,
        "micro_batch": 1,
        "global_batch": 8,
    }
    result = config(Layout(**keys, zero=2))["parallelism"]
    assert result["pipeline_parallel_schedule"] == "DualPipeV"
    assert "pipeline_parallel_expert_parallel_overlap" not in result
    experts = config(Layout(**keys, zero=2, ep=2))["parallelism"]
    assert experts["pipeline_parallel_expert_parallel_overlap"] is True
    with pytest.raises(ExportError, match="only where nothing is recomputed"):
        config(Layout(**keys, zero=2, ep=2, recompute="full"))
    with pytest.raises(ExportError, match="schedule=dualpipev is the nearest plan"):
        config(Layout(**(keys | {"schedule": "dualpipe", "virtual_stages": 1}), zero=2))


def test_switches_of_pytorch_are_written_where_the_layout_says_them():
    keys = {"dp": 2, "micro_batch": 1, "global_batch": 4, "zero": 3, "framework": "fsdp2"}
    plain = config(Layout(**keys))
    assert not {"compile", "quantize"} & set(plain)
    result = config(Layout(**keys, compile=True, precision="fp8", recompute="selective-ops"))
    assert result["compile"] == {"enable": True}
    assert result["activation_checkpoint"] == {"mode": "selective", "selective_ac_option": "op"}
    assert result["training"]["mixed_precision_param"] == "bfloat16"
    assert result["model"]["converters"] == ["quantize.linear.float8"]
    assert result["quantize"] == {"linear": {"float8": {"filter_fqns": ["output"]}}}
    short = config(Layout(**keys, pp=2, first_stage_less_layers=1, last_stage_less_layers=2))["parallelism"]
    less = [short[f"pipeline_parallel_{end}_stage_less_layers"] for end in ("first", "last")]
    assert less == [1, 2]


def test_experts_are_cut_by_tensor_parallelism_too_and_its_messages_hide_where_the_layout_says_so():
    keys = {"tp": 2, "dp": 2, "zero": 2, "micro_batch": 1, "global_batch": 4, "sequence_parallel": True}
    assert not {"expert_tensor_parallel_degree", "enable_async_tensor_parallel"} & set(config(Layout(**keys))["parallelism"])
    assert config(Layout(**keys, ep=2))["parallelism"]["expert_tensor_parallel_degree"] == 2
    assert config(Layout(**keys, overlap_tp=True, compile=True))["parallelism"]["enable_async_tensor_parallel"] is True
    with pytest.raises(ExportError, match=r"layout.overlap_tp: torchtitan hides it by the compiler: compile=true"):
        config(Layout(**keys, overlap_tp=True))


def of_llama(layout, num_layers):
    """The part about parallelism of a plan that holds a Llama of so many layers."""
    plan = plan_of(layout, num_hosts=1)
    model = LLAMA.model_copy(update={"num_layers": num_layers})
    plan = plan.model_copy(update={"job": plan.job.model_copy(update={"transformer": model})})
    return tomllib.loads(export(plan, "torchtitan", {"name": "mine"})["torchtitan.toml"])["parallelism"]


def stages_of(found, num_layers):
    """Layers of each stage as torchtitan cuts them, read from pipeline_llm and generate_llm_fqn_per_model_part."""
    if (parts := found.get("module_fqns_per_model_part")) is not None:
        assert parts[0][0] == "tok_embeddings"
        assert parts[-1][-2:] == ["norm", "output"]
        assert [name for part in parts for name in part if name.startswith("layers.")] == [
            f"layers.{layer}" for layer in range(num_layers)
        ]
        return [sum(name.startswith("layers.") for name in part) for part in parts]
    first, last = (found[f"pipeline_parallel_{end}_stage_less_layers"] for end in ("first", "last"))
    stages = math.ceil((num_layers + first + last) / found["pipeline_parallel_layers_per_stage"])
    assert stages % found["pipeline_parallel_degree"] == 0
    each, extra = divmod(num_layers + first + last, stages)
    assert each >= max(1, first, last)
    sizes = [each + 1] * extra + [each] * (stages - extra)
    sizes[0] -= first
    sizes[-1] -= last
    return sizes


@given(layers=st.integers(2, 130), pp=st.sampled_from([2, 4, 8, 16]), less=st.tuples(st.integers(0, 2), st.integers(0, 2)))
def test_torchtitan_cuts_the_planned_stages(layers, pp, less):
    if layers + sum(less) < pp or min(chunk_sizes(layers, pp, less)) < 1:
        return
    layout = Layout(
        **{"pp": pp, "dp": 2, "zero": 2, "micro_batch": 1, "global_batch": 2 * pp, "framework": "fsdp2"},
        **{"first_stage_less_layers": less[0], "last_stage_less_layers": less[1]},
    )
    assert stages_of(of_llama(layout, layers), layers) == list(chunk_sizes(layers, pp, less))


def test_ten_layers_on_eight_stages_are_named():
    # ceil(10 / 8) = 2 layers a stage would make five stages, which torchtitan refuses; 126 layers with shorter ends are divided
    # by 16 as they stand, eight each.
    result = of_llama(Layout(pp=8, dp=2, zero=2, micro_batch=1, global_batch=16), 10)
    assert "pipeline_parallel_layers_per_stage" not in result
    assert [len(part) for part in result["module_fqns_per_model_part"]] == [2, 1, 1, 2, 2, 1, 1, 3]
    ends = {"first_stage_less_layers": 1, "last_stage_less_layers": 1}
    whole = of_llama(Layout(pp=16, dp=2, zero=2, micro_batch=1, global_batch=32, **ends), 126)
    assert whole["pipeline_parallel_layers_per_stage"] == 8
    assert "module_fqns_per_model_part" not in whole
    given = of_llama(Layout(pp=2, dp=2, zero=2, micro_batch=1, global_batch=4, stage_layers=(7, 3)), 10)
    assert stages_of(given, 10) == [7, 3]


def test_chunks_that_are_interleaved_are_as_many_as_planned():
    keys = {"pp": 2, "dp": 2, "zero": 2, "micro_batch": 1, "global_batch": 8, "schedule": "interleaved"}
    result = of_llama(Layout(**keys, virtual_stages=3), 12)
    assert result["pipeline_parallel_schedule"] == "Interleaved1F1B"
    assert stages_of(result, 12) == [2] * 6
    with pytest.raises(ExportError, match=r"virtual_stages: torchtitan makes two chunks a rank unless .* \(got 3\)"):
        config(Layout(**keys, virtual_stages=3))
    assert config(Layout(**keys, virtual_stages=2))["parallelism"]["pipeline_parallel_schedule"] == "Interleaved1F1B"
    # PyTorch refuses to interleave one chunk a rank, which is 1F1B.
    assert of_llama(Layout(**keys), 12)["pipeline_parallel_schedule"] == "1F1B"


def test_plans_without_a_layout_and_layouts_that_it_does_not_run_are_refused(make_plan):
    with pytest.raises(ExportError, match="has no layout, which"):
        export(make_plan(["a", "b"]), "torchtitan")
    with pytest.raises(ExportError, match=r"layout.sequence_parallel: torchtitan's tensor parallelism cuts activations"):
        config(Layout(tp=2, micro_batch=1, global_batch=2))


@given(hidden=st.integers(8, 20_000), width=st.integers(8, 80_000))
def test_torchtitan_computes_the_width_of_the_feed_forward_layer_again(hidden, width):
    given, _ = llama3(LLAMA.model_copy(update={"hidden": hidden, "feed_forward": width}))
    inner = int(2 * 4 * hidden / 3)
    inner = inner if given["ffn_dim_multiplier"] is None else int(given["ffn_dim_multiplier"] * inner)
    multiple = given["multiple_of"]
    assert multiple * ((inner + multiple - 1) // multiple) == width


SPELLED = [
    {"dp": 4, "zero": 3},
    {"dp": 4},
    {"dp": 4, "zero": 3, "shard_group": 2, "recompute": "full"},
    {"dp": 2, "cp": 2, "zero": 2, "context_parallel": "all-gather", "recompute": "selective-ops"},
    {"dp": 2, "tp": 2, "ep": 2, "zero": 2, "sequence_parallel": True},
    {"dp": 2, "tp": 2, "ep": 4, "zero": 2, "sequence_parallel": True},
    {"dp": 2, "tp": 2, "zero": 2, "sequence_parallel": True, "overlap_tp": True, "compile": True, "precision": "fp8"},
    {"dp": 2, "pp": 2, "zero": 2, "schedule": "interleaved", "virtual_stages": 2, "overlap_pp": True},
    {"dp": 2, "pp": 2, "ep": 2, "zero": 2, "schedule": "dualpipev", "virtual_stages": 2, "overlap_pp": True},
    {"pp": 2, "precision": "fp32", "attention": "unfused", "stage_layers": (7, 3)},
]


@pytest.mark.scheduler("torchtitan")
@pytest.mark.parametrize("keys", SPELLED, ids=lambda keys: "-".join(keys))
def test_torchtitan_itself_knows_every_key_and_makes_the_planned_mesh(keys):
    if PACKAGE is None:
        pytest.skip("torchtitan is not installed (pip install --no-deps torchtitan==0.2.2)")
    layout = Layout(micro_batch=1, global_batch=8, **keys)
    read = read_table(module("config.job_config").JobConfig, config(layout)).parallelism
    dims = module("distributed.parallel_dims").ParallelDims(
        dp_replicate=read.data_parallel_replicate_degree,
        dp_shard=read.data_parallel_shard_degree,
        **{"cp": read.context_parallel_degree, "tp": read.tensor_parallel_degree, "pp": read.pipeline_parallel_degree},
        **{"ep": read.expert_parallel_degree, "etp": read.expert_tensor_parallel_degree, "world_size": layout.world},
    )
    assert dims.fsdp_enabled == (layout.num_shards > 1)
    assert dims.seq_len_divisor == 2 * layout.tp * layout.cp
    assert layout.ep == 1 or dims.etp == layout.expert_tp
