"""Figures of one episode, from its record.

All of them leave out the jobs that arrive during the warm-up and the cool-down, and jobs that still wait in the queue
when the episode ends. Jobs that still run then count as placed, with the completion time that they will have; under the
published PAC-ML rules they count as blocked instead."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..simulation.cluster.records import EpisodeRecord
from ..simulation.cluster.scenario import Scenario
from ..simulation.cluster.state import OUTCOME_WORDS, Outcome

# Percentiles of the completion times of all placed jobs that `completion_percentiles_s` tells.
PERCENTILES = tuple(range(0, 101, 2))
SEVERAL_BLOCKS = "several blocks"

# Name of each figure and what it counts; absent (None) where no job was accepted.
METRICS = {
    "blocking_rate": "share of jobs turned away, by choice or not",
    "acceptance_rate": "share of jobs placed",
    "mean_completion_s": "mean completion time of placed jobs, seconds",
    "p50_completion_s": "median of the same, seconds",
    "p95_completion_s": "95th percentile of the same, seconds",
    "p99_completion_s": "99th percentile of the same, seconds",
    "mean_slack": "mean share of the allowed time that placed jobs leave unused",
    "p5_slack": "5th percentile of the same",
    "p50_slack": "median of the same",
    "throughput_per_h": "placed jobs for each hour of arrivals",
    "utilisation": "share of device-time held by jobs",
    "fragmentation": "share of ranks that free devices would suffice for and no free block has",
    "mean_degree": "mean number of ranks of placed jobs",
    "mean_wait_s": "mean time that placed jobs waited in the queue, seconds",
    "mean_delay_s": "mean time by which failures and preemptions made placed jobs end later, seconds",
}


def metrics(record: EpisodeRecord, scenario: Scenario) -> dict[str, float | None]:
    """The figures named in `METRICS`."""
    counted = scenario.settings.counted
    accepted = np.zeros(len(record.arrival_s), np.bool_)
    accepted[counted] = record.is_served[counted]
    num_accepted = int(accepted.sum())
    num_arrived = int((~record.is_waiting[counted]).sum()) + record.num_undecided
    found: dict[str, float | None] = {
        "blocking_rate": record.blocking_rate(counted),
        "acceptance_rate": num_accepted / num_arrived if num_arrived else 1.0,
        "throughput_per_h": throughput_per_h(record, scenario, num_accepted),
        "utilisation": utilisation(record, scenario),
        "fragmentation": fragmentation(record, scenario),
    }
    if num_accepted == 0:
        return {name: found.get(name) for name in METRICS}
    completion_s = record.completion_s[accepted]
    allowed_s = record.allowed_s[accepted]
    has_deadline = np.isfinite(allowed_s)
    found["mean_completion_s"] = float(completion_s.mean())
    for percent in (50, 95, 99):
        found[f"p{percent}_completion_s"] = float(np.percentile(completion_s, percent))
    if has_deadline.any():
        slack = (1.0 - completion_s / allowed_s)[has_deadline]
        found["mean_slack"] = float(slack.mean())
        found["p5_slack"], found["p50_slack"] = (float(np.percentile(slack, percent)) for percent in (5, 50))
    found["mean_degree"] = float(record.degree[accepted].mean())
    found["mean_wait_s"] = float(record.wait_s[accepted].mean())
    found["mean_delay_s"] = float(record.delay_s[accepted].mean())
    return {name: found.get(name) for name in METRICS}


def utilisation(record: EpisodeRecord, scenario: Scenario) -> float | None:
    """Share of device-time held from the first to the last counted arrival; None where that takes no time."""
    begin_s, end_s = (float(record.arrival_s[scenario.settings.counted][i]) for i in (0, -1))
    if end_s <= begin_s:
        return None
    accepted = record.is_accepted
    held_s = np.minimum(record.finish_s[accepted], end_s) - np.maximum(record.start_s[accepted], begin_s)
    held = float((np.maximum(held_s, 0.0) * record.num_held[accepted]).sum())
    return held / (scenario.cluster.num_devices * (end_s - begin_s))


def throughput_per_h(record: EpisodeRecord, scenario: Scenario, num_accepted: int) -> float | None:
    """Jobs placed among the counted arrivals over the time that these take, each until the next one; None where none passes."""
    arrival_s = record.arrival_s[scenario.settings.counted]
    length_s = float(arrival_s[-1] - arrival_s[0])
    return num_accepted * (len(arrival_s) - 1) / len(arrival_s) / (length_s / 3600.0) if length_s > 0 else None


def completion_percentiles_s(records: list[EpisodeRecord], scenario: Scenario) -> list[float] | None:
    """`PERCENTILES` of the completion times of the counted jobs of several episodes that were placed; None without any."""
    counted = scenario.settings.counted
    times = np.concatenate([record.completion_s[counted][record.is_served[counted]] for record in records])
    return [float(value) for value in np.percentile(times, PERCENTILES)] if len(times) else None


def shape_shares(records: list[EpisodeRecord], scenario: Scenario) -> dict[str, float]:
    """Share of each shape of block among the counted jobs of several episodes that were placed, smallest blocks first."""
    counted = scenario.settings.counted
    blocks = np.concatenate([record.block[counted][record.is_accepted[counted]] for record in records])
    names = [*dict.fromkeys(scenario.space.shape_names), SEVERAL_BLOCKS]
    number = np.array([names.index(name) for name in (*scenario.space.shape_names, SEVERAL_BLOCKS)])
    found = np.bincount(number[blocks], minlength=len(names))  # -1, several blocks, is the last entry
    return {name: float(count) / len(blocks) for name, count in zip(names, found.tolist(), strict=True) if count}


def rule_shares(records: list[EpisodeRecord], scenario: Scenario) -> dict[str, float]:
    """Share of each placement rule among the same jobs: the first rule whose candidate was the one chosen."""
    counted = scenario.settings.counted
    chosen = np.concatenate([record.candidate[counted][record.is_accepted[counted]] for record in records])
    rules = [scenario.candidate_rule[candidate] for candidate in chosen.tolist()]
    return {rule: rules.count(rule) / len(rules) for rule in scenario.settings.placement_rules if rule in rules}


def degree_shares(records: list[EpisodeRecord], scenario: Scenario) -> dict[str, float]:
    """Share of each degree among the counted jobs of several episodes that were placed."""
    counted = scenario.settings.counted
    degrees = np.concatenate([record.degree[counted][record.is_accepted[counted]] for record in records])
    return {str(d): float((degrees == d).mean()) if len(degrees) else 0.0 for d in scenario.space.degrees}


def outcome_shares(records: list[EpisodeRecord], scenario: Scenario) -> dict[str, float]:
    """Share of each outcome among the counted jobs of several episodes, as `EpisodeRecord.blocking_rate` counts them.

    Those that still wait do not count; those that are never decided count, and have no outcome.
    """
    counts = [record.counts(scenario.settings.counted) for record in records]
    waiting = OUTCOME_WORDS[Outcome.WAITING]
    words = [word for word in OUTCOME_WORDS.values() if word != waiting and any(word in count for count in counts)]
    found = {word: sum(count.get(word, 0) for count in counts) for word in words}
    arrived = sum(found.values()) + sum(record.num_undecided for record in records)
    return {word: number / max(1, arrived) for word, number in found.items()}


def fragmentation(record: EpisodeRecord, scenario: Scenario) -> float | None:
    """Mean over the counted arrivals that find a free device of the share of ranks lost to fragmentation.

    At each such arrival, one less the ranks of the largest free block over the largest degree for which as many devices
    are free: 0 where the free devices can serve as large a job as their number allows, 3/4 where 8 are free and no block
    of more than 2. None where no arrival finds a free device.
    """
    counted = scenario.settings.counted
    is_free = free_devices(record, scenario)[counted]
    degrees = np.array(scenario.space.degrees, np.int64)
    sizes = np.diff(scenario.space.start)
    owns = np.zeros((scenario.space.num_blocks, is_free.shape[1]), np.float32)
    owns[np.repeat(np.arange(len(sizes)), sizes), scenario.space.devices[: sizes.sum()]] = 1.0
    block_is_free = (~is_free).astype(np.float32) @ owns.T == 0
    largest = np.where(block_is_free, degrees[scenario.space.degree], 0).max(axis=1)
    allowed = np.concatenate([[0], degrees])[np.searchsorted(degrees, is_free.sum(axis=1), side="right")]
    meets = allowed > 0
    return float((1.0 - largest[meets] / allowed[meets]).mean()) if meets.any() else None


def free_devices(record: EpisodeRecord, scenario: Scenario) -> NDArray[np.bool_]:
    """Whether each device is free when each job arrives, before it is decided, ``(k, n)``."""
    arrival_s = record.arrival_s
    is_free = np.ones((len(arrival_s), scenario.cluster.num_devices), np.bool_)
    for job in np.flatnonzero(record.is_accepted).tolist():
        first = max(job + 1, int(np.searchsorted(arrival_s, record.start_s[job], side="left")))
        last = int(np.searchsorted(arrival_s, record.finish_s[job], side="left"))
        is_free[first:last, record.devices_of(job, scenario)] = False
    return is_free
