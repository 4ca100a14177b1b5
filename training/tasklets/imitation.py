"""The first stage: to find likely what a search found good."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ... import files
from ...envs.tasklets.benchmark import TaskletBenchmark
from ...errors import CheckpointError
from ...models.tasklets.policy import FilledSteps
from ...models.tensor_file import load_tensors, save_tensors
from ...planners.arrangement.arrange import ArrangementRequest, arrange
from ...simulation.tasklets.instance import TaskletInstance
from ...worker_pool import WorkerPool, deaf_to_interrupts

_KEPT_EVERY = 64
"""Networks between two writings of what was found."""


def searched(
    benchmark: TaskletBenchmark,
    seeds: Sequence[int],
    rounds: int,
    path: Path,
    progress: Callable[[int, int], None],
    num_workers: int = 1,
) -> list[NDArray[np.int64]]:
    """Devices of each stage of each network, in the order of the pipeline, as the search ``chain`` found it, ``(k, p)`` each.

    Args:
        benchmark: of the networks.
        seeds: of training.
        rounds: of annealing on each.
        path: where groupings are kept while they are found; a search that was stopped goes on behind them.
        progress: called with how many of how many are searched.
        num_workers: processes; the groupings are the same whatever their number.

    Raises:
        CheckpointError: the file is not of these networks.
    """
    instances = [benchmark.instance("training", seed) for seed in seeds]
    of = files.digest(rounds, benchmark.tasklets.model_dump(), list(seeds))
    found = _kept(path, instances, of)

    def note(stages: NDArray[np.int64]) -> None:
        found.append(stages)
        if len(found) % _KEPT_EVERY == 0 or len(found) == len(instances):
            devices = torch.from_numpy(np.concatenate([each.reshape(-1) for each in found]).astype(np.int16))
            save_tensors(path, {"of": of, "devices": devices})
        progress(len(found), len(instances))

    left = [(each, rounds) for each in instances[len(found) :]]
    if num_workers == 1 or not left:
        for one in left:
            note(_search(one))
        return found
    with deaf_to_interrupts():
        pool = WorkerPool(num_workers)
        try:
            for stages in pool.map(_search, left):
                note(stages)
        finally:
            pool.shutdown(cancel_futures=True)
    return found


def _search(given: tuple[TaskletInstance, int]) -> NDArray[np.int64]:
    instance, rounds = given
    return arrange(instance, ArrangementRequest(num_rounds=rounds)).device_of


def _kept(path: Path, instances: Sequence[TaskletInstance], of: str) -> list[NDArray[np.int64]]:
    if not path.exists():
        return []
    data = load_tensors(path)
    if not isinstance(data, dict) or data.get("of") != of or not isinstance(data.get("devices"), torch.Tensor):
        raise CheckpointError("holds no groupings of these networks", file=path)
    devices, found, first = data["devices"].numpy().astype(np.int64), list[NDArray[np.int64]](), 0
    for each in instances:
        n = each.num_devices
        if first + n > len(devices):
            break
        found.append(devices[first : first + n].reshape(each.num_stages, each.num_replicas))
        first += n
    return found


def an_order(stages: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """One of the orders in which devices may join to a grouping: either end of the pipeline first, each stage in any order."""
    along = stages[::-1] if rng.random() < 0.5 else stages
    return rng.permuted(along, axis=1).reshape(-1)


def imitation_loss(logits: Tensor, steps: FilledSteps, num_replicas: Tensor) -> Tensor:
    """Mean cross-entropy of the devices that may join next, in nats for each decision: all of the stage that have not joined yet.

    Args:
        logits: of the decisions, ``(E, t, n)``.
        steps: the decisions.
        num_replicas: devices of a stage, of each episode, ``(E,)``.
    """
    t, n = logits.shape[1:]
    step = torch.arange(t, device=logits.device)
    stage = step[None] // num_replicas[:, None]
    of_device = torch.full((len(logits), n), -1, device=logits.device)
    of_device = of_device.scatter(1, steps.joined, torch.where(steps.is_live, stage, -1))
    wanted = ((of_device[:, None] == stage[..., None]) & steps.can_join).to(logits.dtype)
    share = wanted / wanted.sum(dim=2, keepdim=True).clamp(min=1)
    log_p = torch.log_softmax(logits, dim=2).masked_fill(~steps.can_join, 0.0)
    return -(share * log_p).sum(dim=2)[steps.is_live].mean()
