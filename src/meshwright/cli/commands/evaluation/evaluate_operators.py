"""``meshwright evaluate`` on a benchmark of operator placement."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ... import output
from .evaluate_fleet import EvaluationRequest, show_rows

MOST_DECISIONS = 12
"""Of an instance that is shown, on the terminal."""


def evaluate_operator_policies(request: EvaluationRequest, shown: list[int], dumped: Path | None) -> None:
    """Evaluate, write what was asked for, and print the table and the verdict.

    Args:
        request: what was asked for.
        shown: numbers of instances that are shown in detail.
        dumped: folder of instances and placements.

    Raises:
        MeshwrightError: an option is given that does not go with operator placement.
    """
    request.check("operator placement")
    output.check_folder("--dump", dumped, markers=("instance-0/instance.json",))
    from ....envs.operators.benchmark import load_placement_benchmark
    from ....evaluation.operators.dumped import dump
    from ....evaluation.operators.evaluate import evaluate_operators
    from ....evaluation.operators.tables import (
        difference_cells,
        difference_words,
        operator_cells,
        operator_markdown,
        operator_title,
    )

    console = output.console(request.json_file)
    chosen = load_placement_benchmark(request.benchmark, changes=request.changes)
    if dumped is not None:
        chosen.placement.check_default_form("placements are dumped")
    with output.progress() as bars:
        found = evaluate_operators(
            chosen,
            request.policies,
            num_seeds=request.seeds,
            shown=shown,
            keep=(lambda *placed: None) if dumped is None else partial(dump, dumped),
            progress=output.phases(bars),
        )

    def page() -> str:
        from ....evaluation.report.operator_report import operator_report  # matplotlib takes a while

        return operator_report(found, command=request.command)

    request.write(found, operator_markdown, page)
    show_rows(console, operator_title(found), operator_cells(found), found)
    for one in found["shown"]:
        title, head, rows = difference_cells(one)
        output.table(console, title, head, rows[:MOST_DECISIONS], numbers_from=3)
        console.print(difference_words(one), markup=False)
        if len(rows) > MOST_DECISIONS:
            console.print(f"Those {MOST_DECISIONS} bring most; --out and --json have all.", markup=False)
    output.print_written(console, request.json_file, request.out, dumped)
