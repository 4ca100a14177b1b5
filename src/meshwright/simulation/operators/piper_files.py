"""Instances of Piper: ops that may be split over several devices and may recompute, and their JSON.

Legend of shapes: ``n`` ops, ``e`` edges, ``t`` degrees of tensor parallelism, ``o`` options of an op at a degree. There are at
most two, for example with and without recomputation. An option that an op does not have has infinite seconds.

Source:
    Tarnawski, Narayanan, Phanishayee, "Piper: multidimensional planner for DNN parallelization", NeurIPS 2021, and its
    repository msr-fiddle/piper.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ... import files
from ...errors import GraphError
from .instance import OperatorInstance
from .json_fields import JsonFields, node_numbers

MOST_OPTIONS = 2
MOST_SECONDS = 1e9
RECOMPUTES = "recomp"
"""An option whose id holds this computes outputs again instead of keeping them."""


@dataclass(frozen=True, eq=False)
class PiperInstance:
    """A problem that Piper plans.

    Attributes:
        name: of the file.
        op_names: ``n``.
        edges: ``(e, 2)``.
        edge_bytes: bytes that an edge moves if its ends are in different stages, ``(e,)``.
        degrees: degrees of tensor parallelism, rising, ``(t,)``.
        option_ids: names of the options, ``o``.
        times_s: seconds of a micro-batch, ``(n, t, o)``.
        parameter_bytes: bytes that data-parallel replicas exchange, ``(n, t, o)``.
        bytes_each: memory for each micro-batch in flight, ``(n, t, o)``.
        bytes_once: memory that does not depend on them, ``(n, t, o)``.
        head_sync_bytes: more bytes at the reading end of an edge if it is cut, ``(e, t, o)``.
        tail_sync_bytes: the same at its producing end, ``(e, t, o)``.
        num_devices: devices.
        memory_bytes: of a device.
        bandwidth_bytes_per_s: of a device.
        num_micro_batches: of a batch; degrees of data parallelism divide it.
    """

    name: str
    op_names: tuple[str, ...]
    edges: NDArray[np.int64]
    edge_bytes: NDArray[np.float64]
    degrees: NDArray[np.int64]
    option_ids: tuple[str, ...]
    times_s: NDArray[np.float64]
    parameter_bytes: NDArray[np.float64]
    bytes_each: NDArray[np.float64]
    bytes_once: NDArray[np.float64]
    head_sync_bytes: NDArray[np.float64]
    tail_sync_bytes: NDArray[np.float64]
    num_devices: int
    memory_bytes: float
    bandwidth_bytes_per_s: float
    num_micro_batches: int


def load_piper(path: str | Path) -> PiperInstance:
    """Read an instance of Piper.

    Raises:
        InputFileError: missing, truncated or not of this form; the field is named.
        GraphError: a cycle, or an edge twice.
    """
    root = JsonFields(files.read_json(path), path)
    nodes = root.objects("nodes")
    if not nodes:
        raise root.error("has no node", "nodes")
    number = node_numbers(nodes)
    bandwidth = root.number("bandwidth")
    if bandwidth < 1:
        raise root.error("must be 1 byte a second or more", "bandwidth", bandwidth)
    edges, edge_bytes = _edges(root, number)
    options = [_options(node) for node in nodes]
    degrees = sorted({degree for each in options for degree in each})
    named = {option.text("id") for each in options for of_degree in each.values() for option in of_degree}
    ids = sorted(named, key=lambda one: (RECOMPUTES in one, one))
    if len(ids) > MOST_OPTIONS:
        raise root.error(f"has more than {MOST_OPTIONS} kinds of options", "nodes", ", ".join(ids))
    shape = (len(nodes), len(degrees), len(ids))
    times_s, parameters, each_bytes, once_bytes = np.full(shape, np.inf), np.zeros(shape), np.zeros(shape), np.zeros(shape)
    head, tail = np.zeros((len(edges), *shape[1:])), np.zeros((len(edges), *shape[1:]))
    node_ids = list(number)
    for op, of_op in enumerate(options):
        for degree, of_degree in of_op.items():
            for option in of_degree:
                at = op, degrees.index(degree), ids.index(option.text("id"))
                if np.isfinite(times_s[at]):
                    raise option.error("two options of a node and degree have this id", "id", option.text("id"))
                times_s[at] = option.number("timePerSample", most=MOST_SECONDS)
                parameters[at] = option.number("parameterSize")
                each_bytes[at], once_bytes[at] = option.number("memoryUsageA"), option.number("memoryUsageB")
                for sync, end, key in ((head, 1, "syncTimeFw"), (tail, 0, "syncTimeBw")):
                    costs = option.below(key)
                    for edge in [place for place, ends in enumerate(edges) if ends[end] == op]:
                        sync[edge, at[1], at[2]] = costs.number(str(node_ids[edges[edge][1 - end]]))
    names = [str(node.data.get("name", "op")) for node in nodes]
    names = [f"{name} {node_id}" for name, node_id in zip(names, node_ids, strict=True)]
    try:  # for its checks of the graph
        OperatorInstance.of_outputs(Path(path).stem, np.ones((len(nodes), 1)), edges, np.zeros(len(nodes)), op_names=names)
    except GraphError as error:
        raise error.at(file=path) from None
    return PiperInstance(
        name=Path(path).stem,
        op_names=tuple(names),
        edges=np.array(edges, np.int64).reshape(-1, 2),
        edge_bytes=np.array(edge_bytes),
        degrees=np.array(degrees, np.int64),
        option_ids=tuple(ids),
        times_s=times_s,
        parameter_bytes=parameters,
        bytes_each=each_bytes,
        bytes_once=once_bytes,
        head_sync_bytes=head,
        tail_sync_bytes=tail,
        num_devices=root.whole("maxDevices", least=1, most=10_000),
        memory_bytes=root.number("maxMemoryPerDevice"),
        bandwidth_bytes_per_s=bandwidth,
        num_micro_batches=root.whole("mbsInBatch", least=1),
    )


def _edges(root: JsonFields, number: dict[int, int]) -> tuple[list[tuple[int, int]], list[float]]:
    edges, sizes = [], []
    for edge in root.objects("edges"):
        edges.append(edge.ends(number))
        sizes.append(edge.number("communicationCost"))
    return edges, sizes


def _options(node: JsonFields) -> dict[int, list[JsonFields]]:
    result: dict[int, list[JsonFields]] = {}
    entries = node.below("TMPCs")
    for key in entries.data:
        if not key.isascii() or not key.isdigit() or len(key) > 5 or not 1 <= int(key) <= 10_000:
            raise entries.error("is a degree of tensor parallelism, a whole number from 1", key, key)
        of_degree = entries.objects(key)
        if of_degree:
            result[int(key)] = of_degree
    if not result:
        raise node.error("has no option", "TMPCs")
    return result
