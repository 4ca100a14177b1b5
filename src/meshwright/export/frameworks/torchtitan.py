"""torchtitan: its job configuration and the model's arguments, and hosts and devices in the order of its ranks (`grid_ranks`).

torchtitan's mesh has the dimensions pp, dp_replicate, dp_shard, cp and tp, the last fastest; with ``expert_parallel_degree`` the
ranks of dp_shard and cp hold the experts. That is the layout's own numbering. The model is torchtitan's Llama 3, or its Qwen3
where that leaves out less.

Source:
    ``torchtitan/config/job_config.py``, ``torchtitan/distributed/parallel_dims.py`` and ``pipeline_parallel.py`` of torchtitan
    0.2.2, the last release that is configured by a file. ``TransformerModelArgs`` of ``models/llama3/model/args.py`` has a
    feed-forward width of ``multiple_of ceil(int(ffn_dim_multiplier int(8 dim / 3)) / multiple_of)`` and scales positions unless
    its factor is 1. ``Qwen3ModelArgs`` of ``models/qwen3/model/args.py`` and ``MoEArgs`` of ``models/moe/moe.py`` have no
    pipeline (``models/qwen3/__init__.py``).
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from ... import files
from ...errors import ExportError
from ...jobs.transformer import ModelConstants, RotaryScaling
from ...plans.document import PlacementPlan
from ...plans.frameworks.megatron_groups import DEFAULT_ORDER
from ...plans.partition import Layout
from ...plans.pipelines.layers import layers_of_chunks, less_layers
from ...plans.transformer import PlannedTransformer
from ..options import ExportOptions
from ..requirements import hosts_of
from ..target import Files, FrameworkFile, Needs, header, joined
from . import grid_ranks
from .model_arguments import LEFT_OUT, SWIGLU, left_out

CONFIG = "torchtitan.toml"
MODEL = "model_args.json"

_SCHEDULES = {"1f1b": "1F1B", "gpipe": "GPipe", "interleaved": "Interleaved1F1B", "dualpipev": "DualPipeV"}
_ROTATIONS = {"ring": "alltoall", "all-gather": "allgather"}
_PRECISIONS = {"bf16": "bfloat16", "fp32": "float32", "fp8": "bfloat16"}
_FP8 = "quantize.linear.float8"
_SCALING = ("scaling_factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


def needs(plan: PlacementPlan, options: ExportOptions, not_guaranteed: tuple[str, ...]) -> Needs:
    """Return the configuration, the model's arguments where the plan holds its shape, the hosts and the rank map.

    Raises:
        ExportError: no layout, one that torchtitan does not run, or as `grid_ranks.rank_order`.
    """
    hosts_of(plan)  # refuses what is no host name
    layout = plan.layout()
    if layout is None:
        problem = "has no layout, which torchtitan's configuration needs; `meshwright plan --search --for torchtitan` finds one"
        raise ExportError(problem, field="partition")
    arranged = grid_ranks.rank_order(plan, "torchtitan", (DEFAULT_ORDER,))
    name, model = options.job_name(plan), plan.job.transformer
    head = header(name, plan, "torchtitan", not_guaranteed)
    rendered: Files = {}
    said, family = "", "llama3"
    if model is not None:
        made = torchtitan_model(model, has_pipeline=layout.pp > 1)
        remarks = [f"{made.title} of torchtitan has no {what}." for what in made.left_out]
        rendered[MODEL] = files.json_text(made.keys | ({"_not_guaranteed": remarks} if remarks else {})) + "\n"
        said = "".join(f"{LEFT_OUT}{made.title} of torchtitan has no {what}; name a model that has.\n" for what in made.left_out)
        family = made.name
    tables = _tables(plan, layout, family, name)
    # A basic string of TOML takes the escapes of JSON.
    of_keys = {table: "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()) for table, keys in tables.items()}
    rendered[CONFIG] = head + said + "".join(f"\n[{table}]\n{text}" for table, text in of_keys.items())
    rendered |= grid_ranks.host_files(plan, arranged, head, "torchtitan")
    arguments = ("--job.config_file", FrameworkFile(CONFIG))
    return Needs(grid_ranks.renumbered(plan, arranged), arguments, files=rendered, not_guaranteed=not_guaranteed)


def launch(needed: Needs, options: ExportOptions, head: str) -> Files:
    """Return the launcher over ssh, which hands a script the configuration behind its own arguments."""
    return grid_ranks.launcher(needed, options, head, "", f" {joined(needed.arguments, '$there')}")


def _tables(plan: PlacementPlan, layout: Layout, family: str, name: str) -> dict[str, dict[str, Any]]:
    """Return the tables of the configuration. ``shards`` ranks along dp and cp share a copy; cp of them have one sample."""
    shards = layout.num_shards
    samples = layout.global_batch // layout.dp
    parallelism: dict[str, Any] = {
        "data_parallel_replicate_degree": layout.copies // shards if shards > 1 else layout.dp,
        "data_parallel_shard_degree": shards // layout.cp if shards > 1 else 1,
        "fsdp_reshard_after_forward": "always" if layout.zero == 3 else "never",
        "tensor_parallel_degree": layout.tp,
        "context_parallel_degree": layout.cp,
        "pipeline_parallel_degree": layout.pp,
        "expert_parallel_degree": layout.ep,
    }
    if layout.ep > 1 and layout.tp > 1:
        parallelism["expert_tensor_parallel_degree"] = layout.expert_tp
    if layout.overlap_tp and layout.tp > 1:
        parallelism["enable_async_tensor_parallel"] = True
    if layout.cp > 1:
        parallelism["context_parallel_rotate_method"] = _ROTATIONS[layout.context_parallel]
    if layout.pp > 1:
        # PyTorch interleaves two chunks of a rank at least; of one chunk it is the plain order.
        is_plain = layout.schedule == "interleaved" and layout.virtual_stages == 1
        parallelism["pipeline_parallel_schedule"] = _SCHEDULES["1f1b" if is_plain else layout.schedule]
        if layout.is_bidirectional and layout.ep > 1:
            parallelism["pipeline_parallel_expert_parallel_overlap"] = True
        parallelism["pipeline_parallel_microbatch_size"] = layout.micro_batch
        parallelism["pipeline_parallel_first_stage_less_layers"] = layout.first_stage_less_layers
        parallelism["pipeline_parallel_last_stage_less_layers"] = layout.last_stage_less_layers
        parallelism |= _stages(layout, None if plan.job.transformer is None else plan.job.transformer.num_layers)
    training: dict[str, Any] = {
        "local_batch_size": samples if layout.pp > 1 else layout.micro_batch,
        "global_batch_size": layout.global_batch,
        "mixed_precision_param": _PRECISIONS[layout.precision],
    }
    if plan.job.transformer is not None:
        training["seq_len"] = plan.job.transformer.sequence_length
    by_ops = {"mode": "selective", "selective_ac_option": "op"}
    is_fp8 = layout.precision == "fp8"
    return {
        "model": {"name": family, "flavor": name} | ({"converters": [_FP8]} if is_fp8 else {}),
        "training": training,
        "parallelism": parallelism,
        "activation_checkpoint": by_ops if layout.recompute == "selective-ops" else {"mode": layout.recompute},
        **({} if layout.compile is None else {"compile": {"enable": layout.compile}}),
        **({_FP8: {"filter_fqns": ["output"]}} if is_fp8 else {}),
    }


def _stages(layout: Layout, num_layers: int | None) -> dict[str, Any]:
    """Return the keys by which torchtitan cuts the planned stages.

    It makes as many as ``pipeline_parallel_layers_per_stage`` fits into the layers, rounded up, and gives the remainder to the
    first ones. Where the plan has other stages, the keys list the names of their modules.

    Raises:
        ExportError: more chunks than torchtitan makes by itself, for a model that the plan does not hold.
    """
    chunks, less = layout.pp * layout.virtual_stages, less_layers(layout)
    num_layers = sum(layout.stage_layers or ()) or num_layers
    if num_layers is None:
        if layout.virtual_stages > 2:
            problem = "torchtitan makes two chunks a rank unless the layers are given, and the plan does not hold its model"
            raise ExportError(problem, field="layout.virtual_stages", value=layout.virtual_stages)
        return {}
    planned = layers_of_chunks(num_layers, layout)
    each = -(-(num_layers + sum(less)) // chunks)
    if planned == _own_sizes(num_layers, each, less):
        return {"pipeline_parallel_layers_per_stage": each}
    starts = [sum(planned[:chunk]) for chunk in range(chunks)]
    parts = [[f"layers.{layer}" for layer in range(start, start + size)] for start, size in zip(starts, planned, strict=True)]
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "output"]
    return {"module_fqns_per_model_part": parts}


def _own_sizes(num_layers: int, layers_per_stage: int, less: tuple[int, int]) -> tuple[int, ...] | None:
    """Return the layers of the stages that torchtitan cuts by itself; None where it refuses to."""
    counted = num_layers + sum(less)
    number = -(-counted // layers_per_stage)
    each, left = divmod(counted, number)
    if max(less) > each:
        return None
    sizes = [each + (stage < left) for stage in range(number)]
    sizes[0] -= less[0]
    sizes[-1] -= less[1]
    return tuple(sizes)


class TorchtitanModel(NamedTuple):
    """One of torchtitan's models.

    Attributes:
        name: as ``[model] name`` has it.
        title: for people.
        keys: of its arguments.
        left_out: what they cannot say, a phrase each.
    """

    name: str
    title: str
    keys: dict[str, Any]
    left_out: list[str]


def torchtitan_model(model: PlannedTransformer, *, has_pipeline: bool) -> TorchtitanModel:
    """Return the model of torchtitan's that a shape is made of with the least left out; Llama 3 of equal ones."""
    llama, qwen = TorchtitanModel("llama3", "Llama 3", *llama3(model)), TorchtitanModel("qwen3", "Qwen3", *qwen3(model))
    if has_pipeline:
        qwen.left_out.append("pipeline")
    return qwen if len(qwen.left_out) < len(llama.left_out) else llama


def llama3(model: PlannedTransformer) -> tuple[dict[str, Any], list[str]]:
    """Return the keys of ``TransformerModelArgs`` of torchtitan's Llama 3, and what they cannot say, a phrase each."""
    narrow = int(8 * model.hidden / 3)
    keys = _sizes(model) | {
        "multiple_of": model.feed_forward,
        "ffn_dim_multiplier": None if narrow <= model.feed_forward else model.feed_forward / narrow,
    }
    constants = model.constants or ModelConstants()
    scaling = constants.rotary_scaling
    if model.constants is not None and (scaling is None or scaling.kind == "llama3"):
        scaling = scaling or RotaryScaling(kind="llama3", factor=1.0)  # without one torchtitan scales by 8
        factors = (scaling.factor, scaling.low_frequency_factor, scaling.high_frequency_factor, scaling.original_positions)
        keys["rope_scaling_args"] = {key: one for key, one in zip(_SCALING, factors, strict=True) if one is not None}
    other = _of_neither(model) | {
        f"positions scaled by the rule {scaling and scaling.kind}": scaling is not None and scaling.kind != "llama3",
        "a tied head": model.is_head_tied,
        "heads of another width than hidden over heads": model.hidden != model.num_heads * model.head_dim,
        "experts": model.num_experts > 1,
        "norms of heads": bool(model.has_head_norms),
    }
    return keys, [what for what, is_there in other.items() if is_there] + left_out(model)


def qwen3(model: PlannedTransformer) -> tuple[dict[str, Any], list[str]]:
    """Return keys of ``Qwen3ModelArgs``, whose experts are chosen by a softmax over the chosen, and what they cannot say."""
    constants = model.constants or ModelConstants()
    keys = _sizes(model) | {
        "head_dim": model.head_dim,
        "hidden_dim": model.feed_forward,
        "qk_norm": bool(model.has_head_norms),
        "enable_weight_tying": model.is_head_tied,
    }
    if model.num_experts > 1:
        router = {"score_func": "softmax", "route_norm": True, "score_before_experts": False}
        experts = {"num_experts": model.num_experts, "num_shared_experts": 0, "top_k": model.experts_per_token}
        keys |= {"moe_enabled": True, "moe_inter_dim": model.feed_forward, "moe_args": experts | router}
    mixed = {(kind.num_experts, kind.feed_forward) for kind in model.other_layers or ()} - {
        (model.num_experts, model.feed_forward)
    }
    other = _of_neither(model) | {
        "scaled positions": constants.rotary_scaling is not None,
        "layers with and without experts": bool(mixed),
        "experts that every token visits": model.shared_feed_forward is not None,
    }
    return keys, [what for what, is_there in other.items() if is_there] + left_out(model)


def _sizes(model: PlannedTransformer) -> dict[str, Any]:
    """Return the names that both models share; a constant only where the plan holds it."""
    constants = model.constants or ModelConstants()
    known = {"rope_theta": constants.rotary_base, "norm_eps": constants.norm_epsilon}
    return {
        "dim": model.hidden,
        "n_layers": model.num_layers,
        "n_heads": model.num_heads,
        "n_kv_heads": model.num_key_value_heads,
        "vocab_size": model.vocabulary,
        "max_seq_len": max(model.max_positions, model.sequence_length),
        **{key: value for key, value in known.items() if value is not None},
    }


def _of_neither(model: PlannedTransformer) -> dict[str, bool]:
    """Return features that neither of torchtitan's models has, and whether a shape has each."""
    constants = model.constants or ModelConstants()
    return {
        f"{constants.activation} in the gate": model.is_gated and constants.activation not in SWIGLU,
        "positions of a part of a head": constants.rotary_share is not None,
        "biases": model.qkv_bias or model.output_bias or model.mlp_bias,
        "a feed-forward layer without a gate": not model.is_gated,
        "layer norm": model.norm_vectors != 1,
        "a table of positions": model.learned_positions,
        "latent attention": model.latent is not None,
        "dropout": model.has_dropout,
    }
