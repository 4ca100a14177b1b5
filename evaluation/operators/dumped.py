"""Instances and placements as files, so that every figure can be computed again by ``meshwright dev validate placements``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ... import files
from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.instance_files import save
from ...simulation.operators.placement import OperatorPlacement

INSTANCE = "instance.json"


def dump(folder: Path, number: int, instance: OperatorInstance, placements: Mapping[str, OperatorPlacement]) -> None:
    """Write ``instance-NUMBER/instance.json`` and, next to it, a file for each policy's placement.

    Args:
        folder: below which they are.
        number: seed of the instance.
        instance: what was placed.
        placements: by policy.
    """
    inside = folder / f"instance-{number}"
    save(instance, inside / INSTANCE)
    write_each(inside, {policy: to_data(instance, policy, made) for policy, made in placements.items()})


def write_each(folder: Path, data: Mapping[str, object]) -> None:
    """Write a JSON file for each policy, named after it; two whose names make the same file name get a number."""
    taken = {INSTANCE}
    for policy, made in data.items():
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", policy).strip("-.") or "policy"
        names = (f"{stem}{'' if count == 0 else f'-{count}'}.json" for count in range(len(taken) + 1))
        name = next(each for each in names if each not in taken)
        taken.add(name)
        files.write_json(folder / name, made)


def to_data(instance: OperatorInstance, policy: str, made: OperatorPlacement) -> dict[str, object]:
    """Return a placement as ``dev validate placements`` reads it: devices by op, the order of the ops, and its value."""
    device_of = {op: instance.device_names[device] for op, device in zip(instance.op_names, made.device_of.tolist(), strict=True)}
    return {
        "policy": policy,
        "objective": made.objective,
        "value_s": made.value_s,
        "device_of": device_of,
        "order": [instance.op_names[op] for op in made.order.tolist()],
    }
