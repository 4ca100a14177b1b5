"""Jobs that share a link take turns: shifts in time by which the bursts of one fall into the gaps of the others.

A training job sends in bursts, the same in each step. Two jobs whose bursts meet on a link both wait; started at other times they
need not. Only the starts of the jobs change.

Source:
    Rajasekaran, Ghobadi and Akella, "CASSINI: network-aware job scheduling in machine learning clusters", 2024. The bursts of all
    jobs lie on circles whose common perimeter is the least common multiple of the periods, turned until least overlaps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np

from ...errors import ConfigError, PlanError
from ..step.timeline import Timeline

MOST_ROUNDS = 64
"""Periods of the longest job after which all bursts must meet again; beyond that no shift lasts."""

SWEEPS = 8
"""Rounds over all jobs; in a round one job after another takes its best shift while the others stay."""


@dataclass(frozen=True)
class Bursts:
    """The bursts of one job over a link in each of its steps.

    Attributes:
        period_s: of one step.
        bursts: start and end within the step, seconds, rising, and the share of the link that the job wants meanwhile.

    Raises:
        ConfigError: a period that is not positive and finite, bursts outside it or out of order, a share outside 0 to 1.
    """

    period_s: float
    bursts: tuple[tuple[float, float, float], ...]

    def __post_init__(self) -> None:
        if not 0 < self.period_s < math.inf:
            raise ConfigError("must be positive and finite", field="period_s", value=str(self.period_s))
        times = [0.0, *(t for start, end, _ in self.bursts for t in (start, end)), self.period_s]
        if any(later < earlier for earlier, later in pairwise(times)):
            raise ConfigError("must rise within the period", field="bursts", value=str(self.bursts))
        for _, _, share in self.bursts:
            if not 0 <= share <= 1:
                raise ConfigError("must be a share of the link", field="bursts", value=str(share))


@dataclass(frozen=True)
class Interleaving:
    """The time at which each job starts.

    Attributes:
        shift_s: of each job, less than its period; the first starts at zero.
        excess: mean share of the link that is wanted beyond what it has; zero where the bursts fit into each other.
    """

    shift_s: tuple[float, ...]
    excess: float


def bursts(timeline: Timeline, link: int) -> Bursts:
    """Return the bursts over a link of a job alone on its cluster.

    Raises:
        PlanError: the timeline was made without a network.
        ConfigError: the step takes no time.
    """
    network, messages = timeline.network, timeline.execution.messages
    if network is None:
        raise PlanError("the timeline does not know on which devices its ranks ran", field="network")
    speed = float(network.cluster.links.bandwidth_bytes_per_s[link])
    over_link_bytes = np.zeros(timeline.execution.num_tasks)
    flows = zip(messages.flow_task, messages.sender.tolist(), messages.receiver.tolist(), messages.flow_bytes, strict=True)
    for task, sender, receiver, flow_bytes in flows:
        over_link_bytes[task] += flow_bytes * dict(network.carried(sender, receiver)).get(link, 0.0)
    sent = [
        (float(timeline.start_s[task]), float(timeline.finish_s[task]), float(over_link_bytes[task]))
        for task in np.flatnonzero(over_link_bytes).tolist()
    ]
    merged: list[tuple[float, float, float]] = []
    for start_s, finish_s, sent_bytes in sorted(sent):
        if merged and start_s <= merged[-1][1]:
            first_s, last_s, before = merged.pop()
            merged.append((first_s, max(last_s, finish_s), before + sent_bytes))
        else:
            merged.append((start_s, finish_s, sent_bytes))
    found = ((start, end, min(1.0, size / speed / (end - start))) for start, end, size in merged if end > start)
    return Bursts(timeline.step_s, tuple(found))


def interleave(jobs: Sequence[Bursts]) -> Interleaving:
    """Return the shifts by which the bursts of jobs on one link overlap least.

    Overlap is linear in a shift until an end of one job's burst meets an end of another's, so these meetings alone are tried.
    Two jobs get the optimal shift. Of more, each in turn takes its best while the others stay, so that a better arrangement
    may be missed. Where periods have no common multiple within `MOST_ROUNDS`, the bursts drift whatever the shifts. Then all
    shifts are zero.

    Raises:
        ConfigError: no job.
    """
    if not jobs:
        raise ConfigError("needs at least one job", field="jobs")
    perimeter_s = _perimeter_s([job.period_s for job in jobs])
    shifts = [0.0] * len(jobs)
    if perimeter_s is None:
        return Interleaving(tuple(shifts), _drifting(jobs))
    best = excess(jobs, shifts, perimeter_s)
    for _ in range(SWEEPS):
        before = best
        for moved in range(1, len(jobs)):
            for shift in _meetings(jobs, shifts, moved, perimeter_s):
                tried = [*shifts[:moved], shift, *shifts[moved + 1 :]]
                found = excess(jobs, tried, perimeter_s)
                if found < best - 1e-12:
                    best, shifts = found, tried
        if best == before:
            break
    return Interleaving(tuple(shifts), best)


def excess(jobs: Sequence[Bursts], shift_s: Sequence[float], perimeter_s: float) -> float:
    """Mean share of the link that jobs with these shifts need beyond its capacity."""
    changes: list[tuple[float, float]] = []
    wanted = 0.0
    for job, shift in zip(jobs, shift_s, strict=True):
        for k in range(round(perimeter_s / job.period_s)):
            for start, end, share in job.bursts:
                first = (start + shift + k * job.period_s) % perimeter_s
                last = first + end - start
                changes += [(first, share), (last if last <= perimeter_s else last - perimeter_s, -share)]
                wanted += share if last > perimeter_s else 0.0
    total_s, before_s = 0.0, 0.0
    for time_s, change in sorted(changes):
        total_s += max(0.0, wanted - 1.0) * (time_s - before_s)
        wanted += change
        before_s = time_s
    return (total_s + max(0.0, wanted - 1.0) * (perimeter_s - before_s)) / perimeter_s


def _meetings(jobs: Sequence[Bursts], shifts: Sequence[float], moved: int, perimeter_s: float) -> list[float]:
    """Shifts of one job at which a burst of it begins or ends where one of another job ends or begins."""
    mine = jobs[moved]
    found = {0.0}
    for number, other in enumerate(jobs):
        if number == moved:
            continue
        for k in range(round(perimeter_s / other.period_s)):
            for theirs in other.bursts:
                for own in mine.bursts:
                    for edge in theirs[:2]:
                        at = edge + shifts[number] + k * other.period_s
                        found |= {(at - own[0]) % mine.period_s, (at - own[1]) % mine.period_s}
    return sorted(found)


def _perimeter_s(periods_s: Sequence[float]) -> float | None:
    """The least common multiple of the periods; None where there is none within `MOST_ROUNDS` of the longest."""
    longest_s = max(periods_s)
    rounds = 1
    for period_s in periods_s:
        ratio = Fraction(period_s / longest_s).limit_denominator(MOST_ROUNDS)
        if ratio == 0 or abs(float(ratio) * longest_s / period_s - 1) > 1e-6:
            return None
        rounds = math.lcm(rounds, ratio.numerator)
    return rounds * longest_s if rounds <= MOST_ROUNDS else None


def _drifting(jobs: Sequence[Bursts]) -> float:
    """The excess where every mix of moments comes up as often as chance has it."""
    chances = [(0.0, 1.0)]  # share wanted, how often
    for job in jobs:
        idle = 1.0 - sum(end - start for start, end, _ in job.bursts) / job.period_s
        states = [(0.0, idle), *((share, (end - start) / job.period_s) for start, end, share in job.bursts)]
        chances = [(wanted + share, often * part) for wanted, often in chances for share, part in states]
    return sum(max(0.0, wanted - 1.0) * often for wanted, often in chances)
