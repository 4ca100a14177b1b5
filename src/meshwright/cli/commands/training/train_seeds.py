"""``meshwright train --seeds``: the same config with several seeds, one after another, side by side or on a Ray cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .... import files, inputs
from ....errors import CheckpointError, ConfigError
from ....quantities import counted
from ... import interrupts, output

if TYPE_CHECKING:
    from ....training.methods import SeedSettings
    from ....training.seeds import SeedRun

VALIDATED = {"validation_blocking_rate": "blocking %", "validation_mean_completion_s": "completion s", "validation": "objective"}
"""What a learning curve may show of the validation episodes, and what a table calls it."""


def train_seeds(
    seeds: str,
    config: Path | None,
    method: str | None,
    changes: Sequence[str],
    log: str | None,
    resume: Path | None,
    out: Path | None,
    overwrite: bool,
    graphs: Path | None,
    jobs: int,
    ray: str | None,
    json_file: str | None,
) -> None:
    """Train a run for each seed, and say where the run folders are and what their policies reached.

    Args:
        seeds: as ``0,1,2``.
        config: of the runs; None where they are resumed.
        method: how policies are found.
        resume, out: what the names of the run folders begin with; of runs that go on, or new ones.
        changes, log, overwrite, graphs, json_file: of the command.
        jobs, ray: who trains, see `evaluation.workers.chosen_workers`.

    Raises:
        MeshwrightError: something of it is wrong; no run is begun then.
    """
    from ....evaluation.workers import chosen_workers
    from ....models.policy_files import LINE_TO_BEAT
    from ....training.hooks.names import log_names
    from ....training.run_folder import resumed_files
    from ....training.seeds import SeedRun, begin, seed_folder, seeds_of

    wanted = seeds_of(seeds)
    if any(change.partition("=")[0].strip() == "seed" for change in changes):
        raise ConfigError("is said by --seeds; leave it out", field="--set seed")
    workers = chosen_workers(jobs, ray)
    runs = []
    for seed in wanted:
        chosen = _chosen(method, config, changes, graphs, None if resume is None else seed_folder(resume, seed), seed)
        if log is not None:
            chosen = chosen.model_copy(update={"log": log_names(log)})
        prefix = resume or out or Path("runs") / chosen.name
        folder = seed_folder(prefix, seed).absolute()
        runs.append(SeedRun(chosen, folder, None if graphs is None else graphs.absolute(), Path.cwd()))
        if resume is None:
            output.check_folder("--out", folder, is_replaced=True)
        for path in () if resume is None else resumed_files(folder):
            inputs.declare("--resume", path, is_update=True)
    if resume is None:
        begin(runs, ["meshwright", *sys.argv[1:]], overwrite=overwrite)
    curves: dict[Path, list[dict[str, Any]]] = {}
    with output.progress() as bars, interrupts.remembered() as check_interrupt, workers as those:
        bar = bars.add_task("training runs", total=len(runs), note="")

        def keep(run: SeedRun, curve: list[dict[str, Any]]) -> None:
            check_interrupt()
            curves[run.folder] = curve
            bars.update(bar, completed=len(curves), note=f"seed {run.chosen.seed} is done")
            if bars.disable:
                out = sys.stderr if json_file == "-" else sys.stdout
                out.write(f"seed {run.chosen.seed} is done, {len(curves)} of {len(runs)}\n")
                out.flush()

        try:
            those.do(_train, runs, keep)
        except KeyboardInterrupt:
            profiles = [] if graphs is None else ["--graphs", str(graphs)]
            words = ["--resume", str(prefix), "--seeds", seeds, *profiles]
            raise interrupts.to_resume([run.folder for run in runs], *words) from None
    shown = [(run, _relative(run.folder), curves[run.folder]) for run in runs]
    lines = [files.read_json(path) if (path := run.folder / LINE_TO_BEAT).is_file() else {} for run in runs]
    told = [
        {"seed": run.chosen.seed, "run": str(folder), "learning_curve": curve, "line_to_beat": line}
        for (run, folder, curve), line in zip(shown, lines, strict=True)
    ]
    output.write_json(json_file, {"runs": told})
    measure = next(key for key in VALIDATED if key in shown[0][2][-1])
    best = _best(runs[0].chosen)
    rows = [
        [
            str(run.chosen.seed),
            str(folder),
            _figure(measure, best(row[measure] for row in curve)),
            _figure(measure, line["value"]) if line else "",
            _verdict(line),
            f"{curve[-1]['elapsed_s']:.0f} s",
        ]
        for (run, folder, curve), line in zip(shown, lines, strict=True)
    ]
    columns = ["seed", "run folder", f"best {VALIDATED[measure]}", "line to beat", "the policy is", "time"]
    title = f"Trained {runs[0].chosen.name}, {counted(len(runs), 'seed')}"
    output.table(output.console(json_file), title, columns, rows, numbers_from=2)


def _chosen(
    method: str | None, config: Path | None, changes: Sequence[str], graphs: Path | None, resume: Path | None, seed: int
) -> SeedSettings:
    """The config of a seed: the one that is given, or that of the run folder that is resumed.

    Raises:
        ConfigError: it is wrong, or profiles are given, which it does not take.
        CheckpointError: a run that is resumed is to be changed.
    """
    from ....training.methods import load_config

    if config is None:
        assert resume is not None, "one of the two was given"
        if changes:
            raise CheckpointError("a run is resumed as it was begun; leave out --set", file=resume, value=changes[0])
        if not (resume / "config.yaml").is_file():
            raise CheckpointError("is no run folder (it has no config.yaml)", file=resume)
    path = resume / "config.yaml" if config is None and resume is not None else config
    assert path is not None
    changed = [*changes, f"seed={seed}"]
    if method in ("fleet", "elastic", "operators", "graph") and graphs is not None:
        raise ConfigError("does not go with a benchmark of this method", field="--graphs", value=str(graphs))
    return load_config(path, changed)


def _best(chosen: SeedSettings) -> Callable[..., Any]:
    """Whether the largest or the smallest figure of the validation is the best one."""
    from ....training.fleet.settings import FleetTrainSettings

    if not isinstance(chosen, FleetTrainSettings):
        return min
    from ....envs.fleet.benchmark import load_fleet_benchmark
    from ....envs.fleet.objective import is_better

    return max if is_better(load_fleet_benchmark(chosen.benchmark, changes=chosen.changes).fleet, 1.0, 0.0) else min


def _train(run: SeedRun, progress: Callable[[Any], None] | None = None) -> list[dict[str, Any]]:
    """Train a seed against the best rule; its run folder keeps both."""
    from ....evaluation.line_to_beat import LineToBeat
    from ....training.seeds import train_seed

    return train_seed(run, progress, [LineToBeat(StringIO(), run.graphs_dir)])


def _verdict(line: Mapping[str, Any]) -> str:
    found = line.get("verdict")
    return "" if found is None else f"{'better' if found['is_better'] else 'not better'} than {line['rule']}"


def _figure(measure: str, value: float) -> str:
    return f"{100 * value:.2f}" if measure == "validation_blocking_rate" else f"{value:.4g}"


def _relative(folder: Path) -> Path:
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder
