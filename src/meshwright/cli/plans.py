"""How commands write and show a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import output

if TYPE_CHECKING:
    from rich.console import Console

    from ..plans.document import PlacementPlan


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
