"""Figures of one episode, from its record. All of them leave out the jobs that arrive during the warm-up."""

from __future__ import annotations

import numpy as np

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
}


def metrics(record: EpisodeRecord, scenario: Scenario) -> dict[str, float | None]:
    """The figures named in `METRICS`."""
    first = scenario.settings.num_warmup_jobs
    accepted = record.is_accepted.copy()
    accepted[:first] = False
    num_jobs = len(record.arrival_s) - first
    num_accepted = int(accepted.sum())
    found: dict[str, float | None] = {
        "blocking_rate": 1.0 - num_accepted / num_jobs,
        "acceptance_rate": num_accepted / num_jobs,
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
    return {name: found[name] for name in METRICS}


def utilisation(record: EpisodeRecord, scenario: Scenario) -> float | None:
    """Share of device-time held between the first counted and the last arrival; None where that takes no time."""
    begin_s = float(record.arrival_s[scenario.settings.num_warmup_jobs])
    end_s = float(record.arrival_s[-1])
    if end_s <= begin_s:
        return None
    accepted = record.is_accepted
    held_s = np.minimum(record.finish_s[accepted], end_s) - np.maximum(record.arrival_s[accepted], begin_s)
    held = float((np.maximum(held_s, 0.0) * record.degree[accepted]).sum())
    return held / (scenario.cluster.num_devices * (end_s - begin_s))


def degree_shares(records: list[EpisodeRecord], scenario: Scenario) -> dict[str, float]:
    """Share of each degree among the placed jobs of several episodes, after the warm-up."""
    first = scenario.settings.num_warmup_jobs
    degrees = np.concatenate([record.degree[first:][record.is_accepted[first:]] for record in records])
    return {str(d): float((degrees == d).mean()) if len(degrees) else 0.0 for d in scenario.space.degrees}


def outcome_shares(records: list[EpisodeRecord], scenario: Scenario) -> dict[str, float]:
    """Share of each outcome among the jobs of several episodes, after the warm-up."""
    first = scenario.settings.num_warmup_jobs
    counts = [record.counts(first) for record in records]
    total = sum(sum(count.values()) for count in counts)
    return {word: sum(count[word] for count in counts) / total for word in counts[0]}
