"""The switches of a cluster as Slurm's ``topology.conf`` for its plugin ``topology/tree``.

Hosts hang on switches by the topology's coordinates above the host. These are leaf groups of a Clos network, groups and racks
of a RAMP network, pods and leaves of a traced one. Switches that serve the same hosts, such as the rails of a group or the
spines, are one switch here. The plugin knows each host's way up, not the number of switches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

from ...clusters.cluster import Cluster
from ...errors import ExportError

_BELOW_HOSTS = ("host", "server", "device")
_LONGEST_NUMBER = 9


def topology_conf(cluster: Cluster) -> str:
    """Return the lines ``SwitchName=... Nodes=...`` and ``SwitchName=... Switches=...``, lowest switches first.

    Raises:
        ExportError: a topology that is no tree.
    """
    names = cluster.topology.coordinate_names
    if cluster.topology.kind == "torus":
        raise ExportError("a torus is no tree of switches", field="topology", value=cluster.name)
    levels = [position for position, name in enumerate(names) if name not in _BELOW_HOSTS]
    above = {
        host: tuple(int(cluster.coordinates[device, level]) for level in levels)
        for device, host in reversed(list(enumerate(cluster.device_host.tolist())))
    }
    lines = []
    hosts: dict[tuple[int, ...], list[str]] = {}
    for host in range(cluster.num_hosts):
        hosts.setdefault(above[host], []).append(cluster.host_names[host])
    below = {place: (f"Nodes={bracketed(members)}") for place, members in hosts.items()}
    for depth in range(len(levels), -1, -1):
        upper: dict[tuple[int, ...], list[str]] = {}
        for place, members in below.items():
            switch = "-".join(f"{names[level]}{number}" for level, number in zip(levels, place, strict=False)) or "top"
            lines.append(f"SwitchName={switch} {members}\n")
            upper.setdefault(place[:-1], []).append(switch)
        if depth == 0 or len(below) == 1:  # nothing is above the last switch
            break
        below = {place: f"Switches={bracketed(switches)}" for place, switches in upper.items()}
    return "".join(lines)


def bracketed(names: Iterable[str]) -> str:
    """Return the names as Slurm's host list expression: ``gpu-[03,07-09]``, single names as they are, in the order given.

    Neighbours that differ in the number at their end alone share a bracket; runs that count up are ranges. Numbers of one
    bracket are equally long, as Slurm pads all numbers of a range to the length of its first.
    """
    parts = []
    for (prefix, width), members in groupby(names, key=_head):
        numbers = [name[len(prefix) :] for name in members]
        if not width:
            parts += [prefix] * len(numbers)
        elif len(numbers) == 1:
            parts.append(prefix + numbers[0])
        else:
            parts.append(f"{prefix}[{','.join(_ranges(numbers))}]")
    return ",".join(parts)


def _head(name: str) -> tuple[str, int]:
    """Return the part of a name before its final number, and the length of that number; 0 where there is none."""
    match = re.fullmatch(rf"(.*?[^0-9])([0-9]{{1,{_LONGEST_NUMBER}}})", name)
    return (match[1], len(match[2])) if match else (name, 0)


def _ranges(numbers: list[str]) -> list[str]:
    runs: list[list[str]] = []
    for number in numbers:
        if runs and int(number) == int(runs[-1][-1]) + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
