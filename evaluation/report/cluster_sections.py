"""Sections of `JobPartitioning-v0` in a report: why jobs were turned away, their allocations, one episode and one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...simulation.cluster.records import EpisodeRecord
from ...simulation.cluster.scenario import Scenario
from ...simulation.step.timeline import Timeline, simulate
from ..evaluate import Evaluation
from ..plots import curves, policies
from ..plots.gantt import episode_figure
from ..plots.step import step_figure
from ..plots.style import RUNNING
from .pages import Drawn, Sections
from .shared_figures import drawn_rows, shown_policies

Data = Mapping[str, Any]

MOST_DRAWN = 4
"""Policies whose episode the chart of a report can show."""

_EPISODE = (
    "The same arrivals under each policy. A bar is a job on the devices that it holds, in the colour of its job graph and "
    "with its number where there is room; a gap is an idle device. A mark above the bars is a job that was turned away."
)


_SHARES = {
    "degrees": (
        "degree (ranks of a job)",
        0,
        "Into how many ranks accepted jobs were cut. A row is a policy's histogram: the darker a cell, the greater the share of "
        "its accepted jobs.",
    ),
    "shapes": ("shape of the block", 1, "On which blocks accepted jobs ran: a row is a policy's histogram over their shapes."),
    "rules": (
        "placement rule",
        2,
        "By which placement rule the blocks were taken. Where several rules take the same block, the first of them in the "
        "benchmark's order counts.",
    ),
}
"""Of a row's shares of jobs: what they are over, from how many names on they are drawn, and the caption."""


def cluster_sections(evaluation: Evaluation) -> Sections:
    """Return the sections of an evaluation."""
    results, scenario = evaluation.results, evaluation.world.built
    names = [name for name in shown_policies(results, MOST_DRAWN) if evaluation.played[name].records]
    episodes = [(name, evaluation.played[name].records[0]) for name in names]
    return Sections(
        f"; job graphs {', '.join(results['about']['jobs'])}; {results['about']['num_jobs']} arrivals each",
        [*_figures(drawn_rows(results)), Drawn(episode_figure(scenario, episodes), _EPISODE), *_step(episodes[0][1], scenario)],
        (),
        _method(results),
    )


def one_job(record: EpisodeRecord, scenario: Scenario) -> tuple[int, Timeline] | None:
    """Return a placed job with one of its steps: the first after the warm-up with the most common degree above 1.

    None under the published PAC-ML rules, whose look-ahead leaves no timeline.
    """
    if scenario.simulator is not None:
        return None
    first = scenario.settings.num_warmup_jobs
    degrees = np.where(record.is_accepted, record.degree, 0)
    degrees[:first] = 0
    target = degrees[degrees > 1] if (degrees > 1).any() else degrees[degrees > 0]
    if len(target) == 0:
        return None
    k = int(np.flatnonzero(degrees == np.bincount(target).argmax())[0])
    graph = scenario.workload.graphs[int(record.graph_id[k])]
    devices = record.devices_of(k, scenario)
    splits = scenario.settings.splitting.splits(graph, len(devices))
    return k, simulate(graph, scenario.cluster, splits, devices, scenario.settings.costs)


def _figures(rows: Sequence[Data]) -> list[Drawn]:
    rows = [{"outcomes": {}, "degrees": {}, "shapes": {}, "rules": {}, "completion_percentiles_s": None, **row} for row in rows]
    is_running = any(RUNNING.word in row["outcomes"] for row in rows)
    drawn = [
        Drawn(
            policies.reasons_figure(rows),
            "Why jobs were turned away. “No free block”: devices were free, but no set of them that a job may own and that meets "
            "the deadline, which is fragmentation. “No free device”: all were held. “Rejected by choice”: the policy had "
            "somewhere to put the job and did not. “Deadline out of reach”: too short even on an empty cluster, the same jobs "
            "for every policy."
            + " “Running at the end”: placed, but counted as blocked by the rules of this benchmark."
            * is_running,
        ),
        *(
            Drawn(policies.shares_figure(rows, key, what), caption)
            for key, (what, fewest, caption) in _SHARES.items()
            if len({name for row in rows for name in row[key]}) >= fewest
        ),
    ]
    if any(row["completion_percentiles_s"] for row in rows):
        drawn.append(
            Drawn(
                curves.completion_figure(rows),
                "Completion times of accepted jobs, all episodes together: the share that took no longer. Each policy accepts "
                "other jobs, so a curve to the left is no merit by itself.",
            )
        )
    return drawn


def _step(record: EpisodeRecord, scenario: Scenario) -> list[Drawn]:
    job = one_job(record, scenario)
    if job is None:
        return []
    k, step = job
    graph = scenario.workload.graphs[int(record.graph_id[k])]
    names = [scenario.cluster.device_name(int(device)) for device in record.devices_of(k, scenario)]
    caption = (
        "One training step of one job as the simulator sees it. Each rank has two lanes: above what it computes, below the "
        "messages that it takes part in. Communication that lies under compute costs nothing; the share in the title is the "
        "part of the step in which the busiest rank does not compute."
    )
    return [Drawn(step_figure(step, graph, names), caption)]


def _method(results: Data) -> list[str]:
    about, rows = results["about"], results["rows"]
    cooldown, warmup = about.get("num_cooldown_jobs", 0), about["num_warmup_jobs"]
    ends_block = any(RUNNING.word in row["details"].get("outcomes", {}) for row in rows)
    undecided = " but for the arrival that ends an episode, which the published simulator counts and never decides" * ends_block
    points = [
        "The cluster starts empty; "
        + (f"the first {warmup} arrivals are a warm-up" if warmup else "there is no warm-up")
        + (f", the last {cooldown} do not count" if cooldown else "")
        + f", so {about['num_jobs'] - warmup - cooldown} arrivals of each episode count.",
        f"Blocking rate and accepted jobs add up to all jobs{undecided}. Completion time runs from arrival to end. Slack is the "
        "share of the allowed time that accepted jobs leave unused. Fragmentation is the share of ranks that the free devices "
        "would suffice for and no free block has, when jobs arrive.",
        *(said for name, said in _REFERENCES.items() if any(row["policy"].startswith(name) for row in rows)),
    ]
    if about.get("queue_capacity", 0):
        points.append(
            f"Up to {about['queue_capacity']} jobs may wait in a queue. One whose deadline expires there counts as turned "
            "away; one that still waits when the episode ends counts neither as accepted nor as turned away."
        )
    degrees = about["degrees"]
    several = f"{len(degrees)} different numbers of ranks, {min(degrees)} to {max(degrees)}"
    named = f"{', '.join(map(str, degrees))} rank{'s' * (max(degrees) > 1)}"
    return [*points, f"A job may be cut into {several if len(degrees) > 20 else named}."]


_REFERENCES = {
    "linear-programme": "linear-programme is a bound that no policy can pass: all arrivals are known, jobs may be accepted in "
    "part, and only the number of devices limits them.",
    "clairvoyant-beam": "clairvoyant-beam is the decision of a beam search that knows all arrivals, played in the simulator; "
    "a wider search may do better.",
}
