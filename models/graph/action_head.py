"""`ActionHead`: a score for each action of a decision, from embeddings of its nodes and its own features.

Legend of shapes: ``B`` decisions, ``R`` possible actions of all of them, ``N`` nodes of a type in all graphs. ``g`` groups,
``h`` width, ``f`` features.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...worlds.typed_graph import WorldSpec


class Pools(NamedTuple):
    """Members of each group.

    Attributes:
        mean: of their embeddings, ``(B, g, h)``; 0 of a group without any.
        share: of all members, ``(B, g)``.
        left: mean embedding of the members without a group, ``(B, h)``.
    """

    mean: Tensor
    share: Tensor
    left: Tensor


class PossibleActions(NamedTuple):
    """The possible actions of decisions, one after another.

    Attributes:
        of: decision of each, ``(R,)``.
        nodes: sum over slots of what their nodes add to the first layer, ``(R, h)``.
        query: of each action's member, ``(R, h)``.
        groups: group of each slot, ``(R, s)``; -1 where there is none.
        features: ``(R, f)``.
        num_decisions: ``B``.
    """

    of: Tensor
    nodes: Tensor
    query: Tensor
    groups: Tensor
    features: Tensor
    num_decisions: int


class ActionHead(nn.Module):
    """Scores actions with shared weights, however many there are; an untrained one follows the world's linear prior.

    ``score = direct(x) + out(relu(middle(u) + among(mean u))) + query(h_0) . key(pool_1, c)``. ``u`` is the ReLU of a linear map
    of nodes' embeddings, pooled members of groups among the nodes, features ``x`` and context ``c``.

    Args:
        spec: of the world.
        h: width.
    """

    def __init__(self, spec: WorldSpec, h: int) -> None:
        super().__init__()
        self.is_group = [each == spec.group for each in spec.slots]
        self.context = nn.Linear(2 * h + len(spec.whole) + len(spec.state), h)
        self.nodes = nn.ModuleList(nn.Linear(h, h, bias=False) for _ in spec.slots)
        self.pools = nn.ModuleList(nn.Linear(h + 1, h, bias=False) if each else nn.Identity() for each in self.is_group)
        self.features = nn.Linear(len(spec.action), h, bias=False)
        self.shift = nn.Linear(h, h)
        self.middle = nn.Linear(h, h)
        self.among = nn.Linear(h, h, bias=False)
        self.out = nn.Linear(h, 1, bias=False)
        self.direct = nn.Linear(len(spec.action), 1, bias=False)
        self.query = nn.Linear(h, h, bias=False)
        self.key = nn.Linear(2 * h, h, bias=False)
        last = nn.Linear(h, 1)
        self.value = nn.Sequential(nn.Linear(2 * h, h), nn.ReLU(), last)
        with torch.no_grad():
            for begins_at_zero in (self.out, self.query, self.direct, last):
                begins_at_zero.weight.zero_()
            last.bias.zero_()
            for name, weight in spec.prior.items():
                self.direct.weight[0, spec.action.index(name)] = weight

    def forward(self, context: Tensor, pools: Pools, actions: PossibleActions) -> tuple[Tensor, Tensor]:
        """Return the scores of possible actions ``(R,)`` and the values of decisions ``(B,)``.

        Args:
            context: mean embedding of all members, features of instance and episode, ``(B, h + f)``.
            pools: members of each group.
            actions: that are possible.
        """
        c = torch.relu(self.context(torch.cat([pools.left, context], dim=1)))
        of, count = actions.of, actions.num_decisions
        of_mean, of_context = self.key.weight.chunk(2, dim=1)
        u = self.features(actions.features) + self.shift(c).index_select(0, of) + actions.nodes
        for slot, is_group in enumerate(self.is_group):
            if is_group:
                pooled = self.pools[slot](torch.cat([pools.mean, pools.share[..., None]], dim=2))
                u = u + _of_groups(pooled, of, actions.groups[:, slot])
        u = torch.relu(u)
        last = torch.relu(self.middle(u) + self.among(_means(u, of, count)).index_select(0, of))
        key = _of_groups(pools.mean @ of_mean.T + (c @ of_context.T)[:, None], of, actions.groups[:, 1])
        drawn = (actions.query * key).sum(dim=1) / key.shape[1] ** 0.5
        scores = self.out(last)[:, 0] + self.direct(actions.features)[:, 0] + drawn
        value = self.value(torch.cat([_means(last, of, count), c], dim=1))
        return scores, value[:, 0]


def _of_groups(rows: Tensor, of: Tensor, groups: Tensor) -> Tensor:
    """Return the row of a group of each action, ``(R, h)``; 0 where there is none."""
    table = nn.functional.pad(rows, (0, 0, 1, 0))  # a row of zeros before the first group
    return table.flatten(0, 1).index_select(0, of * table.shape[1] + groups + 1)


def _means(rows: Tensor, of: Tensor, count: int) -> Tensor:
    """Return the means of rows by decision, ``(B, h)``; 0 where a decision has no row."""
    sums = rows.new_zeros(count, rows.shape[1]).index_add(0, of, rows)
    return sums / torch.bincount(of, minlength=count).clamp(min=1)[:, None]
