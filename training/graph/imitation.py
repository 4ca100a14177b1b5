"""The stage before PPO: to find likely what the world's search found good."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ... import files
from ...errors import CheckpointError, PlanError
from ...models.graph.graph_network import GRAPH, ChangingGraphs, GraphBank, GraphNetwork, compact
from ...models.tensor_file import load_tensors, save_tensors
from ...worker_pool import WorkerPool, deaf_to_interrupts
from ...worlds.typed_graph import InstanceGraph
from ...worlds.world import World
from ..hooks.callback import TrainingStopped

_KEPT_EVERY = 64
"""Instances between two writings of what was found."""

Solutions = list[NDArray[np.int64]]


def searched(
    world: World[Any], seeds: Sequence[int], rounds: int, path: Path, progress: Callable[[int, int], None], num_workers: int = 1
) -> Solutions:
    """Return the group of each member of each instance in the search's solution; empty where it finds none.

    Args:
        world: of the instances.
        seeds: of training.
        rounds: of the search on each.
        path: where solutions are kept while they are found; a search that was stopped continues behind them.
        progress: called with how many of how many are searched; may stop the run.
        num_workers: processes; the solutions are the same whatever their number.

    Raises:
        CheckpointError: the file is not of these instances.
    """
    of = files.digest(rounds, world.name, world.spec.digest, list(seeds))
    result = _saved_solutions(path, of)

    def keep() -> None:
        lengths = torch.tensor([len(each) for each in result])
        save_tensors(path, {"of": of, "lengths": lengths, "groups": torch.from_numpy(np.concatenate(result).astype(np.int16))})

    def note(solution: NDArray[np.int64]) -> None:
        result.append(solution)
        if len(result) % _KEPT_EVERY == 0 or len(result) == len(seeds):
            keep()
        try:
            progress(len(result), len(seeds))
        except TrainingStopped:
            keep()
            raise

    left = [(world, seed, rounds) for seed in seeds[len(result) :]]
    if num_workers == 1 or not left:
        for each in left:
            note(_search(each))
        return result
    with deaf_to_interrupts():
        pool = WorkerPool(num_workers)
        try:
            for solution in pool.map(_search, left):
                note(solution)
        finally:
            pool.shutdown(cancel_futures=True)
    return result


def _search(task: tuple[World[Any], int, int]) -> NDArray[np.int64]:
    world, seed, rounds = task
    try:
        return world.solve(world.instance("training", seed), rounds, seed)
    except PlanError:
        return np.zeros(0, np.int64)


def _saved_solutions(path: Path, of: str) -> Solutions:
    if not path.exists():
        return []
    data = load_tensors(path)
    if not isinstance(data, dict) or data.get("of") != of:
        raise CheckpointError("holds no solutions of these instances", file=path)
    groups, lengths = data["groups"].numpy().astype(np.int64), data["lengths"].numpy()
    return np.split(groups, np.cumsum(lengths)[:-1])


def imitation_loss(
    network: GraphNetwork,
    world: World[Any],
    drawn: Sequence[tuple[Any, InstanceGraph, NDArray[np.int64]]],
    num_decisions: int,
    rng: np.random.Generator,
) -> Tensor:
    """Return the mean cross-entropy of actions that agree with the solutions, in nats a decision.

    An action agrees where its member is in its group in the solution; one of those is carried out. Of a world whose graphs change
    the action of the solution alone agrees.

    Args:
        network: that is trained.
        world: of the instances.
        drawn: instances of a minibatch, the first graph of each, and its solution, as of `World.solve`.
        num_decisions: that are learned, drawn from all.
        rng: of what is drawn.
    """
    instances, graphs, solutions = zip(*drawn, strict=True)
    bank = GraphBank()
    seen, target = _demonstrated(world, instances, solutions, rng, bank)
    if len(target) > num_decisions:
        rows = np.sort(rng.choice(len(target), num_decisions, replace=False))
        seen, target = {key: values[rows] for key, values in seen.items()}, target[rows]
    if world.spec.changes:
        numbers, of = np.unique(seen[GRAPH][:, 0], return_inverse=True)
        graphs, seen[GRAPH] = tuple(bank.some(numbers.tolist())), of.reshape(-1, 1)
    tensors = {key: torch.from_numpy(values) for key, values in seen.items()}
    encoded = network.encode(graphs)
    device = encoded.members.device
    tensors = {key: values.to(device) for key, values in tensors.items()}
    scores, _ = network.decide(encoded, tensors[GRAPH][:, 0], tensors)
    share = torch.from_numpy(target).to(device, scores.dtype)
    share = share / share.sum(dim=1, keepdim=True)
    return -(share * torch.log_softmax(scores, dim=1)).sum(dim=1).mean()


def _demonstrated(
    world: World[Any],
    instances: Sequence[Any],
    solutions: Sequence[NDArray[np.int64]],
    rng: np.random.Generator,
    bank: GraphBank,
) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_]]:
    """Return the decisions that lead to solutions, and which actions agree with them, ``(B, a)``.

    Graphs that change are put into a bank, whose numbers the decisions have; else these have the numbers of the instances.
    """
    batch = world.batch(len(instances), len(instances))
    changing, numbers = ChangingGraphs(bank, len(instances)), np.arange(len(instances))
    batch.restart(instances)
    same = [world.equivalent(*each, rng) for each in zip(instances, solutions, strict=True)]
    seen, target, actions = list[dict[str, NDArray[Any]]](), list[NDArray[np.bool_]](), np.arange(world.sizes.actions)
    while batch.is_live.any():
        rows = np.flatnonzero(batch.is_live)
        agrees = np.zeros(batch.decisions.mask.shape, np.bool_)
        for e in rows.tolist():
            member, group = batch.decisions.nodes[e, :, 0], batch.decisions.nodes[e, :, 1]
            is_wanted = actions == same[e][len(seen)] if world.spec.changes else same[e][member] == group
            agrees[e] = batch.decisions.mask[e] & is_wanted
        batch.is_live &= agrees.any(axis=1)  # where a decision cannot agree, the rest of the episode is left out
        rows = rows[batch.is_live[rows]]
        if world.spec.changes:
            changing.note(batch)
            numbers = changing.numbers
        now = compact(batch.decisions, numbers)
        seen.append({key: values[rows] for key, values in now.items()})
        target.append(agrees[rows])
        batch.step(np.where(agrees, rng.random(agrees.shape), -1.0).argmax(axis=1))
    return {key: np.concatenate([each[key] for each in seen]) for key in seen[0]}, np.concatenate(target)
