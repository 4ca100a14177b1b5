"""The decisions of one episode as placement plans, so that they can be exported, priced and drawn one by one.

A folder of plans holds one JSON file per placed job and `INDEX`, which lists all jobs of the episode with their files.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .. import files
from ..errors import InputFileError, PlanError
from ..jobs.job import Job
from ..plans import Figure, PlacementPlan, moved_plan, op_split_plan, place
from ..simulation.cluster.records import EpisodeRecord
from ..simulation.cluster.scenario import Scenario

INDEX = "index.json"


def plan_of(record: EpisodeRecord, scenario: Scenario, k: int) -> PlacementPlan:
    """Return the plan of one placed job.

    Args:
        record: the episode.
        scenario: what was played.
        k: number of the job, which must have been placed, on one block.
    """
    graph_id, block = int(record.graph_id[k]), int(record.block[k])
    allowed_s = float(record.allowed_s[k])
    deadline_s = allowed_s if np.isfinite(allowed_s) else None
    job = Job(scenario.workload.graphs[graph_id], int(record.num_steps[k]), float(record.arrival_s[k]), deadline_s)
    return plan_on(scenario, job, graph_id, block, float(record.completion_s[k] - record.delay_s[k]))


def plan_on(
    scenario: Scenario,
    job: Job,
    graph_id: int,
    block: int,
    completion_s: float,
    *,
    why: str | None = None,
    template: PlacementPlan | None = None,
) -> PlacementPlan:
    """Return the plan of a job on one block.

    Args:
        scenario: cluster and rules.
        job: which.
        graph_id: index of its graph into the workload's.
        block: where.
        completion_s: how long it runs if nothing interrupts it.
        why: a sentence for the plan's reader.
        template: a plan of the same graph on as many devices of the same type, whose cut is reused.
    """
    devices = scenario.space.block(block)
    placement_class = int(scenario.space.placement_class[block])
    times = scenario.times
    step_s = float(times.step_s[graph_id, placement_class])
    if scenario.simulator is not None:  # an earlier placement may have fixed the time of this one
        step_s = completion_s / job.num_steps
    share = float(times.communication_share[graph_id, placement_class])
    figures = (("step_s", step_s, "s"), ("completion_s", completion_s, "s"), ("communication_share", share, "1"))
    predicted = tuple(Figure.predicted(*figure) for figure in figures)
    if template is not None:
        predicted += tuple(figure for figure in template.predicted if figure.name == "memory_bytes")
        return moved_plan(
            template,
            scenario.cluster,
            place(scenario.cluster, devices[: template.num_ranks]),
            num_steps=job.num_steps,
            deadline_s=job.deadline_s,
            predicted=predicted,
            why=why,
        )
    splits = scenario.splits(job.graph, len(devices))
    placement = place(scenario.cluster, devices[: splits.degree])
    plan = op_split_plan(job, scenario.cluster, splits, placement, predicted=predicted, why=why)
    training = scenario.settings.given_training
    if training.is_plain:
        return plan
    own = None if training.training.kind == "synchronous" else training.training
    return plan.model_copy(update={"training": own, "compression": training.compression})


def write_plans(record: EpisodeRecord, scenario: Scenario, policy: str, folder: Path) -> None:
    """Write the plan of each placed job of an episode as ``job-NUMBER-GRAPH`` and the index, the whole folder or nothing.

    Jobs that hold several blocks, as the published PAC-ML first fit places them, have none: a plan has its ranks on one.
    """
    names = [graph.name for graph in scenario.workload.graphs]
    plans = {
        f"job-{k:04d}-{names[int(record.graph_id[k])]}": plan_of(record, scenario, k)
        for k in np.flatnonzero(record.is_accepted & (record.block >= 0)).tolist()
    }
    held = {name: f"{files.file_name(name)}.json" for name in plans}
    with files.atomic_folder(folder, marker=INDEX) as fresh:
        for name, plan in plans.items():
            plan.save(fresh / held[name])
        index = {"policy": policy, "jobs": record.to_data(scenario), "plans": sorted(plans), "files": held}
        files.write_json(fresh / INDEX, index)


def plan_files(folder: Path) -> dict[str, Path]:
    """Return the file of each plan that `write_plans` wrote, by the plan's name.

    Raises:
        PlanError: there is no index, or it names no plan.
        InputFileError: the index is not JSON or names a file elsewhere.
    """
    index = folder / INDEX
    if not index.is_file():
        raise PlanError(f"holds no plans ({folder.name}/{INDEX}); meshwright evaluate --out writes them", file=folder.parent)
    content = files.read_json(index)
    names = content.get("plans") if isinstance(content, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise PlanError("must list the names of the plans", file=index, field="plans")
    if not names:
        raise PlanError("no job was placed in the episode, so there is nothing to export", file=index)
    held = content.get("files", {})  # absent where the name of every plan is that of its file
    if not isinstance(held, dict) or not all(isinstance(name, str) for name in held.values()):
        raise PlanError("must be the files of the plans, by name", file=index, field="files")
    try:
        return {name: files.below(folder, held.get(name, f"{name}.json")) for name in names}
    except InputFileError as error:
        raise error.at(field="files") from None
