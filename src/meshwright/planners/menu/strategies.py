"""Time, memory and traffic of an entry with a training strategy or a code, in seconds and bytes of a step of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...costs.process_groups.rank_groups import stage_width
from ...costs.training.compressed import coded_messages
from ...costs.training.gossip import rounds
from ...costs.training.replicas import Replicas, shown
from ...costs.training.strategy_step import check_strategy, strategy_step
from ...costs.work.operations import Message
from ...errors import PlanError
from ...plans.partition import Layout
from ...plans.training import Asynchronous, Gossip, StaleSynchronous
from .job_types import JobType, Where
from .named_entry import NamedEntrySettings


class EntryStep(NamedTuple):
    """A step of a layout by a strategy.

    Attributes:
        step_s: seconds of it, not yet times the multiplier.
        extra_bytes: of the fullest rank, in addition to a synchronous step.
        breakdown_s: what a step without sums of gradients consists of.
        local_s: seconds of that one.
    """

    step_s: float
    extra_bytes: float
    breakdown_s: dict[str, float]
    local_s: float


class EntryTraffic(NamedTuple):
    """The traffic of a strategy.

    Attributes:
        work: of the layout, with so much of the gradients as a step sends in the mean.
        coded: messages in place of those that sum gradients; None: those of the work.
        served_bytes: of each rank to servers in a step, and back, ``(n,)``; None without servers.
    """

    work: Any
    coded: Callable[[int], tuple[Message, ...]] | None
    served_bytes: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Trained:
    """A layout of a job, trained by a named entry in some place.

    Attributes:
        job: the type.
        named: the strategy.
        layout, order: how the job is cut, and its ranks numbered.
        where: it is priced.
    """

    job: JobType
    named: NamedEntrySettings
    layout: Layout
    order: str
    where: Where

    @property
    def replicas(self) -> Replicas:
        """The replicas of the job."""
        where = self.where
        work = self.job.work(self.layout, where.device, where.costs)
        pricer = self.job.pricer(self.order, where)
        return Replicas(work, pricer, server_cards=where.server_cards)  # a menu counts no stragglers

    def check(self) -> None:
        """Refuse impossible combinations.

        Raises:
            PlanError: the layout cannot be trained so, or has one replica, which has nothing to agree on.
        """
        if self.layout.dp == 1 and self.named.training.kind not in ("local-update", "masked"):
            raise PlanError(f"{self.named.name} wants more than one replica", field="layout.dp", value=1)
        check_strategy(self.job.name, self.layout, self.named.training, self.named.compression)

    def step(self) -> EntryStep:
        """Return the time and memory of a step.

        Raises:
            PlanError: the job or layout cannot be trained so.
        """
        replicas = self.replicas
        result = strategy_step(replicas, self.named.training, self.named.compression)
        local = replicas.pricer.price_work(shown(replicas.work).with_gradient_share(0.0))
        return EntryStep(result.step_s, result.extra_bytes, local.breakdown_s, local.step_s)

    def traffic(self) -> EntryTraffic:
        """Return the traffic of a step.

        Averages over every so many steps count with their mean traffic per step. Rounds of gossip count as a ring of the
        replicas that average at a time. Codes send the messages by which they are priced.
        """
        replicas = self.replicas
        if self.named.compression is not None:
            return EntryTraffic(replicas.work, coded_messages(replicas, self.named.compression)[0])
        if isinstance(self.named.training, StaleSynchronous | Asynchronous):
            stages = np.arange(self.layout.world) // stage_width(self.layout)
            served = np.array([replicas.work.gradient_bytes_on(stage) for stage in range(self.layout.pp)])[stages]
            return EntryTraffic(replicas.work.with_gradient_share(0.0), None, served)
        if isinstance(self.named.training, Gossip):
            share = _gossip_share(replicas, self.named.training)
        else:
            share = strategy_step(replicas, self.named.training).sent_bytes / max(replicas.gradient_bytes, 1e-300)
        return EntryTraffic(replicas.work.with_gradient_share(share), None)


def _gossip_share(replicas: Replicas, training: Gossip) -> float:
    """Return the mean ratio of a round's traffic to that of a sum over all replicas."""
    n = replicas.num_replicas
    result = rounds(training.topology, n, replicas.regular().per_host)
    sent = [1.0 if one.is_exchange else 2 * (one.groups.shape[1] - 1) / one.groups.shape[1] for one in result]
    return (sum(sent) / len(sent)) / (2 * (n - 1) / n)
