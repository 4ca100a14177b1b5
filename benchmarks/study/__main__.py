"""All results of the documentation, anew (``make results``): train, evaluate, write the tables of the page "Results".

Every training run and every evaluation is a process of its own with a folder of its own; what is done is not done again,
so the whole can be killed at any moment and begun again.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.resources import files as resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from meshwright import inputs
from meshwright.cli import guarded, output
from meshwright.cli.commands.training import train

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel
    from rich.progress import Progress

    from .places import Places
    from .runner import Watch, Word
    from .tasks import Task

# A program that knows the commands, in this interpreter.
PROGRAM = (sys.executable, "-c", "from meshwright.cli import main; main()")
FOLDERS = {False: Path("runs/results"), True: Path("runs/results-quick")}
PAGE = Path("docs/results.md")
# What the reference data hold, below the folder that this variable names.
VARIABLE, PROFILES, TRACE = "MESHWRIGHT_REFERENCE", "pipedream", "traces/philly.csv"
# Part of the work could not be done.
UNFINISHED = 1


class _Parser(argparse.ArgumentParser):
    """Tells a wrong option in one line, as the commands of `cli.app` do."""

    def error(self, message: str) -> NoReturn:
        """Told by argparse when an option is wrong."""
        self.exit(2, f"meshwright: error: {message}\n")


def main(arguments: list[str] | None = None) -> int:
    """Do it; returns the exit status."""
    parser = _Parser(prog="python -m benchmarks.study", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--study", type=Path, metavar="FILE", help="YAML of what is trained, evaluated and shown; configs/results.yaml"
    )
    parser.add_argument("--quick", action="store_true", help="everything in minutes: a few training steps, few episodes")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a run, training, evaluation or table")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where it all goes; runs/results, or runs/results-quick")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes at a time; as many as there are cores by default")
    parser.add_argument("--ray", metavar="CLUSTER", help="run them on a Ray cluster, HOST:PORT or local:N, which shares --out")
    parser.add_argument(
        "--graphs", type=Path, metavar="DIR", help=f"profiles DIR/NAME/graph.txt; ${VARIABLE}/{PROFILES} by default"
    )
    parser.add_argument("--trace", type=Path, metavar="FILE", help=f"CSV of the Philly trace; ${VARIABLE}/{TRACE} by default")
    parser.add_argument("--keep-stale", action="store_true", help="take what was done with other settings as it is")
    parser.add_argument("--list", action="store_true", help="say how far everything is, and do nothing")
    parser.add_argument("--tables", action="store_true", help="train and evaluate nothing, write the page from what there is")
    parser.add_argument("--unpack", type=Path, metavar="FILE", help="first put into --out what FILE, made by --pack, holds")
    parser.add_argument("--pack", type=Path, metavar="FILE", help="at the end write what tables are made of into FILE")
    parser.add_argument("--page", type=Path, help=f"page to fill; {PAGE}, and a copy of it in --out with --quick")
    parser.add_argument("--no-page", action="store_true", help="write no page")
    return guarded(lambda: _run(parser.parse_args(arguments)))


def _run(chosen: argparse.Namespace) -> int:
    from meshwright.evaluation.workers.processes import Processes

    from .places import Places
    from .plan import selected, tasks
    from .study import load_study

    num_processes = Processes(1 if chosen.jobs is None else chosen.jobs).number
    study = load_study(chosen.study or Path(str(resources("meshwright.configs"))) / "results.yaml", quick=chosen.quick)
    out: Path = chosen.out or FOLDERS[chosen.quick]
    output.check_folder("--out", out)
    output.check_file("--pack", chosen.pack)
    places = Places(out, _given("--graphs", chosen.graphs, PROFILES), _given("--trace", chosen.trace, TRACE))
    for path in [*([] if places.graphs is None else places.graphs.rglob("graph.txt")), *([places.trace] if places.trace else [])]:
        inputs.note(path)  # tasks read them in processes of their own
    console = output.console()
    every = tasks(study, places, resolved)
    wanted = selected(every, study, chosen.only)
    if chosen.unpack is not None:
        from .archive import unpack

        put_back = unpack(chosen.unpack, every, places)
        console.print(f"put back: {len(put_back)} tasks", markup=False)
    if chosen.list:
        _list(console, wanted, places)
        return 0
    if not chosen.no_page:
        output.check_file("--page", chosen.page, is_update=True)
    words: dict[str, Word] = {}
    if not chosen.tables:
        with _where(chosen.ray) as (program, num_cpus):
            at_a_time = num_cpus if chosen.jobs is None else num_processes
            words = _carry_out(console, wanted, places, program, at_a_time, chosen.keep_stale)
    if not chosen.no_page:
        from .findings import read
        from .page import write_page

        template = chosen.page if chosen.page is not None and chosen.page.is_file() else PAGE
        page = chosen.page or (out / PAGE.name if chosen.quick else PAGE)
        output.print_written(console, *write_page(read(study, every, places), template, page))
    if chosen.pack is not None:
        from .archive import pack

        packed = pack(every, places, chosen.pack)
        console.print(f"packed: {len(packed)} tasks into {chosen.pack}", markup=False, soft_wrap=True)
    short = [name for name, word in words.items() if word in ("failed", "left out")]
    if short:
        console.print(f"not done: {', '.join(short)}", markup=False, soft_wrap=True)
    return UNFINISHED if short else 0


def resolved(config: str, changes: Sequence[str]) -> BaseModel:
    """A training config of any method, by the spelling of ``meshwright train``."""
    path, method = train.config_path(config), train.method(config, list(changes), None)
    if method == train.FLEET:
        from meshwright import settings
        from meshwright.training.fleet.settings import FleetTrainSettings

        return settings.load(FleetTrainSettings, path, changes=changes)
    if method == train.OPERATORS:
        from meshwright import settings
        from meshwright.training.operators.settings import OperatorTrainSettings

        return settings.load(OperatorTrainSettings, path, changes=changes)
    if method == train.LINEAR:
        from meshwright.training.linear.settings import load_linear_settings

        return load_linear_settings(path, changes)
    from meshwright.training.settings import load_train_settings

    return load_train_settings(path, changes)


def _given(option: str, path: Path | None, below: str) -> Path | None:
    """What the user named, or what the reference data hold.

    Raises:
        InputFileError: what the user named is not there.
    """
    from meshwright.errors import InputFileError

    if path is not None:
        if not path.exists():
            raise InputFileError("no such file or folder", field=option, value=str(path))
        return path
    reference = os.environ.get(VARIABLE)
    found = None if not reference else Path(reference) / below
    return found if found is not None and found.exists() else None


def _list(console: Any, wanted: Sequence[Task], places: Places) -> None:
    from .runner import record, standing

    rows = []
    for task in wanted:
        elapsed_s = record(task, places).get("elapsed_s")
        rows.append(
            [task.name, standing(task, places), "" if elapsed_s is None else f"{elapsed_s:,.0f} s", task.lacks(places) or ""]
        )
    output.table(console, f"{len(wanted)} tasks", ["task", "", "took", ""], rows, numbers_from=4)


@contextmanager
def _where(cluster: str | None) -> Iterator[tuple[Sequence[str], int]]:
    """The program that does a task, and how many can run at a time: here, or on the nodes of a Ray cluster."""
    if cluster is None:
        yield PROGRAM, len(os.sched_getaffinity(0))
        return
    from meshwright.evaluation.workers.ray_cluster import ray_workers

    with ray_workers(cluster):
        ray: Any = import_module("ray")
        address, num_cpus = ray.get_runtime_context().gcs_address, int(ray.cluster_resources().get("CPU", 0))
        yield (sys.executable, "-m", "benchmarks.study.on_ray", address, *PROGRAM), max(1, num_cpus)


def _carry_out(
    console: Any, wanted: Sequence[Task], places: Places, program: Sequence[str], num_processes: int, keeps_stale: bool
) -> dict[str, Word]:
    from .runner import carry_out

    settled = 0

    def report(name: str, word: Word, note: str) -> None:
        nonlocal settled
        settled += word in ("done", "done already", "failed", "left out")
        told = f"{settled:3}/{len(wanted)}  {word:12}  {name}" + (f"  {note}" if note else "")
        console.print(told, markup=False, soft_wrap=True)

    with output.progress() as bars:
        return carry_out(
            wanted,
            places,
            program=program,
            num_processes=num_processes,
            keeps_stale=keeps_stale,
            report=report,
            watch=_watch(bars, len(wanted)),
        )


def _watch(bars: Progress, num_tasks: int) -> Watch:
    """A bar over all tasks, and one for each that runs, as far as it tells how much is done."""
    whole = bars.add_task("tasks", total=num_tasks, note="")
    shown: dict[str, Any] = {}

    def watch(running: Mapping[str, float | None], num_waiting: int) -> None:
        bars.update(whole, completed=num_tasks - num_waiting - len(running))
        for name in [name for name in shown if name not in running]:
            bars.remove_task(shown.pop(name))
        for name, share_done in running.items():
            if name not in shown:
                shown[name] = bars.add_task(name, total=100, note="")
            bars.update(shown[name], completed=round(100 * (share_done or 0.0)))

    return watch


if __name__ == "__main__":
    sys.exit(main())
