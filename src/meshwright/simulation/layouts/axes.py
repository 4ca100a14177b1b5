"""The ranks that a message of a layout runs over, and how these are spread over hosts.

Legend: ``w`` ranks of a pipeline stage, ``g`` groups of a stage along an axis, ``k`` ranks of a group.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...costs.collectives.groups import Group
from ...costs.network import RankNetwork
from ...costs.process_groups.lanes import PlacedLayout, ProcessGroup
from ...costs.process_groups.rank_groups import group_size, stage_groups, stage_pairs
from ...plans.partition import Layout


@dataclass(frozen=True, eq=False)
class Axes:
    """The groups of a layout on its devices.

    Attributes:
        layout: how the job is cut.
        network: the device of each rank.
        placed: the groups on their devices, where that is how messages are priced.
    """

    layout: Layout
    network: RankNetwork
    placed: PlacedLayout | None = None
    _known: dict[tuple[str, int], tuple[NDArray[np.int64], NDArray[np.int64]]] = field(default_factory=dict, repr=False)

    def width(self, stage: int) -> int:
        """Return the ranks of a stage, ``w``."""
        return self.layout.stage_width(stage)

    def first(self, stage: int) -> int:
        """Return the first rank of a stage; of the number of stages that of ranks."""
        return self.layout.first_rank(stage)

    def size(self, axis: str, stage: int = 0) -> int:
        """Return the ranks of a group of a stage, ``k``."""
        return group_size(self.layout.at(stage), axis)

    def groups(self, axis: str, stage: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the groups of a stage.

        Args:
            axis: of a message, but neither ``pp`` nor ``ends``: see `pairs`.
            stage: pipeline stage.

        Returns:
            Ranks ``(g, k)``, and the group of each rank of the stage ``(w,)``.
        """
        key = axis, stage
        if key not in self._known:
            groups = stage_groups(self.layout.at(stage), axis)
            group_of = np.empty(self.width(stage), np.int64)
            group_of[groups] = np.arange(len(groups))[:, None]
            self._known[key] = groups + self.first(stage), group_of
        return self._known[key]

    def pairs(self, source: int, target: int) -> NDArray[np.int64]:
        """Return each rank of a stage with its counterpart on another one, ``(w, 2)``."""
        return stage_pairs(self.layout, source, target)

    def process_group(self, axis: str, ranks: NDArray[np.int64]) -> ProcessGroup | None:
        """Return the place of a group: its devices where hosts differ; None where equal hosts have unequal shares of it.

        The groups of the other ranks of its hosts act at the same time: in all stages, or for a transfer in the sender's.
        """
        if self.placed is not None:
            return self.placed.group(axis, ranks)
        hosts = self.network.host[ranks]
        shares = np.unique(hosts, return_counts=True)[1]
        if len(set(shares.tolist())) > 1:
            return None
        per_host = int(shares[0])
        stage, last = self.layout.stage_of_rank(int(ranks[0])), self.layout.stage_of_rank(int(ranks[-1]))
        among = slice(None) if stage == last else slice(self.first(stage), self.first(stage + 1))
        num_local = int((self.network.host[among] == hosts[0]).sum())
        mine = self.network.devices[ranks[hosts == hosts[0]] if per_host > 1 else ranks]
        stride = int(abs(mine[1] - mine[0])) if len(mine) > 1 else 1
        return Group(len(ranks), per_host, stride, max(1, num_local // per_host))
