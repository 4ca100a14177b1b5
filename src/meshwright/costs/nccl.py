"""Times that NCCL's own tuner expects: a line over the size for each algorithm and protocol; the least is taken.

The tuner exists to choose; its figures are near measured ones, but not calibrated. Its published constants determine the sizes
at which the library changes protocol, which show in measured tables as jumps.

Source of every constant and formula that names no other: NVIDIA/nccl 2.30.7 (commit 5067397), src/graph/tuning.cc, topo.h. Its
corrections of tree bandwidths by size are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ..devices import is_variant

Generation = Literal["volta", "ampere", "hopper", "blackwell"]

PROTOCOLS = ("LL", "LL128", "Simple")
BASE_US = {"tree": (6.8, 14.0, 8.4), "ring": (6.6, 14.0, 8.4)}
NVLINK_US = {"tree": (0.6, 1.25, 4.0), "ring": (0.6, 1.9, 3.4)}
PCI_US = {"tree": (1.0, 1.9, 4.0), "ring": (1.0, 2.5, 5.7)}
NET_US = {"tree": (5.0, 8.5, 14.0), "ring": (2.7, 4.0, 14.0)}
NVLS_US = 25.0
NVLS_TREE_NET_US = 20.9
NET_OVERHEAD_US = (1.0, 1.0, 3.0)
"""Of a host's processor on each step (Intel; AMD counts twice that), three times where the protocol is Simple."""
PLATEAU = 1.4
"""Factor on a ring's latency in multi-node all-reduces by Simple, on Ampere and later, where each channel of each rank has
`PLATEAU_BYTES` or more."""
PLATEAU_BYTES = 64.0

NIC_EFFICIENCY = 0.94
"""Share of a card's nominal rate that reaches the payload: 46-48 GB/s of 50 (NVIDIA, in nccl-tests issue 290)."""
PCI_GBYTES_PER_S = 40.0
"""A host below this device bandwidth is joined by PCIe. Gen 5 x16 brings at most 32 GB/s to a collective, two NVLinks of a
V100 bring 50 (data sheets).
"""


@dataclass(frozen=True)
class Tuning:
    """The rows of the tuner's tables for one generation of devices; bandwidths in GB/s on 1, 2 and 4 or more hosts.

    Attributes:
        link_gbytes_per_s: what the tuner takes of one NVLink, one direction.
        nominal_gbytes_per_s: what the data sheet says of it.
        num_channels: channels of a host with NVSwitch (an assumption; it matters to limits per channel alone).
        ll_limit: most that protocol LL reaches on all channels together.
        ring_ll128: per channel.
        tree_ll128: per channel.
        tree_simple: per channel.
        nvls_tree: per channel, zero where there is none.
        nvls_efficiency: of in-switch reduction, zero where there is none.
        has_plateau: see `PLATEAU`.
    """

    link_gbytes_per_s: float
    nominal_gbytes_per_s: float
    num_channels: int
    ll_limit: tuple[float, float, float]
    ring_ll128: float
    tree_ll128: tuple[float, float, float]
    tree_simple: tuple[float, float, float]
    nvls_tree: tuple[float, float, float]
    nvls_efficiency: float
    has_plateau: bool


NO = (0.0, 0.0, 0.0)
TUNINGS: dict[Generation, Tuning] = {
    "volta": Tuning(20.0, 25.0, 12, (39.0, 39.0, 20.4), 20.0, (20.0,) * 3, (26.5, 18.5, 10.0), NO, 0.0, False),
    "ampere": Tuning(20.0, 25.0, 24, (87.7, 22.5, 19.0), 20.0, (20.0,) * 3, (24.0, 23.6, 17.8), NO, 0.0, True),
    "hopper": Tuning(
        20.6, 25.0, 16, (141.0, 45.0, 35.0), 36.7, (36.7, 36.7, 29.0), (38.7, 41.4, 36.0), (0.0, 57.7, 45.5), 0.85, True
    ),
    "blackwell": Tuning(
        40.1, 50.0, 24, (282.0, 90.0, 70.0), 40.0, (55.6, 31.67, 20.0), (70.0, 42.8, 24.0), (0.0, 96.0, 80.0), 0.74, True
    ),
}

_GENERATIONS: dict[Generation, tuple[str, ...]] = {
    "volta": ("v100",),
    "hopper": ("h100", "h200", "h800", "h20"),
    "blackwell": ("b200", "b300", "b100"),
}
"""Parts of the names of devices, by generation."""

_AMPERE = ("a100", "a800", "a10", "a16", "a2", "a30", "a40", "a6000", "l4", "l40", "l40s", "l20", "l2", "rtx")
"""Devices of compute capability 8.x; the tuner takes all of them for Ampere."""


def generation(device: str) -> Generation:
    """Return the generation of a device by its name; Ampere's tables also serve what is named nowhere, see `is_tuned`."""
    lower = device.lower()
    return next((one for one, parts in _GENERATIONS.items() if any(part in lower for part in parts)), "ampere")


def is_tuned(device: str) -> bool:
    """Return whether the tuner has constants of a device's own generation."""
    return generation(device) != "ampere" or any(is_variant(name, device) for name in _AMPERE)


def foreign_constants(devices: Iterable[str]) -> tuple[str, ...]:
    """Return the devices for which the tuner has no constants and takes others, in words; empty where it has all."""
    others = sorted({device for device in devices if not is_tuned(device)})
    return (f"collectives: NCCL's tuner has no constants of {', '.join(others)}; those of Ampere are taken",) if others else ()


class GroupLinks(NamedTuple):
    """Links and size of a group of ranks.

    Attributes:
        num_ranks: ranks.
        num_hosts: hosts among which they are divided evenly, or nearly so.
        inside_bytes_per_s: nominal, of one device into or out of its host's switch.
        between_bytes_per_s: nominal, of all the group's ranks of one host together to the next host.
        generation: of the devices.
    """

    num_ranks: int
    num_hosts: int
    inside_bytes_per_s: float
    between_bytes_per_s: float
    generation: Generation


class Line(NamedTuple):
    """Seconds over bytes: ``latency_s + payload_bytes * s_per_byte``.

    Attributes:
        algorithm: ``ring``, ``tree``, ``nvls`` or ``nvls-tree``; ``pairwise`` where every rank sends to every other one.
        protocol: ``LL``, ``LL128`` or ``Simple``.
        latency_s: at size zero.
        s_per_byte: of the whole payload, not of bus bytes.
        plateau_s: added from ``plateau_bytes`` on.
        plateau_bytes: payload at which a ring's latency rises.
    """

    algorithm: str
    protocol: str
    latency_s: float
    s_per_byte: float
    plateau_s: float = 0.0
    plateau_bytes: float = math.inf

    def time_s(self, payload_bytes: float) -> float:
        """Return the seconds of a payload."""
        plateau_s = self.plateau_s if payload_bytes >= self.plateau_bytes else 0.0
        return self.latency_s + plateau_s + payload_bytes * self.s_per_byte


def lines(operation: str, wires: GroupLinks) -> tuple[Line, ...]:
    """Return the line of each algorithm and protocol that does an operation.

    Args:
        operation: as `costs.collectives.Operation`.
        wires: the group, of at least two ranks.
    """
    results = [_ring(operation, wires, protocol) for protocol in range(3)]
    if operation == "all_reduce":
        results += [_tree(wires, protocol) for protocol in range(3)]
        results += _in_switch(wires)
    return tuple(line for line in results if line is not None)


def best(known: tuple[Line, ...], payload_bytes: float) -> Line:
    """Return the line that takes least at a size."""
    return min(known, key=lambda line: line.time_s(payload_bytes))


def _ring(operation: str, wires: GroupLinks, protocol: int) -> Line | None:
    """Go along a ring; an all-to-all sends as much over each rank's link, and has no LL128."""
    n, hosts = wires.num_ranks, wires.num_hosts
    tuning = TUNINGS[wires.generation]
    if operation in ("all_to_all", "send_recv") and PROTOCOLS[protocol] == "LL128":
        return None
    steps, crossings = {
        "all_reduce": (2 * (n - 1), 2 * (hosts - 1)),
        "all_gather": (n - 1, hosts - 1),
        "reduce_scatter": (n - 1, hosts - 1),
        "all_to_all": (n - 1, n - n // hosts),
        "send_recv": (1, min(1, hosts - 1)),
    }.get(operation, (n, hosts - 1))
    limited = _limited(_nominal(operation, wires), wires, protocol, tuning)
    # Bytes over the busiest link: 2 (n - 1) / n of the payload and so on; broadcast and send pass the payload once.
    passes = steps / n if operation not in ("broadcast", "send_recv") else 1.0
    inside = (NVLINK_US if _has_nvlink(wires) else PCI_US)["ring"][protocol]
    overhead = NET_OVERHEAD_US[protocol] if hosts > 1 else 0.0
    if operation == "all_to_all":  # the messages to all peers are under way together
        latency_us = inside + (NET_US["ring"][protocol] if hosts > 1 else 0.0)
    else:
        latency_us = (steps - crossings) * max(inside, overhead) + crossings * NET_US["ring"][protocol]
    plateau_us = (PLATEAU - 1) * latency_us if hosts > 1 and tuning.has_plateau and operation == "all_reduce" else 0.0
    return Line(
        "pairwise" if operation == "all_to_all" else "ring",
        PROTOCOLS[protocol],
        (BASE_US["ring"][protocol] + latency_us) / 1e6,
        passes / (limited * 1e9),
        plateau_us / 1e6,
        PLATEAU_BYTES * tuning.num_channels * n if plateau_us and PROTOCOLS[protocol] == "Simple" else math.inf,
    )


def _tree(wires: GroupLinks, protocol: int) -> Line:
    """Return a tree across the hosts, a chain inside each."""
    n, hosts = wires.num_ranks, wires.num_hosts
    tuning = TUNINGS[wires.generation]
    column, channels = _column(hosts), tuning.num_channels
    nominal = _nominal("all_reduce", wires)
    if PROTOCOLS[protocol] == "LL":
        bus = min(0.92 * nominal, channels * tuning.tree_simple[column]) / 3.8
    elif PROTOCOLS[protocol] == "LL128":
        bus = min(0.92 * nominal, channels * tuning.tree_ll128[column]) * (7 / 9 if hosts == 1 else 120 / 128)
    else:
        bus = min(0.92 * nominal, channels * tuning.tree_simple[column])
    inside = (NVLINK_US if _has_nvlink(wires) else PCI_US)["tree"][protocol]
    latency_us = 2 * ((n / hosts - 1) * inside + math.log2(hosts) * NET_US["tree"][protocol])
    return Line("tree", PROTOCOLS[protocol], (BASE_US["tree"][protocol] + latency_us) / 1e6, 1 / (0.5 * bus * 1e9))


def _in_switch(wires: GroupLinks) -> list[Line]:
    """Use NVLS where one host's switch reduces, and a tree of such switches across hosts; from three ranks of a host on."""
    n, hosts = wires.num_ranks, wires.num_hosts
    tuning = TUNINGS[wires.generation]
    if tuning.nvls_efficiency == 0 or not _has_nvlink(wires) or n // hosts <= 2:
        return []
    channels = tuning.num_channels
    # The tuner counts 2 (AR) x 1/2 (reduced once, sent once): what passes is the payload itself.
    inside = _inside_gbytes_per_s(wires) * tuning.nvls_efficiency * (channels - 1) / channels
    if hosts == 1:
        return [Line("nvls", "Simple", NVLS_US / 1e6, 1 / (inside * 1e9))]
    between = min(0.5 * channels * tuning.nvls_tree[_column(hosts)], 0.5 * _between_gbytes_per_s(wires))
    latency_us = NVLS_US + 2 * math.log2(hosts) * NVLS_TREE_NET_US
    return [Line("nvls-tree", "Simple", latency_us / 1e6, 1 / (min(inside, between) * 1e9))]


def _limited(nominal: float, wires: GroupLinks, protocol: int, tuning: Tuning) -> float:
    if PROTOCOLS[protocol] == "LL":
        return min(tuning.ll_limit[_column(wires.num_hosts)], 0.5 * nominal)
    if PROTOCOLS[protocol] == "LL128":
        return min(0.92 * nominal, tuning.num_channels * tuning.ring_ll128)
    return nominal


def _nominal(operation: str, wires: GroupLinks) -> float:
    """Return GB/s of what the protocols share: the ring's slower part."""
    inside = _inside_gbytes_per_s(wires)
    if wires.num_hosts == 1:
        return inside
    between = _between_gbytes_per_s(wires)
    if operation == "all_to_all":
        # Of a rank's (n - 1) / n of the payload, (n - g) / n leave the host, and a host's g ranks share what leaves it.
        n, g = wires.num_ranks, wires.num_ranks / wires.num_hosts
        return min(inside, between / g * (n - 1) / (n - g))
    return min(inside, between)


def _inside_gbytes_per_s(wires: GroupLinks) -> float:
    nominal = wires.inside_bytes_per_s / 1e9
    if not _has_nvlink(wires):
        return nominal
    tuning = TUNINGS[wires.generation]
    # No less than just below the border: what the tuner takes off an NVLink must not make a faster link slower.
    return max(PCI_GBYTES_PER_S, nominal * tuning.link_gbytes_per_s / tuning.nominal_gbytes_per_s)


def _between_gbytes_per_s(wires: GroupLinks) -> float:
    return wires.between_bytes_per_s * NIC_EFFICIENCY / 1e9


def _has_nvlink(wires: GroupLinks) -> bool:
    return wires.inside_bytes_per_s / 1e9 >= PCI_GBYTES_PER_S


def _column(num_hosts: int) -> int:
    return 0 if num_hosts == 1 else 1 if num_hosts < 4 else 2


_NVLINKS = {
    150e9: ("v100",),
    200e9: ("a800", "h800"),
    300e9: ("a100",),
    450e9: ("h100", "h200", "h20"),
    900e9: ("b100", "b200", "b300"),
}
"""Parts of the names of devices, by what their NVLinks send one way in bytes a second."""

PCI_BYTES_PER_S = 24e9
"""Rate of one device behind a PCIe gen 4 switch in a collective (the tuner's 12 GB/s for gen 3, twice)."""


_PCIE_ONLY = ("a2", "a10", "a16", "l2", "l4", "l20", "l40", "l40s", "rtx", "t4")
"""Devices without NVLink, or with a bridge between two cards at most (NVIDIA, data sheets)."""


def is_pcie(device: str) -> bool:
    """Return whether a device is known to reach the others of its host over PCIe alone.

    Args:
        device: its name, for example ``NVIDIA L40S`` or ``NVIDIA H100 PCIe``.
    """
    return "pcie" in device.lower() or any(is_variant(name, device) for name in _PCIE_ONLY)


def nominal_bytes_per_s(device: str) -> float:
    """Return the data-sheet bandwidth of one device to the others of its host, one direction; PCIe without NVLink.

    Args:
        device: its name, for example ``NVIDIA H100 80GB HBM3`` or ``a100``.
    """
    lower = device.lower()
    if "pcie" in lower:
        return PCI_BYTES_PER_S
    return next((speed for speed, parts in _NVLINKS.items() if any(part in lower for part in parts)), PCI_BYTES_PER_S)
