"""Older versions of the plan's form, each brought to the next one, so that every plan ever saved can be read.

Version 3 (current)
    A partition may be ``ops``: a device for each op of the job graph, in groups that may form a pipeline. A plan may say how its
    replicas agree on their parameters (``training``) and how gradients are coded (``compression``). By default uncoded gradients
    are summed in every step. A masked job may have a plan for each of its phases (``phases``).
Version 2
    Layouts also have keys for context, sharding, precision, attention and gradients (``context_parallel``, ``shard_group``,
    ``precision``, ...). Jobs may say the shape of a transformer (``transformer``). Figures may be ``observed``, as those of plans
    of the decision service.
Version 1
    Layouts end with ``overlap_dp``. Keys that version 2 adds have their defaults, as such plans meant.
"""

from __future__ import annotations

from typing import Literal

SCHEMA_VERSION: Literal[3] = 3


def known_versions() -> range:
    """Return the versions that can be read."""
    return range(1, SCHEMA_VERSION + 1)


def is_known(version: object) -> bool:
    """Return whether plans of a version can be read; True and 1.0 are none."""
    return type(version) is int and version in known_versions()
