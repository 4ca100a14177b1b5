"""Steps of a layout with more, less or no summing of gradients: the parts of every closed form of a training strategy.

A step of a replica takes its time times a lognormal factor of mean 1, drawn anew for each replica and step.

Legend: ``n`` replicas, ``W`` bytes of gradients of a rank, ``C`` seconds of a step of one replica by itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ...errors import PlanError
from ...plans.partition import Layout
from ..collectives.groups import Group
from ..collectives.prices import Operation
from ..process_groups.group_network import PlacedNetwork, whole_lane
from ..process_groups.lanes import ProcessGroup
from ..training_step.step_pricer import StepPricer
from ..work.step_work import StepWork

Work = TypeVar("Work", bound=StepWork)


@dataclass(frozen=True)
class Replicas:
    """The replicas of a job under a layout.

    Attributes:
        work: the work of every rank.
        pricer: prices it.
        straggler_sigma: standard deviation of the logarithm of a replica's time of a step; 0: all are as fast as each other.
        alone: the work and pricer of each replica by itself on its own devices, where these are of several types; else empty.
        placed: how the replicas are spread over equal hosts, where their ranks are not in the order of the layout; None: as
            that says.
        server_cards: cards of a parameter server's host over those that the job has on one of its own.
    """

    work: StepWork
    pricer: StepPricer
    straggler_sigma: float = 0.0
    alone: tuple[tuple[StepWork, StepPricer], ...] = ()
    placed: Group | None = None
    server_cards: float = 1.0

    @property
    def layout(self) -> Layout:
        """How the job is cut."""
        return self.work.layout

    @property
    def num_replicas(self) -> int:
        """Number of replicas, ``n``."""
        return self.layout.dp

    @property
    def num_summing(self) -> int:
        """Ranks that sum the gradients of a weight: replicas, and the parts of a sequence within each."""
        return self.layout.dp * self.layout.cp

    @cached_property
    def synchronous_s(self) -> float:
        """Seconds of a synchronous step of the layout, in which no replica is slower than the others."""
        return self.pricer.step_s(self.work)

    @cached_property
    def local_s(self) -> float:
        """Seconds of a step of one replica by itself, ``C``."""
        return self.averaged_s(0.0)

    @cached_property
    def workers_s(self) -> NDArray[np.float64]:
        """Seconds of a step of each replica by itself, ``(n,)``; all ``C`` where devices are equal."""
        if not self.alone:
            return np.full(self.num_replicas, self.local_s)
        return np.array([pricer.step_s(shown(work).with_gradient_share(0.0)) for work, pricer in self.alone])

    def averaged_s(self, share: float) -> float:
        """Return seconds of a step behind whose last backward pass ``share`` of the gradients' bytes is summed, unhidden."""
        return self.pricer.step_s(shown(self.work).with_gradient_share(share))

    @cached_property
    def gradient_bytes(self) -> float:
        """Bytes of the gradients of a rank of the fullest stage, ``W``."""
        return max(self.work.gradient_bytes_on(stage) for stage in range(self.layout.pp))

    @property
    def sent_bytes(self) -> float:
        """Bytes of the gradients that a rank sums over the replicas in a step; none of one replica."""
        return self.gradient_bytes if self.num_summing > 1 else 0.0

    def process_group(self, stage: int) -> ProcessGroup:
        """Return how the replicas of a stage's ranks are spread over hosts."""
        return whole_lane(self.pricer.wires, self.layout, self.pricer.order).at(stage)["dp_cp"]

    def regular(self) -> Group:
        """Return how the replicas are spread over equal hosts.

        Raises:
            PlanError: hosts differ.
        """
        if self.placed is not None:
            return self.placed
        group = self.process_group(0)
        if isinstance(self.pricer.wires, PlacedNetwork) or not isinstance(group, Group):
            raise PlanError(
                "the ways to servers and between subnets are priced on clusters of equal hosts only", field="training.kind"
            )
        return group

    def group_s(self, operation: Operation, payload_bytes: float, group: ProcessGroup | None = None) -> float:
        """Return the seconds of a message over all replicas, or over some; of the slowest stage."""
        if self.num_replicas == 1 or payload_bytes <= 0:
            return 0.0
        wires = self.pricer.wires
        if group is not None:
            return wires.group_s(operation, payload_bytes, group)
        return max(wires.group_s(operation, payload_bytes, self.process_group(stage)) for stage in range(self.layout.pp))


def shown(work: Work) -> Work:
    """Return the work whose gradients hide behind nothing."""
    made: Work = replace(cast(Any, work), layout=work.layout.model_copy(update={"overlap_dp": False}))
    return made


NUM_POINTS = 4001
"""Points of the integral over standard normal deviates from -10 to 10."""


@lru_cache(maxsize=4096)
def slowest_of(num_replicas: int, sigma: float, num_steps: int = 1) -> float:
    """Return the expected largest sum of steps over the mean of that sum; 1 where nothing varies.

    A sum of lognormal times is taken for lognormal with the sum's own mean and variance, whose logarithm's standard deviation is
    ``sqrt(log(1 + (exp(sigma^2) - 1) / H))``: the loss falls by about the root of the number of steps.

    Args:
        num_replicas: that wait for each other.
        sigma: standard deviation of the logarithm of a step.
        num_steps: steps that each takes before it waits, ``H``.

    Source:
        Fenton, "The sum of log-normal probability distributions in scatter transmission systems", 1960; the expected maximum is
        ``integral of x dF(x)^n``.
    """
    if sigma == 0 or num_replicas == 1:
        return 1.0
    spread = math.sqrt(math.log1p(math.expm1(sigma**2) / num_steps))
    points = np.linspace(-10, 10, NUM_POINTS)
    below = np.array([0.5 * math.erfc(-z / math.sqrt(2)) for z in points]) ** num_replicas
    values = np.exp(spread * points - spread**2 / 2)
    return float((np.diff(below) * (values[1:] + values[:-1]) / 2).sum())
