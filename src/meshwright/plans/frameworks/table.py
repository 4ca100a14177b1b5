"""The layouts that each training framework runs: one table for searches, and for exports that refuse.

A framework is a list of limits. A limit names a key of the layout, the values that the key may have, and when the limit counts;
without values it is broken whenever it counts. The model and the length of its sequence count where they are known. Each
framework's sources stand in its file.
"""

from __future__ import annotations

from ...errors import PlanError
from .deepspeed import DEEPSPEED
from .fsdp2 import FSDP2
from .limits import Framework
from .megatron import MEGATRON
from .torchtitan import TORCHTITAN


def framework(name: str, *, field: str = "--for") -> Framework:
    """The framework of a name.

    Raises:
        PlanError: there is none.
    """
    own = _OTHER_NAMES.get(name.lower())
    if name not in FRAMEWORKS and own is not None:
        raise PlanError(f"unknown framework (got {name!r}); did you mean {own!r}?", field=field)
    if name not in FRAMEWORKS:
        raise PlanError("unknown framework", field=field, value=name, choices=FRAMEWORKS)
    return FRAMEWORKS[name]


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
