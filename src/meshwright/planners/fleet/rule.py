"""The parts of a fleet's rule: an order of jobs, the choice of an entry, and of a place."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from ...numba_records import by_reference


class JobOrder(IntEnum):
    """The order of jobs.

    ``FIFO`` is by arrival. ``SJF`` is by the least work, ``SRTF`` by the least remaining work, both in device-seconds of the
    entry with the least waste. ``EDF`` is by the earliest deadline. ``LAS`` takes jobs that have held fewer device-seconds than
    a limit, then the others, each by arrival (two queues of Gu et al., "Tiresias", 2019). ``NORMALISED`` is by the least work
    since arrival over that by an equal share of all types of devices (`rule_kernel`).
    """

    FIFO = 0
    SJF = 1
    SRTF = 2
    EDF = 3
    LAS = 4
    NORMALISED = 5


ORDER_WORDS = {
    JobOrder.FIFO: "first come first",
    JobOrder.SJF: "least work first",
    JobOrder.SRTF: "least remaining work first",
    JobOrder.EDF: "earliest deadline first",
    JobOrder.LAS: "least device-seconds held first",
    JobOrder.NORMALISED: "least share of its fair work first",
}
"""In words, for lists."""


class EntryRule(IntEnum):
    """The entry of the menu that a job gets.

    - ``REQUESTED``: the fastest on the devices that its user asks for.
    - ``FIXED``: the fastest on one number of devices for all, or the next smaller that the job can use.
    - ``FASTEST``: the fastest of all that fit now.
    - ``LEAST_DEVICE_SECONDS``: the cheapest that fits now.
    - ``FAIR_SHARE``: the fastest within an equal share of the cluster among its jobs, not below a least number. Shares are by
      goodput, as Qiao et al., "Pollux", 2021, with our own speeds.
    - ``MARGINAL_GAIN``: free devices go in doublings to the offered job whose remaining time falls most per device (Peng et
      al., "Optimus", 2018).
    - ``PRICED``: the one with least time times ``1 + price x devices``. Others wait for each device-second that a job takes.
      So its price is the number of jobs over the cluster's devices, with a weight on waiting jobs. A job waits while the best
      on all devices would cost less by more than `WAIT_FOR`.
    """

    REQUESTED = 0
    FIXED = 1
    FASTEST = 2
    LEAST_DEVICE_SECONDS = 3
    FAIR_SHARE = 4
    MARGINAL_GAIN = 5
    PRICED = 6


ENTRY_WORDS = {
    EntryRule.REQUESTED: "the fastest layout on the devices asked for",
    EntryRule.FIXED: "the fastest layout on one number of devices for all",
    EntryRule.FASTEST: "the fastest layout that fits",
    EntryRule.LEAST_DEVICE_SECONDS: "the layout of fewest device-seconds that fits",
    EntryRule.FAIR_SHARE: "the fastest layout on an equal share of the devices",
    EntryRule.MARGINAL_GAIN: "devices in doublings to whom they shorten most",
    EntryRule.PRICED: "the layout of least time times the price of its devices",
}
"""In words, for lists."""

WAIT_FOR = 0.25
"""Share by which an entry must cost less than those that are possible now for a job to wait for it."""


class PlacementChoice(IntEnum):
    """Where: by one rule first and the others where it finds no hosts, or where the sum of all slowdowns is least."""

    PACKED = 0
    SPREAD = 1
    NEAREST = 2
    LEAST_INTERFERENCE = 3


@by_reference
class FleetRule(NamedTuple):
    """A rule of a fleet: order of jobs, entries, placement.

    Attributes:
        order: `JobOrder`.
        entry: `EntryRule`.
        degree: of ``FIXED``, and the least of ``FAIR_SHARE``; an index into the degrees.
        placement: `PlacementChoice`.
        backfills: whether jobs behind one that cannot start may.
        preempts: whether running jobs are paused or resized in rounds.
        service_limit_device_s: of ``LAS``.
        most_work_device_s: jobs with more of it, in the entry that wastes least, are never started.
        waiting_weight: of ``PRICED``, how often a waiting job counts.
    """

    order: int
    entry: int
    degree: int
    placement: int
    backfills: bool
    preempts: bool
    service_limit_device_s: float
    most_work_device_s: float
    waiting_weight: float
