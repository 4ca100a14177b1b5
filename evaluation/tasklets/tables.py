"""The rows of an evaluation of tasklets as text."""

from __future__ import annotations

from ...quantities import counted
from ..alike import joined
from ..operators.tables import ranked
from ..tables import escaped, table, with_ends
from .evaluate import Data, best_search


def tasklet_title(results: Data) -> str:
    """What was grouped, in a line."""
    return f"{results['benchmark']}: {counted(results['num_instances'], 'network')}"


def tasklet_cells(results: Data) -> tuple[list[str], list[list[str]]]:
    """Headings and rows, the best first; policies that group alike share a row, with the times of the first."""
    kinds, best = list(dict.fromkeys(results["kinds"])), best_search(results["rows"])
    against = [] if best is None else [f"against {best['policy']}, points"]
    head = ["policy, % over the best known", "all", *(kinds if len(kinds) > 1 else []), *against, "best, %", "median, ms"]
    rows = []
    for group in ranked(results):
        row = group[0]
        cells = [joined(group), with_ends(row["over_best_known"], 100.0, 1, base=1.0)]
        if len(kinds) > 1:
            cells += [with_ends(row["by_kind"][kind], 100.0, 1, base=1.0) for kind in kinds]
        if best is not None:
            against_best = row["against"].get(best["policy"])
            cells.append("" if against_best is None else with_ends(against_best["all"], 100.0, 1, sign="+"))
        rows.append([*cells, f"{100 * row['won']:.0f}", f"{1000 * row['seconds']['median']:.1f}"])
    return head, rows


def tasklet_markdown(results: Data) -> str:
    """A heading, a table with a line per policy, and the verdict."""
    head, rows = tasklet_cells(results)
    lines = [
        f"# Benchmark {escaped(results['benchmark'])}",
        "",
        f"{counted(results['num_instances'], 'network')}; "
        f"means with 95 % bootstrap intervals over them. The best known of a network "
        f"is the best of all policies here and of chain for {results['best_known_s']:g} s with a seed of its own.",
        "",
        *table(head, [[escaped(cell) for cell in row] for row in rows]),
        "",
        escaped(results["verdict"]),
        "",
        *(line for remark in results.get("remarks", []) for line in (escaped(remark), "")),
    ]
    return "\n".join(lines)
