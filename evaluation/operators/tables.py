"""The rows of an evaluation of operator placement as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...quantities import counted
from ...simulation.operators.forms import FORMS
from ..alike import alike, joined
from ..statistics import CHALLENGERS
from ..tables import escaped, table, with_ends, with_verdict
from .evaluate import Data

Cells = tuple[list[str], list[list[str]]]


def operator_title(results: Data) -> str:
    """What was placed, in a line."""
    return f"{results['benchmark']}: {objective_words(results)}, {counted(results['num_instances'], 'instance')}"


def objective_words(results: Mapping[str, Any]) -> str:
    """The objective, and by which form it is valued where that is not the default one."""
    objective, form = results["objective"], results.get("form")
    return str(objective) if form in (None, FORMS[objective][0]) else f"{objective}, valued by {form}"


def operator_cells(results: Data) -> Cells:
    """Headings and rows, the best first; policies that place alike share a row, with the times of the first.

    Where a policy has no value on some instance, a column has the share of these instances in per cent.
    """
    head = ["policy", "over best known", "against best rule, %", "over bound", "best, %", "median, ms", "99 %, ms"]
    is_partial = any(row.get("infeasible", 0) for row in results["rows"])
    if is_partial:
        head.insert(5, "none, %")
    rows = []
    for group in ranked(results):
        row = group[0]
        rows.append(
            [
                joined(group),
                with_ends(row["over_best_known"], 1.0, 3) if has_value(row) else "-",
                with_ends(row["against_best_rule"], 100.0, 1, sign="+") if has_value(row) else "-",
                f"{row['over_bound']['mean']:.2f}" if has_value(row) else "-",
                f"{100 * row['won']:.0f}",
                *([f"{100 * row.get('infeasible', 0):.0f}"] if is_partial else []),
                f"{1000 * row['seconds']['median']:.1f}",
                f"{1000 * row['seconds']['p99']:.1f}",
            ]
        )
    return head, rows


def difference_cells(shown: Data) -> tuple[str, list[str], list[list[str]]]:
    """Title, headings and rows of what a policy decides differently from HEFT on an instance; what brings most is first."""
    mine, rule = shown["placements"]
    title = f"{shown['instance']}: {shown['policy']} {1e3 * mine['value_s']:.4g} ms, HEFT {1e3 * rule['value_s']:.4g} ms"
    rows = [
        [
            _named(each["ops"]),
            each["device"],
            each["heft_device"],
            "does not fit" if each["costs_s"] is None else _signed(-1e3 * each["costs_s"], "+.4g"),
            "-" if each["costs_s"] is None else _signed(-100 * each["costs_s"] / mine["value_s"], "+.1f"),
        ]
        for each in shown["differences"]
    ]
    return title, ["ops", "device", "HEFT's device", "HEFT's instead, ms", "%"], rows


def difference_words(shown: Data) -> str:
    """How many decisions differ from HEFT's, and how many of them are for the better."""
    costs = [each["costs_s"] for each in shown["differences"]]
    shorter, longer, alone = (
        sum(1 for cost in costs if cost is not None and cost < 0),
        sum(1 for cost in costs if cost is not None and cost > 0),
        sum(1 for cost in costs if cost is None),
    )
    return (
        f"{len(costs)} ops or groups of ops have another device than HEFT gives them. Put back alone on HEFT's, {shorter} would "
        f"make the value longer, {longer} shorter, {alone} would not fit, the others change nothing; they depend on each other, "
        "so this does not add up."
    )


def _signed(value: float, form: str) -> str:
    return format(value, form) if abs(value) > 1e-9 else "0"


def _named(ops: Sequence[str]) -> str:
    return ops[0] if len(ops) == 1 else f"{ops[0]} and {len(ops) - 1} more"


def ablation_cells(results: Data) -> Cells | None:
    """Headings and rows of learned policies whose networks leave something out, against the first that leaves out nothing.

    None where there are no two such.
    """
    learned = [row for row in results["rows"] if row.get("trained", {}).get("network") and "@" not in row["policy"]]
    whole = next((row for row in learned if left_out(row) == ()), None)
    if whole is None or all(left_out(row) == () for row in learned):
        return None
    rows = []
    for row in sorted(learned, key=lambda each: (each is not whole, each["over_bound"]["mean"])):
        against = row["against"].get(whole["policy"])
        rows.append(
            [
                row["policy"],
                ", ".join(left_out(row)) or "nothing",
                with_ends(row["over_bound"], 1.0, 2),
                with_verdict(against, 1.0, 3),
            ]
        )
    return ["policy", "left out", "over bound", "over best known, paired"], rows


def paired_cells(results: Data) -> Cells | None:
    """Headings and rows of each learned policy against each other policy: differences over the best known, paired over instances.

    None where nothing learned is compared with anybody.
    """
    groups = ranked(results)
    learned = [group[0] for group in groups if group[0]["kind"] in CHALLENGERS]
    if not learned or len(groups) < 2:
        return None
    rows = [
        [joined(group), *(with_verdict(row.get("against", {}).get(group[0]["policy"]), 1.0, 3) for row in learned)]
        for group in groups
    ]
    return ["against", *(row["policy"] for row in learned)], rows


_WHOLE = {"rounds": 4, "walks": 2}
"""Of `OperatorNetworkSettings`, what an ablation may take less of."""


def left_out(row: Mapping[str, Any]) -> tuple[str, ...]:
    """What a learned policy's network leaves out."""
    network = row["trained"]["network"]
    fewer = tuple(f"{name}={network[name]}" for name, usual in _WHOLE.items() if network[name] < usual)
    return (*network["without"], *fewer)


def budget_cells(results: Data) -> Cells | None:
    """Headings and rows of searches by the time that they are given; None where none was asked for."""
    told = results.get("budgets", {"rows": []})
    if not told["rows"]:
        return None
    rows = [[row["policy"], *(with_ends(each, 1.0, 3) for each in row["over_best_known"])] for row in told["rows"]]
    return ["policy", *(seconds_text(each) for each in told["seconds"])], rows


def seconds_text(seconds: float) -> str:
    """Seconds in ms below one second."""
    return f"{seconds:g} s" if seconds >= 1 else f"{1e3 * seconds:g} ms"


def has_value(row: Mapping[str, Any]) -> bool:
    """Whether a policy has a value on any instance; without one it stands for the worst of the others, which says nothing."""
    return float(row.get("infeasible", 0)) < 1


def ranked(results: Data) -> list[list[Mapping[str, Any]]]:
    """The rows, the best first, those of policies that place alike together; who has no value on some instance comes last."""

    def rank(row: Mapping[str, Any]) -> tuple[bool, float]:
        return row.get("infeasible", 0) > 0, float(row["over_best_known"]["mean"])

    return alike(sorted(results["rows"], key=rank))


def figure_rows(results: Data) -> list[dict[str, Any]]:
    """A row for each point of a figure, the best first: policies that place alike as one, none that has no value at all."""
    return [{**group[0], "policy": joined(group)} for group in ranked(results) if has_value(group[0])]


def operator_markdown(results: Data) -> str:
    """A heading, a table with a line per policy, and the verdict."""
    head, rows = operator_cells(results)
    lines = [
        f"# Benchmark {escaped(results['benchmark'])}",
        "",
        f"{counted(results['num_instances'], 'instance')}, objective {objective_words(results)}; "
        f"values are means of ratios with 95 % "
        "bootstrap intervals over the instances. The best known of an instance is the best of all policies here and of annealing "
        f"for {results['best_known_s']:g} s; the best rule is the best of all that neither learn, search nor prove, instance by "
        "instance.",
        "",
        *table(head, [[escaped(cell) for cell in row] for row in rows]),
        "",
        escaped(results["verdict"]),
        "",
        *(line for remark in results["remarks"] for line in (escaped(remark), "")),
    ]
    for title, more in (
        ("Paired, over the best known", paired_cells(results)),
        ("Over the best known, by time", budget_cells(results)),
        ("Left out", ablation_cells(results)),
    ):
        if more is not None:
            lines += [f"## {title}", "", *table(more[0], [[escaped(cell) for cell in row] for row in more[1]]), ""]
    for one in results.get("shown", []):
        title, head, rows = difference_cells(one)
        lines += [f"## {escaped(title)}", "", *table(head, [[escaped(cell) for cell in row] for row in rows]), ""]
    return "\n".join(lines)
