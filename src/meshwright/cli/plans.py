"""How commands write and show a plan, and training strategies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import output

if TYPE_CHECKING:
    from rich.console import Console

    from ..planning.training import TrainingPrice
    from ..plans.document import PlacementPlan

NOT_RANKED = "not ranked"


def write_plan(json_file: str | None, plan: PlacementPlan) -> None:
    """Write a plan to a file, to standard output (``-``), or nowhere."""
    if json_file is not None:
        output.write_json(json_file, plan.model_dump(mode="json", exclude_none=True))


def show_summary(out: Console, plan: PlacementPlan, title: str = "Plan", *, but: str | None = None) -> None:
    """Print what a plan is in short, where each figure comes from, but for one line."""
    summary = [[label, text, provenance] for label, text, provenance in plan.summary_rows() if label != but]
    output.table(out, title, ["", "", "provenance"], summary, numbers_from=3)


def show_ranks(out: Console, plan: PlacementPlan) -> None:
    """Print on which device each rank of a plan is."""
    ranks = [[str(row["rank"]), str(row["host"]), str(row["local_rank"])] for row in plan.rank_rows()]
    output.table(out, "Ranks in order", ["rank", "host", "device of the host"], ranks, numbers_from=3)


def show_strategies(out: Console, title: str, priced: Sequence[tuple[TrainingPrice, str]], exact_s: float | None) -> None:
    """Print strategies by their effective step; those without a multiplier come last, in the order of the question.

    Args:
        out: where.
        title: of the table.
        priced: strategies, and the layouts that they go with; empty where all have the same.
        exact_s: seconds of a step of the best exact training; None: of synchronous training of the same layout.
    """
    if not priced:
        return
    ranked = sorted((one for one in priced if one[0].effective_s is not None), key=lambda one: one[0].effective_s or 0.0)
    others = [one for one in priced if one[0].effective_s is None]
    rows = []
    for price, layout in [*ranked, *others]:
        effective = NOT_RANKED if price.effective_s is None else f"{1e3 * price.effective_s:.3f}"
        rho = "" if price.is_exact else f"{price.break_even(exact_s):.4g}"
        times = "" if price.multiplier is None else f"{price.multiplier:g}"
        extra = f"{round(price.extra_bytes / 1e9, 2) + 0.0:.2f}"
        rows.append([price.text, layout, f"{1e3 * price.step_s:.3f}", times, effective, rho, extra])
    columns = ["strategy", "layout", "step ms", "times the steps", "effective ms", "break-even", "more GB"]
    has_layouts = any(text for _, text in priced)
    for line in () if has_layouts else (columns, *rows):
        del line[1]
    output.table(out, title, columns, rows, numbers_from=1 + has_layouts, breaks_numbers=False)
    remarks = [f"{price.text}: {reported}" for price, _ in [*ranked, *others] if (reported := price.summary(exact_s))]
    remarks += [f"{price.text}: {remark}" for price, _ in priced for remark in price.remarks]
    output.print_remarks(out, list(dict.fromkeys(remarks)))
