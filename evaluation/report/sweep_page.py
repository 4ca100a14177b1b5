"""The page of a sweep: the best trial, what mattered, how the trials went, and all of them in a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ... import files
from ...training.sweeps.settings import SweepSettings
from ...training.sweeps.study import BEST, TrialSummary, best_of
from ..plots.sweeps import history_svg, importance_svg, parallel_svg
from .pages import Drawn, PageTable, Row, cells, page

FILE = "sweep.html"


def to_html(
    chosen: SweepSettings,
    trials: Sequence[TrialSummary],
    importances: Mapping[str, float],
    folder: Path,
    *,
    measure: str,
    is_less_better: bool,
) -> str:
    """The page as text.

    Args:
        chosen: the sweep.
        trials: that have ended.
        importances: share of each key; empty where there are too few trials.
        folder: of the sweep; ``best.yaml`` is shown from there.
        measure: what the validation measures.
        is_less_better: whether less of it is better.
    """
    best = best_of(list(trials), is_less_better=is_less_better)
    counts = {state: sum(trial.state == state for trial in trials) for state in ("complete", "pruned", "failed")}
    told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    if best is None:
        verdict = "No trial was trained to its end."
    else:
        values = ", ".join(f"{key}={_text(value)}" for key, value in best.values.items())
        verdict = f"Best: {measure} {best.value:.4g} in trial {best.number}, with {values}."
    keys = list(chosen.parameters)
    rows = [Row(cells(_texts(trial, keys)), best is not None and trial.number == best.number) for trial in trials]
    return page(
        "sweep.html",
        title=f"Sweep {chosen.name}",
        name=chosen.name,
        facts=f"{len(trials)} trials: {told}; {Path(chosen.config).stem}",
        verdict=verdict,
        is_too_few=not importances,
        drawn=_drawn(chosen, trials, importances, measure, is_less_better=is_less_better),
        trials=PageTable(cells(["trial", "state", measure, *keys, "validations", "seconds"]), rows),
        problems=[f"{trial.number}: {trial.problem}" for trial in trials if trial.problem],
        best_name=BEST,
        best_config=files.read_text(folder / BEST) if (folder / BEST).is_file() else "",
    )


def _drawn(
    chosen: SweepSettings, trials: Sequence[TrialSummary], importances: Mapping[str, float], measure: str, *, is_less_better: bool
) -> list[Drawn]:
    found = []
    if importances:
        caption = (
            "Importance of each key among the trials that were trained to their end (PED-ANOVA): how much of the difference "
            "between the best trials and all others it accounts for by itself. Few trials make it rough."
        )
        found.append(Drawn([importance_svg(importances)], caption, is_panel=True))
    order, keys = 1.0 if is_less_better else -1.0, list(chosen.parameters)
    whole = sorted((t for t in trials if t.state == "complete" and t.value is not None), key=lambda t: order * (t.value or 0.0))
    if len(whole) > 1:
        rows = [(trial.values, float(trial.value or 0.0)) for trial in whole]
        svg = parallel_svg(keys, rows, [chosen.parameters[key].log for key in keys], measure)
        found.append(Drawn([svg], "Each line is a trial that was trained to its end; red the best, blue the best quarter."))
    points = [(trial.number, trial.state, trial.value) for trial in trials if trial.value is not None]
    if points:
        svg = history_svg(points, _best_so_far(trials, is_less_better=is_less_better), measure)
        caption = (
            "Best validation of each trial; a cross is a trial that was stopped for being worse than the median of the others."
        )
        found.append(Drawn([svg], caption, is_panel=True))
    return found


def _best_so_far(trials: Sequence[TrialSummary], *, is_less_better: bool) -> list[tuple[int, float]]:
    found: list[tuple[int, float]] = []
    for trial in trials:
        if trial.state == "complete" and trial.value is not None:
            before = found[-1][1] if found else trial.value
            found.append((trial.number, min(before, trial.value) if is_less_better else max(before, trial.value)))
    return found


def _texts(trial: TrialSummary, keys: Sequence[str]) -> list[str]:
    value = "-" if trial.value is None else f"{trial.value:.4g}"
    seconds = "-" if trial.seconds is None else f"{trial.seconds:.0f}"
    tried = [_text(trial.values[key]) if key in trial.values else "-" for key in keys]
    return [str(trial.number), trial.state, value, *tried, str(len(trial.validations)), seconds]


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value).strip('"')
