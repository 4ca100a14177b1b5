"""Megatron-LM: its arguments, and the hosts and devices in the order on which its fixed rank order lands (`grid_ranks`)."""

from __future__ import annotations

from ...costs.nccl import generation
from ...errors import ExportError
from ...plans.document import PlacementPlan
from ...plans.frameworks.megatron_groups import DEFAULT_ORDER, MAPPED_ORDER
from ...plans.partition import Layout
from ...plans.pipelines.layers import less_layers
from ..operators.op_devices import as_equal_layers
from ..options import ExportOptions
from ..target import Files, Needs, header
from . import grid_ranks
from .grid_ranks import RankOrder
from .megatron_layers import pipeline_layout
from .model_arguments import LEFT_OUT, megatron_words

ARGUMENTS = "megatron.args"


def rank_order(plan: PlacementPlan) -> RankOrder:
    """Return the order in which Megatron's groups are the plan's and every host has a run of ranks.

    The default order is tried first, ``--use-tp-pp-dp-mapping`` where Megatron allows it next; one that keeps the plan's
    own numbers is preferred.

    Raises:
        ExportError: as `grid_ranks.rank_order`.
    """
    return grid_ranks.rank_order(as_equal_layers(plan, "Megatron"), "megatron", (DEFAULT_ORDER, MAPPED_ORDER))


def arguments(plan: PlacementPlan, arranged: RankOrder) -> list[str]:
    """Return Megatron's arguments for the plan, word by word.

    Raises:
        ExportError: a schedule, ZeRO stage or overlap that Megatron does not have, or stages that it cannot cut.
    """
    degrees, layout = arranged.degrees, plan.layout()
    sizes = {"tensor-model": degrees.tp, "pipeline-model": degrees.pp, "context": degrees.cp}
    sizes |= {"expert-model": degrees.ep, "expert-tensor": degrees.expert_tp}
    words = [word for name, size in sizes.items() for word in (f"--{name}-parallel-size", str(size))]
    if arranged.order == MAPPED_ORDER:
        words.append("--use-tp-pp-dp-mapping")
    cut = pipeline_layout(plan, degrees.pp) if degrees.pp > 1 else None
    if cut is None and layout is not None and (layout.stage_layers is not None or any(less_layers(layout))):
        key = "first_stage_less_layers" if layout.stage_layers is None else "stage_layers"
        raise ExportError("the plan's stages do not name the layers for Megatron", field=f"partition.layout.{key}")
    if cut is not None:
        words += ["--pipeline-model-parallel-layout", cut]
    elif layout is not None and layout.virtual_stages > 1:
        words += ["--num-virtual-stages-per-pipeline-rank", str(layout.virtual_stages)]
    return words if layout is None else words + _layout_words(layout)


def needs(plan: PlacementPlan, options: ExportOptions, not_guaranteed: tuple[str, ...]) -> Needs:
    """Return the arguments, the variables, the hosts and the rank map.

    Raises:
        ExportError: as `rank_order` and `arguments`, or ops on devices that are no pipeline of equal layers.
    """
    plan = as_equal_layers(plan, "Megatron")
    arranged = rank_order(plan)
    head = header(options.job_name(plan), plan, "Megatron-LM", not_guaranteed)
    words = arguments(plan, arranged)
    left_out: list[str] = []
    if plan.job.transformer is not None:
        of_model, left_out = megatron_words(plan.job.transformer)
        layout = plan.layout()
        words += [*of_model, *([] if layout is None else _PRECISIONS[layout.precision])]
    if arranged.degrees.etp is not None:
        not_guaranteed = tuple(one for one in not_guaranteed if not one.startswith("Experts:"))
    said = "".join(f"{LEFT_OUT}{what}.\n" for what in left_out)
    is_cut = arranged.degrees.tp * arranged.degrees.cp > 1
    return Needs(
        grid_ranks.renumbered(plan, arranged),
        tuple(words),
        {"CUDA_DEVICE_MAX_CONNECTIONS": "32" if _is_blackwell(plan) else "1"} if is_cut else {},
        {
            ARGUMENTS: f"{head}{said}# One word on each line.\n" + "".join(f"{word}\n" for word in words),
            **grid_ranks.host_files(plan, arranged, head, "Megatron"),
        },
        not_guaranteed,
    )


def _is_blackwell(plan: PlacementPlan) -> bool:
    """Return whether all devices are; before, Megatron-LM wants tensor and context parallel kernels in the order of their launch.

    Source:
        ``validate_args`` of megatron/training/arguments.py; NVIDIA-NeMo/Megatron-Bridge, scripts/performance/perf_plugins.py.
    """
    cluster = plan.embedded_cluster()
    return cluster is not None and all(generation(one.name) == "blackwell" for one in cluster.device_types)


def launch(needed: Needs, options: ExportOptions, head: str) -> Files:
    """Return the launcher over ssh, which hands a script the arguments behind its own."""
    return grid_ranks.launcher(needed, options, head, _PREPARE)


_PRECISIONS = {"bf16": ["--bf16"], "fp16": ["--fp16"], "fp32": [], "fp8": ["--bf16", "--fp8-format", "hybrid"]}

_MOMENTS = {1: "fp8", 2: "bf16"}
"""By ``optimizer_bytes`` (NVIDIA/Megatron-LM, megatron/training/arguments.py: ``--exp-avg-dtype``)."""

_PREPARE = f"""while read -r word; do
  case "$word" in '' | '#'*) continue ;; esac
  program+=" $(printf %q "$word")"
done <"$here/{ARGUMENTS}"
"""


def _layout_words(layout: Layout) -> list[str]:
    """Return the keys of a layout other than its degrees."""
    is_interleaved = layout.virtual_stages > 1
    words = ["--micro-batch-size", str(layout.micro_batch), "--global-batch-size", str(layout.global_batch)]
    if is_interleaved and layout.num_micro_batches % layout.pp:
        from ...costs.pipelines.schedules import round_size  # loads the compiler; other layouts do without

        size = round_size(layout.pp, layout.num_micro_batches)
        words += ["--microbatch-group-size-per-virtual-pipeline-stage", str(size)]
    flags = {
        "--sequence-parallel": layout.sequence_parallel,
        "--use-distributed-optimizer": layout.shards_optimizer,
        "--overlap-grad-reduce": layout.overlap_dp,
        "--overlap-param-gather": layout.overlap_dp and layout.shards_optimizer,
        "--tp-comm-overlap": layout.overlap_tp,
        "--no-overlap-p2p-communication": is_interleaved and not layout.overlap_pp,
        "--grad-reduce-in-bf16": layout.precision in ("bf16", "fp8") and not layout.fp32_gradients,
        "--accumulate-allreduce-grads-in-fp32": layout.precision == "fp16" and layout.fp32_gradients,
        "--no-gradient-accumulation-fusion": not layout.fused_accumulation,
    }
    words += [flag for flag, is_set in flags.items() if is_set]
    if layout.attention == "unfused":
        words += ["--attention-backend", "unfused"]
    if layout.optimizer_bytes in _MOMENTS:
        dtype = _MOMENTS[layout.optimizer_bytes]
        words += ["--use-precision-aware-optimizer", "--exp-avg-dtype", dtype, "--exp-avg-sq-dtype", dtype]
    if layout.offload == "optimizer":
        words += ["--optimizer-cpu-offload", "--optimizer-offload-fraction", "1.0", "--use-precision-aware-optimizer"]
    if layout.ep > 1:
        words += ["--moe-token-dispatcher-type", "alltoall"]
    if layout.cp > 1 and layout.context_parallel != "ring":
        words += ["--cp-comm-type", "a2a" if layout.context_parallel == "ulysses" else "all_gather"]
    if layout.num_shards > 1 and layout.num_shards < layout.copies:
        words += ["--num-distributed-optimizer-instances", str(layout.copies // layout.num_shards)]
    if layout.recompute == "selective":
        words += ["--recompute-granularity", "selective"]
    if layout.recompute == "full":
        method, number = layout.recompute_method, str(layout.recompute_num_layers)
        words += ["--recompute-granularity", "full", "--recompute-method", method, "--recompute-num-layers", number]
    return words
