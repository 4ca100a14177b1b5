"""Placements by the published first fit, found and simulated when an episode first meets them, then kept.

The compiled dynamics look placements up and stop where one is missing. `PlacementCache.resolve_placements` then finds it,
simulates one training step on it (or on an equivalent one) and lets the dynamics continue. Two placements are equivalent if an
order-preserving renumbering of their servers maps one to the other and keeps shared groups, rack indices and server indices. The
look-ahead reads nothing else, so its figures are equal to the last bit.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ...clusters.symmetry import pair_signature
from ..cluster.dynamics import resume
from ..cluster.problem import DEVICES_PER_WORD, Problem, Published
from ..cluster.state import Episodes
from ..decision_space.space import DecisionSpace
from .block_times import communication_share
from .first_fit import find_key
from .simulator import PlacedSplitJob, Simulator

Number = TypeVar("Number", bound=np.generic)

FIRST_CAPACITY = 256
# Memory binds if what a job holds comes this close to it, relative, so that rounding decides nothing.
MARGIN = 1e-9


class PlacementCache:
    """The placements that are known, as rows behind the blocks in the arrays of a problem.

    Args:
        problem: of a scenario without placements.
        simulator: what places jobs and simulates them.
        space: the blocks.
    """

    def __init__(self, problem: Problem, simulator: Simulator, space: DecisionSpace) -> None:
        self._simulator = simulator
        self._space = space
        self._graphs = list(simulator.jobs)
        self._block_of = {space.block(b).tobytes(): b for b in range(space.num_blocks)}
        self._times: dict[tuple[int, int, bytes], tuple[float, float]] = {}
        self._placed: list[PlacedSplitJob] = []
        self._number_of: dict[tuple[int, bytes], int] = {}
        self._first_key: list[int] = []
        self.num_keys = 0
        self._set_up(problem)

    def resolve_placements(self, episodes: Episodes, e: int) -> None:
        """Find the placements that the candidates of episode ``e`` wait for, and go on to its next decision."""
        while episodes.needs_placement[e]:
            self._find(episodes.wanted[e], episodes, e)
            resume(self.problem, episodes, e)

    def keys(self) -> NDArray[np.int64]:
        """Return the key under which each placement was first met, ``(s, length of a key)``, from which numbers are restored."""
        return self.problem.published.keys[self._first_key].copy()

    def adopt(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Find and simulate the placements of such keys; the number that each has here, behind the blocks, ``(s,)``."""
        numbers = [self._block(key) for key in keys]
        for key, number in zip(keys, numbers, strict=True):
            self._simulate(int(key[0]), number)
        return np.array(numbers, np.int64)

    def _set_up(self, problem: Problem) -> None:
        graphs, degrees = self._graphs, problem.degrees.tolist()
        parts: list[list[int]] = []
        is_tight = []
        least_bytes = float(self._simulator.cluster.memory_bytes.min())
        for name in graphs:
            for degree in degrees:
                cut = self._simulator.split(name, degree)
                pieces = cut.splits[: cut.job.num_forward]
                held_bytes = float((2.0 * cut.job.memory_bytes[: cut.job.num_forward] / pieces).sum())
                is_tight.append(held_bytes > least_bytes * (1.0 - MARGIN))
                parts.append([degrees.index(s) if s in degrees else -1 for s in np.unique(pieces).tolist()])
        words = -(-self._space.cluster.num_devices // DEVICES_PER_WORD) if any(is_tight) else 0
        width = 1 + max(words, *map(len, parts))
        self.problem = problem._replace(
            published=Published(
                is_on=True,
                part_start=np.cumsum([0, *map(len, parts)]).astype(np.int64),
                part_degree=np.array([part for row in parts for part in row], np.int64),
                is_tight=np.array(is_tight),
                slots=np.zeros(4 * FIRST_CAPACITY, np.int64),
                keys=np.full((FIRST_CAPACITY, width), -1, np.int64),
                block=np.full(FIRST_CAPACITY, -1, np.int64),
            )
        )
        self._reserve(FIRST_CAPACITY)

    def _find(self, key: NDArray[np.int64], episodes: Episodes, e: int) -> None:
        """Make a placement known, and its step time if the episode has not fixed another."""
        block = self._block(key)
        graph, d = divmod(int(key[0]), len(self.problem.degrees))
        if not self.problem.is_keyed_by_degree or episodes.fixed_block[e, graph, d] < 0:
            self._simulate(int(key[0]), block)

    def _simulate(self, row: int, block: int) -> None:
        """Fill in the step time of a placement; blocks have theirs from the start."""
        graph, d = divmod(row, len(self.problem.degrees))
        if block < self.problem.num_blocks or not np.isnan(self.problem.step_s[graph, self.problem.placement_class[block]]):
            return
        placed = self._placed[block - self.problem.num_blocks]
        key = (graph, d, self._signature(placed))
        if key not in self._times:
            step = self._simulator.step(placed)
            self._times[key] = step.step_s, communication_share(step)
        column = self.problem.placement_class[block]
        self.problem.step_s[graph, column], self.problem.communication_share[graph, column] = self._times[key]

    def _block(self, key: NDArray[np.int64]) -> int:
        """Return the number of a key's placement, behind the blocks, of a block where it is one, -1 where there is no place."""
        published = self.problem.published
        number = int(find_key(published.slots, published.keys, key))
        if number < 0:
            number = self._add_key(key)
            placed = self._place(key)
            self.problem.published.block[number] = -1 if placed is None else self._number(placed, int(key[0]), number)
        return int(self.problem.published.block[number])

    def _place(self, key: NDArray[np.int64]) -> PlacedSplitJob | None:
        published = self.problem.published
        row = int(key[0])
        graph, d = divmod(row, len(self.problem.degrees))
        name, degree = self._graphs[graph], int(self.problem.degrees[d])
        if published.is_tight[row]:
            bits = [(int(word) >> i) & 1 for word in key[1:] for i in range(DEVICES_PER_WORD)]
            return self._simulator.place(name, degree, np.array(bits[: self._space.cluster.num_devices], np.bool_))
        parts = published.part_degree[published.part_start[row] : published.part_start[row + 1]]
        block_of = {int(self.problem.degrees[part]): self._space.block(int(b)) for part, b in zip(parts, key[1:], strict=False)}
        cut = self._simulator.split(name, degree)
        return self._simulator.placed(name, degree, np.concatenate([block_of[s] for s in cut.splits.tolist()]))

    def _number(self, placed: PlacedSplitJob, row: int, key: int) -> int:
        """Return the number of a placement; a job that holds one block of its degree as other rules place it is on that block."""
        block = self._block_of.get(placed.servers.tobytes())
        degree = int(self.problem.degrees[row % len(self.problem.degrees)])
        if block is not None and len(placed.servers) == degree:
            devices, cut = self._space.block(block), placed.split
            if np.array_equal(placed.server, devices[np.arange(cut.num_sub_ops) - cut.first[cut.op]]):
                return block
        again = (row, placed.server.tobytes())
        if again not in self._number_of:
            self._number_of[again] = self._add_placement(placed, row % len(self.problem.degrees), key)
        return self._number_of[again]

    def _signature(self, placed: PlacedSplitJob) -> bytes:
        """Return a key that is equal for equivalent placements of one graph and degree."""
        place = np.searchsorted(placed.servers, placed.server).astype(np.int16)
        return pair_signature(self._space.cluster, placed.servers) + place.tobytes()

    def _add_key(self, key: NDArray[np.int64]) -> int:
        published = self.problem.published
        number = self.num_keys
        if number == len(published.keys):
            published = self._with_more_keys(published)
            self.problem = self.problem._replace(published=published)
        published.keys[number] = key
        published.slots[-1 - find_key(published.slots, published.keys, key)] = number + 1
        self.num_keys += 1
        return number

    def _with_more_keys(self, published: Published) -> Published:
        keys = np.full((2 * len(published.keys), published.keys.shape[1]), -1, np.int64)
        keys[: len(published.keys)] = published.keys
        slots = np.zeros(2 * len(published.slots), np.int64)
        for number in range(self.num_keys):
            slots[-1 - find_key(slots, keys, keys[number])] = number + 1
        return published._replace(
            slots=slots, keys=keys, block=np.concatenate([published.block, np.full_like(published.block, -1)])
        )

    def _add_placement(self, placed: PlacedSplitJob, d: int, key: int) -> int:
        problem = self.problem
        number = problem.num_blocks + len(self._placed)
        held = [self._block_of[server.tobytes()] for server in placed.servers[:, None]]
        neighbours = np.unique(np.concatenate([self._space.neighbours.of(block) for block in held]))
        if number == len(problem.degree):
            self._reserve(2 * (number - problem.num_blocks))
        problem = self.problem
        if int(problem.start[number]) + len(placed.servers) > len(problem.devices):
            problem = problem._replace(devices=_longer(problem.devices, 2 * len(problem.devices) + len(placed.servers)))
        if int(problem.neighbour_start[number]) + len(neighbours) > len(problem.neighbours):
            problem = problem._replace(neighbours=_longer(problem.neighbours, 2 * len(problem.neighbours) + len(neighbours)))
        self.problem = problem
        for start, flat, values in (
            (problem.start, problem.devices, placed.servers),
            (problem.neighbour_start, problem.neighbours, neighbours),
        ):
            flat[start[number] : start[number] + len(values)] = values
            start[number + 1] = start[number] + len(values)
        problem.degree[number] = d
        problem.placement_class[number] = problem.num_classes + len(self._placed)
        self._placed.append(placed)
        self._first_key.append(key)
        return number

    def _reserve(self, num_placements: int) -> None:
        """Make room for a number of placements; what is known keeps its place."""
        problem, more = self.problem, num_placements + self.problem.num_blocks
        columns = num_placements + problem.num_classes
        self.problem = problem._replace(
            start=_longer(problem.start, more + 1),
            degree=_longer(problem.degree, more),
            placement_class=_longer(problem.placement_class, more),
            neighbour_start=_longer(problem.neighbour_start, more + 1),
            step_s=_wider(problem.step_s, columns, np.nan),
            communication_share=_wider(problem.communication_share, columns, 0.0),
            can_run=_wider(problem.can_run, columns, True),
        )


def _longer(values: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Return a copy with room for more; the array itself where it is long enough."""
    if length <= len(values):
        return values
    result = np.zeros(length, np.int64)
    result[: len(values)] = values
    return result


def _wider(values: NDArray[Number], columns: int, rest: float) -> NDArray[Number]:
    """Return a copy with more columns, the new ones filled."""
    result = np.full((len(values), columns), rest, values.dtype)
    result[:, : values.shape[1]] = values
    return result
