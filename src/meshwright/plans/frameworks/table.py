"""The layouts that each training framework runs: one table for searches, and for exports that refuse.

A framework is a list of limits. A limit names a key of the layout, its allowed values, and when the limit counts. Without values
it is broken whenever it counts. The model and the length of its sequence count where they are known. Each framework's file has
its sources.
"""

from __future__ import annotations

from ...errors import PlanError
from .deepspeed import DEEPSPEED
from .fsdp2 import FSDP2
from .limits import Framework, LayoutOfModel
from .megatron import MEGATRON
from .torchtitan import TORCHTITAN


def framework(name: str) -> Framework:
    """Return the framework of a name.

    Raises:
        PlanError: there is none.
    """
    own = _OTHER_NAMES.get(name.lower())
    if name not in FRAMEWORKS and own is not None:
        raise PlanError(f"unknown framework (got {name!r}); did you mean {own!r}?", field="--for")
    if name not in FRAMEWORKS:
        raise PlanError("unknown framework", field="--for", value=name, choices=FRAMEWORKS)
    return FRAMEWORKS[name]


def frameworks_text(case: LayoutOfModel, order: str, devices_per_host: int, *, has_layers: bool) -> str:
    """Return one line: which frameworks run a layout, and which key keeps the others from it; a script may run any.

    Args:
        case: the layout and its model.
        order: how its ranks are numbered.
        devices_per_host: devices of a host.
        has_layers: whether the job is cut layer by layer.
    """
    run, left, askable = [], [], []
    for name, one in FRAMEWORKS.items():
        refusal = one.refusal(case, as_priced=False)
        askable += [name] if has_layers or not one.needs_layers else []
        if one.needs_layers and not has_layers:
            left.append(f"{name} (a graph of ops)")
        elif refusal is not None:
            left.append(f"{name} ({refusal.key})")
        elif not one.numbering(case.layout, order, devices_per_host):
            left.append(f"{name} (order of ranks)")
        else:
            run.append(name)
            askable.remove(name)
    text = f"runs on {', '.join(run) or 'no framework that is known here, only by a script of your own'}"
    how = f": --for NAME, as --for {askable[0]}, searches what it runs" if askable else ""
    return text + (f"; not on {', '.join(left)}{how}" if left else "")


FRAMEWORKS: dict[str, Framework] = {one.name: one for one in (MEGATRON, TORCHTITAN, DEEPSPEED, FSDP2)}
"""Every framework, by the name that ``--for`` takes."""

_OTHER_NAMES = {
    "megatron-lm": "megatron",
    "megatron-core": "megatron",
    "mcore": "megatron",
    "titan": "torchtitan",
    "fsdp": "fsdp2",
    "fully_shard": "fsdp2",
    "torch": "fsdp2",
    "ds": "deepspeed",
    "zero": "deepspeed",
}
