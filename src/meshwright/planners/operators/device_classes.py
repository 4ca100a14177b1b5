"""Devices that may change places without changing the value of any placement."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import OperatorObjective, port_s


def device_classes(instance: OperatorInstance, objective: OperatorObjective) -> NDArray[np.int64]:
    """Class of each device, numbered from 0 in order of their first device, ``(m,)``.

    Two devices are of one class if exchanging them changes no placement's value or legality. They have the same times, memory
    and kind. For ``latency`` they also have the same links to all others and both ways between themselves, for ``throughput``
    the same port.
    """
    m = instance.num_devices
    classes = np.full(m, -1, np.int64)
    first: list[int] = []
    port = port_s(instance, np.ones(1))[0]
    for device in range(m):
        for number, other in enumerate(first):
            if _same_work(instance, device, other) and (
                port[device] == port[other] if objective == "throughput" else _same_links(instance, device, other)
            ):
                classes[device] = number
                break
        else:
            classes[device] = len(first)
            first.append(device)
    return classes


def _same_work(instance: OperatorInstance, a: int, b: int) -> bool:
    return (
        bool((instance.times_s[:, a] == instance.times_s[:, b]).all())
        and instance.memory_bytes[a] == instance.memory_bytes[b]
        and bool(instance.is_host[a] == instance.is_host[b])
    )


def _same_links(instance: OperatorInstance, a: int, b: int) -> bool:
    others = np.ones(instance.num_devices, np.bool_)
    others[[a, b]] = False
    return all(
        bool(matrix[a, b] == matrix[b, a])
        and bool((matrix[a, others] == matrix[b, others]).all())
        and bool((matrix[others, a] == matrix[others, b]).all())
        for matrix in (instance.latency_s, instance.bandwidth_bytes_per_s)
    )
