"""``meshwright train`` of a config with ``method: linear``."""

from __future__ import annotations

import sys
from pathlib import Path

from ... import files
from ...errors import CheckpointError
from .. import interrupts, output


def tune_scorer(
    config: Path | None,
    changes: list[str],
    resume: Path | None,
    out: Path | None,
    overwrite: bool,
    graphs: Path | None,
    json_file: str | None,
) -> None:
    """Tune a linear scorer, or go on tuning it, and say where the run folder is and what it reached."""
    from ...training.linear.settings import load_linear_settings

    chosen = load_linear_settings(config, changes) if config is not None else None
    if chosen is None and changes:
        raise CheckpointError("a run is resumed as it was begun; leave out --set", file=resume, value=changes[0])
    from ...envs.benchmark import load_benchmark
    from ...training.linear.tune import LinearRun, TuneProgress, tune

    if chosen is None:
        assert resume is not None
        chosen = LinearRun.open(resume).settings()
    folder = resume or out or Path("runs") / chosen.name
    if resume is None:
        output.check_folder("--out", folder, is_replaced=True)
    with output.progress() as bars, interrupts.remembered() as check_interrupt:
        with output.set_up(bars) as simulated:
            scenario = load_benchmark(chosen.benchmark, changes=chosen.changes).build(graphs_dir=graphs, progress=simulated)
        task = bars.add_task("generations", total=chosen.generations, note="")

        def report(now: TuneProgress) -> None:
            check_interrupt()
            note = f"blocking {now.blocking_rate:.3f} (best {now.best:.3f})"
            bars.update(task, completed=now.generation, note=note)

        made = tune(
            chosen,
            folder,
            resume=resume is not None,
            overwrite=overwrite,
            command=["meshwright", *sys.argv[1:]],
            graphs_dir=graphs,
            scenario=scenario,
            progress=report,
        )
    curve = files.read_json(made.learning_curve)
    best = min(curve, key=lambda row: row["validation_blocking_rate"])
    reached = f"{100 * best['validation_blocking_rate']:.2f} % after {best['generation']} generations (kept as policy.json)"
    rows = [
        ["run folder", str(made.path)],
        ["decisions played", f"{curve[-1]['steps']:,}"],
        ["validation blocking rate", reached],
        ["of the first mean", f"{100 * curve[0]['validation_blocking_rate']:.2f} %"],
        ["time", f"{curve[-1]['elapsed_s']:.0f} s"],
    ]
    output.write_json(json_file, {"run": str(made.path), "policy": str(made.policy), "learning_curve": curve})
    output.table(output.console(json_file), f"Tuned {chosen.name}", ["", ""], rows, numbers_from=2)
