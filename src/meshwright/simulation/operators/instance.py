"""An instance of operator placement: ops with times on each device, tensors between them, devices with memory and links.

Legend of shapes: ``n`` ops, ``m`` devices, ``e`` edges, ``k`` tensors, ``g`` groups. An op runs once a step. In training the
forward and the backward computation of a layer are two ops of one group. A tensor is the output of one op: it crosses once to
each device with readers, however many ops read it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ... import files
from ...errors import GraphError
from ...jobs.graph import topological_order
from ..ragged import frozen, rows_by_owner

Kind = TypeVar("Kind", bound=np.generic)

_MATRICES = ("latency_s", "bandwidth_bytes_per_s")


@dataclass(frozen=True, eq=False)
class OperatorInstance:
    """A graph of ops and the devices on which they may run.

    Attributes:
        name: for tables and files.
        op_names: unique name of each op, length ``n``.
        times_s: seconds of each op on each device, infinite where it cannot run there, ``(n, m)``.
        edges: producing and reading op of each edge, ``(e, 2)``.
        edge_tensor: the tensor that an edge carries, ``(e,)``; edges of one tensor leave the same op.
        tensor_bytes: size of each tensor, ``(k,)``.
        resident_bytes: memory that an op holds for the whole step (state of its parameters, kept outputs), ``(n,)``.
        workspace_bytes: memory that an op holds only while it runs; of the ops of a device the largest counts, ``(n,)``.
        group: ops of the same number share a device; numbered from 0 in order of the first member, ``(n,)``.
        is_backward: whether an op belongs to the backward pass, ``(n,)``.
        device_names: unique name of each device, length ``m``.
        device_types: type of each device, length ``m``; links of devices of a type may differ.
        memory_bytes: memory of each device, infinite where it does not count, ``(m,)``.
        latency_s: seconds before the first byte from one device is at another, 0 on the diagonal, ``(m, m)``.
        bandwidth_bytes_per_s: bytes a second from one device to another, infinite on the diagonal, ``(m, m)``.
        is_host: devices that are processors of a host: where links are ports (max-load), nothing is paid on their side, ``(m,)``.

    Raises:
        GraphError: arrays of unequal length, a negative or undefined figure, an edge to an absent op, or a cycle (with an op).
            Also an op that no device can run or hold, or a group without a common device.
    """

    name: str
    op_names: tuple[str, ...]
    times_s: NDArray[np.float64]
    edges: NDArray[np.int64]
    edge_tensor: NDArray[np.int64]
    tensor_bytes: NDArray[np.float64]
    resident_bytes: NDArray[np.float64]
    workspace_bytes: NDArray[np.float64]
    group: NDArray[np.int64]
    is_backward: NDArray[np.bool_]
    device_names: tuple[str, ...]
    device_types: tuple[str, ...]
    memory_bytes: NDArray[np.float64]
    latency_s: NDArray[np.float64]
    bandwidth_bytes_per_s: NDArray[np.float64]
    is_host: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))

    def __post_init__(self) -> None:
        for each in ("op_names", "device_names", "device_types"):
            object.__setattr__(self, each, tuple(getattr(self, each)))
        if not self.is_host.size:
            object.__setattr__(self, "is_host", np.zeros(len(self.device_names), np.bool_))
        n, m, e = len(self.op_names), len(self.device_names), len(self.edges)
        self._set("times_s", np.float64, (n, m))
        self._set("edges", np.int64, (e, 2))
        self._set("edge_tensor", np.int64, (e,))
        self._set("tensor_bytes", np.float64, (len(self.tensor_bytes),))
        for each in ("resident_bytes", "workspace_bytes"):
            self._set(each, np.float64, (n,))
        self._set("group", np.int64, (n,))
        self._set("is_backward", np.bool_, (n,))
        self._set("memory_bytes", np.float64, (m,))
        for each in _MATRICES:
            self._set(each, np.float64, (m, m))
        self._set("is_host", np.bool_, (m,))
        self._check()

    @classmethod
    def of_outputs(
        cls,
        name: str,
        times_s: NDArray[np.float64],
        edges: Sequence[tuple[int, int]] | NDArray[np.int64],
        output_bytes: Sequence[float] | NDArray[np.float64],
        *,
        latency_s: NDArray[np.float64] | float = 0.0,
        bandwidth_bytes_per_s: NDArray[np.float64] | float = np.inf,
        memory_bytes: Sequence[float] | NDArray[np.float64] | float = np.inf,
        resident_bytes: Sequence[float] | NDArray[np.float64] | float = 0.0,
        workspace_bytes: Sequence[float] | NDArray[np.float64] | float = 0.0,
        group: Sequence[int] | NDArray[np.int64] | None = None,
        is_backward: NDArray[np.bool_] | None = None,
        op_names: Sequence[str] | None = None,
        device_names: Sequence[str] | None = None,
        device_types: Sequence[str] | None = None,
        is_host: NDArray[np.bool_] | None = None,
    ) -> OperatorInstance:
        """Return an instance in which every op has one output that all its successors read; scalars hold for all of a kind.

        Args:
            name: see the class.
            times_s: seconds of each op on each device, ``(n, m)``.
            edges: producing and reading op of each edge, ``(e, 2)``.
            output_bytes: size of each op's output, ``(n,)``.
            latency_s: ``(m, m)``, or one number for each pair of devices.
            bandwidth_bytes_per_s: ``(m, m)``, or one number for each pair of devices.
            memory_bytes: ``(m,)``.
            resident_bytes: ``(n,)``.
            workspace_bytes: ``(n,)``.
            group: label of each op; ops of one label share a device; by default each op is alone, ``(n,)``.
            is_backward: ``(n,)``.
            op_names: by default ``op0`` and so on.
            device_names: by default ``device0`` and so on.
            device_types: by default the type of each is its own name where the times differ, else ``device``.
            is_host: ``(m,)``.

        Raises:
            GraphError: see the class.
        """
        times_s = np.asarray(times_s, np.float64)
        if times_s.ndim != 2:
            raise GraphError("must have a row for each op and a column for each device", field="times_s", value=times_s.ndim)
        n, m = times_s.shape
        edge_array = np.asarray(edges, np.int64).reshape(-1, 2)
        outputs = np.broadcast_to(np.asarray(output_bytes, np.float64), (n,))
        if edge_array.size and (edge_array.min() < 0 or edge_array.max() >= n):
            raise GraphError("an edge names an op that is not there", field="edges", value=int(edge_array.max()))
        producers = np.unique(edge_array[:, 0])
        tensor_of = np.full(n, -1, np.int64)
        tensor_of[producers] = np.arange(len(producers))
        names = tuple(device_names) if device_names is not None else tuple(f"device{j}" for j in range(m))
        is_uniform = bool((times_s == times_s[:, :1]).all()) if m else True
        return cls(
            name=name,
            op_names=tuple(op_names) if op_names is not None else tuple(f"op{v}" for v in range(n)),
            times_s=times_s,
            edges=edge_array,
            edge_tensor=tensor_of[edge_array[:, 0]],
            tensor_bytes=outputs[producers],
            resident_bytes=np.broadcast_to(np.asarray(resident_bytes, np.float64), (n,)),
            workspace_bytes=np.broadcast_to(np.asarray(workspace_bytes, np.float64), (n,)),
            group=numbered(np.arange(n) if group is None else group),
            is_backward=np.zeros(n, np.bool_) if is_backward is None else is_backward,
            device_names=names,
            device_types=tuple(device_types) if device_types is not None else (("device",) * m if is_uniform else names),
            memory_bytes=np.broadcast_to(np.asarray(memory_bytes, np.float64), (m,)),
            latency_s=_off_diagonal(latency_s, m, 0.0),
            bandwidth_bytes_per_s=_off_diagonal(bandwidth_bytes_per_s, m, np.inf),
            is_host=np.zeros(m, np.bool_) if is_host is None else is_host,
        )

    @property
    def num_ops(self) -> int:
        """Number of ops, ``n``."""
        return len(self.op_names)

    @property
    def num_devices(self) -> int:
        """Number of devices, ``m``."""
        return len(self.device_names)

    @cached_property
    def num_groups(self) -> int:
        """Number of groups, ``g``: what is decided one by one."""
        return int(self.group.max()) + 1

    @cached_property
    def edge_bytes(self) -> NDArray[np.float64]:
        """Bytes of the tensor that each edge carries, ``(e,)``."""
        return frozen(self.tensor_bytes[self.edge_tensor])

    @cached_property
    def tensor_source(self) -> NDArray[np.int64]:
        """The op that each tensor comes from, ``(k,)``; -1 for a tensor that no op reads."""
        source = np.full(len(self.tensor_bytes), -1, np.int64)
        source[self.edge_tensor] = self.edges[:, 0]
        return frozen(source)

    @cached_property
    def topological(self) -> NDArray[np.int64]:
        """Ops in topological order (Kahn's algorithm, in order of their numbers), ``(n,)``."""
        return frozen(topological_order(self.num_ops, self.edges))

    @cached_property
    def incoming(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Edges by reading op: those of op v are ``edge[first[v]:first[v + 1]]``; ``(n + 1,)`` and ``(e,)``."""
        return _by_op(self.edges[:, 1], self.num_ops)

    @cached_property
    def outgoing(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Edges by producing op, in the form of `incoming`."""
        return _by_op(self.edges[:, 0], self.num_ops)

    @cached_property
    def group_bytes(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Resident bytes of each group, and its largest workspace; ``(g,)`` each."""
        resident, workspace = bytes_by_part(self.group, self.num_groups, self.resident_bytes, self.workspace_bytes)
        return frozen(resident), frozen(workspace)

    @cached_property
    def can_run(self) -> NDArray[np.bool_]:
        """Whether a device runs all ops of a group and holds that group alone, ``(g, m)``."""
        can = np.ones((self.num_groups, self.num_devices), np.bool_)
        np.logical_and.at(can, self.group, np.isfinite(self.times_s))
        resident, workspace = self.group_bytes
        return frozen(can & ((resident + workspace)[:, None] <= self.memory_bytes))

    @cached_property
    def digest(self) -> str:
        """A hash of everything that a placement's value depends on; names do not count."""
        figures = (each for each in self.__dataclass_fields__ if each not in ("name", "op_names", "device_names", "device_types"))
        return files.digest(*(getattr(self, each) for each in figures))

    def _set(self, name: str, kind: type, shape: tuple[int, ...]) -> None:
        try:
            array: NDArray[Any] = np.array(getattr(self, name), kind, order="C")
        except (TypeError, ValueError, OverflowError):
            raise GraphError("holds something other than numbers", field=name) from None
        if array.shape != shape:
            raise GraphError(f"must have the shape {shape}", field=name, value=str(array.shape))
        object.__setattr__(self, name, frozen(array))

    def _check(self) -> None:
        if not self.num_ops or not self.num_devices:
            raise GraphError(
                "an instance has at least one op and one device", field="op_names" if not self.num_ops else "device_names"
            )
        for names in ("op_names", "device_names"):
            if len(set(getattr(self, names))) < len(getattr(self, names)):
                raise GraphError("names must differ", field=names)
        if len(self.device_types) != self.num_devices:
            raise GraphError("names the type of each device", field="device_types", value=len(self.device_types))
        for name in ("times_s", "tensor_bytes", "resident_bytes", "workspace_bytes", "memory_bytes", *_MATRICES):
            figures = getattr(self, name)
            if np.isnan(figures).any() or (figures < 0).any():
                raise GraphError("must be 0 or more", field=name)
        for name in ("tensor_bytes", "resident_bytes", "workspace_bytes", "latency_s"):
            if not np.isfinite(getattr(self, name)).all():
                raise GraphError("must be finite", field=name)
        if (self.bandwidth_bytes_per_s <= 0).any():
            raise GraphError("must be more than 0", field="bandwidth_bytes_per_s")
        n, k = self.num_ops, len(self.tensor_bytes)
        if len(self.edges):
            if self.edges.min() < 0 or self.edges.max() >= n:
                raise GraphError("an edge names an op that is not there", field="edges", value=int(self.edges.max()))
            if self.edge_tensor.min() < 0 or self.edge_tensor.max() >= k:
                raise GraphError(
                    "an edge names a tensor that is not there", field="edge_tensor", value=int(self.edge_tensor.max())
                )
            if (self.tensor_source[self.edge_tensor] != self.edges[:, 0]).any():
                raise GraphError("edges of one tensor leave different ops", field="edge_tensor")
            if len(np.unique(self.edges, axis=0)) < len(self.edges):
                raise GraphError("an edge is there twice", field="edges")
        if (numbered(self.group) != self.group).any():
            raise GraphError("groups are numbered from 0 in order of their first op", field="group")
        ordered = topological_order(n, self.edges)
        if len(ordered) < n:
            stuck = min(set(range(n)) - set(ordered.tolist()))
            raise GraphError("the ops wait for each other in a cycle", field="edges", value=self.op_names[stuck])
        nowhere = np.flatnonzero(~self.can_run.any(axis=1))
        if nowhere.size:
            raise self._nowhere(np.flatnonzero(self.group == nowhere[0]))

    def _nowhere(self, members: NDArray[np.int64]) -> GraphError:
        """Return why no device runs all ops of a group: the first op that cannot be with those before it, and one of these."""

        def can(ops: NDArray[np.int64]) -> bool:
            held = self.resident_bytes[ops].sum() + self.workspace_bytes[ops].max()
            return bool((np.isfinite(self.times_s[ops]).all(axis=0) & (held <= self.memory_bytes)).any())

        alone = next((op for op in members.tolist() if not can(np.array([op]))), None)
        if alone is not None:
            problem = "no device can run this op and hold it in memory, with those that share its device"
            return GraphError(problem, field="times_s", value=self.op_names[alone])
        last = next(number for number in range(1, len(members)) if not can(members[: number + 1]))
        op, before = int(members[last]), members[:last].tolist()
        pair = next((other for other in before if not can(np.array([other, op]))), None)
        runs = bool(np.isfinite(self.times_s[members[: last + 1]]).all(axis=0).any())
        both = f"{self.op_names[before[0] if pair is None else pair]} and {self.op_names[op]}"
        others = "" if pair is not None else ", with others of theirs"
        problem = f"no device can {'hold' if runs else 'run'} both {both}{others}, and they go on one device"
        return GraphError(problem, field="memory_bytes" if runs else "times_s")


def bytes_by_part(
    part: NDArray[np.int64], count: int, resident: NDArray[Kind], workspace: NDArray[Kind]
) -> tuple[NDArray[Kind], NDArray[Kind]]:
    """Return the bytes that each of so many parts holds, and its largest workspace, by its members; ``(count,)`` each."""
    held, largest = np.zeros(count, resident.dtype), np.zeros(count, workspace.dtype)
    np.add.at(held, part, resident)
    np.maximum.at(largest, part, workspace)
    return held, largest


def numbered(labels: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the labels as numbers from 0 in order of their first appearance, ``(n,)``."""
    labels = np.asarray(labels, np.int64)
    _, first, number = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    return rank[number.reshape(-1)]


def _off_diagonal(values: NDArray[np.float64] | float, m: int, diagonal: float) -> NDArray[np.float64]:
    matrix = np.array(np.broadcast_to(np.asarray(values, np.float64), (m, m)))
    np.fill_diagonal(matrix, diagonal)
    return matrix


def _by_op(ops: NDArray[np.int64], n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    first, edges = rows_by_owner(ops, np.arange(len(ops)), n)
    return frozen(first), frozen(edges)
