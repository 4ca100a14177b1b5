"""``meshwright evaluate --summarise``."""

from __future__ import annotations

from pathlib import Path

from ....errors import InputFileError
from ... import output


def summarise_results(folder: Path, against: str | None, out: Path | None, json_file: str | None) -> None:
    """Put several evaluations and training runs on one page, without playing anything again.

    The page has a table of all policies on all benchmarks with one objective, and load curves where one cluster was evaluated at
    several loads. It has learning curves of training runs that differ in their seed, and an ablation table. For operator
    placement it has a table of training against test benchmarks.
    """
    from ....evaluation.report import summary

    output.check_file("--json", json_file)
    output.check_folder("--out", out, markers=("summary.html",))
    output.check_files_in(out, summary.FILES)
    if folder.is_file():
        raise InputFileError("is a file, a folder is wanted", field="POLICY", value=str(folder))
    if not folder.is_dir():
        raise InputFileError("no such folder", field="POLICY", value=str(folder))
    found = summary.read(folder)
    learned = summary.learned_names(found)
    if against is not None and against not in learned:
        raise InputFileError("no learned policy of this name was evaluated", field="--against", value=against, choices=learned)
    if out is not None:
        summary.write(found, out, against)
    data = summary.to_data(found, against)
    output.write_json(json_file, data)
    console = output.console(json_file)
    for title, cells in {**data["evaluations"], **data["tables"]}.items():
        output.table(console, title, cells["head"], cells["rows"])
    for sentence in data["made"]:
        console.print(sentence, markup=False)
    output.print_written(console, json_file, out)
