"""Reads the instances and splits of dnn-partitioning.

An instance has accelerators of equal memory (``maxFPGAs`` of ``maxSizePerFPGA`` bytes) and host processors (``maxCPUs``), and
nodes with milliseconds on each. ``cost`` of an edge is the milliseconds that its tail's output takes to leave or to reach an
accelerator. Here it is bytes on links of 1 GB/s. Nodes of one ``colorClass`` share a device. A split lists the nodes of each
device; backward nodes that it leaves out go with their colour.

Source:
    Tarnawski et al., "Efficient algorithms for device placement of DNN graph operators", NeurIPS 2020, and its repository
    msr-fiddle/dnn-partitioning.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import files
from ...errors import GraphError, PlanError
from .instance import OperatorInstance
from .json_fields import JsonFields, node_numbers

BANDWIDTH_BYTES_PER_S = 1e9
S_PER_MS = 1e-3
MOST_DEVICES = 1_000
MOST_MS = 1e12
"""Thirty years."""
ACCELERATOR, HOST = "accelerator", "cpu"


def load_published(path: str | Path) -> OperatorInstance:
    """Return an instance of dnn-partitioning: accelerators first, then host processors.

    Raises:
        InputFileError: missing, truncated or not of this form; the field is named.
        GraphError: what it describes is impossible: a cycle, an edge from or to an unknown node, an op that fits no device.
    """
    return published_instance(files.read_json(path), path)


def published_instance(data: Any, file: str | Path) -> OperatorInstance:
    """Return `load_published` of what was read already."""
    root = JsonFields(data, file)
    num_accelerators = root.whole("maxFPGAs", most=MOST_DEVICES)
    num_hosts = root.whole("maxCPUs", most=MOST_DEVICES)
    nodes = root.objects("nodes")
    if not nodes:
        raise root.error("has no node", "nodes")
    if num_accelerators + num_hosts == 0:
        raise root.error("there is no device", "maxFPGAs", 0)
    number = node_numbers(nodes)
    labels: dict[int, int] = {}
    group = [
        labels.setdefault(node.whole("colorClass", least=-(10**12), most=10**12), len(labels)) + len(nodes)
        if "colorClass" in node.data
        else place
        for place, node in enumerate(nodes)
    ]
    times_ms = np.empty((len(nodes), num_accelerators + num_hosts))
    for place, node in enumerate(nodes):
        on_accelerator = node.number("fpgaLatency", most=MOST_MS) if node.flag("supportedOnFpga") else np.inf
        times_ms[place] = [on_accelerator] * num_accelerators + [node.number("cpuLatency", most=MOST_MS)] * num_hosts
    edges, output_ms = _edges(root, number)
    names = [str(node.data.get("name", "")) or str(node_id) for node, node_id in zip(nodes, number, strict=True)]
    if len(set(names)) < len(names):
        names = [f"{name} {node_id}" for name, node_id in zip(names, number, strict=True)]
    devices = [(ACCELERATOR, place) for place in range(num_accelerators)] + [(HOST, place) for place in range(num_hosts)]
    memory = root.number("maxSizePerFPGA")
    try:
        return OperatorInstance.of_outputs(
            Path(file).stem,
            times_ms * S_PER_MS,
            edges,
            output_ms * S_PER_MS * BANDWIDTH_BYTES_PER_S,
            bandwidth_bytes_per_s=BANDWIDTH_BYTES_PER_S,
            memory_bytes=[memory] * num_accelerators + [np.inf] * num_hosts,
            resident_bytes=[node.number("size") if "size" in node.data else 0.0 for node in nodes],
            group=group,
            is_backward=np.array([node.flag("isBackwardNode") for node in nodes]),
            op_names=names,
            device_names=[f"{kind}{place}" for kind, place in devices],
            device_types=[kind for kind, _ in devices],
            is_host=np.array([kind == HOST for kind, _ in devices]),
        )
    except GraphError as error:
        raise error.at(file=file) from None


def load_split(path: str | Path, instance_path: str | Path, instance: OperatorInstance) -> NDArray[np.int64]:
    """Return the device of each op of an instance of `load_published`, from a split of the same repository, ``(n,)``.

    Args:
        path: the split.
        instance_path: the file of the instance, for the ids of its nodes.
        instance: what was read from it.

    Raises:
        InputFileError: missing, truncated or not of this form, a node that the instance does not have or twice.
        PlanError: more devices than the instance has, or a node that no device is given to.
    """
    root = JsonFields(files.read_json(path), path)
    known = JsonFields(files.read_json(instance_path), instance_path)
    number = {node.whole("id", least=-(10**9)): place for place, node in enumerate(known.objects("nodes"))}
    device_of = np.full(instance.num_ops, -1, np.int64)
    for key, is_host in (("fpgas", False), ("cpus", True)):
        devices = np.flatnonzero(instance.is_host == is_host)
        parts = [part for part in root.objects(key) if part.items("nodes")]
        if len(parts) > len(devices):
            raise PlanError(f"the instance has only {len(devices)} of these devices", file=path, field=key, value=len(parts))
        for device, part in zip(devices, parts, strict=False):
            for node in part.items("nodes"):
                if isinstance(node, bool) or not isinstance(node, int) or node not in number:
                    raise part.error("no node of the instance has this id", "nodes", node)
                if device_of[number[node]] >= 0:
                    raise part.error("the node is on two devices", "nodes", node)
                device_of[number[node]] = device
    of_group = np.full(instance.num_groups, -1, np.int64)
    of_group[instance.group[device_of >= 0]] = device_of[device_of >= 0]
    device_of = np.where(device_of >= 0, device_of, of_group[instance.group])
    absent = np.flatnonzero(device_of < 0)
    if absent.size:
        raise PlanError("no device is given to this node", file=path, value=instance.op_names[absent[0]])
    return device_of


def _edges(root: JsonFields, number: dict[int, int]) -> tuple[list[tuple[int, int]], NDArray[np.float64]]:
    output_ms: dict[int, float] = {}
    edges: dict[tuple[int, int], None] = {}
    for edge in root.objects("edges"):
        ends = edge.ends(number)
        cost_ms = edge.number("cost", most=MOST_MS)
        if abs(output_ms.setdefault(ends[0], cost_ms) - cost_ms) > 1e-6:
            raise edge.error("the edges of one node cost the same, as they carry its one output", "cost", cost_ms)
        edges[ends] = None
    every = np.zeros(len(number))
    every[list(output_ms)] = list(output_ms.values())
    return list(edges), every


def is_published(data: Any) -> bool:
    """Return whether JSON data looks like an instance of dnn-partitioning."""
    return isinstance(data, dict) and "maxFPGAs" in data
