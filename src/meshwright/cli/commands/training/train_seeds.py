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


def train_seeds(asked: TrainRequest, seeds: str, jobs: str) -> None:
    """Train a run for each seed, and say where the run folders are and what their policies reached.

    Args:
        asked: the options of the command.
        seeds: as ``0,1,2``.
        jobs: the workers, see `evaluation.workers.chosen_workers`.

    Raises:
        MeshwrightError: something of it is wrong; no run is begun then.
    """
    from ....evaluation.workers import chosen_workers
    from ....training.run_folder import resumed_files
    from ....training.seeds import SeedRun, begin, seed_folder, seeds_of

    wanted = seeds_of(seeds)
    if any(change.partition("=")[0].strip() == "seed" for change in asked.changes):
        raise ConfigError("is said by --seeds; leave it out", field="--set seed")
    workers = chosen_workers(jobs)
    runs = []
    for seed in wanted:
        chosen = asked.chosen(None if asked.resume is None else seed_folder(asked.resume, seed), [f"seed={seed}"])
        prefix = asked.resume or asked.out or Path("runs") / chosen.name
        folder = seed_folder(prefix, seed).absolute()
        runs.append(SeedRun(chosen, folder, None if asked.graphs is None else asked.graphs.absolute(), Path.cwd()))
        if asked.resume is None:
            output.check_folder("--out", folder, is_replaced=True)
        for path in () if asked.resume is None else resumed_files(folder):
            inputs.declare("--resume", path, is_update=True)
    if asked.resume is None:
        begin(runs, ["meshwright", *sys.argv[1:]], overwrite=asked.overwrite)
    curves: dict[Path, list[dict[str, Any]]] = {}
    with output.progress() as bars, interrupts.remembered() as check_interrupt, workers as those:
        bar = bars.add_task("training runs", total=len(runs), note="")

        def keep(run: SeedRun, curve: list[dict[str, Any]]) -> None:
            check_interrupt()
            curves[run.folder] = curve
            bars.update(bar, completed=len(curves), note=f"seed {run.chosen.seed} is done")
            if bars.disable:
                out = sys.stderr if asked.json_file == "-" else sys.stdout
                out.write(f"seed {run.chosen.seed} is done, {len(curves)} of {len(runs)}\n")
                out.flush()

        try:
            those.do(_train, runs, keep)
        except KeyboardInterrupt:
            profiles = [] if asked.graphs is None else ["--graphs", str(asked.graphs)]
            words = ["--resume", str(prefix), "--seeds", seeds, *profiles]
            raise interrupts.to_resume([run.folder for run in runs], *words) from None
    shown = [(run, _relative(run.folder), curves[run.folder]) for run in runs]
    lines = [line_of(run.folder) for run in runs]
    records = [
        {"seed": run.chosen.seed, "run": str(folder), "learning_curve": curve, "line_to_beat": line}
        for (run, folder, curve), line in zip(shown, lines, strict=True)
    ]
    output.write_json(asked.json_file, {"runs": records})
    method = method_of(runs[0].chosen)
    best: Callable[..., float] = min if method.is_less_better(runs[0].chosen) else max

    def figure(value: float) -> str:
        return f"{100 * value:.2f}" if method.column.endswith("%") else f"{value:.4g}"

    rows = [
        [
            str(run.chosen.seed),
            str(folder),
            figure(best(row[method.key] for row in curve)),
            figure(line["value"]) if line else "",
            _verdict(line),
            f"{curve[-1]['elapsed_s']:.0f} s",
        ]
        for (run, folder, curve), line in zip(shown, lines, strict=True)
    ]
    columns = ["seed", "run folder", f"best {method.column}", "line to beat", "the policy is", "time"]
    title = f"Trained {runs[0].chosen.name}, {counted(len(runs), 'seed')}"
    output.table(output.console(asked.json_file), title, columns, rows, numbers_from=2)


def _train(run: SeedRun) -> list[dict[str, Any]]:
    """Train a seed against the best rule; its run folder keeps both."""
    from ....evaluation.line_to_beat import LineToBeat
    from ....training.seeds import train_seed

    return train_seed(run, [LineToBeat(StringIO(), run.graphs_dir)])


def _verdict(line: Mapping[str, Any]) -> str:
    found = line.get("verdict")
    return "" if found is None else f"{'better' if found['is_better'] else 'not better'} than {line['rule']}"


def _relative(folder: Path) -> Path:
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder
