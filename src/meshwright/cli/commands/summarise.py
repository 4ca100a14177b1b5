"""``meshwright summarise``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...errors import InputFileError
from .. import output
from ..options import JsonFile


def summarise_results(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="What lies above the folders of evaluate --out and train.")],
    against: Annotated[
        str | None, typer.Option(metavar="POLICY", help="Make an ablation table: every learned policy against this one.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write summary.html and summary.md there.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Put several evaluations and training runs on one page, without playing anything again.

    A table of all policies on all benchmarks, load curves where one cluster was evaluated at several loads, learning curves
    of training runs that differ in their seed, and an ablation table; of operator placement what was trained on what and tested
    on what.
    """
    from ...evaluation.report import summary

    output.check_file("--json", json_file)
    output.check_folder("--out", out, markers=("summary.html",))
    output.check_files_in("--out", out, summary.FILES)
    if folder.is_file():
        raise InputFileError("is a file, a folder is wanted", field="FOLDER", value=str(folder))
    if not folder.is_dir():
        raise InputFileError("no such folder", field="folder", value=str(folder))
    found = summary.read(folder)
    learned = summary.learned_names(found)
    if against is not None and against not in learned:
        raise InputFileError("no learned policy of this name was evaluated", field="--against", value=against, choices=learned)
    benchmarks, rows = summary.by_benchmark(found)
    tables = summary.ablations(found, against) if against is not None else {}
    if out is not None:
        summary.write(found, out, against)
    runs = {name: list(of) for name, of in found.learning.items()}
    others = summary.other_benchmarks(found)
    over_several = summary.operator_tables(found, against)
    placed = {title: {"head": head, "rows": cells} for title, _, head, cells in over_several}
    told = {"benchmarks": benchmarks, "rows": rows, "ablations": tables, "training_runs": runs, "other_benchmarks": others}
    output.write_json(json_file, {**told, "operators": placed, "made": summary.made(found)})
    console = output.console(json_file)
    if rows:
        output.table(console, "Blocked, % of jobs", ["policy", *benchmarks], rows)
    for title, other in others.items():
        output.table(console, title, other["head"], other["rows"])
    for title, _, head, cells in over_several:
        output.table(console, title, head, cells, numbers_from=2)
    for sentence in summary.made(found):
        console.print(sentence, markup=False)
    for benchmark, cells in tables.items():
        output.table(console, f"Ablations on {benchmark}", ["policy", "blocked %", f"against {against}, points"], cells)
    output.print_written(console, json_file, out)
