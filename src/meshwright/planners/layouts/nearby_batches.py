"""Batches near the one that is asked for that more of the devices divide evenly.

The degree of data parallelism divides the batch. A batch that shares few factors with the number of devices, as 500 with 64,
allows few replicas. The other devices then go to axes that cost more.
"""

from __future__ import annotations

import math

NEAR = 0.1
"""Relative distance up to which a batch is near."""

CLEARLY_BETTER = 0.05
"""Relative gain in samples of a second from which a nearby batch is worth a word. Both are one job on one system, so that doubts
of kernels and links are the same."""


def nearby_batches(batch: int, devices: int) -> tuple[int, ...]:
    """Return the nearest batch below and above, as far as there is one, of those that share the most with the number of devices.

    Args:
        batch: samples of a step.
        devices: on how many it runs.

    Returns:
        None to two batches, each with a larger greatest common divisor with ``devices`` than ``batch`` has.
    """
    results = []
    low, high = math.ceil(batch * (1 - NEAR)), math.floor(batch * (1 + NEAR))
    for side in (range(batch - 1, max(low, 1) - 1, -1), range(batch + 1, high + 1)):
        best = max(side, key=lambda near: (math.gcd(near, devices), -abs(near - batch)), default=batch)
        if math.gcd(best, devices) > math.gcd(batch, devices):
            results.append(best)
    return tuple(results)
