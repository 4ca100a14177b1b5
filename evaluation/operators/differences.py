"""One placement compared with HEFT's: when ops run, which have another device, the gain by each of these decisions; a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import OperatorPlacement, held_bytes, value
from ...simulation.operators.schedules import append_in_order, arrays

Data = Mapping[str, Any]


def shown_instance(
    instance: OperatorInstance, number: int, policy: str, made: OperatorPlacement, rule: OperatorPlacement
) -> dict[str, Any]:
    """Return the data of an instance for a page.

    Args:
        instance: that was placed.
        number: its seed.
        policy: who placed it.
        made: its placement.
        rule: HEFT's.

    Returns:
        Names, edges, both schedules, and the value with HEFT's device for every group of ops with another one. ``costs_s`` is
        the increase of the value by the decision, below 0 for a decrease. It is None where the ops do not fit HEFT's device with
        the others. Decisions depend on each other, so costs do not add up.
    """
    return {
        "number": number,
        "instance": instance.name,
        "policy": policy,
        "objective": made.objective,
        "op_names": list(instance.op_names),
        "device_names": list(instance.device_names),
        "edges": instance.edges.tolist(),
        "edge_bytes": instance.edge_bytes.tolist(),
        "topological": instance.topological.tolist(),
        "placements": [_scheduled(instance, policy, made), _scheduled(instance, "heft", rule)],
        "differences": differences(instance, made, rule),
    }


def differences(instance: OperatorInstance, made: OperatorPlacement, rule: OperatorPlacement) -> list[dict[str, Any]]:
    """Return the groups of ops that have another device, those that bring most first; see `shown_instance`."""
    results = []
    for group in range(instance.num_groups):
        ops = np.flatnonzero(instance.group == group)
        here, rule_device = int(made.device_of[ops[0]]), int(rule.device_of[ops[0]])
        if here == rule_device:
            continue
        other = made.device_of.copy()
        other[ops] = rule_device
        fits = held_bytes(instance, other)[rule_device] <= instance.memory_bytes[rule_device]
        orders = (None, made.order)  # the best known one is meant
        without_s = min(value(instance, other, made.objective, order) for order in orders) if fits else None
        results.append(
            {
                "ops": [instance.op_names[op] for op in ops.tolist()],
                "device": instance.device_names[here],
                "heft_device": instance.device_names[rule_device],
                "costs_s": None if without_s is None else made.value_s - without_s,
            }
        )
    return sorted(results, key=lambda each: np.inf if each["costs_s"] is None else each["costs_s"])


def _scheduled(instance: OperatorInstance, policy: str, made: OperatorPlacement) -> dict[str, Any]:
    start_s, end_s = append_in_order(arrays(instance), made.device_of, made.order)
    return {
        "policy": policy,
        "value_s": made.value_s,
        "device_of": made.device_of.tolist(),
        "order": made.order.tolist(),
        "start_s": start_s.tolist(),
        "end_s": end_s.tolist(),
    }


def difference_cells(shown: Data) -> tuple[str, list[str], list[list[str]]]:
    """Return title, headings and rows of what a policy decides unlike HEFT on an instance; what brings most is first."""
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
    """Return how many decisions differ from HEFT's, and how many of them are for the better."""
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
