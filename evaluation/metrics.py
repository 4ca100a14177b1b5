"""Figures of one episode, from its record.

All of them leave out the jobs that arrive during the warm-up and the cool-down, and jobs that still wait in the queue
when the episode ends. Jobs that still run then count as placed, with the completion time that they will have."""

from __future__ import annotations

import numpy as np

from ..simulation.dynamics import OUTCOME_WORDS, Outcome
from ..simulation.records import EpisodeRecord
from ..simulation.scenario import Scenario

# Name of each figure and what it counts; absent (None) where no job was accepted.
METRICS = {
    "blocking_rate": "share of jobs turned away, by choice or not",
    "acceptance_rate": "share of jobs placed",
    "mean_completion_s": "mean completion time of placed jobs, seconds",
    "p95_completion_s": "95th percentile of the same, seconds",
    "mean_slack": "mean share of the allowed time that placed jobs leave unused",
    "utilisation": "share of device-time held by jobs",
    "mean_degree": "mean number of ranks of placed jobs",
    "mean_wait_s": "mean time that placed jobs waited in the queue, seconds",
    "mean_delay_s": "mean time by which failures and preemptions made placed jobs end later, seconds",
}


def metrics(record: EpisodeRecord, scenario: Scenario) -> dict[str, float | None]:
    """The figures named in `METRICS`."""
    counted = scenario.settings.counted
    accepted = np.zeros(len(record.arrival_s), np.bool_)
    accepted[counted] = record.is_accepted[counted]
    num_accepted = int(accepted.sum())
    num_decided = int((~record.is_waiting[counted]).sum())
    found: dict[str, float | None] = {
        "blocking_rate": record.blocking_rate(counted),
        "acceptance_rate": num_accepted / num_decided if num_decided else 1.0,
        "utilisation": utilisation(record, scenario),
    }
    if num_accepted == 0:
        return {name: found.get(name) for name in METRICS}
    completion_s = record.completion_s[accepted]
    allowed_s = record.allowed_s[accepted]
    has_deadline = np.isfinite(allowed_s)
    found["mean_completion_s"] = float(completion_s.mean())
    found["p95_completion_s"] = float(np.percentile(completion_s, 95))
    found["mean_slack"] = float((1.0 - completion_s / allowed_s)[has_deadline].mean()) if has_deadline.any() else None
    found["mean_degree"] = float(record.degree[accepted].mean())
    found["mean_wait_s"] = float(record.wait_s[accepted].mean())
    found["mean_delay_s"] = float(record.delay_s[accepted].mean())
    return {name: found[name] for name in METRICS}


def utilisation(record: EpisodeRecord, scenario: Scenario) -> float | None:
    """Share of device-time held from the first to the last counted arrival; None where that takes no time."""
    begin_s, end_s = (float(record.arrival_s[scenario.settings.counted][i]) for i in (0, -1))
    if end_s <= begin_s:
        return None
    accepted = record.is_accepted
    held_s = np.minimum(record.finish_s[accepted], end_s) - np.maximum(record.start_s[accepted], begin_s)
    held = float((np.maximum(held_s, 0.0) * record.degree[accepted]).sum())
    return held / (scenario.cluster.num_devices * (end_s - begin_s))


def degree_shares(records: list[EpisodeRecord], scenario: Scenario) -> dict[str, float]:
    """Share of each degree among the counted jobs of several episodes that were placed."""
    counted = scenario.settings.counted
    degrees = np.concatenate([record.degree[counted][record.is_accepted[counted]] for record in records])
    return {str(d): float((degrees == d).mean()) if len(degrees) else 0.0 for d in scenario.space.degrees}


def outcome_shares(records: list[EpisodeRecord], scenario: Scenario) -> dict[str, float]:
    """Share of each outcome among the counted jobs of several episodes; those that still wait do not count."""
    counts = [record.counts(scenario.settings.counted) for record in records]
    waiting = OUTCOME_WORDS[Outcome.WAITING]
    words = [word for word in OUTCOME_WORDS.values() if word != waiting and any(word in count for count in counts)]
    found = {word: sum(count.get(word, 0) for count in counts) for word in words}
    return {word: number / max(1, sum(found.values())) for word, number in found.items()}
