"""Requirements of targets on a plan; refusals give the reason and name the rank or host."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from ..clusters.topologies.topology import is_host_name
from ..errors import ExportError
from ..plans.document import PlacementPlan
from ..plans.frameworks.limits import LayoutOfModel
from ..plans.frameworks.table import FRAMEWORKS


def hosts_of(plan: PlacementPlan) -> dict[str, list[int]]:
    """Return the device indices on each host in rank order; hosts in the plan's order.

    The position in a list is the rank's place among the processes of its host, what launchers call LOCAL_RANK. The
    list itself, as CUDA_VISIBLE_DEVICES, makes that place mean the planned device.

    Raises:
        ExportError: a host name that is none by RFC 1123.
    """
    devices: dict[str, list[int]] = defaultdict(list)
    for rank in plan.ranks:
        if not is_host_name(rank.host):
            raise ExportError("not a host name by RFC 1123", field=f"rank {rank.rank}", value=rank.host)
        devices[rank.host].append(rank.local_rank)
    return dict(devices)


def refuse_unrunnable(plan: PlacementPlan, name: str) -> None:
    """Refuse a layout that a framework does not run, see `plans.frameworks.table`.

    Args:
        plan: with or without a layout; without one it passes.
        name: of the framework.

    Raises:
        ExportError: it does not; the key is named.
    """
    layout, model = plan.layout(), plan.job.transformer
    if layout is None:
        return
    request = LayoutOfModel(layout, model, None if model is None else model.sequence_length)
    framework = FRAMEWORKS[name]
    if (refusal := framework.refusal(request, as_priced=False)) is not None:
        is_searched = model is not None or not framework.needs_layers
        how = f"; `meshwright plan --search --for {name}` searches what it runs" if is_searched else ""
        raise ExportError(f"{refusal.problem} (got {refusal.value!r}){how}", field=f"partition.layout.{refusal.key}")


def ranks_per_host(plan: PlacementPlan, scheduler: str) -> int:
    """Return the one number of ranks on every host.

    Raises:
        ExportError: hosts carry unequal numbers of ranks.
    """
    hosts = hosts_of(plan)
    first, *others = hosts
    for host in others:
        if len(hosts[host]) != len(hosts[first]):
            counts = f"{first} has {len(hosts[first])}, {host} has {len(hosts[host])}"
            raise ExportError(f"{scheduler} wants the same number of ranks on every host: {counts}", field="ranks")
    return len(hosts[first])


def check_contiguous(plan: PlacementPlan, scheduler: str) -> int:
    """Return the ranks of each host, as `ranks_per_host`, for launchers that number ranks host by host.

    Raises:
        ExportError: unequal numbers, or the ranks of a host do not follow one another.
    """
    count = ranks_per_host(plan, scheduler)
    for rank in plan.ranks:
        expected_host = plan.host_order[rank.rank // count]
        if rank.host != expected_host:
            problem = f"{scheduler} numbers ranks host by host, {count} on each, and would start this rank on {expected_host}"
            raise ExportError(problem, field=f"rank {rank.rank}", value=rank.host)
    return count


def is_contiguous(plan: PlacementPlan) -> bool:
    """Return whether the ranks of every host follow one another."""
    changes = sum(rank.host != after.host for rank, after in pairwise(plan.ranks))
    return changes == len(plan.host_order) - 1


def slots_of(plan: PlacementPlan) -> dict[str, int]:
    """Return the devices of each host: as the embedded cluster has them, else as far as the plan's reach."""
    cluster = plan.embedded_cluster()
    if cluster is None:
        return {host: 1 + max(devices) for host, devices in hosts_of(plan).items()}
    return {host: int((cluster.device_host == cluster.host_names.index(host)).sum()) for host in plan.host_order}


def devices_to_request(plan: PlacementPlan) -> int:
    """Return the devices to ask for on each host so that every planned device index exists there.

    All of a host's devices where hosts of the embedded cluster have equally many, since the scheduler would choose a part of
    them. Otherwise as many as the highest index needs.
    """
    sizes = set(slots_of(plan).values())
    return sizes.pop() if len(sizes) == 1 else 1 + max(rank.local_rank for rank in plan.ranks)


def comma_separated(numbers: list[int]) -> str:
    """Return the numbers in the form of CUDA_VISIBLE_DEVICES."""
    return ",".join(map(str, numbers))
