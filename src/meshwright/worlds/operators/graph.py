"""The typed graph of an instance of operator placement, relative to itself, so that sizes and units of time carry over.

Nothing here comes from a schedule: no rank, no depth, no start. A network knows of the structure by its messages. A time ``t`` is
given as ``t / (t + unit)``, with `placement.feature_unit_s` as the unit, and as the logarithm of its ratio to a mean.

Legend of shapes: ``n`` ops, ``m`` devices, ``e`` edges.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import OperatorObjective, feature_unit_s
from ...simulation.operators.schedules import mean_times_s, mean_transfer_s
from ..typed_graph import InstanceGraph, Triple

FEEDS: Triple = ("op", "feeds", "op")
READ_BY: Triple = ("op", "reads", "op")
LINK: Triple = ("device", "link", "device")
OP = (
    "mean_time",
    "mean_time_share",
    "sent_share",
    "read_share",
    "resident_share",
    "producers",
    "readers",
    "is_backward",
    "best_time",
    "spread",
    "is_colocated",
)
"""Mean seconds over devices, of the longest transfer to a reader and of all inputs; bytes over those of the mean op. Then edges,
seconds on the best device, standard deviation over devices as a share of the mean. Last, whether other ops must be on the same
device."""
DEVICE = ("relative_time", "memory", "mean_link", "best_link")
"""Logarithm of its ops' seconds over their means; its memory over all bytes; logarithms of its links' seconds over the mean."""
TRANSFER = ("share", "ratio", "share_of_op")
LINKS = ("ratio", "share")
INSTANCE = ("mean_link", "devices", "ops", "memory", "edges", "slowest")
"""Seconds of the mean link; numbers; memory of all devices over all bytes; edges an op; the slowest device's logarithm."""

_MOST_MEMORY = 16.0
"""A device whose memory is so many times what all ops hold is like any with more."""


def operator_graph(instance: OperatorInstance, objective: OperatorObjective) -> InstanceGraph:
    """Return what a policy reads of an instance."""
    unit_s, mean_s, transfer_s = feature_unit_s(instance, objective), mean_times_s(instance), mean_transfer_s(instance)
    all_bytes = max(float(instance.resident_bytes.sum()), 1e-30)
    memory = np.where(np.isfinite(instance.memory_bytes), instance.memory_bytes / all_bytes, _MOST_MEMORY)
    apart, link_s = _links_s(instance)
    typical_s = float(link_s[apart].mean()) if apart.any() else 0.0
    relative = np.log(np.maximum(link_s, 1e-3 * typical_s + 1e-30) / (typical_s + 1e-30)) * apart
    slowness = _slowness(instance, mean_s)
    n, m = instance.times_s.shape
    devices = [
        slowness,
        np.minimum(memory, _MOST_MEMORY),
        relative.sum(axis=1) / max(m - 1, 1),
        relative.min(axis=1),
    ]
    whole = [
        _share(typical_s, unit_s),
        np.log(m) / 4.0,
        np.log(n) / 8.0,
        min(memory.sum(), _MOST_MEMORY) / _MOST_MEMORY,
        len(instance.edges) / (len(instance.edges) + n),
        slowness.max(),
    ]
    producer, reader = np.asarray(instance.edges, np.int64).reshape(-1, 2).T
    transfers = _rows([_share(transfer_s, unit_s), _log_ratio(transfer_s), _share(transfer_s, mean_s.mean())])
    pairs = np.nonzero(apart)
    return InstanceGraph(
        {"op": _ops(instance, unit_s, mean_s, transfer_s, all_bytes), "device": _rows(devices)},
        {FEEDS: np.stack([producer, reader]), READ_BY: np.stack([reader, producer]), LINK: np.stack(pairs)},
        {FEEDS: transfers, READ_BY: transfers, LINK: _rows([relative[pairs], _share(link_s, unit_s)[pairs]])},
        np.array(whole, np.float32),
    )


def _ops(
    instance: OperatorInstance, unit_s: float, mean_s: NDArray[Any], transfer_s: NDArray[Any], all_bytes: float
) -> NDArray[np.float32]:
    """Return features of ops, ``(n, 11)``."""
    n, (producer, reader) = instance.num_ops, np.asarray(instance.edges, np.int64).reshape(-1, 2).T
    sent_s, read_s = np.zeros(n), np.zeros(n)
    np.maximum.at(sent_s, producer, transfer_s)
    np.add.at(read_s, reader, transfer_s)
    num_read, num_readers = np.bincount(reader, minlength=n), np.bincount(producer, minlength=n)
    runs = np.isfinite(instance.times_s)
    beyond = np.where(runs, instance.times_s - mean_s[:, None], 0.0)
    spread = np.sqrt((beyond**2).sum(axis=1) / runs.sum(axis=1)) / np.maximum(mean_s, 1e-30)
    return _rows(
        [
            _log_ratio(mean_s),
            _share(mean_s, unit_s),
            _share(sent_s, unit_s),
            _share(read_s, unit_s),
            _share(instance.resident_bytes, all_bytes / n),
            num_read / (num_read + 2.0),
            num_readers / (num_readers + 2.0),
            instance.is_backward.astype(np.float64),
            _share(instance.times_s.min(axis=1), unit_s),
            np.minimum(spread, 4.0),
            np.bincount(instance.group)[instance.group] > 1,
        ]
    )


def _links_s(instance: OperatorInstance) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return which pairs are of two devices, and seconds of a mean tensor between them, ``(m, m)`` each."""
    apart = ~np.eye(instance.num_devices, dtype=np.bool_)
    mean_bytes = float(instance.edge_bytes.mean()) if len(instance.edges) else 0.0
    return apart, np.where(apart, instance.latency_s + mean_bytes / instance.bandwidth_bytes_per_s, 0.0)


def _slowness(instance: OperatorInstance, mean_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the logarithm of each device's seconds over those of the mean device, for the ops that it runs, ``(m,)``."""
    runs = np.isfinite(instance.times_s) & (mean_s[:, None] > 0)
    ratio = np.divide(instance.times_s, mean_s[:, None], out=np.zeros(runs.shape), where=runs).sum(axis=0)
    result = np.where(runs.any(axis=0), ratio / np.maximum(runs.sum(axis=0), 1), 1.0)
    return np.log(np.maximum(result, 1e-6))


def _share(seconds: Any, unit: float) -> Any:
    return seconds / (seconds + max(unit, 1e-300))


def _log_ratio(seconds: NDArray[Any]) -> NDArray[Any]:
    if not seconds.size or seconds.max() <= 0:
        return np.zeros(len(seconds))
    mean = float(seconds[seconds > 0].mean())
    return np.asarray(np.log(np.maximum(seconds, 1e-3 * mean) / mean) / 2.0)


def _rows(columns: list[NDArray[Any]]) -> NDArray[np.float32]:
    return np.stack(columns, axis=1).astype(np.float32)
