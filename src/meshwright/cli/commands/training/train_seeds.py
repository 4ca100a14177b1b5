"""``meshwright train --seeds``: the same config with several seeds, one after another, side by side or on a Ray cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .... import inputs
from ....errors import ConfigError
from ....quantities import counted
from ....training.methods import method_of
from ... import interrupts, output
from .run import TrainRequest, line_of

if TYPE_CHECKING:
    from ....training.seeds import SeedRun


def train_seeds(request: TrainRequest, seeds: str, jobs: str) -> None:
    """Train a run for each seed, and say where the run folders are and what their policies reached.

    Args:
        request: the options of the command.
        seeds: as ``0,1,2``.
        jobs: the workers, see `evaluation.workers.worker_count`.

    Raises:
        MeshwrightError: something of it is wrong; no run is begun then.
    """
    from ....evaluation.workers import worker_count
    from ....training.run_folder import resumed_files
    from ....training.seeds import SeedRun, begin, seed_folder, seeds_of

    target = seeds_of(seeds)
    if any(change.partition("=")[0].strip() == "seed" for change in request.changes):
        raise ConfigError("is said by --seeds; leave it out", field="--set seed")
    workers = worker_count(jobs)
    runs = []
    for seed in target:
        choice = request.settings(None if request.resume is None else seed_folder(request.resume, seed), [f"seed={seed}"])
        prefix = request.resume or request.out or Path("runs") / choice.name
        folder = seed_folder(prefix, seed).absolute()
        runs.append(SeedRun(choice, folder, None if request.graphs is None else request.graphs.absolute(), Path.cwd()))
        if request.resume is None:
            output.check_folder("--out", folder, is_replaced=True)
        for path in () if request.resume is None else resumed_files(folder):
            inputs.declare("--resume", path, is_update=True)
    if request.resume is None:
        begin(runs, ["meshwright", *sys.argv[1:]], overwrite=request.overwrite)
    curves: dict[Path, list[dict[str, Any]]] = {}
    with output.progress() as bars, interrupts.remembered() as check_interrupt, workers as those:
        bar = bars.add_task("training runs", total=len(runs), note="")

        def keep(run: SeedRun, curve: list[dict[str, Any]]) -> None:
            check_interrupt()
            curves[run.folder] = curve
            bars.update(bar, completed=len(curves), note=f"seed {run.settings.seed} is done")
            if bars.disable:
                output.say_line(request.json_file, f"seed {run.settings.seed} is done, {len(curves)} of {len(runs)}")

        try:
            those.do(_train, runs, keep)
        except KeyboardInterrupt:
            profiles = [] if request.graphs is None else ["--graphs", str(request.graphs)]
            words = ["--resume", str(prefix), "--seeds", seeds, *profiles]
            raise interrupts.to_resume([run.folder for run in runs], *words) from None
    here, shown = Path.cwd(), []
    for run in runs:
        folder = run.folder.relative_to(here) if run.folder.is_relative_to(here) else run.folder
        shown.append((run, folder, curves[run.folder]))
    lines = [line_of(run.folder) for run in runs]
    records = [
        {"seed": run.settings.seed, "run": str(folder), "learning_curve": curve, "line_to_beat": line}
        for (run, folder, curve), line in zip(shown, lines, strict=True)
    ]
    output.write_json(request.json_file, {"runs": records})
    method = method_of(runs[0].settings)
    best: Callable[..., float] = min if method.is_less_better(runs[0].settings) else max

    def figure(value: float) -> str:
        return f"{100 * value:.2f}" if method.column.endswith("%") else f"{value:.4g}"

    rows = [
        [
            str(run.settings.seed),
            str(folder),
            figure(best(row[method.key] for row in curve)),
            figure(line["value"]) if line else "",
            _verdict(line),
            f"{curve[-1]['elapsed_s']:.0f} s",
        ]
        for (run, folder, curve), line in zip(shown, lines, strict=True)
    ]
    columns = ["seed", "run folder", f"best {method.column}", "line to beat", "the policy is", "time"]
    title = f"Trained {runs[0].settings.name}, {counted(len(runs), 'seed')}"
    output.table(output.console(request.json_file), title, columns, rows, numbers_from=2)


def _train(run: SeedRun) -> list[dict[str, Any]]:
    """Train a seed against the best rule; its run folder keeps both."""
    from ....evaluation.line_to_beat import LineToBeat
    from ....training.seeds import train_seed

    return train_seed(run, [LineToBeat(StringIO(), run.graphs_dir)])


def _verdict(line: Mapping[str, Any]) -> str:
    result = line.get("verdict")
    return "" if result is None else f"{'better' if result['is_better'] else 'not better'} than {line['rule']}"
