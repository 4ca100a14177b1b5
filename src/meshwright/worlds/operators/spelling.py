"""A second spelling of benchmarks of operator placement: flat, with the draws of graphs and devices together.

``objective``, ``form``, ``optimizer`` and ``instances`` may be at the root in place of below ``placement``, and the draw of
devices below ``instances``. Keys below ``placement``, its ``instances`` and its ``devices`` have precedence, so that changes of
keys work with both spellings. ``order`` and ``refine_steps`` of earlier benchmarks are read where their values are today's
behaviour.
"""

from __future__ import annotations

from typing import Any

from ...plans.op_placement import OPTIMIZERS
from ...simulation.operators.generators import DeviceDraw

OF_PLACEMENT = ("objective", "form", "order", "refine_steps", "optimizer", "instances")
FILES, JOBS = ("files", "file"), ("jobs", "zoo")


def below_placement(value: Any) -> Any:
    """The root of a benchmark with its flat keys moved below ``placement``."""
    if not isinstance(value, dict) or not any(key in value for key in OF_PLACEMENT):
        return value
    if value.get("objective") == "tasklets":
        raise ValueError("objective: tasklets are another kind of benchmark, with the key tasklets; see preset:tasklets-64")
    flat = {key: value[key] for key in OF_PLACEMENT if key in value}
    rest = {key: each for key, each in value.items() if key not in OF_PLACEMENT}
    below = value.get("placement")
    if not isinstance(below, dict):
        return rest | {"placement": flat}
    drawn, more = flat.get("instances"), below.get("instances")
    if isinstance(drawn, dict) and isinstance(more, dict):
        below = below | {"instances": drawn | more}
    return rest | {"placement": flat | below}


def below_devices(value: Any) -> Any:
    """Return the keys of ``placement``, with the draw of devices below ``devices`` and an optimizer with its jobs.

    Raises:
        ValueError: no such optimizer, an optimizer is named twice, or the keys ask for decisions that were removed.
    """
    if not isinstance(value, dict):
        return value
    instances, rest = value.get("instances"), dict(value)
    if rest.pop("order", "upward-rank") != "upward-rank":
        raise ValueError("order: ops are placed by upward rank alone, as no other order was better; leave it out")
    if rest.pop("refine_steps", 0) != 0:
        raise ValueError("refine_steps: placements are no longer refined step by step, as nothing was gained; leave it out")
    kind = instances.get("kind") if isinstance(instances, dict) else None
    if isinstance(instances, dict) and kind not in FILES:
        drawn = {key: each for key, each in instances.items() if key in DeviceDraw.model_fields}
        below = value.get("devices", {})
        if drawn and isinstance(below, dict):
            rest["devices"] = drawn | below
            rest["instances"] = instances = {key: each for key, each in instances.items() if key not in drawn}
    if "optimizer" in rest:
        name = known_optimizer(rest.pop("optimizer"))
        if kind in JOBS and isinstance(instances, dict):
            if "optimizer" in instances or "optimizer_bytes" in instances:
                raise ValueError("optimizer: is named here and in instances")
            rest["instances"] = instances | {"optimizer": name}
    return rest


def known_optimizer(name: Any) -> str:
    """The name of an optimizer.

    Raises:
        ValueError: there is none of that name.
    """
    if name not in OPTIMIZERS:
        raise ValueError(f"optimizer: choose {' or '.join(sorted(OPTIMIZERS))}, is {name}")
    return str(name)
