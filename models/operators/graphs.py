"""Instances of operator placement as tensors: features of ops, devices, edges and links, padded side by side.

Legend of shapes: ``b`` instances, ``n`` most ops, ``m`` most devices, ``e`` edges of all instances together. Nothing here comes
from a schedule: no rank, no depth, no start. What the network knows of the structure reaches it through messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import OperatorObjective, feature_unit_s
from ...simulation.operators.schedules import mean_times_s, mean_transfer_s

if TYPE_CHECKING:
    from torch_geometric.data import HeteroData

NUM_OP_FEATURES = 8
NUM_DEVICE_FEATURES = 6
NUM_EDGE_FEATURES = 3
NUM_LINK_FEATURES = 2
NUM_PAIR_FEATURES = 3

_MOST_MEMORY = 16.0
"""A device whose memory is so many times what all ops hold is like any with more."""


@dataclass(frozen=True)
class OperatorGraphs:
    """A batch of instances.

    Attributes:
        ops: ``(b, n, 8)``.
        is_op: False where padded, ``(b, n)``.
        devices: ``(b, m, 6)``.
        is_device: ``(b, m)``.
        producer: of each edge, a place in the flattened ``(b n)``, ``(e,)``.
        reader: ``(e,)``.
        edges: ``(e, 3)``.
        links: ``(b, m, m, 2)``.
        group: group of each op, which is placed as one, ``(b, n)``; 0 where padded.
    """

    ops: Tensor
    is_op: Tensor
    devices: Tensor
    is_device: Tensor
    producer: Tensor
    reader: Tensor
    edges: Tensor
    links: Tensor
    group: Tensor

    @property
    def size(self) -> int:
        """Number of instances, ``b``."""
        return len(self.ops)

    def some(self, rows: Tensor) -> OperatorGraphs:
        """Some of the instances, padded as before; ``rows`` are their numbers in rising order, ``(k,)``."""
        n = self.ops.shape[1]
        place = torch.full((self.size,), -1)
        place[rows] = torch.arange(len(rows))
        kept = place[self.producer // n] >= 0
        ends = {"producer": self.producer[kept], "reader": self.reader[kept]}
        ends = {name: place[end // n] * n + end % n for name, end in ends.items()}
        of_edges = {**ends, "edges": self.edges[kept]}
        others = {each.name: getattr(self, each.name)[rows] for each in fields(self) if each.name not in of_edges}
        return OperatorGraphs(**of_edges, **others)


@dataclass(frozen=True)
class InstanceFeatures:
    """One instance's arrays of `OperatorGraphs`, not padded."""

    ops: NDArray[Any]
    devices: NDArray[Any]
    edges: NDArray[Any]
    links: NDArray[Any]
    ends: NDArray[Any]
    group: NDArray[np.int64]


def features(instance: OperatorInstance, objective: OperatorObjective) -> InstanceFeatures:
    """Features of an instance, relative to itself, so that sizes and units of time carry over.

    A time ``t`` is ``t / (t + scale)``, with `placement.feature_unit_s` as the scale, and the logarithm of its ratio to the mean.
    The bytes of an op stand against those of the mean op, so that nothing shrinks or grows with the number of ops.
    """
    n, m = instance.num_ops, instance.num_devices
    scale = feature_unit_s(instance, objective)
    mean_s, transfer_s = mean_times_s(instance), mean_transfer_s(instance)
    memory = np.where(np.isfinite(instance.memory_bytes), instance.memory_bytes, 0.0)
    total_bytes = max(float(instance.resident_bytes.sum()), 1e-30)
    in_degree = np.bincount(instance.edges[:, 1], minlength=n)
    out_degree = np.bincount(instance.edges[:, 0], minlength=n)
    sent_s, read_s = np.zeros(n), np.zeros(n)
    np.maximum.at(sent_s, instance.edges[:, 0], transfer_s)
    np.add.at(read_s, instance.edges[:, 1], transfer_s)
    ops = np.stack(
        [
            _log_ratio(mean_s),
            _share(mean_s, scale),
            _share(sent_s, scale),
            _share(read_s, scale),
            _share(instance.resident_bytes, total_bytes / n),
            in_degree / (in_degree + 2.0),
            out_degree / (out_degree + 2.0),
            instance.is_backward.astype(np.float64),
        ],
        axis=1,
    )
    runs, ratio = _times_over_mean(instance, mean_s)
    relative = np.where(runs, ratio, 0.0).sum(axis=0) / np.maximum(runs.sum(axis=0), 1)
    relative = np.where(runs.any(axis=0), relative, 1.0)
    apart = ~np.eye(m, dtype=np.bool_)
    mean_bytes = float(instance.edge_bytes.mean()) if len(instance.edges) else 0.0
    pair_s = np.where(apart, instance.latency_s + mean_bytes / instance.bandwidth_bytes_per_s, 0.0)
    typical_s = float(pair_s[apart].mean()) if m > 1 else 0.0
    relative_s = np.log(np.maximum(pair_s, 1e-3 * typical_s + 1e-30) / (typical_s + 1e-30)) * apart
    devices = np.stack(
        [
            np.log(np.maximum(relative, 1e-6)),
            np.minimum(memory / total_bytes, _MOST_MEMORY),
            relative_s.sum(axis=1) / max(m - 1, 1),
            relative_s.min(axis=1),
            np.full(m, typical_s / (typical_s + scale)),
            np.full(m, np.log(m) / 4.0),
        ],
        axis=1,
    )
    links = np.stack([relative_s, _share(pair_s, scale)], axis=2)
    edges = np.stack([_share(transfer_s, scale), _log_ratio(transfer_s), _share(transfer_s, mean_s.mean())], axis=1)
    real = np.float32
    return InstanceFeatures(
        ops.astype(real),
        devices.astype(real),
        edges.astype(real),
        links.astype(real),
        instance.edges,
        np.asarray(instance.group, np.int64),
    )


def hetero_data(instance: OperatorInstance, objective: OperatorObjective = "latency") -> HeteroData:
    """An instance as a graph for PyG: nodes ``op`` and ``device``, features as in `OperatorGraphs`.

    Edges ``(op, feeds, op)``, ``(device, link, device)`` and ``(op, runs_on, device)``, the last where the op can run.
    """
    from torch_geometric.data import HeteroData  # takes as long to load as PyTorch itself

    told = features(instance, objective)
    can_run = instance.can_run[instance.group]
    data = HeteroData()
    data["op"].x, data["device"].x = torch.from_numpy(told.ops), torch.from_numpy(told.devices)
    data["op"].group = torch.from_numpy(np.array(instance.group))
    for kind, where, attributes in (
        (("op", "feeds", "op"), told.ends.T, told.edges),
        (("device", "link", "device"), *_where(~np.eye(instance.num_devices, dtype=np.bool_), told.links)),
        (("op", "runs_on", "device"), *_where(can_run, _pair_features(instance, objective))),
    ):
        data[kind].edge_index = torch.from_numpy(np.ascontiguousarray(where))
        data[kind].edge_attr = torch.from_numpy(np.ascontiguousarray(attributes))
    return data


def _pair_features(instance: OperatorInstance, objective: OperatorObjective) -> NDArray[np.float32]:
    """Of each op and device: time, its ratio to the op's mean, and share of the device's memory, ``(n, m, 3)``."""
    scale, is_finite = feature_unit_s(instance, objective), np.isfinite(instance.times_s)
    memory = np.where(np.isfinite(instance.memory_bytes), instance.memory_bytes, 0.0)
    _, ratio = _times_over_mean(instance, mean_times_s(instance))
    pairs = [
        np.where(is_finite, _share(np.nan_to_num(instance.times_s, posinf=0.0), scale), 1.0),
        np.where(is_finite, np.log(np.maximum(ratio, 1e-6)), 4.0),
        np.where(memory > 0, instance.resident_bytes[:, None] / np.maximum(memory, 1e-30), 0.0),
    ]
    return np.stack(pairs, axis=2).astype(np.float32)


def _times_over_mean(instance: OperatorInstance, mean_s: NDArray[np.float64]) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Where an op runs and takes time, and its time on each device over its mean, 1 elsewhere, ``(n, m)`` each."""
    runs = np.isfinite(instance.times_s) & (mean_s[:, None] > 0)
    return runs, np.divide(instance.times_s, mean_s[:, None], out=np.ones(runs.shape), where=runs)


def _where(mask: NDArray[np.bool_], values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    at = np.nonzero(mask)
    return np.stack(at), values[at]


def batch(given: Sequence[InstanceFeatures]) -> OperatorGraphs:
    """Pad instances to the largest of them."""
    b = len(given)
    n, m = max(len(each.ops) for each in given), max(len(each.devices) for each in given)
    ops = np.zeros((b, n, NUM_OP_FEATURES), np.float32)
    devices = np.zeros((b, m, NUM_DEVICE_FEATURES), np.float32)
    links = np.zeros((b, m, m, NUM_LINK_FEATURES), np.float32)
    is_op, is_device = np.zeros((b, n), np.bool_), np.zeros((b, m), np.bool_)
    group = np.zeros((b, n), np.int64)
    for at, each in enumerate(given):
        num_ops, num_devices = len(each.ops), len(each.devices)
        ops[at, :num_ops], devices[at, :num_devices] = each.ops, each.devices
        links[at, :num_devices, :num_devices] = each.links
        is_op[at, :num_ops], is_device[at, :num_devices] = True, True
        group[at, :num_ops] = each.group
    ends = np.concatenate([each.ends + at * n for at, each in enumerate(given)])
    return OperatorGraphs(
        ops=torch.from_numpy(ops),
        is_op=torch.from_numpy(is_op),
        devices=torch.from_numpy(devices),
        is_device=torch.from_numpy(is_device),
        producer=torch.from_numpy(np.ascontiguousarray(ends[:, 0])),
        reader=torch.from_numpy(np.ascontiguousarray(ends[:, 1])),
        edges=torch.from_numpy(np.concatenate([each.edges for each in given])),
        links=torch.from_numpy(links),
        group=torch.from_numpy(group),
    )


def _share(seconds: NDArray[Any], scale: float) -> NDArray[Any]:
    return np.asarray(seconds / (seconds + scale))


def _log_ratio(seconds: NDArray[Any]) -> NDArray[Any]:
    if not seconds.size or seconds.max() <= 0:
        return np.zeros(len(seconds))
    mean = float(seconds[seconds > 0].mean())
    return np.asarray(np.log(np.maximum(seconds, 1e-3 * mean) / mean) / 2.0)
