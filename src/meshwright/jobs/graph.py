"""The job graph: one training step of a model as a DAG of ops, in frozen arrays.

Legend of shapes: ``n`` ops in file (or construction) order, ``m`` edges. An op is a forward computation together with its
backward one. Edges are those of the forward pass; the backward pass runs along them in reverse.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as field_of
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import files, quantities
from ..devices import DeviceType
from ..errors import GraphError
from .readers import version_2

if TYPE_CHECKING:
    from .convolutional import ConvNetShape

FORMAT_VERSION = 1
"""Of what is saved where nothing of version 2 is there; see `readers.version_2`."""
PROVENANCES = ("measured", "interpolated", "estimated")

_COSTS = (
    "forward_s",
    "backward_s",
    "forward_flops",
    "backward_flops",
    "activation_bytes",
    "parameter_bytes",
    "workspace_bytes",
)


@dataclass(frozen=True, eq=False)
class JobGraph:
    """One training step of a model.

    Attributes:
        name: for tables and plans, for example ``resnet50``.
        op_names: unique name of each op, length ``n``.
        op_kinds: kind of each op, for example ``Conv2d`` or ``attention``, length ``n``.
        forward_s: seconds of the forward computation on the reference device, ``(n,)``.
        backward_s: seconds of the backward computation on the reference device, ``(n,)``.
        forward_flops: floating-point operations forward, zero where unknown, ``(n,)``.
        backward_flops: floating-point operations backward, zero where unknown, ``(n,)``.
        activation_bytes: size of the op's output, ``(n,)``.
        parameter_bytes: size of the op's weights, ``(n,)``.
        workspace_bytes: memory needed only while the op runs, ``(n,)``.
        edges: source and destination op of each forward edge, ``(m, 2)``.
        reference_device: name of the device type on which the times hold; None where the source does not say.
        samples_per_step: samples of one step; None where the source does not say.
        source: origin of the figures: ``measured`` (a profile) or ``estimated`` (a roofline).
        volumes: layers of a network on volumes that can be cut, with the extents that each reads and writes; None for other jobs.
        times_s: measured seconds on device types, forward and backward, ``(2, n)`` by the type's name; infinite where the type
            cannot run the op. Ops on other types are timed from the reference device. `place` alone reads it.
        element_bytes: bytes of a number that ops compute with; peaks of devices depend on it.
        colocate: labels of each op, length ``n``, or empty; ops that share one go on one device. `place` alone reads it.

    Raises:
        GraphError: no op, arrays of unequal length, a negative or non-finite cost, an edge twice or to no op, or a cycle, with
            its ops.
    """

    name: str
    op_names: tuple[str, ...]
    op_kinds: tuple[str, ...]
    forward_s: NDArray[np.float64]
    backward_s: NDArray[np.float64]
    forward_flops: NDArray[np.float64]
    backward_flops: NDArray[np.float64]
    activation_bytes: NDArray[np.float64]
    parameter_bytes: NDArray[np.float64]
    workspace_bytes: NDArray[np.float64]
    edges: NDArray[np.int64]
    reference_device: str | None = None
    samples_per_step: int | None = None
    source: str = "estimated"
    volumes: ConvNetShape | None = None
    times_s: Mapping[str, NDArray[np.float64]] = field_of(default_factory=dict)
    colocate: tuple[frozenset[str], ...] = ()
    element_bytes: int = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "op_names", tuple(self.op_names))
        object.__setattr__(self, "op_kinds", tuple(self.op_kinds))
        for field in _COSTS:
            try:
                figures = _frozen(getattr(self, field), np.float64)
            except (TypeError, ValueError, OverflowError):
                raise GraphError("holds something other than numbers", field=field) from None
            object.__setattr__(self, field, figures)
        edges = np.asarray(self.edges)
        if edges.size and (edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu"):
            raise GraphError("must hold pairs of op numbers", field="edges")
        object.__setattr__(self, "edges", _frozen(edges.reshape(-1, 2), np.int64))
        object.__setattr__(self, "times_s", version_2.frozen_times(self.times_s))
        object.__setattr__(self, "colocate", version_2.frozen_labels(self.colocate))
        self._check()

    @property
    def num_ops(self) -> int:
        """Number of ops, ``n``."""
        return len(self.op_names)

    @property
    def num_edges(self) -> int:
        """Number of forward edges, ``m``."""
        return len(self.edges)

    @property
    def step_s(self) -> float:
        """Seconds of one step on a single reference device, ops one after another."""
        return float(self.forward_s.sum() + self.backward_s.sum())

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Ops in topological order (Kahn's algorithm, sources and successors in file order), ``(n,)``."""
        order = topological_order(self.num_ops, self.edges)
        order.flags.writeable = False
        return order

    @cached_property
    def moved_bytes(self) -> NDArray[np.float64]:
        """Bytes that each op's forward computation reads and writes: inputs, parameters, output, ``(n,)``."""
        moved = self.activation_bytes + self.parameter_bytes
        np.add.at(moved, self.edges[:, 1], self.activation_bytes[self.edges[:, 0]])
        moved.flags.writeable = False
        return moved

    @cached_property
    def group(self) -> NDArray[np.int64]:
        """The first of the ops with which each op shares a device, by `colocate`, ``(n,)``."""
        return _frozen(version_2.groups(self.colocate, self.num_ops), np.int64)

    @cached_property
    def digest(self) -> str:
        """A hash of everything that a simulation of this graph depends on; names do not count."""
        more = [dict(self.times_s), self.group] if self.has_version_2 else []
        more += [] if self.element_bytes == 2 else [self.element_bytes]
        return files.digest(*(getattr(self, field) for field in _COSTS), self.edges, self.reference_device, *more)

    @property
    def has_version_2(self) -> bool:
        """Whether it says what only version 2 of the saved form holds."""
        return bool(self.times_s or self.colocate)

    def peaks_flops_per_s(self, device: DeviceType) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the peaks of a device for each op, forward and backward, ``(n,)`` each.

        They are those in the ops' numbers, see `DeviceType.peak_of`; of convolutions of volumes the part that their channels
        fill, see `ConvLayer.filled`.
        """
        by_kind = {True: device.peak_of(self.element_bytes, is_convolution=True), False: device.peak_of(self.element_bytes)}
        peaks = np.array([by_kind["conv" in kind.lower()] for kind in self.op_kinds])
        if self.volumes is None:
            return peaks, peaks
        filled = np.array([layer.filled for layer in self.volumes.layers])
        return peaks * filled[:, 0], peaks * filled[:, 1]

    def timed_on(self, device: DeviceType) -> JobGraph:
        """Return the graph with the roofline's times on a device.

        The backward pass moves twice the bytes of the forward pass (it reads and writes gradients as well as activations).

        Raises:
            GraphError: the graph carries no FLOPs, so nothing can be estimated.
        """
        if not self.has_flops:
            raise GraphError("carries no FLOPs, so its times cannot be estimated on another device", value=self.name)
        forward, backward = self.peaks_flops_per_s(device)
        return replace(
            self,
            forward_s=device.op_s(self.forward_flops, self.moved_bytes, forward),
            backward_s=device.op_s(self.backward_flops, 2 * self.moved_bytes, backward),
            reference_device=device.name,
            source="estimated",
        )

    @property
    def has_flops(self) -> bool:
        """Whether the source gives floating-point operations."""
        return bool(self.forward_flops.any())

    def to_data(self) -> dict[str, Any]:
        """Return plain data that `from_data` reads back to an equal graph."""
        return {
            "format_version": version_2.FORMAT_VERSION if self.has_version_2 else FORMAT_VERSION,
            "name": self.name,
            "op_names": list(self.op_names),
            "op_kinds": list(self.op_kinds),
            **{field: getattr(self, field).tolist() for field in _COSTS},
            "edges": self.edges.tolist(),
            "reference_device": self.reference_device,
            "samples_per_step": self.samples_per_step,
            "source": self.source,
            **({} if self.element_bytes == 2 else {"element_bytes": self.element_bytes}),
            **({} if self.volumes is None else {"volumes": self.volumes.to_data()}),
            **version_2.to_data(self.times_s, self.colocate),
        }

    @classmethod
    def from_data(cls, data: Any, *, file: str | Path | None = None) -> JobGraph:
        """Return the graph that `to_data` described.

        Raises:
            GraphError: a field is missing or unknown, or the graph is impossible.
        """
        optional = ("volumes", "element_bytes", *version_2.KEYS)
        fields = [*cls.__dataclass_fields__, "format_version", "memory"]
        if not isinstance(data, dict):
            raise GraphError("a job graph is a JSON object", file=file, value=type(data).__name__)
        for key in data:
            if key not in fields:
                raise GraphError("unknown key", file=file, field=str(key), value=str(key), choices=fields)
        try:
            data = version_2.in_full(data)
        except GraphError as error:
            raise error.at(file=file) from None
        for key in fields:
            if key not in data and key not in optional:
                raise GraphError("the key is missing", file=file, field=key)
        if (version := data["format_version"]) not in (FORMAT_VERSION, version_2.FORMAT_VERSION):
            problem = f"only versions {FORMAT_VERSION} and {version_2.FORMAT_VERSION} are known"
            raise GraphError(problem, file=file, field="format_version", value=version)
        try:
            return cls(**{key: data[key] for key in cls.__dataclass_fields__ if key in data} | _volumes(data))
        except GraphError as error:
            raise GraphError(error.problem, file=file, field=error.field, value=error.value, choices=error.choices) from None
        except (TypeError, ValueError, OverflowError):  # of names or edges
            raise GraphError("a field holds something other than numbers or names", file=file) from None

    def save(self, path: str | Path) -> None:
        """Write the graph as JSON."""
        files.write_json(path, self.to_data())

    @classmethod
    def load(cls, path: str | Path) -> JobGraph:
        """Read a graph that `save` wrote.

        Raises:
            InputFileError: missing or not JSON.
            GraphError: not a job graph.
        """
        return cls.from_data(files.read_json(path), file=path)

    def _check(self) -> None:
        n = self.num_ops
        if n == 0:
            raise GraphError("has no ops", field="op_names", value=self.name)
        if not all(isinstance(text, str) for text in (self.name, *self.op_names, *self.op_kinds)):
            raise GraphError("names and kinds are texts", field="op_names")
        if not self.name:
            raise GraphError("the job needs a name", field="name")
        for field, texts in (("name", (self.name,)), ("op_names", self.op_names), ("op_kinds", self.op_kinds)):
            for text in texts:
                # bytes of a file name that are not UTF-8
                if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
                    raise GraphError("is not Unicode, so no file could hold it", field=field, value=text)
        if not isinstance(self.reference_device, str | None):
            raise GraphError("must be a name, or absent", field="reference_device", value=self.reference_device)
        if self.source not in PROVENANCES:
            raise GraphError("not a valid source", field="source", value=self.source, choices=PROVENANCES)
        if isinstance(self.element_bytes, bool) or self.element_bytes not in (1, 2, 4, 8):
            raise GraphError("not a valid size of a number", field="element_bytes", value=self.element_bytes, choices="1248")
        samples = self.samples_per_step
        if samples is not None and (isinstance(samples, bool) or not isinstance(samples, int) or samples < 1):
            raise GraphError("must be a positive whole number, or absent", field="samples_per_step", value=samples)
        if samples is not None and (refusal := quantities.problem("samples_per_step", samples)) is not None:
            raise GraphError(refusal, field="samples_per_step", value=samples)
        if len(set(self.op_names)) != n:
            twice = next(name for name in self.op_names if self.op_names.count(name) > 1)
            raise GraphError("the op name appears twice", field="op_names", value=twice)
        if self.volumes is not None and tuple(layer.name for layer in self.volumes.layers) != self.op_names:
            raise GraphError("the layers are not the ops", field="volumes")
        if len(self.op_kinds) != n:
            raise GraphError(f"has {len(self.op_kinds)} entries for {n} ops", field="op_kinds")
        for field in _COSTS:
            values = getattr(self, field)
            if values.shape != (n,):
                raise GraphError(f"has shape {values.shape} for {n} ops", field=field)
            least, most = quantities.range_of(field)
            for op in np.flatnonzero(~((values == 0) | ((values >= least) & (values <= most)))).tolist():
                value = float(values[op])
                refusal = quantities.problem(field, value) if value >= 0 else None
                problem = refusal or "must be finite and not negative"
                raise GraphError(problem, field=f"{self.op_names[op]}.{field}", value=value)
        if self.num_edges and not (self.edges.min() >= 0 and self.edges.max() < n):
            raise GraphError(f"an edge names an op outside 0..{n - 1}", field="edges")
        if len(np.unique(self.edges, axis=0)) != self.num_edges:
            raise GraphError("an edge appears twice", field="edges")
        if len(self.order) < n:
            raise GraphError("the ops form a cycle", field="edges", value=" -> ".join(self._a_cycle()))
        refusal = quantities.problem("step_s", self.step_s)
        if refusal is not None:
            raise GraphError(f"the times of all ops together: {refusal}", field="forward_s", value=self.step_s)
        version_2.check_times(self.times_s, self.op_names, self.reference_device, (self.forward_s, self.backward_s))
        version_2.check_labels(self.colocate, n)

    def _a_cycle(self) -> list[str]:
        import networkx

        view: networkx.DiGraph[int] = networkx.DiGraph(self.edges.tolist())
        return [self.op_names[source] for source, _ in networkx.find_cycle(view)]


def topological_order(
    num_ops: int, edges: NDArray[np.int64], take: Callable[[deque[int]], int] = deque.popleft
) -> NDArray[np.int64]:
    """Return the nodes of a graph in topological order (Kahn's algorithm, sources and successors in order of their numbers).

    Args:
        num_ops: nodes, numbered from 0.
        edges: source and destination of each edge, ``(m, 2)``.
        take: pops the next node from the queue of ready nodes, the latest at the end; by default the first.

    Returns:
        Shorter than ``num_ops`` where there is a cycle.
    """
    successors: list[list[int]] = [[] for _ in range(num_ops)]
    waiting = [0] * num_ops
    for source, target in edges.tolist():
        successors[source].append(target)
        waiting[target] += 1
    ready = deque(op for op in range(num_ops) if waiting[op] == 0)
    order: list[int] = []
    while ready:
        op = take(ready)
        order.append(op)
        for target in successors[op]:
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    return np.array(order, np.int64)


def _volumes(data: dict[str, Any]) -> dict[str, Any]:
    """Return the volumes of a saved graph, where it has any."""
    from .convolutional import ConvNetShape  # which makes graphs

    return {} if data.get("volumes") is None else {"volumes": ConvNetShape.from_data(data["volumes"])}


def _frozen(values: Any, dtype: Any) -> NDArray[Any]:
    array = np.array(values, dtype)
    array.flags.writeable = False
    return array
