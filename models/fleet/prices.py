"""Scores of a fleet's actions by the price of a device-second, which the network sets for each job.

Other jobs wait for each device-second that a job takes, so its price follows from the jobs in the cluster. An action that would
take ``t`` seconds on ``n`` of ``N`` devices costs, at the price ``q``,

    c = t (1 + q n / N)

For each job on offer the network returns three numbers. The first is the logarithm of its price over ``2 waiting + running``
jobs. The second is a margin: how much dearer than the cheapest entry of the menu an action may be and still beat waiting. The
third delays the job in the order by work. A start scores the logarithm of the cheapest cost over its own, plus the margin, times
a sharpness. Subtracted is a multiple of the job's work beyond that of the smallest on offer. To pass scores 0. A running job's
new start is compared with continuing as it is, its pause with the smallest job that waits. Sharpness and multiple are learned
too.

The three numbers are linear in a few features, by weights that a search may have found (`planners.fleet.linear_prices`). The
network adds its output for the whole graph. Before training that is 0, and the network decides as the compiled rule with these
weights. Without weights the best action is about that of the rule ``sjf:priced``. `price_units` returns their units. Where these
are relative, the margin is multiplied by the exponential of the second number. A start at the least cost then always beats
waiting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...envs.fleet.features import ContextColumn, OfferColumn
from ...envs.fleet.fleet import Fleet
from ...planners.fleet.linear_prices import (
    DEARER,
    DIRECT,
    FIRST_NAMED,
    LEAST,
    MOST,
    MOST_FACTOR,
    ORDER,
    PER_DEVICES,
    RELATIVE,
    SHARPNESS,
    SMALLER,
    STAYS,
    USUAL_JOBS,
    PriceFigure,
    PriceUnits,
)
from ...planners.fleet.rules import WAITING_WEIGHT
from ..network import init_zero_

QUICK = 10.0
"""How much faster than others the weights are learned that are direct, from features to the three numbers."""


def of_share(share: Tensor) -> Tensor:
    """Return ``x`` of the feature ``x / (1 + x)``, as ``t / T`` of a time ``t / (t + T)``."""
    return share / (1.0 - share).clamp(min=1e-6)


def num_direct(*, relative: bool) -> int:
    """Return the features that prices are linear in."""
    return len(RELATIVE if relative else DIRECT)


def price_units(fleet: Fleet, *, relative: bool) -> PriceUnits:
    """Return the units of work, age and numbers of jobs.

    Args:
        fleet: that is played.
        relative: whether units follow the fleet: the mean work of a job, and `USUAL_JOBS` times the devices that jobs can use
            well (`Fleet.usual_devices`). Otherwise by 8 devices for the mean duration of a job of each 64, and by `PER_DEVICES`
            devices.
    """
    duration_s = fleet.mean_duration_s
    if not relative:
        return PriceUnits(PER_DEVICES / 8.0 * duration_s, duration_s, PER_DEVICES, 0.0)
    return PriceUnits(
        fleet.mean_work_device_s, duration_s, USUAL_JOBS * fleet.usual_devices, float(np.log2(fleet.load_at_fastest))
    )


class PriceHead(nn.Module):
    """The network's part of prices, and the scores that follow.

    Args:
        width: of the nodes and of the projected whole.
        relative: see `price_units`.
    """

    def __init__(self, width: int, *, relative: bool) -> None:
        super().__init__()
        self.of_job = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 3))
        init_zero_(self.of_job[-1])
        self.is_relative = relative
        self.direct = nn.Linear(num_direct(relative=relative), 3, bias=False)
        nn.init.zeros_(self.direct.weight)
        self.log_sharpness = nn.Parameter(torch.tensor(SHARPNESS).log())
        self.log_order = nn.Parameter(torch.tensor(ORDER).log())

    def set_direct(self, weights: NDArray[np.float64]) -> None:
        """Initialise prices with weights of `planners.fleet.linear_prices`, ``(3, x)``."""
        with torch.no_grad():
            self.direct.weight.copy_(torch.as_tensor(weights / QUICK, dtype=torch.float32))

    def forward(
        self,
        seen: Mapping[str, Tensor],
        offers: Tensor,
        whole: Tensor,
        menu: Any,
        listed: tuple[Tensor, Tensor, Tensor],
        ratio: Tensor,
        choice: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return scores of starts and pauses, before what else the network adds.

        Args:
            seen: the observation.
            offers: nodes of jobs on offer, ``(b, v, w)``.
            whole: projected, ``(b, w)``.
            menu: `network.MenuTensors`.
            listed: episode, place of offer and entry of each start that is scored, ``(n,)`` each.
            ratio: its seconds of a step over those of the job's fastest entry, ``(n,)``.
            choice: number of its placement, ``(n,)``.

        Returns:
            ``(n,)``, and of the running jobs on offer ``(b, v - waiting)``.
        """
        both = torch.cat([offers, whole.unsqueeze(1).expand_as(offers)], dim=2)
        context, row = seen["context"], seen["offers"]
        waiting, running = of_share(context[:, ContextColumn.WAITING]), of_share(context[:, ContextColumn.RUNNING])
        units = menu.units
        part = units.devices / menu.num_devices
        of_cluster = menu.num_devices / 8.0 * units.time_s / units.work_device_s
        left = of_share(row[:, :, OfferColumn.DEVICE_SECONDS_LEFT]) * of_cluster
        age = of_share(row[:, :, OfferColumn.AGE])
        figures = {
            PriceFigure.WORK: left.clamp(LEAST, MOST).log() / 2.0,
            PriceFigure.AGE: age.clamp(LEAST, MOST).log() / 2.0,
            PriceFigure.WAITING: ((1.0 + part * waiting).log() - 1.0).unsqueeze(1).expand_as(left),
            PriceFigure.RUNNING: ((1.0 + part * running).log() - 2.5).unsqueeze(1).expand_as(left),
            PriceFigure.FREE: context[:, ContextColumn.FREE, None].expand_as(left),
            PriceFigure.ALWAYS: torch.ones_like(left),
        }
        columns = [figures[figure] for figure in PriceFigure]
        if self.is_relative:
            columns.append(torch.full_like(left, units.pressure))
        direct = torch.stack(columns, dim=2)
        log_price, dearer, later = (self.of_job(both) + QUICK * self.direct(direct)).unbind(2)
        jobs = WAITING_WEIGHT * waiting + running
        price = (jobs.clamp(min=0.1).log().unsqueeze(1) + log_price).exp()
        kind = seen["offer_type"].long()
        cost = menu.ratio[kind] * (1.0 + price.unsqueeze(2) * menu.share[kind])
        cheapest = torch.where(menu.is_there[kind] > 0, cost, torch.inf).min(dim=2).values
        is_running = row[:, :, OfferColumn.IS_RUNNING] > 0
        held = ((1.0 + menu.num_devices) ** row[:, :, OfferColumn.HELD] - 1.0) / menu.num_devices
        is_held = (menu.is_there[kind] > 0) & ((menu.share[kind] - held.unsqueeze(2)).abs() < 0.5 / menu.num_devices)
        held_cost = torch.where(is_held, cost, torch.inf).min(dim=2).values
        least_time = of_share(row[:, :, OfferColumn.TIME_LEFT]).clamp(min=1e-6)
        has_run = (row[:, :, OfferColumn.PROGRESS] > 0) | is_running
        restart = of_share(row[:, :, OfferColumn.RESTART]) / least_time * has_run
        compared = torch.where(is_running & held_cost.isfinite(), held_cost, cheapest)
        allowed = torch.where(is_running, dearer - STAYS, dearer + DEARER)
        if self.is_relative:
            dearer = dearer.clamp(-MOST_FACTOR, MOST_FACTOR)
            allowed = torch.where(is_running, -STAYS * (-dearer).exp(), DEARER * dearer.exp())
        work = left.clamp(min=1e-6).log() + later
        waits = (row[:, :, OfferColumn.IS_THERE] > 0) & ~is_running
        least = torch.where(waits, work, torch.inf).min(dim=1, keepdim=True).values
        behind = torch.where(waits, work - least, torch.zeros_like(work))
        sharpness, order = self.log_sharpness.exp(), self.log_order.exp()
        e, offer, entry = listed
        taken = (ratio + restart[e, offer]) * (1.0 + price[e, offer] * menu.share[kind[e, offer], entry])
        starts = sharpness * (allowed[e, offer] + (compared[e, offer] / taken).log()) - order * behind[e, offer]
        if self.is_relative:
            starts = starts - FIRST_NAMED * choice
        gap = torch.where(least.isfinite(), work - least, torch.full_like(work, -SMALLER)) - SMALLER
        pauses = order * gap[:, menu.num_waiting :].clamp(-4.0, 1.0)
        return starts, pauses
