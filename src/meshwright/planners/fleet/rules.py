"""Rules of a fleet by name.

A name is ``BASE``, with ``+backfill`` where jobs behind one that cannot start may, and with ``@packed``, ``@spread`` or ``@nearest``
where it places otherwise than packed: ``sjf+backfill@spread``.
"""

from __future__ import annotations

import numpy as np

from ...errors import PolicyError, nearest
from ...simulation.fleet.state import FleetProblem
from .rule_kernel import EntryRule, FleetRule, JobOrder, PlacementChoice

BASES: dict[str, tuple[JobOrder, EntryRule, bool]] = {
    "fifo": (JobOrder.FIFO, EntryRule.REQUESTED, False),
    "searched": (JobOrder.FIFO, EntryRule.REQUESTED, False),
    "sjf": (JobOrder.SJF, EntryRule.REQUESTED, False),
    "srtf": (JobOrder.SRTF, EntryRule.REQUESTED, True),
    "edf": (JobOrder.EDF, EntryRule.REQUESTED, False),
    "las": (JobOrder.LAS, EntryRule.REQUESTED, True),
    "fastest-feasible": (JobOrder.FIFO, EntryRule.FASTEST, False),
    "least-device-seconds": (JobOrder.FIFO, EntryRule.LEAST_DEVICE_SECONDS, False),
    "marginal-gain": (JobOrder.SJF, EntryRule.MARGINAL_GAIN, False),
    "least-interference": (JobOrder.FIFO, EntryRule.REQUESTED, False),
    "goodput-shares": (JobOrder.FIFO, EntryRule.FAIR_SHARE, True),
}
"""Order, entry and whether running jobs are decided again where the fleet has rounds."""

SERVICE_LIMIT_DEVICE_S = 3600.0 * 8
"""Device-seconds after which `JobOrder.LAS` puts a job behind the others: an hour of a host of eight."""


def fleet_rule(name: str, problem: FleetProblem) -> FleetRule:
    """A rule by its name; ``fixed-N`` gives every job ``N`` devices, or the next smaller number that it can use.

    Raises:
        PolicyError: there is none of this name.
    """
    base, at, place = name.partition("@")
    base, plus, extra = base.partition("+")
    placement = PlacementChoice.PACKED
    if (plus and extra != "backfill") or (at and place not in ("packed", "spread", "nearest")):
        raise PolicyError("a rule is NAME, NAME+backfill, NAME@packed|spread|nearest or both", value=name)
    if at:
        placement = PlacementChoice[place.upper()]
    degree = 0
    if base.startswith("fixed-") and base[6:].isdigit():
        found = np.flatnonzero(problem.degrees == int(base[6:]))
        if not len(found):
            raise PolicyError("no entry of the menu has so many devices", value=name, choices=problem.degrees.tolist())
        order, entry, preempts, degree = JobOrder.FIFO, EntryRule.FIXED, False, int(found[0])
    elif base in BASES:
        order, entry, preempts = BASES[base]
    else:
        near = nearest(base, list(BASES))
        raise PolicyError("no such rule of a fleet", value=name, choices=[near] if near else list(BASES))
    if base == "least-interference":
        placement = PlacementChoice.LEAST_INTERFERENCE
    return FleetRule(int(order), int(entry), degree, int(placement), bool(plus), preempts, SERVICE_LIMIT_DEVICE_S)
