"""Warn of implausible cluster figures: they are used as given, but most often the unit is wrong.

``configs/plausible.yaml`` has the usual range of each key. Impossible figures are refused elsewhere.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from .. import settings
from ..devices import GIB, DeviceType, device_type
from ..errors import PlausibilityWarning
from ..packaged import shipped_path
from ..yaml12 import Location, dotted
from .settings import ClusterSettings
from .topologies.clos import ClosSettings


class PlausibleRange(settings.Settings):
    """The usual range of a figure.

    Attributes:
        low, high: the least and the most that is made or in use, in the key's unit.
        source: where the range is published.
    """

    low: float = Field(gt=0)
    high: float = Field(gt=0)
    source: str


class LineRate(settings.Settings):
    """A line rate by which cards are sold, which was most likely not meant where GB/s are asked for.

    Attributes:
        gbits_per_s: the rate as people call it.
        since_tflops_per_s: devices of at least this peak come with cards of as many GB/s.
    """

    gbits_per_s: float = Field(gt=0)
    since_tflops_per_s: float = Field(gt=0)


class PlausibleFigures(settings.Settings):
    """The content of ``configs/plausible.yaml``."""

    line_rates: dict[str, tuple[LineRate, ...]]
    units: dict[str, dict[str, float]]
    links_inside_hosts: tuple[str, ...]
    keys: dict[str, PlausibleRange]


class Doubt(NamedTuple):
    """A figure beyond what machines are like.

    Attributes:
        location: its place in the cluster's YAML.
        value: the figure.
        problem: how far it is beyond, and what may have been meant.
    """

    location: Location
    value: float
    problem: str


def doubtful(described: ClusterSettings) -> list[Doubt]:
    """Return the figures of a cluster beyond what machines are like; of a matrix the worst one."""
    result = []
    for location, kind, value in _figures(described):
        key = str(location[-1])
        known = figures().keys
        name = f"{kind}.{key}" if f"{kind}.{key}" in known else key
        plausible, of_device = known.get(name), _links_of_device(name, described)
        values = _numbers(value)
        if key == "memory_gbytes":
            read = value * 1e9 / GIB
            result.append(Doubt(location, value, f"is read as {read:.4g} GiB; memory_gib takes what the driver reports"))
        if plausible is None or not values or (key, value) == _links_of_one_domain(described):
            continue
        problems = {number: problem for number in values if (problem := _problem(key, number, plausible))}
        problems |= {number: problem for number in values if (problem := _line_rate(key, number, described))}
        if of_device and not problems:
            problems = {number: problem for number in values if (problem := _both_ways(number, of_device))}
        if problems:
            worst = max(problems, key=lambda number: max(number / plausible.high, plausible.low / number))
            result.append(Doubt(location, worst, problems[worst]))
    return result


def warn(described: ClusterSettings, path: Path) -> None:
    """Warn of every doubtful figure of a cluster's file, with its line."""
    doubts = doubtful(described)
    lines = settings.read_yaml(path)[1] if doubts else {}
    for doubt in doubts:
        place = next((lines[doubt.location[:n]] for n in range(len(doubt.location), 0, -1) if doubt.location[:n] in lines), None)
        line = "" if place is None else f":{place}"
        warnings.warn(f"{path}{line}: {dotted(doubt.location)}: {doubt.problem}", PlausibilityWarning, stacklevel=3)


@cache
def figures() -> PlausibleFigures:
    """Return the plausible ranges of the figures of a cluster."""
    return settings.load(PlausibleFigures, shipped_path("plausible.yaml"))


def _figures(described: ClusterSettings) -> Iterator[tuple[Location, str, Any]]:
    """Yield every value of a cluster's topology and devices, with its place and the kind of what it is in."""
    for key in type(described.topology).model_fields:
        yield ("topology", key), described.topology.kind, getattr(described.topology, key)
    devices: dict[Location, Any] = {("device",): described.device}
    devices |= {("device_overrides", host): device for host, device in described.device_overrides.items()}
    for location, device in devices.items():
        for key in () if isinstance(device, str) else device.model_fields_set:
            yield (*location, key), "device", getattr(device, key)


def _links_of_one_domain(described: ClusterSettings) -> tuple[str, float] | None:
    """Return key and bandwidth of the cards where device links also reach other hosts, as in a rack of GB200 NVL72."""
    topology = described.topology
    if not isinstance(topology, ClosSettings) or topology.nics_per_host < topology.devices_per_host:
        return None
    return "nic_bandwidth_gbytes_per_s", topology.intra_host_bandwidth_gbytes_per_s


def _numbers(value: Any) -> list[float]:
    """Return a number, or those of a matrix off its diagonal."""
    if isinstance(value, bool) or not isinstance(value, int | float | tuple):
        return []
    if not isinstance(value, tuple):
        return [float(value)]
    rows = [row for row in value if isinstance(row, tuple)]
    return [float(one) for i, row in enumerate(rows) for j, one in enumerate(row) if i != j and isinstance(one, int | float)]


def _line_rate(key: str, value: float, described: ClusterSettings) -> str | None:
    """Return the problem of a figure that equals a line rate in Gb/s, where cards or devices are too slow for as many GB/s."""
    fastest = max(device_type(one).peak_flops_per_s for one in (described.device, *described.device_overrides.values()))
    for rate in figures().line_rates.get(key, ()):
        if value == rate.gbits_per_s and fastest < 1e12 * rate.since_tflops_per_s:
            return f"{value:g} GB/s of one card are {8 * value:g} Gb/s; did you mean {value / 8:g} ({value:g} Gb/s)?"
    return None


def _links_of_device(name: str, described: ClusterSettings) -> DeviceType | None:
    """Return the device type of the widest links inside hosts; None of other figures, or where a type's links are not known."""
    results = [device_type(device) for device in (described.device, *described.device_overrides.values())]
    widest = max(results, key=lambda one: one.host_links[1])
    return widest if name in figures().links_inside_hosts and math.isfinite(widest.host_links[1]) else None


def _both_ways(value: float, device: DeviceType) -> str | None:
    """Return the problem of a figure above the links of the device inside a host; most likely it counts both directions."""
    links, high = device.host_links[0], device.host_links[1] / 1e9
    if value <= high:
        return None
    message = f"{value:g} GB/s is {value / high:.3g} times what a device of type {device.name} sends ({high:g} over {links})"
    if links == "pcie":
        return f"{message}; it has no NVLink, so that {high:g} is taken"
    return message + (f"; did you mean {value / 2:g} (data sheets count both directions)?" if value <= 2 * high else "")


def _problem(key: str, value: float, plausible: PlausibleRange) -> str | None:
    low, high = plausible.low, plausible.high
    if value == 0 or low <= value <= high:
        return None
    unit = max((name for name in figures().units if key.endswith(f"_{name}")), key=len, default="")
    words = {"gbytes_per_s": " GB/s", "tflops_per_s": " TFLOP/s", "gib": " GiB"}.get(unit, f" {unit}" if unit else "")
    if value > high:
        beyond = f"{value / high:.3g} times the most there is ({high:g}: {plausible.source})"
    else:
        beyond = f"{low / value:.3g} times less than the least there is ({low:g}: {plausible.source})"
    meant = ((value * factor, other) for other, factor in figures().units.get(unit, {}).items())
    near = next((f"; did you mean {right:g} ({value:g} {other})?" for right, other in meant if low <= right <= high), "")
    return f"{value:g}{words} is {beyond}{near}"
