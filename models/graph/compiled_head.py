"""The decisions of a policy in compiled code: an instance is encoded once by PyG, and every decision on it takes microseconds.

Computes the scores of `action_head.ActionHead`, for any world. Matrices are transposed, so that their rows are read in order.

Legend of shapes: ``E`` episodes, ``n`` members, ``N`` nodes of all slots, ``g`` groups, ``s`` nodes of an action, ``h`` width,
``f`` features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...compiled import njit
from ...numba_records import by_reference
from ...worlds.typed_graph import DecisionArrays, InstanceGraph
from ..network import NOT_OFFERED
from .graph_network import GRAPH, GraphNetwork


@by_reference
class EncodedInstance(NamedTuple):
    """Arrays that are constant over the decisions on one instance.

    Attributes:
        member: embeddings of members, ``(n, h)``.
        query: of members, ``(n, h)``.
        nodes: addends of each node to the first layer, one slot after another, ``(N, h)``.
        first: row of each slot's first node, ``(s,)``.
        pools: of each slot that is a group, from mean and share of its members to the first layer, ``(s, h + 1, h)``.
        is_group: which slots are, ``(s,)``.
        known: the constant part of the context, ``(h,)``.
        left: from the mean of members without a group to the context, ``(h, h)``.
        state: from features of the episode to the context, ``(f, h)``.
        shift: from the context to the first layer, its bias as the last row, ``(h + 1, h)``.
        features: of actions, to the first layer, ``(f, h)``.
        middle: of the second layer, its bias as the last row, ``(h + 1, h)``.
        among: from the mean of all actions' first layers to the second, ``(h, h)``.
        out: of the last layer, ``(h,)``.
        direct: of features, ``(f,)``.
        key: from the mean of a group's members and the context to its key, ``(2, h, h)``.
    """

    member: NDArray[np.float32]
    query: NDArray[np.float32]
    nodes: NDArray[np.float32]
    first: NDArray[np.int64]
    pools: NDArray[np.float32]
    is_group: NDArray[np.bool_]
    known: NDArray[np.float32]
    left: NDArray[np.float32]
    state: NDArray[np.float32]
    shift: NDArray[np.float32]
    features: NDArray[np.float32]
    middle: NDArray[np.float32]
    among: NDArray[np.float32]
    out: NDArray[np.float32]
    direct: NDArray[np.float32]
    key: NDArray[np.float32]


@by_reference
class Pooled(NamedTuple):
    """Members of each group in each episode, brought up to date decision by decision; group 0 is that of members without one.

    Attributes:
        member: group of each member when it was last looked at, from 0, ``(E, n)``.
        sums: of the embeddings of its members, ``(E, g + 1, h)``.
        counts: of its members, ``(E, g + 1)``.
        added: what a group's mean adds to the first layer, by slot, ``(E, s, g + 1, h)``.
        keys: what it adds to its key, ``(E, g + 1, h)``.
        is_stale: whether both are to be worked out anew, ``(E, g + 1)``.
    """

    member: NDArray[np.int64]
    sums: NDArray[np.float32]
    counts: NDArray[np.float32]
    added: NDArray[np.float32]
    keys: NDArray[np.float32]
    is_stale: NDArray[np.bool_]


@torch.inference_mode()
def encoded_instances(network: GraphNetwork, graphs: Sequence[InstanceGraph]) -> list[EncodedInstance]:
    """Return instances as the network has read them."""
    spec, head, h = network.spec, network.head, network.settings.hidden
    encoded = network.encode(graphs)
    w, f = len(spec.whole), len(spec.state)
    left, mean, whole, state = torch.split(head.context.weight, [h, h, w, f], dim=1)
    pools = torch.zeros(len(spec.slots), h + 1, h)
    for slot, is_group in enumerate(head.is_group):
        if is_group:
            pools[slot] = head.pools[slot].get_parameter("weight").T
    shared = {
        "pools": _array(pools),
        "is_group": np.array(head.is_group),
        "left": _array(left.T),
        "state": _array(state.T),
        "shift": _array(torch.cat([head.shift.weight.T, head.shift.bias[None]])),
        "features": _array(head.features.weight.T),
        "middle": _array(torch.cat([head.middle.weight.T, head.middle.bias[None]])),
        "among": _array(head.among.weight.T),
        "out": _array(head.out.weight[0]),
        "direct": _array(head.direct.weight[0]),
        "key": _array(head.key.weight.T.reshape(2, h, h)),
    }
    first = {name: ptr.tolist() for name, ptr in encoded.first.items()}

    def rows(table: torch.Tensor, kind: str, row: int) -> torch.Tensor:
        return table[first[kind][row] : first[kind][row + 1]]

    result = []
    for row in range(len(graphs)):
        own = [rows(table, kind, row) for table, kind in zip(encoded.slots, spec.slots, strict=True)]
        members = rows(encoded.members, spec.member, row)
        known = head.context.bias + mean @ members.mean(dim=0) + whole @ encoded.whole[row]
        begins = np.cumsum([0, *(len(each) for each in own[:-1])])
        result.append(
            EncodedInstance(
                member=_array(members),
                query=_array(rows(encoded.query, spec.member, row) / h**0.5),
                nodes=_array(torch.cat(own)),
                first=begins.astype(np.int64),
                known=_array(known),
                **shared,
            )
        )
    return result


def _array(tensor: torch.Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(tensor.detach().cpu().numpy(), np.float32)


def pooled(encoded: EncodedInstance, decisions: DecisionArrays, num_groups: int) -> Pooled:
    """Return the groups of episodes in which no member has joined one yet."""
    (n, h), e, s = encoded.member.shape, len(decisions.mask), len(encoded.first)
    sums = np.zeros((e, num_groups + 1, h), np.float32)
    sums[:, 0] = encoded.member.sum(axis=0)
    counts = np.zeros((e, num_groups + 1), np.float32)
    counts[:, 0] = n
    added, keys = np.zeros((e, s, num_groups + 1, h), np.float32), np.zeros((e, num_groups + 1, h), np.float32)
    return Pooled(np.zeros((e, n), np.int64), sums, counts, added, keys, np.ones(counts.shape, np.bool_))


@torch.no_grad()
def scores_and_values(network: GraphNetwork, seen: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what the network's ``forward`` does, without gradients and many times faster for few decisions.

    Instances are encoded once until `GraphNetwork.forget`.
    """
    arrays = {name: values.numpy() for name, values in seen.items()}
    names = [arrays[name] for name in ("member", "state", "nodes", "features")]
    decisions = DecisionArrays._make([*names, arrays["action_mask"] > 0])
    numbers, of = np.unique(arrays[GRAPH][:, 0], return_inverse=True)
    count, h = len(of), network.settings.hidden
    scores, hidden = np.full(decisions.mask.shape, NOT_OFFERED, np.float32), np.zeros((count, 2 * h), np.float32)
    for graph, number in enumerate(numbers.tolist()):
        each = network.cached(number, partial(_encoded, network, number))
        rows = np.flatnonzero(of == graph)
        own = DecisionArrays._make(array[rows] for array in decisions)
        groups = pooled(each, own, 1 + int(max(own.nodes[:, :, 1].max(), own.member.max(), 0)))
        result, values = np.zeros(own.mask.shape, np.float32), np.zeros((len(rows), 2 * h), np.float32)
        is_live, none = own.mask.any(axis=1), np.zeros(own.mask.shape, np.float32)
        decide(each, groups, own, is_live, none, 1.0, np.zeros(len(rows), np.int64), result, values)
        scores[rows], hidden[rows] = np.where(own.mask, result, np.float32(NOT_OFFERED)), values
    return torch.from_numpy(scores), network.head.value(torch.from_numpy(hidden))[:, 0]


def _encoded(network: GraphNetwork, number: int) -> EncodedInstance:
    return encoded_instances(network, network.bank.some([number]))[0]


@njit
def decide(encoded, groups, decisions, is_live, noise, sharpness, actions, scores, hidden):  # type: ignore[no-untyped-def]
    """Choose an action in each live episode on one instance.

    Args:
        encoded: the instance, an `EncodedInstance`.
        groups: members of each group, `Pooled`; brought up to date.
        decisions: the decisions, `worlds.typed_graph.DecisionArrays`.
        is_live: where there is one, ``(E,)``.
        noise: added to scores, ``(E, a)``; Gumbel's noise draws actions by their probabilities, none takes the likeliest.
        sharpness: scores are multiplied by it.
        actions: is written to, ``(E,)``.
        scores: is written to, ``(E, a)``; minus infinity where an action is not possible.
        hidden: is written to, ``(E, 2 h)``: what the head's ``value`` reads.
    """
    for e in range(len(is_live)):
        if is_live[e]:
            _update(encoded, groups, e, decisions.member[e])
            _score(encoded, groups, e, decisions, scores[e], hidden[e])
            best, most = -1, -np.inf
            for action in range(scores.shape[1]):
                if decisions.mask[e, action] and (best < 0 or sharpness * scores[e, action] + noise[e, action] > most):
                    best, most = action, sharpness * scores[e, action] + noise[e, action]
            actions[e] = best


@njit
def _add(total, row, weight):  # type: ignore[no-untyped-def]
    for k in range(len(total)):
        total[k] += weight * row[k]


@njit
def _update(encoded, groups, e, member):  # type: ignore[no-untyped-def]
    """Move members that have joined another group since the last decision, and work out what has changed."""
    h = encoded.member.shape[1]
    for node in range(len(groups.member[e])):
        old, new = groups.member[e, node], member[node] + 1
        if old != new:
            groups.member[e, node] = new
            _add(groups.sums[e, old], encoded.member[node], np.float32(-1.0))
            _add(groups.sums[e, new], encoded.member[node], np.float32(1.0))
            groups.counts[e, old] -= 1.0
            groups.counts[e, new] += 1.0
            groups.is_stale[e, old] = True
            groups.is_stale[e, new] = True
    n = np.float32(len(groups.member[e]))
    for group in range(1, groups.counts.shape[1]):  # nothing is asked of members without a group but their mean
        if not groups.is_stale[e, group]:
            continue
        groups.is_stale[e, group] = False
        groups.keys[e, group] = np.float32(0.0)
        per = np.float32(1.0) / max(groups.counts[e, group], np.float32(1.0))
        for k in range(h):
            _add(groups.keys[e, group], encoded.key[0, k], per * groups.sums[e, group, k])
        for slot in range(len(encoded.first)):
            if encoded.is_group[slot]:
                groups.added[e, slot, group] = np.float32(0.0)
                for k in range(h):
                    _add(groups.added[e, slot, group], encoded.pools[slot, k], per * groups.sums[e, group, k])
                _add(groups.added[e, slot, group], encoded.pools[slot, h], groups.counts[e, group] / n)


@njit
def _score(encoded, groups, e, decisions, scores, hidden):  # type: ignore[no-untyped-def]
    """Write the score of each possible action of an episode."""
    num_actions, h = decisions.mask.shape[1], encoded.member.shape[1]
    context, shift, drawn = encoded.known.copy(), encoded.shift[h].copy(), np.zeros(h, np.float32)
    per = np.float32(1.0) / max(groups.counts[e, 0], np.float32(1.0))
    for k in range(h):
        _add(context, encoded.left[k], per * groups.sums[e, 0, k])
    for f in range(len(encoded.state)):
        _add(context, encoded.state[f], decisions.state[e, f])
    for k in range(h):
        hidden[k], hidden[h + k] = 0.0, max(context[k], np.float32(0.0))
        if context[k] > 0.0:
            _add(shift, encoded.shift[k], context[k])
            _add(drawn, encoded.key[1, k], context[k])
    rows, mean, count = np.zeros((num_actions, h), np.float32), np.zeros(h, np.float32), 0
    for action in range(num_actions):
        scores[action] = -np.inf
        if not decisions.mask[e, action]:
            continue
        count += 1
        row = rows[action]
        row[:] = shift
        for slot in range(len(encoded.first)):
            node = decisions.nodes[e, action, slot]
            if node >= 0:
                _add(row, encoded.nodes[encoded.first[slot] + node], np.float32(1.0))
                if encoded.is_group[slot]:
                    _add(row, groups.added[e, slot, node + 1], np.float32(1.0))
        for f in range(decisions.features.shape[2]):
            if decisions.features[e, action, f] != 0.0:
                _add(row, encoded.features[f], decisions.features[e, action, f])
        for k in range(h):
            row[k] = max(row[k], np.float32(0.0))
            mean[k] += row[k]
    second = encoded.middle[h].copy()
    for k in range(h):
        _add(second, encoded.among[k], mean[k] / np.float32(max(1, count)))
    last = np.zeros(h, np.float32)
    for action in range(num_actions):
        if not decisions.mask[e, action]:
            continue
        last[:] = second
        row, score = rows[action], np.float32(0.0)
        for k in range(h):
            if row[k] > 0.0:
                _add(last, encoded.middle[k], row[k])
        member, group = decisions.nodes[e, action, 0], decisions.nodes[e, action, 1]
        for k in range(h):
            hidden[k] += max(last[k], np.float32(0.0)) / np.float32(count)
            score += encoded.out[k] * max(last[k], np.float32(0.0))
            score += encoded.query[member, k] * (groups.keys[e, group + 1, k] + drawn[k])
        for f in range(len(encoded.direct)):
            score += encoded.direct[f] * decisions.features[e, action, f]
        scores[action] = score


class PlayedNetwork(GraphNetwork):
    """Decides in compiled code where no gradients are wanted and graphs do not change."""

    def forward(self, seen: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """See `GraphNetwork`."""
        if torch.is_grad_enabled() or self.spec.changes or seen["state"].device.type != "cpu":
            return super().forward(seen)
        return scores_and_values(self, seen)
