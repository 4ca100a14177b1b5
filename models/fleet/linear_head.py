"""Scores of starts and refusals that are linear in a few figures, to which a network adds its own.

The figures are defined in `planners.fleet.linear_scores`, which plays by them in compiled code. A search finds weights with
which the network begins. All placements of an entry have equal scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...envs.fleet.features import ContextColumn, OfferColumn
from ...planners.fleet.linear_prices import LEAST, MOST, PER_DEVICES
from ...planners.fleet.linear_scores import (
    BUSY_RUNNING,
    BUSY_WAITING,
    FIRST_REFUSAL,
    FIRST_WEIGHTS,
    RefusalFigure,
    StartFigure,
)
from .prices import QUICK, of_share

SHARPNESS = 10.0
"""Of the scores, at the start."""


def direct_weights(saved: Tensor) -> NDArray[np.float64]:
    """Return the weights of `planners.fleet.linear_scores` from those that are saved, ``(x,)``."""
    return QUICK * saved.detach().cpu().numpy().astype(np.float64)


class LinearHead(nn.Module):
    """The linear part of the scores."""

    def __init__(self) -> None:
        super().__init__()
        self.direct = nn.Parameter(torch.empty(len(FIRST_WEIGHTS)))
        self.log_sharpness = nn.Parameter(torch.tensor(SHARPNESS).log())
        self.set_direct(FIRST_WEIGHTS)

    def set_direct(self, weights: NDArray[np.float64]) -> None:
        """Set the weights of `planners.fleet.linear_scores`, ``(x,)``; without those of refusals these stay."""
        with torch.no_grad():
            self.direct[: len(weights)].copy_(torch.as_tensor(weights / QUICK, dtype=torch.float32))

    def forward(
        self, seen: Mapping[str, Tensor], menu: Any, listed: tuple[Tensor, Tensor, Tensor], ratio: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return scores of starts and of refusals, before what else the network adds.

        Args:
            seen: the observation.
            menu: `network.MenuTensors`.
            listed: episode, place of offer and entry of each start that is scored, ``(n,)`` each.
            ratio: its seconds of a step over those of the job's fastest entry, ``(n,)``.

        Returns:
            ``(n,)``, and of the waiting jobs on offer ``(b, v)``.
        """
        weights = QUICK * self.direct
        w, refuse = weights[:FIRST_REFUSAL], weights[FIRST_REFUSAL:]
        context, row = seen["context"], seen["offers"][:, : menu.num_waiting]
        part = PER_DEVICES / menu.num_devices
        free = context[:, ContextColumn.FREE, None]
        waiting = (1.0 + part * of_share(context[:, ContextColumn.WAITING, None])).log() - BUSY_WAITING
        running = (1.0 + part * of_share(context[:, ContextColumn.RUNNING, None])).log() - BUSY_RUNNING
        has_limit = row[:, :, OfferColumn.HAS_DEADLINE]
        work = (of_share(row[:, :, OfferColumn.DEVICE_SECONDS_LEFT]) / part).clamp(LEAST, MOST).log()
        least = of_share(row[:, :, OfferColumn.TIME_LEFT]).clamp(min=1e-6)
        limit = of_share(row[:, :, OfferColumn.DEADLINE]).clamp(min=1e-6)
        slack = has_limit * (limit / least).clamp(1.0, MOST).log()
        until = has_limit * limit.clamp(LEAST, MOST).log()
        refusals = refuse[RefusalFigure.ALWAYS] + refuse[RefusalFigure.WORK] * work + refuse[RefusalFigure.SLACK] * slack
        refusals = refusals + refuse[RefusalFigure.FREE] * free + refuse[RefusalFigure.WAITING] * waiting
        refusals = refusals + refuse[RefusalFigure.RUNNING] * running + refuse[RefusalFigure.WORK_WAITING] * work * waiting
        refusals = refusals + refuse[RefusalFigure.WORK_FREE] * work * free + refuse[RefusalFigure.LIMIT] * until
        of_job = w[StartFigure.ALWAYS] + w[StartFigure.WORK] * work + w[StartFigure.SLACK] * slack + w[StartFigure.FREE] * free
        of_job = of_job + w[StartFigure.WAITING] * waiting + w[StartFigure.RUNNING] * running
        of_job = of_job + w[StartFigure.WORK_WAITING] * work * waiting
        per_devices = w[StartFigure.DEVICES] + w[StartFigure.DEVICES_FREE] * free + w[StartFigure.DEVICES_WAITING] * waiting
        per_devices = (per_devices + w[StartFigure.DEVICES_RUNNING] * running).squeeze(1)
        per_waste = (w[StartFigure.WASTE] + w[StartFigure.WASTE_WAITING] * waiting).squeeze(1)
        e, offer, entry = listed
        kind = seen["offer_type"].long()[e, offer]
        time = (least * has_limit / limit)[e, offer] * ratio
        starts = of_job[e, offer] + w[StartFigure.TIME] * time.clamp(max=1.0) + per_waste[e] * menu.log_waste[kind, entry]
        starts = starts + per_devices[e] * (menu.share[kind, entry] * menu.num_devices / 8.0).log()
        sharpness = self.log_sharpness.exp()
        return sharpness * starts, sharpness * refusals
