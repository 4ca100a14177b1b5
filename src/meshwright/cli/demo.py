"""The demonstration: train, evaluate, export and report in one go (``make demo``).

Everything lands in one run folder: the policy and its training, the comparison with the baselines, the decisions of
one evaluated episode as plans and as files for Slurm and Kubernetes, and a page that shows it all.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ..packaged import config_path
from . import guarded, interrupts, output
from .commands.evaluation import evaluate as evaluating

if TYPE_CHECKING:
    from rich.progress import Progress

    from ..evaluation.evaluate import Evaluation
    from ..simulation.cluster.scenario import Scenario
    from ..training.run_folder import RunFolder
    from ..training.settings import TrainSettings

FORMATS = ("slurm", "kubernetes")


class _Parser(argparse.ArgumentParser):
    """Tells a wrong option in one line, as the commands of `cli.app` do."""

    def error(self, message: str) -> NoReturn:
        """Told by argparse when an option is wrong."""
        self.exit(2, f"meshwright: error: {message}\n")


def main(arguments: list[str] | None = None) -> int:
    """Run the demonstration; returns the exit status."""
    parser = _Parser(prog="python -m meshwright.cli.demo", description=__doc__.partition("\n")[0])
    parser.add_argument("--config", default="preset:quickstart", help="training config: preset:NAME or a path")
    parser.add_argument("--out", type=Path, help="run folder; runs/NAME by default; an older run there is replaced")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE", help="change the config")
    parser.add_argument("--graphs", type=Path, metavar="DIR", help="add the profiles DIR/*/graph.txt to the jobs")
    parser.add_argument("--jobs", type=int, default=2, help="evaluation episodes played at a time")
    chosen = parser.parse_args(arguments)

    def action() -> int:
        demonstrate(chosen.config, chosen.out, chosen.changes, chosen.graphs, chosen.jobs)
        return 0

    return guarded(action)


def demonstrate(config: str, out: Path | None, changes: list[str], graphs: Path | None, jobs: int) -> RunFolder:
    """Train, evaluate, export, report, and say where everything lies.

    Raises:
        MeshwrightError: the config is wrong or the run folder holds other things.
    """
    began = time.perf_counter()
    from ..evaluation.workers import Workers

    Workers(jobs)
    output.check_folder("--out", out, is_replaced=True)
    console = output.console()
    with output.progress() as bars:
        with output.set_up(bars) as simulated:
            from ..envs.benchmark import load_benchmark
            from ..training.settings import load_train_settings

            trained = load_train_settings(config_path(config), changes)
            scenario = load_benchmark(trained.benchmark).build(graphs_dir=graphs, progress=simulated)
        from ..evaluation.result_folder import write_evaluation

        folder = out or Path("runs") / trained.name
        output.check_folder("--out", folder, is_replaced=True)
        run = _train(trained, folder, graphs, scenario, bars)
        found = _evaluate(run, trained.benchmark, graphs, scenario, jobs, bars)
        writing = bars.add_task("plans, exports, report", total=len(FORMATS) + 2, note="")
        write_evaluation(found, run.path)
        bars.advance(writing)
        exports = _export(run, lambda: bars.advance(writing))
        write_evaluation(found, run.path, exports={name: str(path.relative_to(run.path)) for name, path in exports.items()})
        bars.advance(writing)
    evaluating.show(console, found.results)
    _say_where(console, run, exports, time.perf_counter() - began)
    return run


def _train(trained: TrainSettings, folder: Path, graphs: Path | None, scenario: Scenario, bars: Progress) -> RunFolder:
    from ..training.hooks.callback import TrainingCallback, UpdateRecord, ValidationRecord
    from ..training.methods import train

    task = bars.add_task("training", total=trained.total_steps, note="")

    class Shown(TrainingCallback):
        def on_update(self, record: UpdateRecord) -> None:
            check_interrupt()
            bars.update(task, completed=min(record.step, record.total_steps))

        def on_validation(self, record: ValidationRecord) -> None:
            bars.update(task, note=f"validation: {100 * record.value:.1f} % blocked, best {100 * record.best:.1f} %")

    command = ["python", "-m", "meshwright.cli.demo", *sys.argv[1:]]
    with interrupts.remembered() as check_interrupt:
        told = {"graphs_dir": graphs, "scenario": scenario}
        return train(trained, folder, overwrite=True, command=command, callbacks=[Shown()], built=told)


def _evaluate(run: RunFolder, benchmark: str, graphs: Path | None, scenario: Scenario, jobs: int, bars: Progress) -> Evaluation:
    from ..envs.benchmark import load_benchmark
    from ..evaluation.evaluate import evaluate
    from ..evaluation.worlds.evaluated_cluster import EvaluatedCluster
    from ..evaluation.worlds.evaluated_world import Options

    world = EvaluatedCluster(load_benchmark(benchmark), Options(graphs=graphs), scenario)
    return evaluate(world, [str(run.path)], num_processes=jobs, progress=output.phases(bars))


def _export(run: RunFolder, advance: Callable[[], None]) -> dict[str, Path]:
    """The plans of the episode for each of `FORMATS`; the folder of each, none where no job was placed."""
    from ..export import export_run
    from ..files import read_json
    from ..planning.plans_of_episode import INDEX, read_plans

    folder = run.path / "plans"
    plans = read_plans(folder) if read_json(folder / INDEX)["plans"] else {}
    written = {name: run.path / "export" / name for name in FORMATS if plans}
    for name, target in written.items():
        export_run(plans, name, target)
        advance()
    return written


def _say_where(console: Any, run: RunFolder, exports: dict[str, Path], elapsed_s: float) -> None:
    rows = [
        ["report", str(run.path / "report.html")],
        ["results", f"{run.path / 'results.json'}, and as a table in results.csv and results.md"],
        ["policy", f"{run.policy} (meshwright evaluate {run.path}, meshwright plan --policy {run.path})"],
        ["plans of one episode", f"{run.path / 'plans'}, and for Perfetto {run.path / 'episode.trace.json'}"],
        *([f"the same for {name}", str(path)] for name, path in exports.items()),
        ["TensorBoard", f"tensorboard --logdir {run.tensorboard}"],
        ["config, command, versions", f"{run.config}, {run.path / 'command.txt'}, {run.path / 'versions.json'}"],
        ["time", f"{elapsed_s:.0f} s"],
    ]
    output.table(console, "Where everything lies", ["", ""], rows, numbers_from=2)


if __name__ == "__main__":
    sys.exit(main())
