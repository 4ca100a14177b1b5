"""How long calls take on a device: CUDA events around many repeats, replayed from a CUDA graph where the host would be slow.

Calls whose operands would fit the device's cache alternate with equal calls on other operands. All operands together are
`CACHES` times as large as the cache. In a real step other kernels run in between, so a kernel reads from memory. The sizes are
in the file (``cache_bytes``).
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch

CACHES = 3
MAX_SETS = 256
"""Sets of operands at most; operands of less than 0.6 MB on a cache of 50 MB are so not quite new each time."""

GRAPH_BELOW_S = 500e-6
"""A call that takes less is captured into a graph, since the host issues one in 5 to 100 us and must stay ahead."""

HOST_SHARE = 0.5
"""A call is captured too if the host needs a larger share of its time to issue it, as its own time may be less."""

GRAPH_S, MAX_CALLS = 1e-3, 1024
"""Least duration of a replay, so that its start does not count, and the most calls in it."""

MAX_REPEATS = 200
WARM_CALLS, ESTIMATES = 2, 3
ROUND = 5
"""Passes of a layer between two waits for the device."""

Call = Callable[[], object]


class PassTimes(NamedTuple):
    """Medians of a forward and a backward pass, of the device and of the host's issuing alone, seconds."""

    forward_s: float
    backward_s: float
    forward_host_s: float
    backward_host_s: float


@dataclass(frozen=True)
class CallTimer:
    """Times calls on one device.

    Attributes:
        device: where the calls run; on the CPU they are timed by the clock, without graphs.
        budget_s: measured time of an item after which it is enough.
        min_repeats: repeats at least, whatever they last.
    """

    device: torch.device
    budget_s: float
    min_repeats: int

    @property
    def is_cuda(self) -> bool:
        """Whether there are events and graphs."""
        return self.device.type == "cuda"

    @property
    def cache_bytes(self) -> int:
        """The device's cache that operands shall not stay in; 0 on a CPU."""
        return int(torch.cuda.get_device_properties(self.device).L2_cache_size) if self.is_cuda else 0

    @property
    def num_multiprocessors(self) -> int | None:
        """Number of multiprocessors of the device; None on a CPU."""
        return int(torch.cuda.get_device_properties(self.device).multi_processor_count) if self.is_cuda else None

    def num_sets(self, operand_bytes: float) -> int:
        """Return how many sets of operands of this size take turns."""
        return max(1, min(MAX_SETS, math.ceil(CACHES * self.cache_bytes / operand_bytes)))

    def wait(self) -> None:
        """Wait for the device."""
        if self.is_cuda:
            torch.cuda.synchronize(self.device)

    def seconds(self, calls: Sequence[Call]) -> float:
        """Return the median time of one call, of equal calls on different operands that take turns."""
        for call in [calls[0]] * WARM_CALLS + list(calls):
            call()
        self.wait()
        estimate_s = min(self._each(calls, ESTIMATES))
        if not self.is_cuda or (estimate_s >= GRAPH_BELOW_S and self.host_s(calls[0], 1) < HOST_SHARE * estimate_s):
            return statistics.median(self._each(calls, self._repeats(estimate_s)))
        num = self._num_calls(len(calls), estimate_s)
        graph = _captured(calls, num)
        graph.replay()
        replay_s = min(self._each([graph.replay], ESTIMATES))
        if replay_s < GRAPH_S / 2 and num < MAX_CALLS:  # the estimate was the host's time
            num = self._num_calls(len(calls), replay_s / num)
            graph = _captured(calls, num)
            graph.replay()
            replay_s = min(self._each([graph.replay], ESTIMATES))
        return statistics.median(self._each([graph.replay], self._repeats(replay_s))) / num

    def pass_times(self, forward: Callable[[], torch.Tensor], backward: Callable[[torch.Tensor], object]) -> PassTimes:
        """Time forward and backward passes in turn, issued eagerly as in a training step.

        After each `ROUND` of them the host waits, so that it never runs into the end of the queue. The first of a round gives
        the host's time to issue; its device time, with an empty queue ahead, is left out.
        """
        for _ in range(WARM_CALLS):
            backward(forward())
        self.wait()
        forward_s: list[float] = []
        backward_s: list[float] = []
        hosts: list[tuple[float, float]] = []
        while sum(forward_s) + sum(backward_s) < self.budget_s or len(forward_s) < self.min_repeats:
            marks = [self._mark()]
            for place in range(ROUND):
                start = time.perf_counter()
                out = forward()
                marks.append(self._mark())
                middle = time.perf_counter()
                backward(out)
                marks.append(self._mark())
                if place == 0:
                    hosts.append((middle - start, time.perf_counter() - middle))
                del out
            self.wait()
            spans = _spans(marks)[2:]
            forward_s += spans[0::2]
            backward_s += spans[1::2]
            if len(forward_s) >= MAX_REPEATS:
                break
        first, second = (statistics.median(host[part] for host in hosts) for part in (0, 1))
        return PassTimes(statistics.median(forward_s), statistics.median(backward_s), first, second)

    def host_s(self, call: Call, num: int) -> float:
        """Return the median seconds in which the host issues one call of a series that finds an empty queue."""
        results = []
        for _ in range(self.min_repeats + 1):
            self.wait()
            start = time.perf_counter()
            for _ in range(num):
                call()
            results.append((time.perf_counter() - start) / num)
        self.wait()
        return statistics.median(results[1:])

    def queued_s(self, hold: Call, call: Call, num: int) -> float:
        """Return the median seconds from call to call where the host has issued all of them while the device was held up."""
        results = []
        for _ in range(self.min_repeats + 1):
            self.wait()
            hold()
            start = self._mark()
            for _ in range(num):
                call()
            end = self._mark()
            self.wait()
            results.append(_spans([start, end])[0] / num)
        return statistics.median(results[1:])

    def _repeats(self, seconds: float) -> int:
        return max(self.min_repeats, min(MAX_REPEATS, round(self.budget_s / max(seconds, 1e-9))))

    def _each(self, calls: Sequence[Call], repeats: int) -> list[float]:
        """Return the seconds of each of so many calls in a row."""
        marks = [self._mark()]
        for number in range(repeats):
            calls[number % len(calls)]()
            marks.append(self._mark())
        self.wait()
        return _spans(marks)

    def _num_calls(self, num_sets: int, call_s: float) -> int:
        """Return whole turns of the sets that last `GRAPH_S`, at least one."""
        turns = math.ceil(GRAPH_S / max(call_s, 1e-9) / num_sets)
        return num_sets * max(1, min(turns, MAX_CALLS // num_sets))

    def _mark(self) -> torch.cuda.Event | float:
        if not self.is_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event


def _spans(marks: Sequence[torch.cuda.Event | float]) -> list[float]:
    """Return the seconds between marks that follow each other; the device must have passed them."""
    result = []
    for one, other in pairwise(marks):
        if isinstance(one, float) or isinstance(other, float):
            assert isinstance(one, float)
            assert isinstance(other, float)
            result.append(other - one)
        else:
            result.append(one.elapsed_time(other) / 1e3)
    return result


def _captured(calls: Sequence[Call], num: int) -> torch.cuda.CUDAGraph:
    """Return a graph of so many calls in turn. Results are kept for a turn, so that they too lie in different places."""
    graph = torch.cuda.CUDAGraph()
    outputs: list[object] = [None] * len(calls)
    torch.cuda.synchronize()
    graph.capture_begin()
    try:
        for number in range(num):
            outputs[number % len(calls)] = calls[number % len(calls)]()
    finally:
        graph.capture_end()
    return graph
