"""Megatron-LM: its parallel arguments, and the hosts and devices in the order on which its fixed rank order lands.

Megatron numbers ranks by a fixed order of the axes (`megatron_groups`) and asks nobody. So the plan's coordinates decide
which of Megatron's ranks each planned rank becomes, and the launcher starts hosts, and devices within a host, in that
order. torchrun with static rendezvous keeps it.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from ...errors import ExportError
from ...plans.document import PlacementPlan
from ...plans.frameworks.megatron_groups import DEFAULT_ORDER, MAPPED_ORDER, allows, rank_coordinates
from ...plans.partition import Layout, ParallelDegrees
from ..launchers import remote_shell
from ..operators.op_devices import as_equal_layers
from ..requirements import comma_separated, hosts_of, ranks_per_host, refuse_unrunnable
from ..target import ExportOptions, Files, Target, header
from .megatron_layers import pipeline_layout

ARGUMENTS = "megatron.args"
HOSTS = "hosts.txt"
RANKS = "ranks.tsv"

_AXES = ("pp", "dp", "cp", "ep", "tp")

_NOT_GUARANTEED = (
    "Rank numbers: Megatron's own, which need not be the plan's; ranks.tsv has both.",
    "Model: layers, widths, experts and data are for the script's other arguments; they must be those of the plan's job.",
    "Commands: a script gets megatron.args behind its own arguments; a command of the user's own must pass them itself.",
    "Versions: the rank order is that of megatron-core 0.16.1; --pipeline-model-parallel-layout is experimental there.",
    "Experts: their tensor-parallel degree is that of the dense layers.",
    "Allocation: nothing reserves the hosts; that they are free and reachable is up to whoever starts the launcher.",
    "GPU numbering: CUDA_VISIBLE_DEVICES names devices by PCI order as the host's driver sees them.",
    "Restarts: static rendezvous has no elastic restarts; when one host fails the job ends.",
)


@dataclass(frozen=True)
class RankOrder:
    """How Megatron numbers the ranks of a plan.

    Attributes:
        order: Megatron's order of the axes.
        degrees: its parallel degrees.
        plan_rank: the plan's rank at each of Megatron's ranks.
        per_host: ranks on every host.
    """

    order: str
    degrees: ParallelDegrees
    plan_rank: tuple[int, ...]
    per_host: int


def rank_order(plan: PlacementPlan) -> RankOrder:
    """The order in which Megatron's groups are the plan's and every host has a run of ranks.

    The default order is tried first, ``--use-tp-pp-dp-mapping`` where Megatron allows it next; one that keeps the plan's
    own numbers is preferred.

    Raises:
        ExportError: no coordinates, unequal ranks per host, an expert slice that Megatron gives to another rank, or a host
            whose ranks would not follow one another in any order; the rank is named.
    """
    hosts_of(plan)  # refuses what is no host name
    plan = _as_grid(plan)
    degrees = _degrees(plan)
    per_host = ranks_per_host(plan, "Megatron's launcher")
    found: list[RankOrder] = []
    refused: list[ExportError] = []
    for order in (DEFAULT_ORDER, MAPPED_ORDER):
        if not allows(degrees, order):
            continue
        arranged = RankOrder(order, degrees, _plan_ranks(plan, degrees, order), per_host)
        try:
            _check_hosts(plan, arranged)
        except ExportError as error:
            refused.append(error)
        else:
            found.append(arranged)
    if not found:
        raise refused[0]
    return min(found, key=lambda arranged: arranged.plan_rank != tuple(range(plan.num_ranks)))


def renumbered(plan: PlacementPlan) -> PlacementPlan:
    """The same plan with the rank numbers that Megatron will use, for holding a launched job against it.

    Raises:
        ExportError: as `rank_order`.
    """
    plan = _as_grid(plan)
    number = {rank: megatron for megatron, rank in enumerate(rank_order(plan).plan_rank)}
    ranks = sorted((rank.model_copy(update={"rank": number[rank.rank]}) for rank in plan.ranks), key=lambda rank: rank.rank)
    stages = tuple(s.model_copy(update={"ranks": tuple(sorted(number[rank] for rank in s.ranks))}) for s in plan.stages)
    hosts = tuple(dict.fromkeys(rank.host for rank in ranks))
    return plan.model_copy(update={"ranks": tuple(ranks), "host_order": hosts, "stages": stages})


def arguments(plan: PlacementPlan, arranged: RankOrder) -> list[str]:
    """Megatron's arguments for the plan, word by word.

    Raises:
        ExportError: a schedule, ZeRO stage or overlap that Megatron does not have, or stages that it cannot cut.
    """
    degrees, layout = arranged.degrees, plan.layout()
    words = [
        "--tensor-model-parallel-size",
        str(degrees.tp),
        "--pipeline-model-parallel-size",
        str(degrees.pp),
        "--context-parallel-size",
        str(degrees.cp),
        "--expert-model-parallel-size",
        str(degrees.ep),
        "--expert-tensor-parallel-size",
        str(degrees.tp),
    ]
    if arranged.order == MAPPED_ORDER:
        words.append("--use-tp-pp-dp-mapping")
    cut = pipeline_layout(plan, degrees.pp) if degrees.pp > 1 else None
    if cut is not None:
        words += ["--pipeline-model-parallel-layout", cut]
    elif layout is not None and layout.virtual_stages > 1:
        words += ["--num-virtual-stages-per-pipeline-rank", str(layout.virtual_stages)]
    return words if layout is None else words + _layout_words(layout)


def render(plan: PlacementPlan, options: ExportOptions) -> Files:
    """The arguments, the hosts, the rank map and the launcher.

    Raises:
        ExportError: as `rank_order` and `arguments`, or ops on devices that are no pipeline of equal layers.
    """
    plan = _as_grid(plan)
    arranged = rank_order(plan)
    head = header(options.job_name(plan), plan, "Megatron-LM", _NOT_GUARANTEED)
    words = arguments(plan, arranged)
    ranks = [plan.ranks[rank] for rank in arranged.plan_rank]
    blocks = [ranks[first : first + arranged.per_host] for first in range(0, len(ranks), arranged.per_host)]
    hosts = "".join(f"{block[0].host}\t{comma_separated([rank.local_rank for rank in block])}\n" for block in blocks)
    rows = ["\t".join(("rank", "plan_rank", "host", "device", *_AXES))]
    for number, (rank, place) in enumerate(zip(ranks, rank_coordinates(arranged.degrees, arranged.order).tolist(), strict=True)):
        rows.append("\t".join(map(str, (number, rank.rank, rank.host, rank.local_rank, *place))))
    torchrun = [
        "torchrun",
        "--rdzv-backend=static",
        f"--nnodes={len(blocks)}",
        f"--nproc-per-node={arranged.per_host}",
        f"--master-addr={ranks[0].host}",
        f"--master-port={options.master_port}",
    ]
    return {
        ARGUMENTS: f"{head}# One word on each line.\n" + "".join(f"{word}\n" for word in words),
        HOSTS: f"{head}# Host, tab, its devices; both in the order of Megatron's ranks ({arranged.order}).\n{hosts}",
        RANKS: head + "".join(f"{row}\n" for row in rows),
        remote_shell.FILE_NAME: _launcher(head, torchrun, options.torchrun_words),
    }


def _as_grid(plan: PlacementPlan) -> PlacementPlan:
    """The plan itself, or a pipeline of ops as one of equal layers."""
    return plan if plan.op_placement() is None else as_equal_layers(plan, "Megatron")


def _degrees(plan: PlacementPlan) -> ParallelDegrees:
    layout = plan.layout()
    for rank in plan.ranks:
        if rank.coordinates is None:
            problem = "has no coordinates, so Megatron's rank order cannot be held against the plan"
            raise ExportError(problem, field=f"rank {rank.rank}")
    if layout is not None:
        refuse_unrunnable(plan, "megatron")
        return layout
    return ParallelDegrees(**{axis: 1 + max(getattr(rank.coordinates, axis) for rank in plan.ranks) for axis in _AXES})


def _plan_ranks(plan: PlacementPlan, degrees: ParallelDegrees, order: str) -> tuple[int, ...]:
    """The plan's rank with the coordinates of each of Megatron's ranks."""
    at: dict[tuple[int, ...], int] = {}
    for rank in plan.ranks:
        assert rank.coordinates is not None
        at[tuple(getattr(rank.coordinates, axis) for axis in ("pp", "dp", "cp", "tp"))] = rank.rank
    ranks = []
    for pp, dp, cp, ep, tp in rank_coordinates(degrees, order).tolist():
        number = at[pp, dp, cp, tp]
        coordinates = plan.ranks[number].coordinates
        if coordinates is not None and coordinates.ep != ep:
            problem = f"Megatron gives dp={dp} cp={cp} the expert slice ep={ep}"
            raise ExportError(problem, field=f"rank {number}", value=f"ep={coordinates.ep}")
        ranks.append(number)
    return tuple(ranks)


def _check_hosts(plan: PlacementPlan, arranged: RankOrder) -> None:
    """Each host has a run of Megatron's ranks."""
    for number, rank in enumerate(arranged.plan_rank):
        first = arranged.plan_rank[number - number % arranged.per_host]
        if plan.ranks[rank].host != plan.ranks[first].host:
            problem = (
                f"is Megatron's rank {number} by the order {arranged.order}; torchrun would start it on "
                f"{plan.ranks[first].host}, next to rank {first}"
            )
            raise ExportError(problem, field=f"rank {rank}", value=plan.ranks[rank].host)


def _layout_words(layout: Layout) -> list[str]:
    """What a layout says beside its degrees."""
    is_interleaved = layout.virtual_stages > 1
    words = ["--micro-batch-size", str(layout.micro_batch), "--global-batch-size", str(layout.global_batch)]
    if is_interleaved and layout.num_micro_batches % layout.pp:
        from ...costs.pipelines.schedules import round_size  # loads the compiler; other layouts do without

        size = round_size(layout.pp, layout.num_micro_batches)
        words += ["--microbatch-group-size-per-virtual-pipeline-stage", str(size)]
    flags = {
        "--sequence-parallel": layout.sequence_parallel,
        "--use-distributed-optimizer": layout.zero == 1,
        "--overlap-grad-reduce": layout.overlap_dp,
        "--overlap-param-gather": layout.overlap_dp and layout.zero == 1,
        "--tp-comm-overlap": layout.overlap_tp,
        "--no-overlap-p2p-communication": is_interleaved and not layout.overlap_pp,
    }
    words += [flag for flag, is_set in flags.items() if is_set]
    if layout.recompute == "selective":
        words += ["--recompute-granularity", "selective"]
    if layout.recompute == "full":
        words += ["--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1"]
    return words


def _launcher(head: str, torchrun: list[str], program: list[str]) -> str:
    """A script gets Megatron's arguments behind its own; a command of the user's own is run as it is."""
    prepare = f"torchrun={shlex.quote(shlex.join(torchrun))}\nprogram={shlex.quote(shlex.join(program))}\n"
    if program[0] != "--no-python":
        prepare += f"""while read -r word; do
  case "$word" in '' | '#'*) continue ;; esac
  program+=" $(printf %q "$word")"
done <"$here/{ARGUMENTS}"
"""
    return remote_shell.script(
        head,
        starts="torchrun",
        rows=HOSTS,
        columns="IFS=$'\\t' read -r host devices",
        prepare=prepare,
        command="""
command="exec env MESHWRIGHT_HOST=$host CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=$devices"
command+=" $torchrun --node-rank=$node $program"
""",
    )


TARGET = Target(
    name="megatron",
    summary="Megatron-LM's parallel arguments, and hosts and devices in the order of its ranks",
    guaranteed=(
        "Megatron's groups along tp, cp, ep, dp and pp are the plan's: each device has the planned coordinates.",
        "The master address is the host of Megatron's rank 0.",
        "LOCAL_RANK i means the i-th device of the host in Megatron's order.",
        "Pipeline stages hold the planned layers, where the plan names them.",
    ),
    not_guaranteed=_NOT_GUARANTEED,
    render=render,
    as_launched=renumbered,
)
