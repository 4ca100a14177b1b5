"""Rules of a fleet by name.

A name is ``BASE`` or ``ORDER:ENTRY``, with ``+backfill`` where jobs behind one that cannot start may, and with ``@packed``,
``@spread`` or ``@nearest`` where it places otherwise than packed: ``sjf+backfill@spread``, ``sjf:fixed-16``. Orders are ``fifo``,
``sjf``, ``srtf``, ``edf``, ``las`` and ``normalised-throughput``; entries all other bases, ``fixed-N``, ``goodput-shares-N`` and
``priced-W``. ``+refuse-N`` never starts the N percent of jobs with most work.
"""

from __future__ import annotations

import re
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import PolicyError, nearest
from ..policy_names import numbered, parsed
from .rule import EntryRule, FleetRule, JobOrder, PlacementChoice

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
    "priced": (JobOrder.SJF, EntryRule.PRICED, True),
    "normalised-throughput": (JobOrder.NORMALISED, EntryRule.REQUESTED, True),
}
"""Order, entry and whether running jobs are decided again where the fleet has rounds."""

ORDERS = ("fifo", "sjf", "srtf", "edf", "las", "normalised-throughput")

SERVICE_LIMIT_DEVICE_S = 3600.0 * 8
"""Device-seconds after which `JobOrder.LAS` puts a job behind the others: an hour of a host of eight."""


OF_DEGREE = {"fixed": (EntryRule.FIXED, False), "goodput-shares": (EntryRule.FAIR_SHARE, True)}
"""Entry, and whether running jobs are decided again, of bases that end with a number of devices."""


class HasDegrees(Protocol):
    """The problem of a rule: a `FleetProblem`, or its numbers of devices alone."""

    @property
    def degrees(self) -> NDArray[np.int64]:
        """The numbers of devices that a job may have, rising, ``(d,)``."""


PLACES = ("packed", "spread", "nearest")
BACKFILL = "backfill"
BEST_FIXED_ENTRY = "best-fixed-entry"
BEST_SHARES = "best-goodput-shares"
PRICED = "priced"
BEST_PRICED = "best-priced"
WAITING_WEIGHT = 2.0
"""Default weight of a waiting job in `EntryRule.PRICED`."""
BEST_REFUSAL = "best-refusal"


def fleet_rule(name: str, problem: HasDegrees, work_device_s: NDArray[np.float64] | None = None) -> FleetRule:
    """Return a rule by its name.

    ``fixed-N`` gives every job ``N`` devices, or the next smaller number that it can use; ``goodput-shares-N`` an equal share,
    but no fewer than ``N``. ``priced-W`` counts a job that waits ``W`` times, ``priced`` twice.

    Args:
        name: of it.
        problem: that it plays, or the numbers of devices that it may give.
        work_device_s: work of the jobs that come, by rising percentage of jobs with less, ``(101,)``; for ``refuse-N``.

    Raises:
        PolicyError: there is none of this name.
    """
    spelled = parsed(name)
    _, base, extras, place = spelled
    backfills, refusals = BACKFILL in extras, [extra for extra in extras if extra.startswith("refuse-")]
    order_name, entry_name = spelled.name, spelled.rule
    bare = base if entry_name is None else entry_name
    are_known = len(extras) == backfills + len(refusals) and len(refusals) <= 1 and (place is None or place in PLACES)
    if not are_known or (bare != base and order_name not in ORDERS) or not (bare in BASES or _of_degree(bare)):
        raise _no_rule(name, problem)
    order, entry, preempts, degree = _base(bare, name, problem)
    weight = WAITING_WEIGHT if bare == PRICED else float(degree) if entry == EntryRule.PRICED else 0.0
    if bare != base:
        order, _, preempts_order = BASES[order_name]
        preempts = preempts or preempts_order
    placement = PlacementChoice.PACKED if place is None else PlacementChoice[place.upper()]
    if bare == "least-interference":
        placement = PlacementChoice.LEAST_INTERFERENCE
    most = _most_work(refusals[0].removeprefix("refuse-"), name, work_device_s) if refusals else np.inf
    return FleetRule(int(order), int(entry), degree, int(placement), backfills, preempts, SERVICE_LIMIT_DEVICE_S, most, weight)


def nearest_rule(name: str, problem: HasDegrees) -> str | None:
    """Return the rule that a name misspells, part by part; None where a part is like none.

    The parts that an evaluation chooses (``best-fixed-entry``, ``best-refusal``) count too.
    """
    _, base, extras, place = parsed(name.replace("_", "-"))
    if base.endswith(f"-{BACKFILL}"):
        base, extras = base.removesuffix(f"-{BACKFILL}"), (BACKFILL, *extras)
    order, colon, entry = base.rpartition(":")
    if colon and entry in ORDERS and order not in ORDERS:  # the wrong way round
        order, entry = entry, order
    entries = [*BASES, BEST_FIXED_ENTRY, BEST_SHARES, BEST_PRICED]
    entries += [f"{one}-{degree}" for one in OF_DEGREE for degree in problem.degrees]
    entries += re.findall(f"{PRICED}-[0-9]{{1,2}}$", base)
    results = [
        nearest(order, ORDERS) if colon else "",
        nearest(entry, entries),
        *(nearest(extra, [BACKFILL, BEST_REFUSAL, *(f"refuse-{n}" for n in re.findall("[0-9]+$", extra))]) for extra in extras),
        "" if place is None else nearest(place, PLACES),
    ]
    if None in results:
        return None
    first, second, *plus, last = results
    return "+".join([f"{first}{colon}{second}", *map(str, plus)]) + ("" if place is None else f"@{last}")


def _no_rule(name: str, problem: HasDegrees) -> PolicyError:
    """Return the refusal of a name: the rule that is meant, or how rules are named."""
    meant = nearest_rule(name, problem)
    if meant not in (None, name):
        return PolicyError(f"no such rule of a fleet (got {name!r}); did you mean {meant!r}?")
    place = parsed(name).mode
    if place and place not in PLACES:
        return PolicyError(f"a rule places by @{', @'.join(PLACES)}", value=name)
    bases = [base for base in BASES if base not in ORDERS]
    bases += [*(f"{one}-N" for one in OF_DEGREE), f"{PRICED}-W", BEST_FIXED_ENTRY, BEST_SHARES, BEST_PRICED]
    message = f"an order ({', '.join(ORDERS)}), an entry ({', '.join(bases)}) or ORDER:ENTRY"
    return PolicyError(f"no such rule of a fleet; one is {message}, with +{BACKFILL}, +refuse-N, @PLACE where wanted", value=name)


def _most_work(percent: str, name: str, work_device_s: NDArray[np.float64] | None) -> float:
    """Return the work beyond which jobs are refused."""
    if not re.fullmatch("[0-9]{1,2}", percent) or work_device_s is None:
        raise PolicyError("refuse-N wants N of 0 to 99, the percentage of jobs that are never started", value=name)
    return float(work_device_s[100 - int(percent)]) if int(percent) else np.inf


def _base(base: str, name: str, problem: HasDegrees) -> tuple[JobOrder, EntryRule, bool, int]:
    """Order, entry, whether it decides again, and degree, or the weight of jobs that wait."""
    if base in BASES:
        return *BASES[base], 0
    prefix, number = numbered(base)
    if prefix == PRICED:
        return *BASES[PRICED], int(number)
    result = np.flatnonzero(problem.degrees == int(number))
    if not len(result):
        degrees = ", ".join(map(str, problem.degrees))
        raise PolicyError(f"no entry of the menu has so many devices; there are entries of {degrees}", value=name)
    return JobOrder.FIFO, *OF_DEGREE[prefix], int(result[0])


def _of_degree(base: str) -> bool:
    prefix, number = numbered(base)
    if prefix == PRICED:
        return re.fullmatch("[0-9]{1,2}", number) is not None
    return prefix in OF_DEGREE and re.fullmatch("[0-9]{1,9}", number) is not None
