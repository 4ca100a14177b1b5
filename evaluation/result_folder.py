"""What an evaluation leaves in a folder: ``results.json``, ``.csv`` and ``.md``, ``report.html``, the decisions of one episode.

``plans/`` holds the decisions of the first test episode of the best learned policy (of the best policy where none is
learned), a plan for each placed job, so that the folder can be exported; ``episode.trace.json`` shows in Perfetto who held
which device in that episode. Where ``plans/`` changes, exports of the plans before are taken out of ``export/``.
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
from ..planning.policies import display_name
from ..simulation.cluster.records import EpisodeRecord
from ..simulation.cluster.scenario import Scenario
from ..simulation.step.timeline import Timeline, simulate
from ..training.run_folder import RunFolder, versions
from .alike import alike
from .episode_trace import to_chrome_trace
from .evaluate import Evaluation
from .plots.figure import Figure
from .plots.gantt import episode_figure
from .plots.step import step_figure
from .report.report import report_html
from .saved_results import read_curve
from .statistics import CHALLENGERS
from .tables import to_csv, to_markdown

FILES = ("results.json", "results.csv", "results.md", "report.html", "episode.trace.json")
PLANS = "plans"
MOST_DRAWN = 3
"""Policies whose episode a report shows."""


def write_evaluation(found: Evaluation, out: Path, *, exports: dict[str, str] | None = None) -> list[Path]:
    """Write all files of an evaluation into a folder.

    What a training run left in the same folder goes into the report too, where its policy was evaluated.

    Args:
        found: the evaluation.
        out: the folder, for example a run folder.
        exports: what was exported already: a format and its folder.

    Returns:
        The files and folders written.
    """
    results_file, csv_file, markdown_file, report_file, trace_file, plans = (out / name for name in (*FILES, PLANS))
    files.write_json(results_file, found.results)
    files.write_text(csv_file, to_csv(found.results))
    files.write_text(markdown_file, to_markdown(found.results))
    shown = best_policy(found.results)
    plans_before = _contents(plans)
    write_plans(found.records[shown][0], found.scenario, shown, plans)
    if plans_before != _contents(plans):
        remove_exports(out / "export")
    files.write_json(trace_file, to_chrome_trace(found.records[shown][0], found.scenario))
    files.write_text(report_file, _report(found, out, shown, exports or {}))
    return [results_file, csv_file, markdown_file, report_file, trace_file, plans]


def best_policy(results: dict[str, Any]) -> str:
    """The best learned policy, or the best one where none is learned; no reference."""
    policies = [row for row in results["rows"] if row["kind"] != "reference"]
    rows = [row for row in policies if row["kind"] in CHALLENGERS] or policies
    return str(rows[0]["policy"])


def remove_exports(folder: Path) -> None:
    """Remove the files that exports wrote into a folder and below it; files of anyone else stay where they are.

    What a link leads to is not in the folder, and stays.

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


def one_job(record: EpisodeRecord, scenario: Scenario) -> tuple[int, Timeline] | None:
    """A placed job with one of its steps: the first after the warm-up with the most common degree above 1.

    None under the published PAC-ML rules, whose look-ahead leaves no timeline.
    """
    if scenario.simulator is not None:
        return None
    first = scenario.settings.num_warmup_jobs
    degrees = np.where(record.is_accepted, record.degree, 0)
    degrees[:first] = 0
    wanted = degrees[degrees > 1] if (degrees > 1).any() else degrees[degrees > 0]
    if len(wanted) == 0:
        return None
    k = int(np.flatnonzero(degrees == np.bincount(wanted).argmax())[0])
    graph = scenario.workload.graphs[int(record.graph_id[k])]
    devices = record.devices_of(k, scenario)
    splits = scenario.settings.splitting.splits(graph, len(devices))
    return k, simulate(graph, scenario.cluster, splits, devices, scenario.settings.costs)


def _report(found: Evaluation, out: Path, shown: str, exports: dict[str, str]) -> str:
    """The page, with what a training run left in the same folder."""
    results, scenario = found.results, found.scenario
    record = found.records[shown][0]
    drawn = _drawn_policies(found, shown)
    gantt = episode_figure(scenario, [(name, found.records[name][0]) for name in drawn])
    timeline: Figure | None = None
    job = one_job(record, scenario)
    if job is not None:
        k, step = job
        graph = scenario.workload.graphs[int(record.graph_id[k])]
        names = [scenario.cluster.device_name(int(device)) for device in record.devices_of(k, scenario)]
        timeline = step_figure(step, graph, names)
    run = RunFolder(out)
    own_names = {display_name(str(path)) for path in (out, out.resolve(), out.resolve() / run.policy.name)}
    own = any(row["kind"] == "learned" and row["policy"] in own_names for row in results["rows"])
    return report_html(
        results,
        learning_curve=read_curve(run.learning_curve) if own and run.learning_curve.is_file() else None,
        gantt=gantt,
        timeline=timeline,
        config_yaml=_text(run.config) if own else None,
        command=_text(out / "command.txt") if own else None,
        versions=_versions(out / "versions.json") if own else versions(),
        exports=exports,
    )


def _drawn_policies(found: Evaluation, shown: str) -> list[str]:
    """Policies whose first episode is drawn: ``shown``, the best baseline, then others, best first; one of those alike."""
    groups = [[str(row["policy"]) for row in group] for group in alike(found.results["rows"])]
    names = [shown, found.results["best_baseline"], *(group[0] for group in groups)]
    once: dict[int, str] = {}
    for name in names:
        if name in found.records:
            once.setdefault(next(number for number, group in enumerate(groups) if name in group), name)
    return list(once.values())[:MOST_DRAWN]


def _versions(path: Path) -> dict[str, str]:
    """What a training run was made with; of today where it does not say."""
    told = files.read_json(path) if path.is_file() else versions()
    if not isinstance(told, dict) or not all(isinstance(version, str) for version in told.values()):
        raise InputFileError("must name versions of packages", file=path)
    return told


def _text(path: Path) -> str | None:
    return files.read_text(path) if path.is_file() else None


def _contents(plans: Path) -> dict[str, bytes]:
    """The plans in a folder as they are written, by file name."""
    return {path.name: path.read_bytes() for path in plans.glob("job-*.json")}


def _listed(path: Path, key: str) -> list[Any]:
    """The list that a file of an export holds under a key; empty where it is no such file."""
    try:
        content = files.read_json(path, is_input=False)
    except InputFileError:
        return []
    found = content.get(key) if isinstance(content, dict) and "format" in content else None
    return found if isinstance(found, list) else []
