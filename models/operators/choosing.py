"""Episodes in which the policy chooses ops as well as devices: the choices, recorded, and the placement so far.

Legend of shapes: ``E`` episodes, ``t`` decisions, ``n`` ops, ``m`` devices, ``r`` ops that may be chosen, ``h`` width.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...envs.operators.batch import PlacementBatch
from ...simulation.operators.schedules import append_in_order, arrays, best_order
from .graphs import OperatorGraphs
from .step_score import PlayedChoices, PlayedSteps


class Standing:
    """The placement so far, as the policy reads it.

    Attributes:
        placed: sum of the embeddings of the ops on each device, ``(E, m, h)``.
        count: their number, ``(E, m)``.
        on: 1 where an op stands, those of its group with it, ``(E, n, m)``.
    """

    def __init__(self, graphs: OperatorGraphs, of: Tensor, op_h: Tensor) -> None:
        count_e, (n, m) = len(of), (graphs.group.shape[1], graphs.devices.shape[1])
        self._of, self._op_h, self._group = of, op_h, graphs.group[of]
        self.placed, self.count = torch.zeros(count_e, m, op_h.shape[2]), torch.zeros(count_e, m)
        self.on = torch.zeros(count_e, n, m)

    def put(self, ops: Tensor, devices: Tensor, was_on: Tensor, live: Tensor) -> None:
        """Move ops to devices in the episodes that are live; ``(E,)`` each."""
        episodes = torch.arange(len(ops))
        together = (self._group == self._group[episodes, ops][:, None]).float()
        for on, sign in ((was_on, -1.0), (devices, 1.0)):
            amount = sign * (live & (on >= 0)).float()
            self.placed[episodes, on] += self._op_h[self._of, ops] * amount[:, None]
            self.count[episodes, on] += amount
            self.on[episodes, :, on] += together * amount[:, None]


class RecordedChoices:
    """Decisions of the first ``E`` episodes of a batch, one after another: `look`, `pick`, `choose`.

    Args:
        batch: whose episodes have begun.
        graphs: features of the instances.
        of: instance of each episode within the graphs, ``(E,)``.
    """

    def __init__(self, batch: PlacementBatch, graphs: OperatorGraphs, of: Tensor) -> None:
        self._batch, self._of = batch, of
        self._n, self._m = graphs.group.shape[1], graphs.devices.shape[1]
        self._steps: list[tuple[Tensor, ...]] = []

    def look(self) -> tuple[PlayedChoices, Tensor]:
        """The ops that may be chosen, ``t`` being 1, and which episodes are live, ``(E,)``; of others the first op is open."""
        state, count_e = self._batch.state, len(self._of)
        self._live = self._batch.is_live[:count_e].copy()
        is_open = state.is_open[:count_e, : self._n] & self._live[:, None]
        is_open[~self._live, 0] = True
        self._open = np.argsort(~is_open, axis=1, kind="stable")[:, : is_open.sum(axis=1).max()]
        features = state.op_features[np.arange(count_e)[:, None], self._open]
        nobody = torch.zeros(count_e, 1, dtype=torch.long)
        arrays_of = (self._open, np.take_along_axis(is_open, self._open, 1), features)
        open_ops, is_open_op, told = (torch.from_numpy(each)[:, None] for each in arrays_of)
        self._among = PlayedChoices(open_ops, is_open_op, told, nobody, nobody)
        return self._among, torch.from_numpy(self._live)

    def pick(self, picked: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Choose ops by their places among the open ones: these, devices before, candidates ``(E, m, f)``, devices allowed."""
        state, episodes = self._batch.state, np.arange(len(self._of))
        ops = self._open[episodes, picked.numpy()]
        instances = state.instance[episodes]
        was_on = state.device_of[episodes, self._batch.stacked.group[instances, ops]]
        candidates = torch.from_numpy(state.op_candidates[episodes, ops, : self._m])
        can = torch.from_numpy(state.op_can[episodes, ops, : self._m] | ~self._live[:, None])
        self._picked = picked, torch.from_numpy(ops), torch.from_numpy(was_on), candidates, can
        return self._picked[1:]

    def choose(self, devices: Tensor) -> None:
        """Carry out the decisions and record them."""
        picked, ops, was_on, candidates, can = self._picked
        among = self._among
        told = among.open_ops[:, 0], among.is_open[:, 0], among.features[:, 0]
        self._steps.append((ops, devices, torch.from_numpy(self._live), candidates, can, *told, picked, was_on))
        chosen = np.zeros((2, self._batch.num_episodes), np.int64)
        chosen[:, : len(ops)] = devices.numpy(), ops.numpy()
        self._batch.step(*chosen)

    def played(self) -> PlayedSteps:
        """All decisions so far."""
        columns = [list(each) for each in zip(*self._steps, strict=True)]
        most = max(each.shape[1] for each in columns[5])
        for at in (5, 6, 7):
            columns[at] = [_widened(each, most) for each in columns[at]]
        ops, actions, is_live, candidates, can, *choices = (torch.stack(each, dim=1) for each in columns)
        return PlayedSteps(self._of, ops, actions, is_live, candidates, can, PlayedChoices(*choices))


def _widened(values: Tensor, most: int) -> Tensor:
    wider = torch.zeros(len(values), most, *values.shape[2:], dtype=values.dtype)
    wider[:, : values.shape[1]] = values
    return wider


def replayed_choices(
    graphs: OperatorGraphs,
    batch: PlacementBatch,
    numbers: NDArray[np.int64],
    devices: Sequence[NDArray[np.int64]],
    *,
    by_rank: bool = False,
) -> tuple[PlayedSteps, Tensor]:
    """`playing.replayed` where the policy chooses ops; the steps of refinement are left out.

    With ``by_rank`` ops are taken by falling upward rank.
    """
    count_e, n = len(numbers), graphs.group.shape[1]
    wanted, place = np.zeros((count_e, n), np.int64), np.full((count_e, n), np.inf)
    for row, (number, each) in enumerate(zip(numbers, devices, strict=True)):
        instance = batch.instances[number]
        starts, ends = append_in_order(arrays(instance), each, best_order(instance, each))
        wanted[row, : len(each)] = each
        # An op of no time comes before those that wait for it.
        place[row, : len(each)] = batch.stacked.position[number, : len(each)] if by_rank else starts + 1e-9 * ends
    batch.begin(numbers)
    made, is_wanted = RecordedChoices(batch, graphs, torch.arange(count_e)), []
    for _ in range(int(batch.stacked.num_groups[numbers].max())):
        batch.is_live[:count_e] &= batch.state.num_decided[:count_e] < batch.stacked.num_groups[numbers]
        if not batch.is_live[:count_e].any():
            break
        among, _ = made.look()
        places = np.take_along_axis(place, among.open_ops[:, 0].numpy(), 1)
        picked = np.where(among.is_open[:, 0].numpy(), places, np.inf).argmin(axis=1)
        ops, _, _, can = made.pick(torch.from_numpy(picked))
        device = torch.from_numpy(wanted[np.arange(count_e), ops.numpy()])
        is_allowed = can.gather(1, device[:, None])[:, 0]
        is_wanted.append(is_allowed & torch.from_numpy(batch.is_live[:count_e].copy()))
        made.choose(torch.where(is_allowed, device, can.long().argmax(dim=1)))
    batch.is_live[:count_e] = False
    return made.played(), torch.stack(is_wanted, dim=1)
