"""Training strategies as a table: those that are compared, then those with a known break-even alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import output

if TYPE_CHECKING:
    from rich.console import Console

    from ..planning.training import TrainingPrice

NOT_RANKED = "not ranked"


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
        row = [price.text, layout, f"{1e3 * price.step_s:.3f}", times, effective, rho, extra]
        rows.append(row if any(text for _, text in priced) else [row[0], *row[2:]])
    columns = ["strategy", "layout", "step ms", "times the steps", "effective ms", "break-even", "more GB"]
    has_layouts = any(text for _, text in priced)
    output.table(
        out,
        title,
        columns if has_layouts else [columns[0], *columns[2:]],
        rows,
        numbers_from=2 if has_layouts else 1,
        breaks_numbers=False,
    )
    remarks = [f"{price.text}: {reported}" for price, _ in [*ranked, *others] if (reported := price.summary(exact_s))]
    remarks += [f"{price.text}: {remark}" for price, _ in priced for remark in price.remarks]
    output.print_remarks(out, list(dict.fromkeys(remarks)))
