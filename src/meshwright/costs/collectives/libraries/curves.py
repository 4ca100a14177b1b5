"""Measured times of one collective over one group, as a curve over the size.

While a collective keeps its algorithm and protocol, its time between two measured sizes is a straight line: a latency and a
bandwidth. Where the library changes protocol its time jumps, from LL to Simple by up to a factor of two. A line across the
jump would be wrong on both sides. The library's tuner decides on which side a size lies. There the line of the two nearest
sizes on that side is extended to it.

A measurement that takes longer than one of more bytes is an outlier of a single run and is left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

from ..prices import Provenance

OUTLIER = 1.15
"""A time above this multiple of a larger size's time is an outlier; runs of small messages vary by some 10 %."""

JUMP = 1.5
"""A protocol changes between two sizes where time grows by this multiple of what the next bytes take, or more."""

SAME_SIZE = 1e-9

Point = tuple[float, float]


class Reading(NamedTuple):
    """The time of a size on a curve.

    Attributes:
        seconds: the time.
        provenance: ``measured`` at a size of the table, ``interpolated`` between two, ``estimated`` beyond.
    """

    seconds: float
    provenance: Provenance


class Curve:
    """Times of a collective over the size of its payload.

    Attributes:
        points: sizes in bytes, rising, and seconds, which never fall; what was measured without outliers.
        num_outliers: measurements left out.
    """

    def __init__(
        self,
        measured: Sequence[Point],
        protocol: Callable[[float], str] | None = None,
        expected_s: Callable[[float], float] | None = None,
    ) -> None:
        """Make a curve.

        Args:
            measured: sizes in bytes and seconds in any order, at least one; of a repeated size the lower median counts.
            protocol: the library's protocol at a size; None where nobody knows.
            expected_s: the time that its tuner expects, by whose growth a single size is continued; None where nobody knows.
        """
        known = merged(measured)
        self.points = _without_outliers(known)
        self.num_outliers = len(known) - len(self.points)
        self.protocol = protocol
        self.expected_s = expected_s
        self._sizes = [size for size, _ in self.points]

    @cached_property
    def floor_s(self) -> float:
        """The least time, of no bytes to speak of."""
        return min(seconds for _, seconds in self.points)

    def at(self, payload_bytes: float) -> Reading:
        """Return the time of a size.

        Below the smallest size a collective takes as long as there. Above the largest, each further byte takes as long as
        between the last two sizes. A single size is continued as the tuner's expectation grows.
        """
        place = bisect_left(self._sizes, payload_bytes * (1 - SAME_SIZE))
        if place < len(self.points) and self._sizes[place] <= payload_bytes * (1 + SAME_SIZE):
            return Reading(self.points[place][1], "measured")
        if place == 0:
            return Reading(self.points[0][1], "estimated")
        if place == len(self.points):
            return Reading(self._beyond(payload_bytes), "estimated")
        return Reading(self._between(place - 1, payload_bytes), "interpolated")

    def _between(self, left: int, payload_bytes: float) -> float:
        (_, low_s), (_, high_s) = self.points[left : left + 2]
        if self.protocol is None or not self._jumps(left):
            return self._on_line(left, payload_bytes)
        below_s, above_s = self._on_line(left - 1, payload_bytes), self._on_line(left + 1, payload_bytes)
        is_below = self.protocol(payload_bytes) == self.protocol(self._sizes[left])
        # Where the two lines cross, time must not fall from one to the other.
        seconds = min(below_s, above_s) if is_below else max(below_s, above_s)
        return min(max(seconds, low_s), high_s)

    def _jumps(self, left: int) -> bool:
        """Return whether the protocol changes between two neighbours, and their times show it."""
        if self.protocol is None or left == 0 or left + 2 >= len(self.points):
            return False
        changes = self.protocol(self._sizes[left]) != self.protocol(self._sizes[left + 1])
        return changes and self._s_per_byte(left) >= JUMP * self._s_per_byte(left + 1)

    def _on_line(self, left: int, payload_bytes: float) -> float:
        """Interpolate on the line through two neighbours, also beyond them."""
        size, seconds = self.points[left]
        return seconds + self._s_per_byte(left) * (payload_bytes - size)

    def _s_per_byte(self, left: int) -> float:
        (low, low_s), (high, high_s) = self.points[left : left + 2]
        return (high_s - low_s) / (high - low)

    def _beyond(self, payload_bytes: float) -> float:
        size, seconds = self.points[-1]
        if len(self.points) == 1 and self.expected_s is not None:
            return seconds * max(1.0, self.expected_s(payload_bytes) / self.expected_s(size))
        if len(self.points) == 1:  # one size says nothing of latency: all of it counts as bandwidth
            return seconds * payload_bytes / size
        return seconds + max(0.0, self._s_per_byte(len(self.points) - 2)) * (payload_bytes - size)


def merged(measured: Sequence[Point]) -> list[Point]:
    """Return the lower median of each size, by size."""
    by_size: dict[float, list[float]] = {}
    for size, seconds in measured:
        by_size.setdefault(size, []).append(seconds)
    return [(size, sorted(times)[(len(times) - 1) // 2]) for size, times in sorted(by_size.items())]


def _without_outliers(points: list[Point]) -> list[Point]:
    """Return the points that take not much longer than any with more bytes; where time still falls, its mean."""
    inliers: list[Point] = []
    least_s = float("inf")
    for size, seconds in reversed(points):
        if seconds <= OUTLIER * least_s:
            inliers.append((size, seconds))
        least_s = min(least_s, seconds)
    return _rising(inliers[::-1])


def _rising(points: list[Point]) -> list[Point]:
    """Return the nearest times that never fall: neighbours that do are replaced by their mean, and so on.

    Source:
        The pool-adjacent-violators algorithm; Barlow et al., "Statistical inference under order restrictions", 1972.
    """
    pools: list[tuple[float, list[float]]] = []  # mean seconds, sizes
    for size, seconds in points:
        pools.append((seconds, [size]))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (last_s, last), (before_s, before) = pools.pop(), pools.pop()
            total_s = before_s * len(before) + last_s * len(last)
            pools.append((total_s / (len(before) + len(last)), before + last))
    return [(size, seconds) for seconds, sizes in pools for size in sizes]
