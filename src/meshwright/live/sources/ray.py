"""Ray: its nodes, its placement groups, and the free resources of each node.

Ray's core is asked, in a process of its own. It answers in full; the state API of ``ray[default]`` needs the dashboard
and truncates its answers. The free resources of one node have no public name. A placement group is a job; it holds the GPUs of
its bundles. Ray does not give their indices: they are assumed, as for Kubernetes. GPUs in use by no group, as those of an actor
outside of groups, and parts of GPUs, are held by a job called ``unlisted/HOST``.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from ... import files, settings
from ...errors import InputFileError, StateError
from ..state import ClusterState
from .listings import EMPTY, MOST_DEVICES, FreeDevices, Listing, ReadPart, assumed, listed, plain, unlisted
from .programs import answer

PROGRAM = "ray"

ASK = """
import json, os, sys
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
import ray
from ray._private import state
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
listing = {"placement_groups": ray.util.placement_group_table(), "nodes": ray.nodes()}
json.dump({**listing, "available": state.available_resources_per_node()}, out)
out.flush()
"""
"""Program for the interpreter of this process; its first argument is the cluster's address. Free resources are read last: a
group that comes meanwhile is then an unlisted job, and none is missed."""

_ROUNDING = 1e-4
"""The unit in which Ray counts resources."""


class _RayNode(ReadPart):
    id: str = Field(alias="NodeID", min_length=1)
    is_alive: bool = Field(alias="Alive")
    name: str = Field(default="", alias="NodeName")
    resources: dict[str, float] = Field(default={}, alias="Resources")
    labels: dict[str, str] | None = Field(default=None, alias="Labels")
    reason: str | None = Field(default=None, alias="DeathReasonMessage")


class _PlacementGroup(ReadPart):
    id: str = Field(alias="placement_group_id", min_length=1)
    name: str = ""
    state: str
    bundles: dict[str, dict[str, float]]
    nodes: dict[str, str | None] = Field(alias="bundles_to_node_id")


class _Report(ReadPart):
    nodes: list[_RayNode] = Field(min_length=1)
    placement_groups: dict[str, _PlacementGroup]
    available: dict[str, dict[str, float]] | None = None


def ask(address: str = "auto") -> str:
    """Return a cluster's own description, as JSON.

    Args:
        address: of the cluster, ``host:port``; ``auto``: one that runs on this machine.

    Raises:
        InputFileError: Ray is not installed, there is no such cluster, or it takes too long.
    """
    if importlib.util.find_spec("ray") is None:
        raise InputFileError("is not installed; the extra meshwright[ray] is, or --from FILE reads what was saved", file=PROGRAM)
    try:
        return answer((sys.executable, "-c", ASK, address))
    except InputFileError as error:
        raise InputFileError(error.problem, file=PROGRAM) from None


def read(text: str, host_label: str = "host", known: ClusterState = EMPTY) -> Listing:
    """Read the answer of `ask`.

    Args:
        text: JSON of ``nodes``, ``placement_groups`` and, where it was asked for, ``available``.
        host_label: label of a Ray node that holds its host's name; without it the node's name is the host's.
        known: the state so far, from which assumed indices are kept.

    Raises:
        InputFileError: no JSON.
        ConfigError: JSON of another form.
        StateError: two nodes of one host, or more GPUs in use than a node has.
    """
    report = settings.build_settings(_Report, files.parse_json(text))
    names = {node.id: (node.labels or {}).get(host_label) or node.name or node.id for node in report.nodes}
    hosts: dict[str, dict[str, Any]] = {}
    for node in sorted(report.nodes, key=lambda node: not node.is_alive):
        name = names[node.id]
        if not node.is_alive:
            reason = plain(node.reason or "", 1000).strip()
            hosts.setdefault(name, {"condition": "down", "reason": reason or "its Ray node is dead"})
        elif name in hosts:
            raise StateError(f"two Ray nodes of one host; start each with the label {host_label}=HOST", field="nodes", value=name)
        else:
            size = _whole(node.resources.get("GPU", 0.0), f"nodes.{plain(name, 80)}")
            hosts[name] = {"condition": "up"} | ({"num_devices": size} if size else {})
    free = FreeDevices({name: host.get("num_devices", 0) for name, host in hosts.items() if host["condition"] == "up"})
    in_use = {node.id: 0.0 for node in report.nodes if node.is_alive}
    groups = sorted(report.placement_groups.values(), key=lambda group: group.id)
    held = assumed([_job(group, names, in_use) for group in groups], free, known)
    for node in report.nodes:
        if node.is_alive and report.available is not None and node.id in report.available:
            used = node.resources.get("GPU", 0.0) - report.available[node.id].get("GPU", 0.0)
            in_use[node.id] = max(in_use[node.id], used)
    counts = {names[one]: (math.ceil(used - _ROUNDING), ()) for one, used in in_use.items()}
    remarks = (
        ["Ray reports how many GPUs of a node a group holds, not which: indices are assumed"]
        if any(used > _ROUNDING for used in in_use.values())
        else []
    )
    if report.available is None:
        remarks.append("devices of tasks and actors outside of placement groups are not seen: the answer has no key available")
    return listed("ray", hosts, [*held, *unlisted(counts, free, known)], remarks)


def _job(group: _PlacementGroup, names: Mapping[str, str], in_use: dict[str, float]) -> dict[str, Any]:
    """Return a group as a job, with the whole GPUs that its bundles hold on each host; all that it holds is added to ``in_use``.

    Raises:
        StateError: a bundle on a node that is not listed, or a number of GPUs that cannot be.
    """
    gpus: defaultdict[str, float] = defaultdict(float)
    for number, bundle in group.bundles.items():
        node = group.nodes.get(number)
        if group.state != "REMOVED" and node and bundle.get("GPU"):
            if node not in names:
                problem = f"bundle {plain(number, 40)} is on a node that is not listed"
                raise StateError(problem, field=f"placement_groups.{plain(group.id, 80)}", value=node)
            _whole(bundle["GPU"], f"placement_groups.{plain(group.id, 80)}")
            if node in in_use:  # on a dead node nothing is held
                gpus[node] += bundle["GPU"]
    for node, count in gpus.items():
        in_use[node] += count
    return {
        "id": plain(group.id),
        "name": plain(group.name) or None,
        "decision": plain(group.name[3:]) or None if group.name.startswith("mw:") else None,
        "counts": {names[node]: math.floor(count + _ROUNDING) for node, count in gpus.items()},
    }


def _whole(count: float, field: str) -> int:
    """Return a number of GPUs; of a part of one, none.

    Raises:
        StateError: no such number.
    """
    if not 0 <= count <= MOST_DEVICES:
        raise StateError(f"a node has 0 to {MOST_DEVICES:,} GPUs", field=field, value=count)
    return math.floor(count + _ROUNDING)
