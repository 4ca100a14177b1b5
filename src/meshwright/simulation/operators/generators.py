"""Random instances of operator placement: a graph of ops, and devices of unequal speed, links and memory for it.

Everything is drawn from one seed and the name of its split, so instances of the test, of validation and of training never
meet. Legend of shapes: ``n`` ops, ``m`` devices.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from ... import settings
from ...errors import ConfigError
from .instance import OperatorInstance, numbered

Split = Literal["test", "validation", "training"]
SPLITS: tuple[Split, ...] = ("test", "validation", "training")

Number = Annotated[int, Field(ge=1)]
Slack = Annotated[float, Field(ge=1)]
Spread = Annotated[float, Field(ge=0, le=5)]
Share = Annotated[float, Field(ge=0, le=1)]
_MEAN_OP_S = 1e-3
_MEAN_OP_BYTES = 1e9
_BANDWIDTH_BYTES_PER_S = 25e9
_LATENCY_S = 5e-6
_ATTEMPTS = 200

_KINDS = {
    "any": ["layered", "series-parallel", "transformer"],
    "mixed": ["layered", "layered", "layered", "series-parallel", "transformer", "chain"],
}
"""Kinds of graph from which a mixture is drawn, each as often as it is listed."""
_LONGEST_RUN = 6
_LONGEST_BRANCH = 3


class DeviceDraw(settings.Settings):
    """How the devices of a drawn instance are drawn.

    Attributes:
        num_devices: one of these numbers.
        speed_spread: the speed of each device is log-uniform within ``exp(-x)`` and ``exp(x)``; one number, or several to draw
            from.
        link_spread: the same for the bandwidth of each pair of devices; both directions are equal.
        communication_to_computation: mean seconds of a tensor between two devices over mean seconds of an op, log-uniform
            within these two; the bandwidths follow from it.
        memory_slack: memory of all devices over that of all ops, shared evenly; null: unlimited; or several to draw from.
        num_hosts: one of these numbers of a host's processors, numbered behind the devices. They are slow and have memory for all
            ops; for throughput they pay nothing for tensors.
        host_slowdown: time of an op there over that on a device of speed 1, log-uniform within these two.
    """

    num_devices: tuple[Number, ...] = (4, 8)
    speed_spread: Spread | tuple[Spread, ...] = 1.0
    link_spread: Spread | tuple[Spread, ...] = 1.0
    communication_to_computation: tuple[float, float] = (1.0, 5.0)
    memory_slack: Slack | tuple[Slack | None, ...] | None = 1.3
    num_hosts: tuple[Annotated[int, Field(ge=0, le=8)], ...] = (0,)
    host_slowdown: tuple[float, float] = (5.0, 30.0)

    @property
    def most_devices(self) -> int:
        """No instance has more, hosts included."""
        return max(self.num_devices) + max(self.num_hosts)

    @property
    def most_slowdown(self) -> float:
        """No op takes more than so many times as long on one device as on another."""
        spread = self.speed_spread if isinstance(self.speed_spread, tuple) else (self.speed_spread,)
        fastest = math.exp(max(spread))
        return fastest * max(fastest, self.host_slowdown[1] if max(self.num_hosts) else 1.0)

    @field_validator("communication_to_computation", "host_slowdown")
    @classmethod
    def _is_range(cls, given: tuple[float, float]) -> tuple[float, float]:
        if not 0 < given[0] <= given[1]:
            raise ValueError("must be two numbers above 0, the smaller first")
        return given

    @field_validator("memory_slack", "speed_spread", "link_spread", "num_hosts")
    @classmethod
    def _is_not_empty(cls, given: float | tuple[float | None, ...] | None) -> float | tuple[float | None, ...] | None:
        if given == ():
            raise ValueError("must name one number or more")
        return given

    @field_validator("num_devices")
    @classmethod
    def _names_some(cls, given: tuple[int, ...]) -> tuple[int, ...]:
        if not given or max(given) > 64:
            raise ValueError("must name one number or more, up to 64")
        return given


class GraphDraw(settings.Settings):
    """How the graph of a drawn instance is drawn.

    Attributes:
        kind: ``layered``: levels of random width, each op reads from the two levels before it. ``series-parallel``: blocks that
            fork and join, one after another. ``transformer``: layers of attention heads and experts side by side, with the
            additions that skip them. ``any``: one of these, drawn for each instance. ``chain``: runs of ops, with an occasional
            fork into two short branches; one may be empty. ``mixed``: layered for half of the instances, else ``chain`` or one of
            the others.
        num_ops: one of these numbers; series-parallel graphs and transformers come near it.
        width: mean number of ops of a level, or of branches.
        parents: least and most producers of an op of a layered graph.
        time_sigma: standard deviation of the logarithm of an op's seconds, and of its output's bytes.
        memory_sigma: the same for the bytes that it holds.
        free_share: share of ops that take no time, as reshapes and constants do; drawn evenly within these two.
        joined_share: share of ops that share a device with one of their readers, drawn evenly within these two.
    """

    kind: Literal["layered", "series-parallel", "transformer", "any", "chain", "mixed"] = "layered"
    num_ops: tuple[Number, ...] = (30, 100)
    width: float = Field(default=6.0, ge=1, le=256)
    parents: tuple[Number, Number] = (1, 3)
    time_sigma: float = Field(default=1.0, ge=0, le=3)
    memory_sigma: float = Field(default=0.5, ge=0, le=3)
    free_share: tuple[Share, Share] = (0.0, 0.0)
    joined_share: tuple[Share, Share] = (0.0, 0.0)

    @property
    def most_ops(self) -> int:
        """No graph has more: the last block of those made of blocks may go beyond ``num_ops``."""
        wide = round(2 * self.width)
        beyond = {"layered": 0, "chain": 0, "series-parallel": 3 * wide + 1, "transformer": 2 * wide + 2}
        return max(self.num_ops) + beyond.get(self.kind, max(beyond.values()))

    @field_validator("num_ops")
    @classmethod
    def _names_some(cls, given: tuple[int, ...]) -> tuple[int, ...]:
        if not given or min(given) < 2 or max(given) > 2_000:
            raise ValueError("must name one number or more, from 2 to 2000")
        return given

    @model_validator(mode="after")
    def _is_range(self) -> GraphDraw:
        for name in ("parents", "free_share", "joined_share"):
            low, high = getattr(self, name)
            if low > high:
                raise ValueError(f"{name} must be two numbers, the smaller first")
        return self


@dataclass(frozen=True, eq=False)
class DrawnGraph:
    """Ops without devices.

    Attributes:
        name: of the graph.
        op_s: seconds of each op on a device of speed 1, ``(n,)``.
        output_bytes: ``(n,)``.
        resident_bytes: what each op holds, ``(n,)``.
        edges: ``(e, 2)``.
        op_names: None where they have none.
        group: ops of one number share a device, ``(n,)``; None: each is alone.
    """

    name: str
    op_s: NDArray[np.float64]
    output_bytes: NDArray[np.float64]
    resident_bytes: NDArray[np.float64]
    edges: NDArray[np.int64]
    op_names: tuple[str, ...] | None = None
    group: NDArray[np.int64] | None = None


def draw_instance(
    graph: GraphDraw | Callable[[np.random.Generator], DrawnGraph], devices: DeviceDraw, split: Split, seed: int
) -> OperatorInstance:
    """Return the instance of a seed; the same seed gives the same one.

    Args:
        graph: how the graph is drawn, or a function that draws one.
        devices: how its devices are drawn.
        split: what the instance is for.
        seed: of this split.

    Raises:
        ConfigError: no draw in 200 has devices that can hold the ops, so the memory is too tight for these numbers.
    """
    for attempt in range(_ATTEMPTS):
        rng = np.random.default_rng([SPLITS.index(split), seed, attempt])
        drawn = draw_graph(graph, rng) if isinstance(graph, GraphDraw) else graph(rng)
        instance = with_devices(f"{drawn.name}-{split}-{seed}", drawn, devices, rng)
        if instance is not None:
            return instance
    raise ConfigError(f"in {_ATTEMPTS} draws no device memory held the ops", field="memory_slack", value=devices.memory_slack)


def draw_graph(draw: GraphDraw, rng: np.random.Generator) -> DrawnGraph:
    """Return the ops and edges; every op but those of the first level reads at least one."""
    kind = str(rng.choice(_KINDS[draw.kind])) if draw.kind in _KINDS else draw.kind
    num_ops = int(rng.choice(draw.num_ops))
    if kind == "layered":
        edges = _layered(num_ops, draw.width, draw.parents, rng)
    elif kind == "series-parallel":
        num_ops, edges = _series_parallel(num_ops, draw.width, rng)
    elif kind == "chain":
        edges = _chain(num_ops, rng)
    else:
        num_ops, edges = _transformer(num_ops, draw.width, rng)
    drawn = DrawnGraph(
        name=f"{kind}-{num_ops}",
        op_s=_MEAN_OP_S * rng.lognormal(0.0, draw.time_sigma, num_ops),
        output_bytes=rng.lognormal(0.0, draw.time_sigma, num_ops),
        resident_bytes=_MEAN_OP_BYTES * rng.lognormal(0.0, draw.memory_sigma, num_ops),
        edges=edges,
    )
    # What came later is drawn last, and only where it is asked for: all other draws are as they were.
    if draw.free_share[1] > 0:
        is_free = rng.random(num_ops) < rng.uniform(*draw.free_share)
        is_free[int(drawn.op_s.argmax())] = False
        drawn = replace(drawn, op_s=np.where(is_free, 0.0, drawn.op_s))
    if draw.joined_share[1] > 0:
        drawn = replace(drawn, group=_joined(num_ops, edges, rng.uniform(*draw.joined_share), rng))
    return drawn


def with_devices(name: str, graph: DrawnGraph, draw: DeviceDraw, rng: np.random.Generator) -> OperatorInstance | None:
    """Return the graph on drawn devices; None where they cannot hold its ops when those are packed largest first.

    Outputs keep their proportions; bandwidths are scaled so that a tensor takes as long as wanted.
    """
    m = int(rng.choice(draw.num_devices))
    speed_spread, link_spread = _one_of(draw.speed_spread, rng), _one_of(draw.link_spread, rng)
    speed = np.exp(rng.uniform(-speed_spread, speed_spread, m))
    times_s = graph.op_s[:, None] / speed
    spread = np.exp(rng.uniform(-link_spread, link_spread, (m, m)))
    spread = np.triu(spread, 1) + np.triu(spread, 1).T
    low, high = draw.communication_to_computation
    wanted_s = float(times_s.mean() * np.exp(rng.uniform(np.log(low), np.log(high))))
    memory = np.full(m, np.inf)
    slack = draw.memory_slack
    if isinstance(slack, tuple):
        slack = slack[int(rng.integers(len(slack)))]
    if slack is not None:
        memory = np.full(m, slack * graph.resident_bytes.sum() / m)
        if not _packs(_of_groups(graph), memory):
            return None
    outputs, bandwidth = np.asarray(graph.output_bytes, np.float64), np.full((m, m), np.inf)
    if m > 1 and outputs.mean() > 0:
        apart = ~np.eye(m, dtype=np.bool_)
        mean_s = outputs.mean() * (1.0 / spread[apart]).mean()  # at one byte a second times the spread
        bandwidth[apart] = spread[apart] * mean_s / max(wanted_s - _LATENCY_S, 0.01 * wanted_s)
        # Bytes and bandwidths grow by the same factor, to the size that links have today.
        factor = _BANDWIDTH_BYTES_PER_S / float(np.exp(np.log(bandwidth[apart]).mean()))
        outputs, bandwidth = outputs * factor, bandwidth * factor
    is_host = np.zeros(m, np.bool_)
    num_hosts = int(rng.choice(draw.num_hosts)) if max(draw.num_hosts) > 0 else 0
    if num_hosts:
        slowdown = float(np.exp(rng.uniform(*np.log(draw.host_slowdown))))
        times_s = np.concatenate([times_s, np.repeat(slowdown * graph.op_s[:, None], num_hosts, axis=1)], axis=1)
        memory = np.concatenate([memory, np.full(num_hosts, np.inf)])
        typical = np.median(bandwidth[~np.eye(m, dtype=np.bool_)]) if m > 1 else _BANDWIDTH_BYTES_PER_S
        wider = np.full((m + num_hosts, m + num_hosts), typical)
        wider[:m, :m] = bandwidth
        np.fill_diagonal(wider, np.inf)
        bandwidth, is_host = wider, np.concatenate([is_host, np.ones(num_hosts, np.bool_)])
    return OperatorInstance.of_outputs(
        name,
        times_s,
        graph.edges,
        outputs,
        latency_s=_LATENCY_S,
        bandwidth_bytes_per_s=bandwidth,
        memory_bytes=memory,
        resident_bytes=graph.resident_bytes,
        op_names=graph.op_names,
        group=graph.group,
        is_host=is_host,
    )


def _one_of(value: float | tuple[float, ...], rng: np.random.Generator) -> float:
    return float(value[int(rng.integers(len(value)))]) if isinstance(value, tuple) else value


def _of_groups(graph: DrawnGraph) -> NDArray[np.float64]:
    if graph.group is None:
        return graph.resident_bytes
    return np.asarray(np.bincount(graph.group, weights=graph.resident_bytes), np.float64)


def _joined(num_ops: int, edges: NDArray[np.int64], share: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return each op alone, but a share of them with the nearest of their readers."""
    group, nearest = np.arange(num_ops), np.full(num_ops, num_ops)
    np.minimum.at(nearest, edges[:, 0], edges[:, 1])
    for op in np.flatnonzero((rng.random(num_ops) < share) & (nearest < num_ops))[::-1]:
        group[op] = group[nearest[op]]
    return numbered(group)


def _layered(num_ops: int, width: float, parents: tuple[int, int], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return levels of 1 to twice the mean width less 1; each op reads from the two before it, at least one of the nearest."""
    levels: list[NDArray[np.int64]] = []
    done = 0
    while done < num_ops:
        size = min(int(rng.integers(1, max(2, round(2 * width)))), num_ops - done)
        levels.append(np.arange(done, done + size))
        done += size
    edges = []
    for level in range(1, len(levels)):
        near = levels[level - 1]
        pool = near if level == 1 else np.concatenate([levels[level - 2], near])
        for op in levels[level]:
            count = int(rng.integers(parents[0], parents[1] + 1))
            first = int(rng.choice(near))
            others = [int(each) for each in rng.permutation(pool) if each != first][: count - 1]
            edges += [(source, int(op)) for source in (first, *others)]
    return np.array(edges, np.int64).reshape(-1, 2)


def _series_parallel(num_ops: int, width: float, rng: np.random.Generator) -> tuple[int, NDArray[np.int64]]:
    """Return the blocks one after another: an op forks into branches, chains of 1 to 3 ops, that another op joins."""
    edges: list[tuple[int, int]] = []
    last, done = 0, 1
    while done < num_ops:
        ends = []
        for _ in range(int(rng.integers(2, max(3, round(2 * width - 1))))):
            before = last
            for _ in range(int(rng.integers(1, 4))):
                edges.append((before, done))
                before, done = done, done + 1
            ends.append(before)
        edges += [(end, done) for end in ends]
        last, done = done, done + 1
    return done, np.array(edges, np.int64)


def _chain(num_ops: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw runs of 1 to 6 ops and, equally often, forks into branches of 1 to 3 and 0 to 3 ops."""
    edges: list[tuple[int, int]] = []
    last, done = 0, 1
    while done < num_ops:
        lengths = int(rng.integers(1, _LONGEST_BRANCH + 1)), int(rng.integers(_LONGEST_BRANCH + 1))
        run = min(int(rng.integers(1, _LONGEST_RUN + 1)), num_ops - done)
        if rng.random() < 0.5 or done + sum(lengths) >= num_ops:
            edges += [(op - 1 if op > done else last, op) for op in range(done, done + run)]
            last, done = done + run - 1, done + run
            continue
        join, before = done + sum(lengths), done
        for length in lengths:
            branch = [last, *range(before, before + length), join]
            edges += itertools.pairwise(branch)
            before += length
        last, done = join, join + 1
    return np.array(edges, np.int64).reshape(-1, 2)


def _transformer(num_ops: int, width: float, rng: np.random.Generator) -> tuple[int, NDArray[np.int64]]:
    """Draw layers: the input feeds heads, an op joins them and the skip; that feeds experts, joined with a second skip."""
    edges: list[tuple[int, int]] = []
    last, done = 0, 1
    heads, experts = (int(rng.integers(1, max(2, round(2 * width)))) for _ in range(2))
    while done < num_ops:
        for branches in (heads, experts):
            join = done + branches
            for branch in range(done, join):
                edges += [(last, branch), (branch, join)]
            edges.append((last, join))
            last, done = join, join + 1
    return done, np.array(edges, np.int64)


def _packs(sizes: NDArray[np.float64], memory: NDArray[np.float64]) -> bool:
    """Return whether packing largest first, each where most is left, holds everything."""
    left = memory.copy()
    for size in -np.sort(-sizes):
        device = int(left.argmax())
        left[device] -= size
        if left[device] < 1e-9 * memory[device]:  # sums in another order differ by rounding
            return False
    return True
