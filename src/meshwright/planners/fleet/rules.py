"""Rules of a fleet by name.

A name is ``BASE`` or ``ORDER:ENTRY``, with ``+backfill`` where jobs behind one that cannot start may, and with ``@packed``,
``@spread`` or ``@nearest`` where it places otherwise than packed: ``sjf+backfill@spread``, ``sjf:fixed-16``. Orders are ``fifo``,
``sjf``, ``srtf``, ``edf`` and ``las``; entries all other bases.
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

ORDERS = ("fifo", "sjf", "srtf", "edf", "las")

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
    order_name, colon, entry_name = base.partition(":")
    if colon and order_name not in ORDERS:
        raise PolicyError("no such order of jobs", value=name, choices=list(ORDERS))
    order, entry, preempts, degree = _base(entry_name if colon else base, name, problem)
    if colon:
        order, _, preempts_order = BASES[order_name]
        preempts = preempts or preempts_order
    if "least-interference" in (base, entry_name):
        placement = PlacementChoice.LEAST_INTERFERENCE
    return FleetRule(int(order), int(entry), degree, int(placement), bool(plus), preempts, SERVICE_LIMIT_DEVICE_S)


def _base(base: str, name: str, problem: FleetProblem) -> tuple[JobOrder, EntryRule, bool, int]:
    """Order, entry, whether it decides again, and degree."""
    if base.startswith("fixed-") and base[6:].isdigit():
        found = np.flatnonzero(problem.degrees == int(base[6:]))
        if not len(found):
            raise PolicyError(
                "no entry of the menu has so many devices", value=name, choices=[f"fixed-{degree}" for degree in problem.degrees]
            )
        return JobOrder.FIFO, EntryRule.FIXED, False, int(found[0])
    if base not in BASES:
        near = nearest(base, list(BASES))
        raise PolicyError("no such rule of a fleet", value=name, choices=[near] if near else list(BASES))
    return *BASES[base], 0
