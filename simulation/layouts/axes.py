"""Which ranks a message of a layout runs over, and how these stand on their hosts.

Legend: ``w`` ranks of a pipeline stage, ``g`` groups of a stage along an axis, ``k`` ranks of a group.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...costs.layouts.wires import Group
from ...costs.network import RankNetwork
from ...plans.partition import Layout


@dataclass(frozen=True, eq=False)
class Axes:
    """The groups of a layout on its devices.

    Attributes:
        layout: how the job is cut.
        network: the device of each rank.
    """

    layout: Layout
    network: RankNetwork
    _known: dict[tuple[str, int], tuple[NDArray[np.int64], NDArray[np.int64]]] = field(default_factory=dict, repr=False)

    @property
    def width(self) -> int:
        """Ranks of a stage, ``w``."""
        return self.layout.world // self.layout.pp

    def size(self, axis: str) -> int:
        """Ranks of a group, ``k``."""
        layout = self.layout
        same = layout.dp * layout.cp
        return {
            "tp": layout.tp,
            "cp": layout.cp,
            "ep": layout.ep,
            "dp_cp": same,
            "expert_dp": same // layout.ep,
            "shard": layout.num_shards,
            "replica": same // layout.num_shards,
            "pp": min(2, layout.pp),
            "ends": min(2, layout.pp),
        }[axis]

    def groups(self, axis: str, stage: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The groups of a stage.

        Args:
            axis: of a message, but neither ``pp`` nor ``ends``: see `pairs`.
            stage: pipeline stage.

        Returns:
            Ranks ``(g, k)``, and the group of each rank of the stage ``(w,)``.
        """
        key = axis, stage
        if key not in self._known:
            groups = self._groups(axis)
            group_of = np.empty(self.width, np.int64)
            group_of[groups] = np.arange(len(groups))[:, None]
            self._known[key] = groups + stage * self.width, group_of
        return self._known[key]

    def pairs(self, source: int, target: int) -> NDArray[np.int64]:
        """Each rank of a stage with its counterpart on another one, ``(w, 2)``."""
        ranks = np.arange(self.width)
        return np.stack([ranks + source * self.width, ranks + target * self.width], axis=1)

    def shape(self, ranks: NDArray[np.int64]) -> Group | None:
        """How a group stands on hosts; None where its hosts have unequal shares of it.

        Beside it, the groups of the other ranks of its hosts do the same at the same time, those of other stages too; beside
        a transfer between stages those of the sender's stage.
        """
        hosts = self.network.host[ranks]
        shares = np.unique(hosts, return_counts=True)[1]
        if len(set(shares.tolist())) > 1:
            return None
        per_host = int(shares[0])
        stage, last = int(ranks[0]) // self.width, int(ranks[-1]) // self.width
        among = slice(None) if stage == last else slice(stage * self.width, (stage + 1) * self.width)
        beside = int((self.network.host[among] == hosts[0]).sum())
        mine = self.network.devices[ranks[hosts == hosts[0]]]
        stride = int(abs(mine[1] - mine[0])) if per_host > 1 else 1
        return Group(len(ranks), per_host, stride, max(1, beside // per_host))

    def _groups(self, axis: str) -> NDArray[np.int64]:
        layout, same = self.layout, self.layout.dp * self.layout.cp
        ranks = np.arange(self.width)
        if axis == "tp":
            return ranks.reshape(-1, layout.tp)
        if axis == "dp_cp":
            return ranks.reshape(same, layout.tp).T
        near = {"cp": layout.cp, "ep": layout.ep, "shard": layout.num_shards}
        if axis in near:  # runs of neighbours
            return np.swapaxes(ranks.reshape(-1, near[axis], layout.tp), 1, 2).reshape(-1, near[axis])
        step = {"expert_dp": layout.ep, "replica": layout.num_shards}[axis]  # those that are so far apart
        return ranks.reshape(-1, step * layout.tp).T
