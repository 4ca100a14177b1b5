"""Regions of a network that states none: devices with equal links to all others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...simulation.tasklets.instance import TaskletInstance

ALIKE = 0.05
"""Relative difference up to which two links count as equal."""


def equal_devices(instance: TaskletInstance) -> tuple[str, ...]:
    """Return a name for each device, equal for devices whose links to all others take equally long within `ALIKE`."""
    tables = [table for seconds in (instance.reduce_s, instance.hand_over_s) for table in (seconds, seconds.T)]
    region = np.full(instance.num_devices, -1)
    for device in range(instance.num_devices):
        if region[device] < 0:
            is_alike = np.logical_and.reduce([_are_equal(seconds, device) for seconds in tables])
            region[is_alike & (region < 0)] = device
    return tuple(f"alike-{first}" for first in region.tolist())


def _are_equal(seconds: NDArray[np.float64], one: int) -> NDArray[np.bool_]:
    """Whether a device sees all but itself and the other as each other device does, ``(n,)``."""
    near = np.abs(seconds[one] - seconds) <= ALIKE * seconds
    near[:, one] = True
    np.fill_diagonal(near, True)
    return np.asarray(near.all(axis=1))
