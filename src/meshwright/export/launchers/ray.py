"""Ray: a driver that runs each rank as an actor in the placement group's bundle of its planned host.

Ray gives no order to bundles by itself. Here every bundle selects its host by a label of the node, and every actor takes the
bundle of its own number. The driver waits for the group up to its limit. It checks the places of the actors before any of them
starts its program.
"""

from __future__ import annotations

from ...errors import ExportError
from ...plans.document import PlacementPlan
from ..frameworks import device_mesh, meshed_stages
from ..options import ExportOptions
from ..requirements import hosts_of
from ..target import Files, FrameworkFile, Target, header
from .ray_driver import PROGRAM

DRIVER = "driver.py"

MAX_LABEL = 63
"""Longest value of a label in Ray, as in Kubernetes."""

_NOT_GUARANTEED = (
    "GPU choice: Ray picks which of a host's GPUs the job gets. Where they are the planned ones the driver deals them out as "
    "planned; otherwise it deals them out in the planned order and says so.",
    "Labels: a host is known by the label of its Ray node alone; two labels exchanged exchange two hosts.",
    "Version: made for releases after January 2026 and tested with 2.60; with one that ignores the selectors of bundles the "
    "driver ends when it finds a rank elsewhere.",
    "Working folder: ranks run in the folder and environment in which their Ray node was started, unless the job was "
    "submitted with a runtime environment.",
    "Restarts: the first rank that fails ends the job.",
    "Order in groups: process groups follow rank order; only the numbering of the ranks places a job.",
)


def render(plan: PlacementPlan, options: ExportOptions) -> Files:
    """Return the driver and, where ranks have coordinates, the mesh.

    Raises:
        ExportError: a host name that is none, or too long for a label.
    """
    hosts_of(plan)
    for rank in plan.ranks:
        if len(rank.host) > MAX_LABEL:
            problem = f"a label of a Ray node holds at most {MAX_LABEL} characters"
            raise ExportError(problem, field=f"rank {rank.rank}", value=rank.host)
    head = header(options.job_name(plan), plan, "Ray", _NOT_GUARANTEED)
    rows = [(rank.host, rank.local_rank, place) for rank, place in zip(plan.ranks, device_mesh.coordinates_of(plan), strict=True)]
    values = {
        "JOB": options.job_name(plan),
        "GROUP": "" if options.decision is None else f"mw:{options.decision}",
        "HOST_LABEL": options.host_label,
        "WAIT_S": options.wait_s,
        "MASTER_PORT": options.master_port,
        "COMMAND": [*(["env", *options.variables] if options.variables else []), *options.rank_words],
        "RANKS": rows,
    }
    constants = "FILES = os.path.dirname(os.path.abspath(__file__))\n" if options.carried else ""
    constants += "".join(f"{name} = {_literal(value)}\n" for name, value in values.items())
    driver = f"#!/usr/bin/env python3\n{head}{PROGRAM.replace(_PLAN_GOES_HERE, constants, 1)}"
    rendered: Files = {DRIVER: driver}
    if device_mesh.has_grid(plan):
        rendered[device_mesh.FILE_NAME] = meshed_stages.mesh_text(plan, head)
    return rendered


_PLAN_GOES_HERE = "# THE PLAN\n"


def _literal(value: object) -> str:
    """Return a value as Python spells it, with a list's items on separate lines."""
    if isinstance(value, FrameworkFile):
        return f"os.path.join(FILES, {str(value)!r})"
    return "[\n" + "".join(f"    {_literal(item)},\n" for item in value) + "]" if isinstance(value, list) else repr(value)


TARGET = Target(
    name="ray",
    summary="a driver that runs each rank as an actor in a placement group, bundles pinned to hosts by label",
    guaranteed=(
        "Each rank runs on the node that carries its host's label, also where hosts have unequal numbers of ranks; a rank "
        "that finds itself elsewhere ends the job before any program starts.",
        "The driver names bundles that are not placed in time, and ends with 1.",
        "RANK, LOCAL_RANK and WORLD_SIZE are the plan's; the master address is the host of rank 0.",
    ),
    not_guaranteed=_NOT_GUARANTEED,
    render=render,
)
