"""Parts of an update of PPO, each for one gradient step."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...models.operators.graphs import OperatorGraphs
from ...models.operators.playing import PlayedPlacements


@dataclass(eq=False)
class PlacementMinibatch:
    """All episodes of some of an update's instances.

    Attributes:
        graphs: features of the instances.
        played: how the episodes went.
        beyond: how far above the mean of its instance each ended, relative to it, ``(E,)``.
        advantage: of each decision, ``(E, t)``; empty until it is worked out.
    """

    graphs: OperatorGraphs
    played: PlayedPlacements
    beyond: Tensor
    advantage: Tensor


def part_of(graphs: OperatorGraphs, played: PlayedPlacements, beyond: Tensor, part: NDArray[np.int64]) -> PlacementMinibatch:
    """The episodes of some instances.

    Args:
        graphs: features of all instances, ``b`` of them.
        played: all episodes.
        beyond: of all episodes, ``(E,)``.
        part: numbers of the instances among the ``b``, rising.
    """
    if len(part) == graphs.size:
        return PlacementMinibatch(graphs, played, beyond, torch.zeros(0))
    is_in = np.isin(played.of.numpy(), part)
    rows, of = torch.from_numpy(np.flatnonzero(is_in)), torch.from_numpy(np.searchsorted(part, played.of.numpy()[is_in]))
    parts = {each.name: getattr(played, each.name)[rows] for each in fields(played) if each.name not in ("of", "values")}
    few = PlayedPlacements(of=of, values=played.values[is_in], **parts)
    return PlacementMinibatch(graphs.some(torch.from_numpy(part)), few, beyond[rows], torch.zeros(0))
