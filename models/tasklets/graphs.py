"""Networks of devices as tensors: the complete graph of devices, relative to its own means, padded side by side.

Legend of shapes: ``b`` networks, ``n`` most devices. Nothing here depends on the names or the numbers of devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...simulation.tasklets.filling import near_devices, units_s
from ...simulation.tasklets.instance import TaskletInstance

_QUANTILES = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
_NUM_PLACES = 5
NUM_DEVICE_FEATURES = 2 * (1 + len(_QUANTILES)) + _NUM_PLACES
NUM_LINK_FEATURES = 6
NUM_NETWORK_FEATURES = 4
_SHARPNESS = 8.0
"""Near devices are told apart by a feature that falls so fast with the time between them."""


@dataclass(frozen=True, eq=False)
class TaskletGraphs:
    """Networks side by side.

    Attributes:
        devices: of each device, the mean and quantiles of its exchanges and hand-overs, and its place among the devices near it,
            ``(b, n, 23)``.
        links: of each pair: exchange and hand-over by the network's means, how near they are among all of both devices, and how
            near at all, ``(b, n, n, 6)``.
        network: shares of data parallelism, devices, stages and replicas, ``(b, 4)``.
        is_device: ``(b, n)``.
        num_replicas: ``(b,)``.
    """

    devices: Tensor
    links: Tensor
    network: Tensor
    is_device: Tensor
    num_replicas: Tensor

    @property
    def size(self) -> int:
        """Number of networks, ``b``."""
        return len(self.devices)

    def some(self, rows: Tensor) -> TaskletGraphs:
        """Some of the networks."""
        return TaskletGraphs(*(getattr(self, each.name)[rows] for each in fields(self)))

    def to(self, device: torch.device) -> TaskletGraphs:
        """A copy on a PyTorch device."""
        return TaskletGraphs(*(getattr(self, each.name).to(device) for each in fields(self)))


@dataclass(frozen=True, eq=False)
class TaskletFeatures:
    """One network, without padding; see `TaskletGraphs`."""

    devices: NDArray[np.float32]
    links: NDArray[np.float32]
    network: NDArray[np.float32]
    num_replicas: int


def tasklet_features(instance: TaskletInstance) -> TaskletFeatures:
    """What the policy reads of a network, in [0, 1] and relative to it."""
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
    data, pipeline = units[0] * (p - 1), 2 * units[1] * (k - 1)
    network = [data / max(data + pipeline, 1e-30), n / (n + 64), k / (k + 8), p / (p + 8)]
    return TaskletFeatures(
        np.concatenate(devices, axis=1).astype(np.float32),
        np.stack(links, axis=2).astype(np.float32),
        np.array(network, np.float32),
        p,
    )


def _in_order(instance: TaskletInstance) -> NDArray[np.int64]:
    """All devices by their mean exchange; those that are alike by number, so that they can be told apart and planned for."""
    mean_s = instance.reduce_s.mean(axis=1)
    return np.argsort(np.round(mean_s / max(mean_s.max(), 1e-300), 9), kind="stable")


def _places(instance: TaskletInstance, order: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of each device, ``(n, 5)``: how many stages those near it could fill, what share of one would be over, its place among them
    in the order, its place in a stage of them, and whether it would be over."""
    p = instance.num_replicas
    is_near, rank = near_devices(instance), np.argsort(order)
    near = 1 + is_near.sum(axis=1)
    place = (is_near & (rank[None] < rank[:, None])).sum(axis=1)
    told = [near / (near + p), near % p / p, place / (place + p), place % p / p, place >= near // p * p]
    return np.stack(told, axis=1).astype(np.float64)


def _ranks(values: NDArray[np.float64], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Place of each value in its row, ``(n, n)``, from 0; of equal ones the device that is first in the order is first."""
    made = np.empty(values.shape, np.int64)
    made[:, order] = np.argsort(np.argsort(values[:, order], axis=1, kind="stable"), axis=1, kind="stable")
    return made


def tasklet_graphs(given: Sequence[TaskletFeatures]) -> TaskletGraphs:
    """Networks side by side, padded to the most devices."""
    b, n = len(given), max(len(each.devices) for each in given)
    devices, links = np.zeros((b, n, NUM_DEVICE_FEATURES), np.float32), np.zeros((b, n, n, NUM_LINK_FEATURES), np.float32)
    is_device = np.zeros((b, n), np.bool_)
    for row, each in enumerate(given):
        own = len(each.devices)
        devices[row, :own], links[row, :own, :own], is_device[row, :own] = each.devices, each.links, True
    network, replicas = np.stack([each.network for each in given]), np.array([each.num_replicas for each in given])
    return TaskletGraphs(*(torch.from_numpy(each) for each in (devices, links, network, is_device, replicas)))
