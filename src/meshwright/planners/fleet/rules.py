"""Rules of a fleet by name.

A name is ``BASE`` or ``ORDER:ENTRY``, with ``+backfill`` where jobs behind one that cannot start may, and with ``@packed``,
``@spread`` or ``@nearest`` where it places otherwise than packed: ``sjf+backfill@spread``, ``sjf:fixed-16``. Orders are ``fifo``,
``sjf``, ``srtf``, ``edf`` and ``las``; entries all other bases. ``+refuse-N`` never starts the N percent of jobs with most work.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

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


def fleet_rule(name: str, problem: FleetProblem, work_device_s: NDArray[np.float64] | None = None) -> FleetRule:
    """A rule by its name; ``fixed-N`` gives every job ``N`` devices, or the next smaller number that it can use.

    Args:
        name: of it.
        problem: that it plays.
        work_device_s: work of the jobs that come, by rising percentage of jobs with less, ``(101,)``; for ``refuse-N``.

    Raises:
        PolicyError: there is none of this name.
    """
    named, at, place = name.partition("@")
    base, *extras = named.split("+")
    backfills, refusals = "backfill" in extras, [extra for extra in extras if extra.startswith("refuse-")]
    known = len(extras) == backfills + len(refusals) and len(refusals) <= 1
    if not known or (at and place not in ("packed", "spread", "nearest")):
        raise PolicyError("a rule is NAME, with +backfill, +refuse-N, @packed|spread|nearest", value=name)
    placement = PlacementChoice[place.upper()] if at else PlacementChoice.PACKED
    order_name, colon, entry_name = base.partition(":")
    if colon and order_name not in ORDERS:
        raise PolicyError("no such order of jobs", value=name, choices=list(ORDERS))
    order, entry, preempts, degree = _base(entry_name if colon else base, name, problem)
    if colon:
        order, _, preempts_order = BASES[order_name]
        preempts = preempts or preempts_order
    if "least-interference" in (base, entry_name):
        placement = PlacementChoice.LEAST_INTERFERENCE
    most = _most_work(refusals[0].removeprefix("refuse-"), name, work_device_s) if refusals else np.inf
    return FleetRule(int(order), int(entry), degree, int(placement), backfills, preempts, SERVICE_LIMIT_DEVICE_S, most)


def _most_work(percent: str, name: str, work_device_s: NDArray[np.float64] | None) -> float:
    """The work beyond which jobs are refused."""
    if not re.fullmatch("[0-9]{1,2}", percent) or work_device_s is None:
        raise PolicyError("refuse-N wants N of 0 to 99, the percentage of jobs that are never started", value=name)
    return float(work_device_s[100 - int(percent)]) if int(percent) else np.inf


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
