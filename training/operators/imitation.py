"""The first stage of a one-shot policy: to find likely what a search found good.

Ops that should share a device are found by many decisions that agree; trying devices op by op hardly ever meets them. So a
search places the training instances first, and the policy learns its placements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ...models.operators.graphs import InstanceFeatures, batch
from ...models.operators.policy import OneShotPolicy
from ...planners.operators.request import PlacementRequest
from ...planners.operators.search.annealing import anneal
from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import OperatorObjective
from .settings import ImitatedSearchSettings


def searched(
    instances: Sequence[OperatorInstance],
    objective: OperatorObjective,
    chosen: ImitatedSearchSettings,
    progress: Callable[[int, int], None],
) -> list[NDArray[np.int64]]:
    """Device of each op of each instance, as annealing found it in so many moves; the same for the same instances."""
    found = []
    for number, instance in enumerate(instances):
        moves = chosen.moves_per_op * instance.num_ops
        found.append(anneal(instance, PlacementRequest(objective=objective, seed=0), num_steps=moves).device_of)
        if number % 50 == 0:
            progress(number, len(instances))
    return found


def imitate_search(
    policy: OneShotPolicy,
    features: Sequence[InstanceFeatures],
    devices: Sequence[NDArray[np.int64]],
    chosen: ImitatedSearchSettings,
    rng: np.random.Generator,
) -> float:
    """Raise the probability of the devices that a search chose; the mean cross-entropy of the last fifty steps, in nats."""
    optimizer = torch.optim.Adam(policy.parameters(), lr=chosen.learning_rate)
    losses: list[float] = []
    for step in range(chosen.steps):
        for group in optimizer.param_groups:
            group["lr"] = chosen.learning_rate * max(0.05, 1.0 - step / chosen.steps)
        size = min(chosen.minibatch, len(features))
        start = int(rng.integers(len(features) - size + 1))
        numbers = range(start, start + size)  # about the same size
        graphs = batch([features[number] for number in numbers])
        wanted = torch.zeros(graphs.is_op.shape, dtype=torch.long)
        for row, number in enumerate(numbers):
            wanted[row, : len(devices[number])] = torch.from_numpy(devices[number])
        log_p = policy(graphs).gather(2, wanted[..., None])[..., 0]
        loss = -log_p[graphs.is_op].mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    return float(np.mean(losses[-50:]))
