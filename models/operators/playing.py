"""Policies at play: many episodes side by side, greedily or drawn.

Legend of shapes: ``b`` instances, ``E`` episodes, ``t`` decisions, ``m`` devices, ``f`` features of a candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...compiled import njit
from ...envs.operators.batch import PlacementBatch
from ...simulation.operators.decisions.candidates import NUM_CANDIDATE_FEATURES
from ...simulation.operators.decisions.placing import is_over, place_next
from .affinity import gathered
from .graphs import OperatorGraphs
from .policy import OperatorPolicy
from .step_score import PlacementDecisions, PlayedSteps


@dataclass(frozen=True, eq=False)
class PlayedPlacements(PlayedSteps):
    """Episodes that a policy played to their ends.

    Attributes:
        log_p: logarithm of each decision's probability, ``(E, t)``.
        values: in lower bounds of the instance; infinite where the episode ended before every op had a device, ``(E,)``.
    """

    log_p: Tensor
    values: NDArray[np.float64]


@torch.no_grad()
def play(
    policy: OperatorPolicy,
    graphs: OperatorGraphs,
    batch: PlacementBatch,
    instances: NDArray[np.int64],
    *,
    samples: int = 1,
    generator: torch.Generator | None = None,
) -> PlayedPlacements:
    """Place instances, each some times.

    Args:
        policy: that decides.
        graphs: features of these instances.
        batch: whose first ``E`` episodes are used.
        instances: their numbers in the batch, ``(b,)``.
        samples: episodes of each instance, which follow each other.
        generator: for drawing; None takes the likeliest device each time.
    """
    of = np.repeat(np.arange(len(instances)), samples)
    numbers = instances[of]
    count_e, m = len(of), graphs.devices.shape[1]
    num_steps = int(batch.stacked.num_groups[numbers].max())
    encoded = policy.encode(graphs)
    episodes, instance = torch.arange(count_e), torch.from_numpy(of)
    ops = torch.zeros(count_e, num_steps, dtype=torch.long)
    actions, log_p = torch.zeros_like(ops), torch.zeros(count_e, num_steps)
    is_live = torch.zeros(count_e, num_steps, dtype=torch.bool)
    candidates = torch.zeros(count_e, num_steps, m, NUM_CANDIDATE_FEATURES)
    can_place = torch.zeros(count_e, num_steps, m, dtype=torch.bool)
    placed, count = torch.zeros(count_e, m, encoded.op_h.shape[2]), torch.zeros(count_e, m)
    group, on = graphs.group[instance], torch.zeros(count_e, graphs.group.shape[1], m)
    chosen = np.zeros(batch.num_episodes, np.int64)
    batch.begin(numbers)
    for step in range(num_steps):
        live = torch.from_numpy(batch.is_live[:count_e].copy())
        now_ops = torch.from_numpy(batch.lead[:count_e].copy())
        now = torch.from_numpy(batch.state.candidates[:count_e, :m].copy())
        can = torch.from_numpy(batch.state.can_place[:count_e, :m].copy()) | ~live[:, None]
        near = None if encoded.near is None else gathered(encoded.near, instance, now_ops[:, None], on)
        given = (placed[:, None], count[:, None], now[:, None], can[:, None], near)
        logits = policy.decide(encoded, PlacementDecisions(instance, now_ops[:, None], *given))[0][:, 0]
        action = _drawn(logits, generator)
        ops[:, step], actions[:, step], is_live[:, step] = now_ops, action, live
        log_p[:, step] = torch.log_softmax(logits, dim=1)[episodes, action]
        candidates[:, step], can_place[:, step] = now, can
        placed[episodes, action] += encoded.op_h[instance, now_ops] * live[:, None]
        count[episodes, action] += live.float()
        together = (group == group[episodes, now_ops][:, None]) & live[:, None]
        on[episodes, :, action] += together.float()
        chosen[:count_e] = action.numpy()
        batch.step(chosen)
    values = np.where(batch.is_dead[:count_e], np.inf, batch.state.value_s[:count_e] / batch.stacked.scale_s[numbers])
    return PlayedPlacements(instance, ops, actions, is_live, candidates, can_place, log_p, values)


def replayed(
    graphs: OperatorGraphs,
    batch: PlacementBatch,
    numbers: NDArray[np.int64],
    devices: Sequence[NDArray[np.int64]],
) -> tuple[PlayedSteps, Tensor]:
    """The decisions that lead to given placements.

    Args:
        graphs: features of the instances.
        batch: whose first ``E`` episodes are used.
        numbers: of the instances in the batch, ``(E,)``.
        devices: device of each op of each, ``(n,)``.

    Returns:
        The decisions, and where the wanted device was allowed, ``(E, t)``; elsewhere the first one allowed was taken.
    """
    count_e, m = len(numbers), graphs.devices.shape[1]
    num_steps = int(batch.stacked.num_groups[numbers].max())
    wanted = np.zeros((count_e, graphs.group.shape[1]), np.int64)
    for row, each in enumerate(devices):
        wanted[row, : len(each)] = each
    ops, actions = np.zeros((count_e, num_steps), np.int64), np.zeros((count_e, num_steps), np.int64)
    is_live, is_wanted = np.zeros((count_e, num_steps), np.bool_), np.zeros((count_e, num_steps), np.bool_)
    candidates = np.zeros((count_e, num_steps, m, NUM_CANDIDATE_FEATURES), np.float32)
    can_place = np.ones((count_e, num_steps, m), np.bool_)
    batch.begin(numbers)
    made = (ops, actions, is_live, candidates, can_place)
    _replay(batch.stacked, batch.state, numbers, wanted, *made, is_wanted)
    batch.is_live[:count_e] = False
    placed = dict(zip(("ops", "actions", "is_live", "candidates", "can_place"), map(torch.from_numpy, made), strict=True))
    return PlayedSteps(of=torch.arange(count_e), **placed), torch.from_numpy(is_wanted)


def _drawn(logits: Tensor, generator: torch.Generator | None) -> Tensor:
    """The likeliest device, or one drawn by Gumbel's trick."""
    if generator is None:
        return logits.argmax(dim=-1)
    uniform = torch.rand(logits.shape, generator=generator).clamp(1e-9, 1.0 - 1e-7)
    return (logits - torch.log(-torch.log(uniform))).argmax(dim=-1)


@njit
def _replay(stacked, state, numbers, wanted, ops, actions, is_live, candidates, can_place, is_wanted):  # type: ignore[no-untyped-def]
    """Give each group the device that is wanted for its first op, where it may have it, and write down every decision."""
    m = candidates.shape[2]
    for e in range(len(numbers)):
        step = 0
        while not is_over(stacked, state, e):
            op = stacked.lead[numbers[e], state.num_decided[e]]
            device = wanted[e, op]
            if not state.can_place[e, device]:
                device = -1
                for other in range(stacked.num_devices[numbers[e]]):
                    if device < 0 and state.can_place[e, other]:
                        device = other
            if device < 0:
                break
            ops[e, step], actions[e, step], is_live[e, step] = op, device, True
            is_wanted[e, step] = device == wanted[e, op]
            for other in range(m):
                can_place[e, step, other] = state.can_place[e, other]
                for f in range(candidates.shape[3]):
                    candidates[e, step, other, f] = state.candidates[e, other, f]
            place_next(stacked, state, e, device)
            step += 1
