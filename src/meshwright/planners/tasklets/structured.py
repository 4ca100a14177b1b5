"""Regular groupings of devices into stages: m regions of equal size give P / m devices each to every stage that they share.

Where regions are equal inside and links between them differ, the best groupings found so far are of this form. They range from
m = 1 (a stage in one region: cheap reductions) to m = P (a stage across all: cheap hand-overs).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ...budget_clock import clock_s
from ...errors import PlanError
from ...simulation.tasklets.instance import TaskletInstance
from ...simulation.tasklets.placement import TaskletPlacement, placed_tasklets, tasklet_value_s
from .request import TaskletRequest

MOST_VALUED = 3_000
"""Groupings that are valued of each family."""

Recipe = list[tuple[int, ...]]
"""For each stage the region of each of its chunks."""


def structured(instance: TaskletInstance, request: TaskletRequest) -> TaskletPlacement:
    """Return the best of the regular groupings, and of other groupings of whole chunks of regions where there are few.

    With a budget it stops when that ends.

    Raises:
        PlanError: the regions cannot be cut into chunks that make up stages.
    """
    _load_compiled_code()
    deadline_s = np.inf if request.budget_s is None else clock_s() + request.budget_s
    return structured_best(instance, MOST_VALUED, deadline_s)


@cache
def _load_compiled_code() -> None:
    """Load compiled code, or compile it, before the clock of the first budget of a process begins."""
    structured_best(TaskletInstance("tiny", ("a", "a"), np.zeros((2, 2)), np.ones((2, 2)), 2, 1.0, 1.0), 1)


def structured_best(instance: TaskletInstance, most_valued: int, deadline_s: float = np.inf) -> TaskletPlacement:
    """Search as `structured`, with at most so many groupings of each family valued, and none after the clock reaches a deadline.

    Raises:
        PlanError: as `structured`.
    """
    names = list(dict.fromkeys(instance.regions))
    devices = [np.flatnonzero([each == name for each in instance.regions]) for name in names]
    best: NDArray[np.int64] | None = None
    best_s, num_valued, is_cut = np.inf, 0, False
    for recipes in _families([len(each) for each in devices], instance.num_stages, instance.num_replicas):
        for number, recipe in enumerate(recipes):
            if number == most_valued or (best is not None and clock_s() >= deadline_s):
                is_cut = True
                break
            stages = _stages(devices, recipe, instance.num_replicas)
            value_s = tasklet_value_s(instance, stages)
            num_valued += 1
            if value_s < best_s:
                best, best_s = stages, value_s
    if best is None:
        raise PlanError("the regions cannot be cut into chunks that make up stages", field="regions", value=len(names))
    note = "not all groupings were valued" if is_cut else ""
    return placed_tasklets(instance, best, "structured", num_valued=num_valued, note=note)


def _families(sizes: Sequence[int], num_stages: int, num_replicas: int) -> Iterator[Iterator[Recipe]]:
    """Yield first the regular groupings, then for every size of chunk all groupings of chunks."""
    yield _regular(sizes, num_replicas)
    for parts in range(1, num_replicas + 1):
        chunk = num_replicas // parts
        if num_replicas % parts == 0 and all(size % chunk == 0 for size in sizes):
            yield _of_chunks([size // chunk for size in sizes], num_stages, parts)


def _regular(sizes: Sequence[int], num_replicas: int) -> Iterator[Recipe]:
    """Group regions of equal size m by m, with an m for each size."""
    classes: dict[int, list[int]] = {}
    for region, size in enumerate(sizes):
        classes.setdefault(size, []).append(region)

    # Classes do not depend on each other, so where one cannot be cut nothing can: to find that out at the last one takes ages.
    parts_of = {
        size: [
            parts
            for parts in range(1, num_replicas + 1)
            if num_replicas % parts == 0 and len(regions) % parts == 0 and size % (num_replicas // parts) == 0
        ]
        for size, regions in classes.items()
    }
    if not all(parts_of.values()):
        return iter(())

    def of_classes(left: list[int]) -> Iterator[Recipe]:
        if not left:
            yield []
            return
        size = left[0]
        for parts in parts_of[size]:
            for grouping in groupings(classes[size], parts):
                here = [group for group in grouping for _ in range(size // (num_replicas // parts))]
                for rest in of_classes(left[1:]):
                    yield here + rest

    return of_classes(list(classes))


def groupings(regions: Sequence[int], parts: int) -> Iterator[Recipe]:
    """Yield all ways to group regions, or any other numbers, by so many, no way twice."""
    if not regions:
        yield []
        return
    for others in combinations(regions[1:], parts - 1):
        rest = [each for each in regions[1:] if each not in others]
        for grouping in groupings(rest, parts):
            yield [(regions[0], *others), *grouping]


def _of_chunks(num_chunks: list[int], num_stages: int, parts: int) -> Iterator[Recipe]:
    """Yield all groupings of chunks into stages, each once; chunks of one region are interchangeable."""

    def stages_from(chunks: list[int], stages: int, least: tuple[int, ...]) -> Iterator[Recipe]:
        if stages == 0:
            yield []
            return
        first = next(region for region, count in enumerate(chunks) if count)
        occupied = [region for region, count in enumerate(chunks) if count]
        rest_of = [chunks[region] - (region == first) for region in occupied]
        for others in _multisets(occupied, rest_of, parts - 1):
            stage = (first, *others)
            left = list(chunks)
            for region in stage:
                left[region] -= 1
            if stage >= least:
                for rest in stages_from(left, stages - 1, stage if left[first] else ()):
                    yield [stage, *rest]

    return stages_from(num_chunks, num_stages, ())


def _multisets(items: Sequence[int], counts: list[int], size: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to take so many of some items, of each no more than there are, in lexicographic order."""
    if size == 0:
        yield ()
        return
    for place, item in enumerate(items):
        if sum(counts[place:]) < size:
            return
        if counts[place]:
            for rest in _multisets(items[place:], [counts[place] - 1, *counts[place + 1 :]], size - 1):
                yield (item, *rest)


def _stages(devices: Sequence[NDArray[np.int64]], recipe: Recipe, num_replicas: int) -> NDArray[np.int64]:
    """Return the devices of each stage, those of a region in order, ``(k, p)``."""
    taken = [0] * len(devices)
    rows = []
    for stage in recipe:
        chunk = num_replicas // len(stage)
        row: list[int] = []
        for region in stage:
            row.extend(devices[region][taken[region] : taken[region] + chunk].tolist())
            taken[region] += chunk
        rows.append(row)
    return np.array(rows, np.int64)
