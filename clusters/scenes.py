"""Where everything stands in a cluster's picture, topology by topology; `draw` paints it. All lengths in pixels."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .clos import ClosTopology
from .cluster import Cluster
from .matrix import MatrixTopology
from .ramp import RampTopology
from .single_host import SingleHostTopology
from .topology import Topology
from .torus import TorusTopology
from .trace import TraceTopology

GAP = 4.0
CHARACTER = 6.6
"""Width of one character of a label at 12 px, rounded up."""


@dataclass
class Scene:
    """A picture before it is painted; the origin is the upper left corner.

    Attributes:
        summary: what joins the devices, in words.
        cell: side of a device's square.
        places: upper left corner of each device's square, ``(n, 2)``.
        texts: what a device is called within its picture, length ``n``.
        boxes: ``(x, y, width, height, is_switch)``.
        lines: ``(x1, y1, x2, y2)``.
        labels: ``(x, y, text, anchor)``, ``y`` the baseline, ``anchor`` as in SVG.
        tiles: ``(x, y, width, share, text)`` of a heat map, ``share`` from 0 (light) to 1 (dark).
    """

    summary: str
    cell: float
    places: NDArray[np.float64]
    texts: list[str]
    boxes: list[tuple[float, float, float, float, bool]] = field(default_factory=list)
    lines: list[tuple[float, float, float, float]] = field(default_factory=list)
    labels: list[tuple[float, float, str, str]] = field(default_factory=list)
    tiles: list[tuple[float, float, float, float, str]] = field(default_factory=list)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height that hold everything."""
        corners = [tuple(self.places.max(axis=0) + self.cell)]
        corners += [(x + width, y + height) for x, y, width, height, _ in self.boxes]
        corners += [(x + width, y + width) for x, y, width, _, _ in self.tiles]
        corners += [
            (x + len(text) * CHARACTER * {"start": 1, "middle": 0.5}.get(anchor, 0), y) for x, y, text, anchor in self.labels
        ]
        return max(x for x, _ in corners), max(y for _, y in corners)


def scene(cluster: Cluster) -> Scene:
    """The picture of a cluster."""
    return _SCENES[type(cluster.topology)](cluster.topology)


def _ramp(topology: Topology) -> Scene:
    assert isinstance(topology, RampTopology)
    cell, left, top = 22.0, 60.0, 20.0
    width = topology.servers_per_rack * (cell + GAP) + GAP
    group, rack, server = topology.coordinates.T
    x = left + group * (width + 3 * GAP) + GAP + server * (cell + GAP)
    y = top + rack * (cell + 5 * GAP) + GAP
    channel = f"{_gbytes(topology.channel_bandwidth_bytes_per_s)}, {_us(topology.channel_latency_s)}"
    found = Scene(f"one channel between any two servers: {channel}", cell, np.stack([x, y], 1), [str(s) for s in server])
    for g in range(topology.num_groups):
        found.labels.append((left + g * (width + 3 * GAP) + width / 2, top - 6, f"group {g}" if width > 45 else str(g), "middle"))
        for r in range(topology.num_racks):
            found.boxes.append((left + g * (width + 3 * GAP), top + r * (cell + 5 * GAP), width, cell + 2 * GAP, False))
    for r in range(topology.num_racks):
        found.labels.append((left - 8, top + r * (cell + 5 * GAP) + cell / 2 + 8, f"rack {r}", "end"))
    return found


def _clos(topology: Topology) -> Scene:
    assert isinstance(topology, ClosTopology)
    hosts, num_groups = topology.hosts, int(topology.host_group[-1]) + 1
    columns = 1 if num_groups > 3 else math.ceil(math.sqrt(topology.hosts_per_leaf))
    below = _panels(
        topology.host_group, topology.host_names, hosts.devices_per_host, columns, max(8, num_groups if num_groups <= 12 else 8)
    )
    is_one_row = len({y for _, y, _, _, _ in below.panels}) == 1
    per_group = hosts.nics_per_host if topology.is_rail else 1
    show_above = is_one_row and topology.num_leaves * topology.num_spines <= 160
    down = 120.0 if show_above else 0.0
    ratio = f"{topology.oversubscription:g}:1"
    summary = (
        f"{_within(hosts.bandwidth_bytes_per_s)}, card {_gbytes(hosts.nic_bandwidth_bytes_per_s)}, "
        f"leaf to spine {_gbytes(topology.uplink_bandwidth_bytes_per_s)} ({ratio})"
    )
    found = below.scene(summary, down)
    for group, (x, y, width, height, _) in enumerate(below.panels):
        found.boxes.append((x, y + down, width, height, False))
        if not show_above:
            found.labels.append((x + GAP, y - 5, f"leaf {group}" if not topology.is_rail else f"rails {group}", "start"))
    if show_above:
        _switches(found, topology, below.panels, per_group, down)
    return found


def _switches(found: Scene, topology: ClosTopology, panels: list[Panel], per_group: int, down: float) -> None:
    """Spines at the top, leaves above their hosts, and all lines between."""
    total = max(x + width for x, _, width, _, _ in panels)
    leaves = []
    for group, (x, y, width, _, _) in enumerate(panels):
        part = width / per_group
        for j in range(per_group):
            leaf = group * per_group + j
            left, wide = x + j * part + 1, part - 2
            found.boxes.append((left, y + down - 30, wide, 22, True))
            found.labels.append((left + wide / 2, y + down - 14, _fitting([f"leaf {leaf}", str(leaf), ""], wide), "middle"))
            found.lines.append((left + wide / 2, y + down - 8, left + wide / 2, y + down))
            leaves.append((left + wide / 2, y + down - 30))
    if topology.is_rail:
        found.labels.append((total + 8, down - 14, "leaves: one per card", "start"))
    for spine in range(topology.num_spines):
        part = total / topology.num_spines
        wide = min(part - 8, 90.0)
        middle = (spine + 0.5) * part
        found.boxes.append((middle - wide / 2, 4, wide, 22, True))
        found.labels.append((middle, 20, _fitting([f"spine {spine}", str(spine), ""], wide), "middle"))
        found.lines += [(middle, 26, x, y) for x, y in leaves]


def _trace(topology: Topology) -> Scene:
    assert isinstance(topology, TraceTopology)
    hosts = topology.hosts
    cell, gap, across = 8.0, 2.0, 15
    width = hosts.devices_per_host * (cell + gap) + gap
    of_leaf = np.bincount(topology.host_leaf)
    in_leaf = np.arange(hosts.num_hosts) - np.searchsorted(topology.host_leaf, topology.host_leaf)
    corner, top = np.zeros((len(of_leaf), 2)), 0.0
    labels: list[tuple[float, float, str, str]] = []
    boxes: list[tuple[float, float, float, float, bool]] = []
    for pod, name in enumerate(topology.pod_names):
        leaves = np.flatnonzero(topology.leaf_pod == pod)
        num_hosts = int(of_leaf[leaves].sum())
        labels.append((0.0, top + 14, f"pod {name}: {len(leaves)} leaves, {num_hosts} hosts", "start"))
        top += 34
        for begin in range(0, len(leaves), across):
            row = leaves[begin : begin + across]
            for column, leaf in enumerate(row.tolist()):
                corner[leaf] = column * (width + 8), top
                boxes.append((*corner[leaf].tolist(), width, of_leaf[leaf] * (cell + gap) + gap, False))
                labels.append(
                    (corner[leaf, 0], top - 3, _fitting([topology.leaf_names[leaf].split(".", 1)[1], ""], width), "start")
                )
            top += int(of_leaf[row].max()) * (cell + gap) + 26
    local = np.arange(hosts.num_devices) % hosts.devices_per_host
    x = corner[topology.device_leaf, 0] + gap + local * (cell + gap)
    y = corner[topology.device_leaf, 1] + gap + in_leaf[topology.device_host] * (cell + gap)
    summary = (
        f"a line is a host: {_within(hosts.bandwidth_bytes_per_s)}, card {_gbytes(hosts.nic_bandwidth_bytes_per_s)}; "
        f"leaf to pod {_gbytes(topology.leaf_bandwidth_bytes_per_s)}, pod to core {_gbytes(topology.pod_bandwidth_bytes_per_s)}"
    )
    return Scene(summary, cell, np.stack([x, y], 1), [""] * hosts.num_devices, boxes=boxes, labels=labels)


def _torus(topology: Topology) -> Scene:
    assert isinstance(topology, TorusTopology)
    cell, pitch, across = 20.0, 32.0, 4
    *planes, rows, columns = (1, *topology.shape) if len(topology.shape) == 1 else topology.shape
    at = topology.coordinates
    row, column = at[:, -2] if len(topology.shape) > 1 else 0 * at[:, 0], at[:, -1]
    plane = np.arange(len(at)) // (rows * columns)
    wide, high = columns * pitch + 24, rows * pitch + 36
    x = plane % across * wide + column * pitch + 6
    y = plane // across * high + row * pitch + 24
    link = f"{_gbytes(topology.link_bandwidth_bytes_per_s)}, {_us(topology.link_latency_s)}"
    texts = [str(device) for device in range(len(at))]
    between = "; like places of neighbouring planes are joined too" if planes else ""
    found = Scene(f"links between neighbours: {link}; each axis closes into a ring{between}", cell, np.stack([x, y], 1), texts)
    for here in range(len(at)):
        middle = (x[here] + cell / 2, y[here] + cell / 2)
        if column[here] + 1 < columns:
            found.lines.append((*middle, middle[0] + pitch, middle[1]))
        if row[here] + 1 < rows:
            found.lines.append((*middle, middle[0], middle[1] + pitch))
    for index, where in enumerate(np.ndindex(*planes) if planes else []):
        texts = [", ".join(f"axis {axis} = {place}" for axis, place in enumerate(where)), ",".join(map(str, where)), ""]
        found.labels.append((index % across * wide + 4, index // across * high + 14, _fitting(texts, wide), "start"))
    return found


def _single_host(topology: Topology) -> Scene:
    assert isinstance(topology, SingleHostTopology)
    cell, across, n = 30.0, 16, topology.num_devices
    device = np.arange(n)
    places = np.stack([device % across * (cell + 10) + 10, device // across * (cell + 22) + 64], 1).astype(np.float64)
    word = "one bus for all" if topology.is_bus else "a switch; each device has, in and out"
    found = Scene(f"{word}: {_link(topology)}", cell, places, [str(i) for i in device])
    width = min(n, across) * (cell + 10) + 10
    found.boxes += [(10, 10, width - 20, 28, True), (0, 0, width, places[-1, 1] + cell + 10, False)]
    found.labels.append((width / 2, 29, "bus" if topology.is_bus else "switch", "middle"))
    found.lines += [(x + cell / 2, 38, x + cell / 2, y) for x, y in places[:across].tolist()]
    return found


def _matrix(topology: Topology) -> Scene:
    assert isinstance(topology, MatrixTopology)
    bandwidth = topology.pair_bandwidth_bytes_per_s
    n = len(bandwidth)
    tile = 44.0 if n <= 12 else max(6.0, 560.0 / n)
    others = bandwidth[~np.eye(n, dtype=np.bool_)] if n > 1 else np.ones(1)
    low, high = float(np.log(others.min())), float(np.log(others.max()))
    cell = min(tile - 1, 24.0)
    places = np.stack([np.full(n, 4.0), 30 + np.arange(n) * tile + (tile - cell) / 2], 1)
    summary = f"bandwidth from row to column: {_gbytes(others.min())} (light) to {_gbytes(others.max())} (dark)"
    found = Scene(summary, cell, places, [str(i) for i in range(n)])
    for i in range(n):
        if tile >= 16:
            found.labels.append((40 + (i + 0.5) * tile, 22, str(i), "middle"))
        for j in range(n):
            if i != j:
                share = (math.log(bandwidth[i, j]) - low) / (high - low) if high > low else 0.5
                text = f"{bandwidth[i, j] / 1e9:.3g}" if n <= 12 else ""
                found.tiles.append((40 + j * tile, 30 + i * tile, tile - 1, share, text))
    return found


Panel = tuple[float, float, float, float, int]
"""Corner, width, height and number of hosts of a group's frame."""


@dataclass
class _Below:
    """Hosts in frames, before anything stands above them."""

    panels: list[Panel]
    frames: list[tuple[float, float, float, float, str]]
    places: NDArray[np.float64]
    cell: float
    per_host: int

    def scene(self, summary: str, down: float) -> Scene:
        texts = [str(i % self.per_host) for i in range(len(self.places))]
        found = Scene(summary, self.cell, self.places + np.array([0.0, down]), texts)
        for x, y, width, height, name in self.frames:
            found.boxes.append((x, y + down, width, height, False))
            found.labels.append((x + width / 2, y + down - 4, _fitting([name, name[:13] + "…"], width), "middle"))
        return found


def _panels(group: NDArray[np.int64], names: tuple[str, ...], per_host: int, columns: int, across: int) -> _Below:
    """Hosts as frames of device squares, in a frame for each group, at most ``across`` groups in a row."""
    cell = 18.0
    wide = min(per_host, 4)
    host_width = max(wide * (cell + GAP) + GAP, min(14, max(map(len, names))) * CHARACTER + 4)
    host_height = math.ceil(per_host / wide) * (cell + GAP) + GAP
    sizes = np.bincount(group)
    width = columns * (host_width + 2 * GAP) + 2 * GAP
    height = math.ceil(int(sizes.max()) / columns) * (host_height + 22) + 2 * GAP
    panels = [
        (i % across * (width + 12), 14 + i // across * (height + 24), width, height, int(size)) for i, size in enumerate(sizes)
    ]
    frames, places = [], np.zeros((len(group) * per_host, 2))
    in_group = np.arange(len(group)) - np.searchsorted(group, group)
    for host, name in enumerate(names):
        left, top, *_ = panels[int(group[host])]
        row, column = divmod(int(in_group[host]), columns)
        x = left + 2 * GAP + column * (host_width + 2 * GAP)
        y = top + 20 + row * (host_height + 22)
        frames.append((x, y, host_width, host_height, name))
        local = np.arange(per_host)
        inset = (host_width - wide * (cell + GAP) + GAP) / 2
        places[host * per_host : (host + 1) * per_host] = np.stack(
            [x + inset + local % wide * (cell + GAP), y + GAP + local // wide * (cell + GAP)], 1
        )
    return _Below(panels, frames, places, cell, per_host)


def _fitting(texts: list[str], width: float) -> str:
    """The first text that fits a width, else the last."""
    return next((text for text in texts if len(text) * CHARACTER <= width), texts[-1])


def _within(bandwidth_bytes_per_s: float) -> str:
    return f"within a host {_gbytes(bandwidth_bytes_per_s)}"


def _link(topology: SingleHostTopology) -> str:
    return f"{_gbytes(topology.link_bandwidth_bytes_per_s)}, {_us(topology.pair_latency_s)}"


def _gbytes(bandwidth_bytes_per_s: float) -> str:
    return f"{bandwidth_bytes_per_s / 1e9:.4g} GB/s"


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.4g} µs"


_SCENES: dict[type[Topology], Callable[[Topology], Scene]] = {
    RampTopology: _ramp,
    ClosTopology: _clos,
    TraceTopology: _trace,
    TorusTopology: _torus,
    SingleHostTopology: _single_host,
    MatrixTopology: _matrix,
}
