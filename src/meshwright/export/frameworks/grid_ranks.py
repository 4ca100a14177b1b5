"""How a framework that numbers ranks by a fixed order of the axes numbers those of a plan, and the files that start them so.

Megatron-LM and torchtitan ask nobody for the order, so the plan's coordinates decide which of the framework's ranks each planned
rank becomes. Hosts, and devices within a host, are started in that order; torchrun with static rendezvous keeps it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import ExportError
from ...plans.document import PlacementPlan
from ...plans.frameworks.megatron_groups import DEFAULT_ORDER, allows, rank_coordinates
from ...plans.frameworks.table import FRAMEWORKS
from ...plans.partition import ParallelDegrees
from ..launchers import remote_shell
from ..launchers.torchrun import own_words
from ..options import ExportOptions
from ..requirements import comma_separated, hosts_of, ranks_per_host, refuse_unrunnable
from ..target import Files, Needs

HOSTS = "hosts.txt"
RANKS = "ranks.tsv"

_AXES = ("pp", "dp", "cp", "ep", "tp")


@dataclass(frozen=True)
class RankOrder:
    """How a framework numbers the ranks of a plan.

    Attributes:
        order: its order of the axes, as Megatron spells it.
        degrees: its parallel degrees.
        plan_rank: the plan's rank at each of its ranks.
        per_host: ranks on every host.
    """

    order: str
    degrees: ParallelDegrees
    plan_rank: tuple[int, ...]
    per_host: int


def rank_order(plan: PlacementPlan, framework: str, orders: Sequence[str] = (DEFAULT_ORDER,)) -> RankOrder:
    """Return the order in which the framework's groups are the plan's and every host has a run of ranks.

    Orders are tried as they come; one that keeps the plan's own numbers is preferred.

    Args:
        plan: one with coordinates, see `as_grid`.
        framework: its name.
        orders: by which it can number ranks.

    Raises:
        ExportError: no coordinates, unequal ranks per host, or a layout that the framework does not run. Also an expert slice
            that it gives to another rank, or a host whose ranks are consecutive in no order; the rank is named.
    """
    title = _SHORT.get(framework, FRAMEWORKS[framework].title)
    hosts_of(plan)  # refuses what is no host name
    degrees = _degrees(plan, framework, title)
    per_host = ranks_per_host(plan, f"{title}'s launcher")
    rank_orders: list[RankOrder] = []
    refused: list[ExportError] = []
    for order in orders:
        if not allows(degrees, order):
            continue
        arranged = RankOrder(order, degrees, _plan_ranks(plan, degrees, order, title), per_host)
        try:
            _check_hosts(plan, arranged, title)
        except ExportError as error:
            refused.append(error)
        else:
            rank_orders.append(arranged)
    if not rank_orders:
        raise refused[0]
    return min(rank_orders, key=lambda arranged: arranged.plan_rank != tuple(range(plan.num_ranks)))


def renumbered(plan: PlacementPlan, arranged: RankOrder) -> PlacementPlan:
    """Return the plan with the rank numbers that the framework will use, to compare a launched job with."""
    number = {rank: own for own, rank in enumerate(arranged.plan_rank)}
    ranks = sorted((rank.model_copy(update={"rank": number[rank.rank]}) for rank in plan.ranks), key=lambda rank: rank.rank)
    stages = tuple(s.model_copy(update={"ranks": tuple(sorted(number[rank] for rank in s.ranks))}) for s in plan.stages)
    hosts = tuple(dict.fromkeys(rank.host for rank in ranks))
    return plan.model_copy(update={"ranks": tuple(ranks), "host_order": hosts, "stages": stages})


def host_files(plan: PlacementPlan, arranged: RankOrder, head: str, title: str) -> dict[str, str]:
    """Return the hosts and devices in the framework's order, with its rank numbers and the plan's."""
    ranks = [plan.ranks[rank] for rank in arranged.plan_rank]
    blocks = [ranks[first : first + arranged.per_host] for first in range(0, len(ranks), arranged.per_host)]
    hosts = "".join(f"{block[0].host}\t{comma_separated([rank.local_rank for rank in block])}\n" for block in blocks)
    rows = ["\t".join(("rank", "plan_rank", "host", "device", *_AXES))]
    for number, (rank, place) in enumerate(zip(ranks, rank_coordinates(arranged.degrees, arranged.order).tolist(), strict=True)):
        rows.append("\t".join(map(str, (number, rank.rank, rank.host, rank.local_rank, *place))))
    return {
        HOSTS: f"{head}# Host, tab, its devices; both in the order of {title}'s ranks ({arranged.order}).\n{hosts}",
        RANKS: head + "".join(f"{row}\n" for row in rows),
    }


def launcher(needs: Needs, options: ExportOptions, head: str, prepare: str, behind: str = "") -> Files:
    """Return the script that starts torchrun on every host, by its name.

    Args:
        needs: the plan in the framework's ranks, and the variables of every process.
        options: port and program.
        head: comment lines to begin with.
        prepare: shell lines that add the framework's words behind a script's own, to ``program``.
        behind: words, quoted for the host's shell, that follow a script's own; they find ``there``.
    """
    plan = needs.plan
    program = options.torchrun_words
    torchrun = [*options.variables, *own_words(plan, options, None, plan.host_order[0])]
    variables = "".join(f" {name}={value}" for name, value in needs.environment.items())
    begin = f"torchrun={shlex.quote(shlex.join(torchrun))}\nprogram={shlex.quote(shlex.join(program))}\n"
    is_script = program[0] != "--no-python"  # a command of the user's own is run as it is
    script = remote_shell.script(
        head,
        starts="torchrun",
        rows=HOSTS,
        columns="IFS=$'\\t' read -r host devices",
        prepare=begin + (prepare if is_script else ""),
        command=f"""
command="exec env MESHWRIGHT_HOST=$host CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=$devices{variables}"
command+=" $torchrun --node-rank=$node $program{behind if is_script else ""}"
""",
    )
    return {remote_shell.FILE_NAME: script}


_SHORT = {"megatron": "Megatron"}


def _degrees(plan: PlacementPlan, framework: str, title: str) -> ParallelDegrees:
    layout = plan.layout()
    for rank in plan.ranks:
        if rank.coordinates is None:
            problem = (
                f"has no coordinates, so {title}'s rank order cannot be held against the plan; "
                f"`meshwright plan --search --for {framework}` finds a plan with them"
            )
            raise ExportError(problem, field=f"rank {rank.rank}")
    if layout is not None:
        refuse_unrunnable(plan, framework)
        return layout
    return ParallelDegrees(**{axis: 1 + max(getattr(rank.coordinates, axis) for rank in plan.ranks) for axis in _AXES})


def _plan_ranks(plan: PlacementPlan, degrees: ParallelDegrees, order: str, title: str) -> tuple[int, ...]:
    """Return the plan's rank with the coordinates of each of the framework's ranks."""
    at: dict[tuple[int, ...], int] = {}
    for rank in plan.ranks:
        assert rank.coordinates is not None
        at[tuple(getattr(rank.coordinates, axis) for axis in ("pp", "dp", "cp", "tp"))] = rank.rank
    ranks = []
    for pp, dp, cp, ep, tp in rank_coordinates(degrees, order).tolist():
        number = at[pp, dp, cp, tp]
        coordinates = plan.ranks[number].coordinates
        if coordinates is not None and coordinates.ep != ep:
            problem = f"{title} gives dp={dp} cp={cp} the expert slice ep={ep}"
            raise ExportError(problem, field=f"rank {number}", value=f"ep={coordinates.ep}")
        ranks.append(number)
    return tuple(ranks)


def _check_hosts(plan: PlacementPlan, arranged: RankOrder, title: str) -> None:
    """Check that each host has a run of the framework's ranks."""
    for number, rank in enumerate(arranged.plan_rank):
        first = arranged.plan_rank[number - number % arranged.per_host]
        if plan.ranks[rank].host != plan.ranks[first].host:
            problem = (
                f"is {title}'s rank {number} by the order {arranged.order}; torchrun would start it on "
                f"{plan.ranks[first].host}, next to rank {first}"
            )
            raise ExportError(problem, field=f"rank {rank}", value=plan.ranks[rank].host)
