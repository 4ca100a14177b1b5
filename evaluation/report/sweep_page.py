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
from .html import escaped_text, figure, folded, listing, page
from .html import table as html_table

FILE = "sweep.html"


def write(
    chosen: SweepSettings,
    trials: Sequence[TrialSummary],
    importances: Mapping[str, float],
    folder: Path,
    *,
    measure: str,
    is_less_better: bool,
) -> Path:
    """Write the page into the folder of a sweep.

    Args:
        chosen: the sweep.
        trials: that have ended.
        importances: share of each key; empty where there are too few trials.
        folder: of the sweep; ``best.yaml`` is shown from there.
        measure: what the validation measures.
        is_less_better: whether less of it is better.

    Returns:
        The file.
    """
    files.write_text(folder / FILE, to_html(chosen, trials, importances, folder, measure=measure, is_less_better=is_less_better))
    return folder / FILE


def to_html(
    chosen: SweepSettings,
    trials: Sequence[TrialSummary],
    importances: Mapping[str, float],
    folder: Path,
    *,
    measure: str,
    is_less_better: bool,
) -> str:
    """The page as text; arguments as for `write`."""
    best = best_of(list(trials), is_less_better=is_less_better)
    counts = {state: sum(trial.state == state for trial in trials) for state in ("complete", "pruned", "failed")}
    facts = f"{len(trials)} trials: " + ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    body = [
        f"<h1>Sweep {escaped_text(chosen.name)}</h1>",
        f'<p class="facts">{facts}; {escaped_text(Path(chosen.config).stem)}</p>',
    ]
    if best is None:
        body.append('<p class="verdict">No trial was trained to its end.</p>')
    else:
        told = ", ".join(f"<code>{escaped_text(key)}={escaped_text(_text(value))}</code>" for key, value in best.values.items())
        reached = f"{escaped_text(measure)} <b>{best.value:.4g}</b> in trial {best.number}"
        body.append(f'<p class="verdict">Best: {reached}, with {told}.</p>')
    body += ["<h2>What mattered</h2>"]
    number = 1
    if importances:
        caption = (
            "Importance of each key among the trials that were trained to their end (PED-ANOVA): how much of the difference "
            "between the best trials and all others it accounts for by itself. Few trials make it rough."
        )
        body.append(figure(importance_svg(importances), number, caption))
        number += 1
    else:
        body.append("<p>Too few trials were trained to their end to say: four are needed, of different results.</p>")
    order = 1.0 if is_less_better else -1.0
    whole = sorted((t for t in trials if t.state == "complete" and t.value is not None), key=lambda t: order * (t.value or 0.0))
    keys = list(chosen.parameters)
    if len(whole) > 1:
        rows = [(trial.values, float(trial.value or 0.0)) for trial in whole]
        drawn = parallel_svg(keys, rows, [chosen.parameters[key].log for key in keys], measure)
        body.append(
            figure(drawn, number, "Each line is a trial that was trained to its end; red the best, blue the best quarter.")
        )
        number += 1
    points = [(trial.number, trial.state, trial.value) for trial in trials if trial.value is not None]
    if points:
        drawn = history_svg(points, _best_so_far(trials, is_less_better=is_less_better), measure)
        told = "Best validation of each trial; a cross is a trial that was stopped for being worse than the median of the others."
        body += ["<h2>How it went</h2>", figure(drawn, number, told)]
    head = ["trial", "state", escaped_text(measure), *map(escaped_text, keys), "validations", "seconds"]
    cells = [("learned" if best is not None and trial.number == best.number else "", _cells(trial, keys)) for trial in trials]
    body += ["<h2>All trials</h2>", html_table(head, cells)]
    problems = [f"{trial.number}: {trial.problem}" for trial in trials if trial.problem]
    if problems:
        body.append(folded(f"{len(problems)} trials could not be trained", listing("\n".join(problems))))
    if (folder / BEST).is_file():
        body.append(folded(f"The best config, {BEST}", listing(files.read_text(folder / BEST))))
    return page(f"Sweep {chosen.name} - meshwright", body)


def _best_so_far(trials: Sequence[TrialSummary], *, is_less_better: bool) -> list[tuple[int, float]]:
    found: list[tuple[int, float]] = []
    for trial in trials:
        if trial.state == "complete" and trial.value is not None:
            before = found[-1][1] if found else trial.value
            found.append((trial.number, min(before, trial.value) if is_less_better else max(before, trial.value)))
    return found


def _cells(trial: TrialSummary, keys: Sequence[str]) -> list[str]:
    value = "-" if trial.value is None else f"{trial.value:.4g}"
    seconds = "-" if trial.seconds is None else f"{trial.seconds:.0f}"
    tried = [escaped_text(_text(trial.values[key])) if key in trial.values else "-" for key in keys]
    return [str(trial.number), trial.state, value, *tried, str(len(trial.validations)), seconds]


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value).strip('"')
