"""The first stage: to find likely what a search found good.

Ops that should share a device are found by many decisions that agree; trying devices op by op hardly ever meets them. So a
search places the training instances first, and the policy learns its placements: each decision as the search's placement has
it, with what the placement put down before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ... import files
from ...envs.operators.batch import PlacementBatch
from ...errors import CheckpointError
from ...models.operators.graphs import OperatorGraphs
from ...models.operators.playing import replayed
from ...models.operators.policy import OperatorPolicy
from ...models.tensor_file import load_tensors, save_tensors
from ...planners.operators.request import PlacementRequest
from ...planners.operators.search.annealing import anneal
from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import OperatorObjective
from .settings import ImitatedSearchSettings

_KEPT_EVERY = 500
"""Instances between two writings of what was found."""


def searched(
    instances: Sequence[OperatorInstance],
    objective: OperatorObjective,
    chosen: ImitatedSearchSettings,
    path: Path,
    progress: Callable[[int, int], None],
) -> list[NDArray[np.int64]]:
    """Devices of the ops of each instance by annealing with a number of moves; deterministic by instance.

    Args:
        instances: that are placed.
        objective: of the placements.
        chosen: moves.
        path: where placements are kept while they are found; a search that was stopped goes on behind them. A file of other
            instances or moves is refused.
        progress: called with how many of how many are placed.

    Raises:
        CheckpointError: the file is not of these instances.
    """
    of = files.digest(chosen.moves_per_op, *(instance.digest for instance in instances))
    request = PlacementRequest(objective=objective, seed=0)
    found = _kept(path, instances, of)
    for number in range(len(found), len(instances)):
        instance = instances[number]
        found.append(anneal(instance, request, num_steps=chosen.moves_per_op * instance.num_ops).device_of)
        if number % 50 == 0:
            progress(number, len(instances))
        if len(found) % _KEPT_EVERY == 0 or len(found) == len(instances):
            _keep(path, found, of)
    progress(len(instances), len(instances))
    return found


def _keep(path: Path, found: Sequence[NDArray[np.int64]], of: str) -> None:
    save_tensors(path, {"of": of, "devices": torch.from_numpy(np.concatenate(found).astype(np.int16))})


def _kept(path: Path, instances: Sequence[OperatorInstance], of: str) -> list[NDArray[np.int64]]:
    if not path.exists():
        return []
    data = load_tensors(path)
    if not isinstance(data, dict) or data.get("of") != of or not isinstance(data.get("devices"), torch.Tensor):
        raise CheckpointError("holds no placements of these instances by as many moves", file=path)
    ends = np.cumsum([each.num_ops for each in instances])
    devices = data["devices"].numpy().astype(np.int64)
    return np.split(devices, ends[:-1])[: int(np.searchsorted(ends, len(devices), side="right"))]


def imitation_loss(
    policy: OperatorPolicy,
    graphs: OperatorGraphs,
    episodes: PlacementBatch,
    numbers: NDArray[np.int64],
    devices: Sequence[NDArray[np.int64]],
) -> Tensor:
    """Mean cross-entropy of the devices that a search chose, in nats for each decision.

    Args:
        policy: that learns.
        graphs: features of the instances.
        episodes: with room for them.
        numbers: of the instances in ``episodes``, ``(b,)``.
        devices: device of each op of each, ``(n,)``.
    """
    steps, is_wanted = replayed(graphs, episodes, numbers, devices)
    logits, _ = policy.episode_logits(graphs, steps)
    log_p = torch.log_softmax(logits, dim=2).gather(2, steps.actions[..., None])[..., 0]
    return -log_p[is_wanted].mean()
