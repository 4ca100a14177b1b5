"""The folder of an evaluation: ``results.json``, ``.csv`` and ``.md``, ``report.html``, and the files of its world.

Of `JobPartitioning-v0`, ``plans/`` holds the decisions of the first test episode of the best learned policy, or of the best
policy if none is learned. Each placed job has a plan, so that the folder can be exported. ``episode.trace.json`` shows in
Perfetto which job held each device in that episode. Where ``plans/`` changes, exports of the plans before are taken out of
``export/``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from .. import files
from ..errors import InputFileError
from ..export.writer import INDEX, MANIFEST
from ..planning.plans_of_episode import write_plans
from ..simulation.cluster.records import EpisodeRecord
from ..simulation.cluster.scenario import Scenario
from ..simulation.cluster.state import OUTCOME_WORDS, Outcome
from ..training.run_folder import RunFolder, versions
from .evaluate import Evaluation
from .report.pages import Sections
from .report.report import SECTIONS, report_html
from .report.shared_figures import shown_policies
from .saved_results import read_curve
from .tables import to_csv, to_markdown

FILES = ("results.json", "results.csv", "results.md", "report.html")
TRACE, PLANS = "episode.trace.json", "plans"


# The format counts microseconds; a second of the episode is shown as a millisecond, so that days fit on the screen.
UNITS_PER_S = 1e3


def write_evaluation(evaluation: Evaluation, out: Path, *, command: str | None = None) -> list[Path]:
    """Write all files of an evaluation into a folder.

    A training run in the same folder goes into the report too, where its policy was evaluated.

    Args:
        evaluation: the evaluation.
        out: the folder, for example a run folder.
        command: that made it; by default that of the training run.

    Returns:
        The files and folders written.
    """
    paths = [out / name for name in FILES]
    files.write_json(paths[0], evaluation.results)
    files.write_text(paths[1], to_csv(evaluation.results))
    files.write_text(paths[2], to_markdown(evaluation.results))
    more = _write_episode(evaluation, out) if evaluation.world.name == "cluster" else []
    files.write_text(paths[3], _report(evaluation, out, command))
    return [*paths, *more]


def best_policy(results: dict[str, Any]) -> str:
    """Return the best learned policy, or the best one where none is learned."""
    return shown_policies(results, 1)[0]


def _write_episode(evaluation: Evaluation, out: Path) -> list[Path]:
    shown, plans = best_policy(evaluation.results), out / PLANS
    record, scenario = evaluation.played[shown].records[0], evaluation.world.built
    before = _contents(plans)
    write_plans(record, scenario, shown, plans)
    if before != _contents(plans):
        remove_exports(out / "export")
    files.write_json(out / TRACE, to_chrome_trace(record, scenario))
    return [out / TRACE, plans]


def remove_exports(folder: Path) -> None:
    """Remove the files that exports wrote into a folder and below it; files of anyone else stay where they are.

    A link is not followed: what it leads to is not in the folder.

    Raises:
        InputFileError: a file may not be removed.
    """
    if os.path.islink(folder):
        return
    written: set[Path] = set()
    for manifest in folder.rglob(MANIFEST):
        written |= {manifest.parent / name for name in _listed(manifest, "files") if Path(str(name)).name == name}
    written |= {index for index in folder.rglob(INDEX) if _listed(index, "plans")}
    try:
        for path in sorted(written):
            if path.is_file() or path.is_symlink():
                path.unlink()
        for below, _, _ in os.walk(folder, topdown=False):
            if not os.listdir(below) and not os.path.islink(below):
                os.rmdir(below)
    except OSError as error:
        raise InputFileError(f"an old export cannot be removed ({error.strerror})", file=folder) from None


def _report(evaluation: Evaluation, out: Path, command: str | None) -> str:
    """Return the page, with what a training run left in the same folder."""
    run, world = RunFolder(out), evaluation.world
    own_names = {world.display_name(str(path)) for path in (out, out.resolve(), out.resolve() / run.policy.name)}
    own = any(row["kind"] == "learned" and row["policy"] in own_names for row in evaluation.results["rows"])
    has_curve = own and world.name == "cluster" and run.learning_curve.is_file()
    return report_html(
        evaluation.results,
        SECTIONS[world.name](evaluation) if world.name in SECTIONS else Sections(),
        learning_curve=read_curve(run.learning_curve, ("steps", "validation_blocking_rate")) if has_curve else None,
        config_yaml=_text(run.config) if own else None,
        command=command or (_text(out / "command.txt") if own else None),
        versions=_versions(out / "versions.json") if own else versions(),
    )


def _versions(path: Path) -> dict[str, str]:
    """Return what a training run was made with; of today where it does not say."""
    result = files.read_json(path) if path.is_file() else versions()
    if not isinstance(result, dict) or not all(isinstance(version, str) for version in result.values()):
        raise InputFileError("must name versions of packages", file=path)
    return result


def _text(path: Path) -> str | None:
    return files.read_text(path) if path.is_file() else None


def _contents(plans: Path) -> dict[str, bytes]:
    """Return the plans in a folder as they are written, by file name."""
    return {path.name: path.read_bytes() for path in plans.glob("job-*.json")}


def _listed(path: Path, key: str) -> list[Any]:
    """Return the list that a file of an export holds under a key; empty where it is no such file."""
    try:
        content = files.read_json(path, is_input=False)
    except InputFileError:
        return []
    result = content.get(key) if isinstance(content, dict) and "format" in content else None
    return result if isinstance(result, list) else []


def to_chrome_trace(record: EpisodeRecord, scenario: Scenario) -> dict[str, Any]:
    """Convert an episode to the Trace Event Format, which Perfetto and chrome://tracing open.

    A host is a process, a device a thread, a job on a device a slice; jobs turned away are instant events. Times are in
    thousandths of the episode's seconds: what the viewer calls 1 ms is one second of the cluster.
    """
    cluster = scenario.cluster
    events: list[dict[str, Any]] = []
    for host, name in enumerate(cluster.host_names):
        events.append({"ph": "M", "name": "process_name", "pid": host, "tid": 0, "args": {"name": name}})
    for device in range(cluster.num_devices):
        place = {"pid": int(cluster.device_host[device]), "tid": int(cluster.local_rank[device])}
        events.append({"ph": "M", "name": "thread_name", **place, "args": {"name": cluster.device_name(device)}})
    names = [graph.name for graph in scenario.workload.graphs]
    for k in range(len(record.arrival_s)):
        label = f"job {k} {names[int(record.graph_id[k])]}"
        arrival = float(record.arrival_s[k]) * UNITS_PER_S
        if not record.is_accepted[k]:
            reason = OUTCOME_WORDS[Outcome(int(record.outcome[k]))]
            events.append(
                {"ph": "i", "s": "g", "name": f"{label}: {reason}", "cat": "turned away", "pid": 0, "tid": 0, "ts": arrival}
            )
            continue
        allowed_s = float(record.allowed_s[k])
        args = {"ranks": int(record.degree[k]), "allowed_s": allowed_s if np.isfinite(allowed_s) else None}
        for rank, device in enumerate(record.devices_of(k, scenario).tolist()):
            place = {"pid": int(cluster.device_host[device]), "tid": int(cluster.local_rank[device])}
            duration = float(record.completion_s[k]) * UNITS_PER_S
            events.append(
                {"ph": "X", "name": label, "cat": names[int(record.graph_id[k])], **place, "ts": arrival, "dur": duration}
                | {"args": {"rank": rank, **args}}
            )
    return {"traceEvents": events, "displayTimeUnit": "ms"}
