"""Decisions of a placement against HEFT's as cells of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Data = Mapping[str, Any]


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
