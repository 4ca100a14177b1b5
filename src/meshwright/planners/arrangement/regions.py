"""Regions of a network that does not say any: devices that see all others alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...simulation.tasklets.instance import TaskletInstance

ALIKE = 0.05
"""Relative difference up to which two links are alike."""


def alike_devices(instance: TaskletInstance) -> tuple[str, ...]:
    """A name for each device, the same for devices whose links to all others take equally long within `ALIKE`."""
    figures = (instance.reduce_s, instance.hand_over_s)
    region = np.full(instance.num_devices, -1)
    for device in range(instance.num_devices):
        if region[device] < 0:
            region[device] = device
            for other in range(device + 1, instance.num_devices):
                if region[other] < 0 and all(_are_alike(seconds, device, other) for seconds in figures):
                    region[other] = device
    return tuple(f"alike-{first}" for first in region.tolist())


def _are_alike(seconds: NDArray[np.float64], one: int, other: int) -> bool:
    apart = np.ones(len(seconds), np.bool_)
    apart[[one, other]] = False
    pairs = ((seconds[one, apart], seconds[other, apart]), (seconds[apart, one], seconds[apart, other]))
    return all(np.allclose(first, second, rtol=ALIKE, atol=0.0) for first, second in pairs)
