"""The best pipeline of stages: over all downsets of the units (`ideals`), or along a few orders of them (`linear`).

The value of a downset with a number of devices is a minimum over the downsets inside it. Its term is the larger of that one's
value with one device less and the load of the units between. See Tarnawski et al. 2020, "Efficient algorithms for device
placement of DNN graph operators". Devices that differ in times, memory or ports are counted by class, so types may be mixed.
Stages with a load above the result of `linear` are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from ....errors import PlanError
from ....simulation.operators.instance import OperatorInstance
from ....simulation.operators.placement import OperatorPlacement, placed
from ....simulation.ragged import joined_rows
from ..request import PlacementRequest
from .downset_kernel import best_chain, count_downsets, list_downsets
from .units import Units

MOST_COUNTED = 2_000_000
"""Downsets are counted no further where there are too many."""

MOST_STATES = 20_000
"""Combinations of how many devices of each class are used."""

MOST_SPECTRAL = 2_000
"""Largest number of units whose eigenvectors are computed; they take seconds."""

Handed = Callable[[NDArray[np.bool_]], NDArray[np.float64]]
Stages = tuple[float, NDArray[np.int64] | None]
"""The largest load in seconds and the device of each op, ``(n,)``; infinite and None where no stages fit."""

FAMILY = "stages in order, each between two downsets of the graph"


def ideals(instance: OperatorInstance, request: PlacementRequest) -> OperatorPlacement:
    """Return the best placement whose devices are stages in order; backward ops come along with their forward ones.

    Raises:
        PlanError: more downsets than ``request.max_ideals`` (their number is named), too many unlike devices, or no placement
            fits.
    """
    units = Units.from_instance(instance)
    _check_states(units)
    downsets = downsets_of(units, request.max_ideals)
    bound_s, _ = along_orders(units)
    _, device_of = best_stages(units, downsets, bound_s)
    if device_of is None:
        raise PlanError(f"no placement in {FAMILY} fits the devices", value=instance.name)
    note = f"best of {FAMILY}; {len(downsets):,} downsets"
    return placed(instance, device_of, "throughput", "ideals", is_optimal=True, note=note)


def linear(instance: OperatorInstance, request: PlacementRequest) -> OperatorPlacement:
    """Return the best placement whose devices are runs of one of a few orders of the units.

    Raises:
        PlanError: too many unlike devices, or no placement fits.
    """
    units = Units.from_instance(instance)
    _check_states(units)
    _, device_of = along_orders(units)
    if device_of is None:
        raise PlanError("no placement in runs of one order fits the devices", value=instance.name)
    return placed(instance, device_of, "throughput", "linear", note="best runs of a few orders")


def num_downsets(instance: OperatorInstance) -> int:
    """Return the downsets of an instance's units; ``MOST_COUNTED + 1`` if there are more."""
    return int(count_downsets(*joined_rows(Units.from_instance(instance).before), MOST_COUNTED))


def downsets_of(units: Units, max_ideals: int) -> NDArray[np.bool_]:
    """Return whether each unit is in each downset, ``(d, u)``; the empty one is first.

    Raises:
        PlanError: more than ``max_ideals``; their number is named.
    """
    first, before = joined_rows(units.before)
    count = int(count_downsets(first, before, max(MOST_COUNTED, max_ideals)))
    if count > max_ideals:
        result = f"more than {count - 1:,}" if count > max(MOST_COUNTED, max_ideals) else f"{count:,}"
        problem = f"the graph has {result} downsets, and at most {max_ideals:,} are looked at"
        raise PlanError(problem, field="max_ideals", value=max_ideals)
    return np.asarray(list_downsets(first, before, count))


def orders(units: Units) -> list[NDArray[np.int64]]:
    """Return the orders of the units: depth-first, level by level, and by the Fiedler vector where the graph is not too large."""
    import networkx

    backward: networkx.DiGraph[int] = networkx.DiGraph()
    backward.add_nodes_from(range(units.num_units))
    backward.add_edges_from((unit, each) for unit, before in enumerate(units.before) for each in before)
    forward = backward.reverse()
    level = np.zeros(units.num_units, np.int64)
    for number, generation in enumerate(networkx.topological_generations(forward)):
        level[generation] = number
    keys: list[NDArray[np.generic]] = [level]
    if units.num_units <= MOST_SPECTRAL:
        _, vectors = np.linalg.eigh(networkx.laplacian_matrix(backward.to_undirected()).toarray())
        spectral = np.round(vectors[:, min(1, units.num_units - 1)], 9)
        rises = sum(float(spectral[unit] - spectral[each]) for unit, each in backward.edges)  # it points with the edges
        keys += [spectral, -spectral] if rises >= 0 else [-spectral, spectral]
    by_key = [networkx.lexicographical_topological_sort(forward, key.__getitem__) for key in keys]
    from_ends = networkx.dfs_postorder_nodes(backward)  # each unit as soon as all before it are there
    depth_first = range(units.num_units)  # units are numbered so
    results: list[Iterable[int]] = [depth_first, by_key[0], from_ends, *by_key[1:]]
    return [np.array(list(each), np.int64) for each in results]


def prefixes(order: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether each unit is in each beginning of an order ``(u,)`` of them, ``(u + 1, u)``."""
    place = np.argsort(order)
    return np.asarray(place[None, :] < np.arange(len(order) + 1)[:, None])


def along_orders(units: Units, handed_s: Handed | None = None) -> Stages:
    """Return the best stages along each of `orders`; arguments as of `best_stages`."""
    best: Stages = (np.inf, None)
    for order in orders(units):
        result = best_stages(units, prefixes(order), best[0], handed_s)
        if result[0] < best[0]:
            best = result
    return best


def best_stages(units: Units, downsets: NDArray[np.bool_], bound_s: float, handed_s: Handed | None = None) -> Stages:
    """Return the best chain of downsets.

    Args:
        units: what stages are made of.
        downsets: among which a stage may begin and end, ``(d, u)``.
        bound_s: what takes longer need not be looked at.
        handed_s: of downsets ``(d, u)`` the seconds that count where a stage begins behind each, ``(d,)``; none by default.
    """
    downsets = _by_seconds(np.where(np.isfinite(units.times_s), units.times_s, np.inf).min(axis=1), downsets)
    result, stages = best_chain(
        downsets,
        units.times_s,
        units.resident_bytes,
        units.workspace_bytes,
        units.memory_bytes,
        units.num_devices,
        joined_rows(units.members),
        units.tensor_s,
        np.zeros(len(downsets)) if handed_s is None else handed_s(downsets),
        bound_s,
    )
    if not np.isfinite(result):
        return np.inf, None
    choice = [(int(each), downsets[here] & ~downsets[start]) for each, here, start in stages[::-1]]
    return float(result), units.devices(choice)


def _by_seconds(times_s: NDArray[np.float64], downsets: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the downsets ``(d, u)`` by the seconds of their units ``(u,)``, each after those that it contains."""
    # Summed unit by unit as the kernels do, so that a downset is never before one that it contains.
    total_s = np.zeros(len(downsets))
    for unit, seconds in enumerate(times_s.tolist()):
        total_s[downsets[:, unit]] += seconds
    return np.ascontiguousarray(downsets[np.lexsort((downsets.sum(axis=1), total_s))])


def _check_states(units: Units) -> None:
    states = 1
    for number in units.num_devices.tolist():
        states *= number + 1
    if states > MOST_STATES:
        problem = f"there are {states:,} ways to use devices that differ, and at most {MOST_STATES:,} are looked at"
        raise PlanError(problem, field="devices", value=len(units.num_devices))
