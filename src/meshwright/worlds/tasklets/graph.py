"""The typed graph of a network of devices: each device with its nearest others, relative to the network's own means.

Nothing here depends on the names or the numbers of devices. Legend of shapes: ``n`` devices, ``k`` stages.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...simulation.tasklets.filling import near_devices, units_s
from ...simulation.tasklets.instance import TaskletInstance
from ..typed_graph import InstanceGraph, Triple

LINKS: Triple = ("device", "reaches", "device")
MOST_LINKS = 31
"""Links that lead to a device: of the nearest others by exchange, so that graphs grow with the number of devices."""

_QUANTILES = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
_TIMES = ("reduce", "hand_over")
DEVICE = (
    *(f"{time}_{share}" for time in _TIMES for share in ("mean", *(f"q{100 * each:.0f}" for each in _QUANTILES))),
    "stages_near",
    "share_over",
    "place",
    "place_in_stage",
    "is_over",
)
"""Mean and quantiles of a device's exchanges and hand-overs. Number of stages that the devices near it could fill, the share of
a stage left over. Its place among them, its place in a stage of them, and whether it would be left over."""
STAGE = ("place", "is_first", "is_last")
LINK = tuple(f"{time}_{what}" for time in _TIMES for what in ("s", "rank", "nearness"))
"""Exchange and hand-over by the network's means; how near they are among all of both devices; how near at all."""
NETWORK = ("data_share", "devices", "stages", "replicas")
_SHARPNESS = 8.0
"""Near devices are distinguished by a feature that falls so fast with the time between them."""


def network_graph(instance: TaskletInstance) -> InstanceGraph:
    """Return what a policy reads of a network, in [0, 1] and relative to it."""
    n, k, p = instance.num_devices, instance.num_stages, instance.num_replicas
    devices, links = [], []
    units, order = units_s(instance), _in_order(instance)
    for seconds, unit_s in zip((instance.reduce_s, instance.hand_over_s), units, strict=True):
        relative = seconds / unit_s
        squashed = relative / (relative + 1.0)
        others = np.sort(squashed + np.diag(np.full(n, np.inf)), axis=1)[:, : max(1, n - 1)] if n > 1 else np.zeros((1, 1))
        at = [round(share * (others.shape[1] - 1)) for share in _QUANTILES]
        devices += [others.mean(axis=1)[:, None], others[:, at]]
        place = _ranks(squashed, order) / max(1, n - 1)
        links += [squashed, (place + place.T) / 2, np.exp(-_SHARPNESS * relative / 2)]
    devices.append(_places(instance, order))
    source, target = _nearest(instance.reduce_s, order)
    data, pipeline = units[0] * (p - 1), 2 * units[1] * (k - 1)
    whole = [data / max(data + pipeline, 1e-30), n / (n + 64), k / (k + 8), p / (p + 8)]
    stage = np.arange(k)
    return InstanceGraph(
        {
            "device": np.concatenate(devices, axis=1).astype(np.float32),
            "stage": np.stack([stage / max(1, k - 1), stage == 0, stage == k - 1], axis=1).astype(np.float32),
        },
        {LINKS: np.stack([source, target])},
        {LINKS: np.stack([each[source, target] for each in links], axis=1).astype(np.float32)},
        np.array(whole, np.float32),
    )


def _in_order(instance: TaskletInstance) -> NDArray[np.int64]:
    """Return all devices by their mean exchange; equal ones by number, so that they can be distinguished and planned for."""
    mean_s = instance.reduce_s.mean(axis=1)
    return np.argsort(np.round(mean_s / max(mean_s.max(), 1e-300), 9), kind="stable")


def _nearest(reduce_s: NDArray[np.float64], order: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the sources and targets of links: to each device from the others with the shortest exchange."""
    n = len(reduce_s)
    count = min(MOST_LINKS, n - 1)
    apart = np.where(np.eye(n, dtype=np.bool_), np.inf, reduce_s)
    nearest = order[np.argsort(apart[:, order], axis=1, kind="stable")[:, :count]]
    return nearest.reshape(-1), np.repeat(np.arange(n), count)


def _places(instance: TaskletInstance, order: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the last five of `DEVICE`, ``(n, 5)``."""
    p = instance.num_replicas
    is_near, rank = near_devices(instance), np.argsort(order)
    near = 1 + is_near.sum(axis=1)
    place = (is_near & (rank[None] < rank[:, None])).sum(axis=1)
    columns = [near / (near + p), near % p / p, place / (place + p), place % p / p, place >= near // p * p]
    return np.stack(columns, axis=1).astype(np.float64)


def _ranks(values: NDArray[np.float64], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the place of each value in its row, ``(n, n)``, from 0; of equal ones the first device in the order is first."""
    made = np.empty(values.shape, np.int64)
    made[:, order] = np.argsort(np.argsort(values[:, order], axis=1, kind="stable"), axis=1, kind="stable")
    return made
