"""`train_graph`: imitation of a search and PPO on any world, from a config to a run folder.

PPO is sb3-contrib's MaskablePPO with groups of episodes that meet the same instances (`grouped_buffer`). On a CPU the same seed
gives the same numbers, also when the run was stopped and resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.logger import Logger

from ... import files
from ...errors import NothingToLearnError
from ...models.graph.graph_network import GraphBank, GraphNetwork
from ...models.graph.graph_player import greedy_values
from ...models.graph.graph_policy import GraphPolicy
from ...models.graph.saved_graph_policy import SavedGraphPolicy
from ...worlds.registry import load_world
from ...worlds.world import InstanceGraph, World
from .. import checkpoint
from ..device import pick_device
from ..hooks.callback import TrainingCallback
from ..hooks.reporter import ReportedMeasure, RunReporter
from ..placing.run import PlacingProgress, run_placing
from ..placing.trainer import PlacingTrainer
from ..ppo import figures_of, make_ppo, model_state, restore_generators, restore_weights
from ..run_folder import AnyRunFolder
from .grouped_buffer import GroupedRolloutBuffer
from .imitation import imitation_loss, searched
from .settings import GraphTrainSettings
from .vec_env import WorldVecEnv

_MOST_OVER = 1e3
"""Values over the reference beyond this, among them those of episodes without a result, count as this much."""


class GraphRunFolder(AnyRunFolder[GraphTrainSettings]):
    """The run folder of a graph policy."""

    kind = GraphTrainSettings
    ending = ".pt"

    @property
    def solutions(self) -> Path:
        """The file of solutions of the search that is imitated."""
        return self.path / "placements.pt"


def train_graph(
    chosen: GraphTrainSettings,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    command: Sequence[str] = (),
    progress: Callable[[PlacingProgress], None] = lambda now: None,
    prepared: Callable[[int, int], None] = lambda done, total: None,
    callbacks: Sequence[TrainingCallback] = (),
) -> GraphRunFolder:
    """Train a policy and leave a run folder.

    Args:
        chosen: the config.
        folder: the run folder; new unless ``resume`` or ``overwrite``.
        resume: continue from the folder's checkpoint, or from the start where it has none yet.
        overwrite: replace an existing run folder.
        command: the command line, for the record.
        progress: called after each update.
        prepared: called while instances are searched, with how many of how many.
        callbacks: called at the start, after every update and validation, and at the end.

    Raises:
        NothingToLearnError: random play and the reference come to the same on all validation instances.
        MeshwrightError: the config is wrong, or the folder exists already. Nothing is written then.
    """
    run = GraphRunFolder.of(folder, chosen, resume=resume, overwrite=overwrite)
    torch.set_num_threads(chosen.num_threads)
    world = load_world(chosen.benchmark, chosen.changes)
    reported = ReportedMeasure("graph", f"over_{world.reference_name}", "validation", "update", "updates")
    reporter = RunReporter(chosen, folder, reported, chosen.total_updates, callbacks)
    key = files.digest(
        chosen.model_dump(exclude={"name", "num_threads", "num_workers", "device", "log"}), world.benchmark.model_dump()
    )
    restored = _Trainer.checkpoint(run.checkpoint, key) if resume and run.checkpoint.exists() else None
    trainer = _Trainer(chosen, world, prepared)
    if not resume:
        GraphRunFolder.create(folder, chosen, command, overwrite=overwrite)
    if restored is not None:
        trainer.restore(restored)
    return run_placing(trainer, run, chosen, key, reporter, progress, resume=resume)


class _Trainer(PlacingTrainer[GraphNetwork]):
    """Instances of a run, and what is learned of them."""

    format_version = 1

    def __init__(self, chosen: GraphTrainSettings, world: World[Any], prepared: Callable[[int, int], None]) -> None:
        self.chosen, self.world, self._prepared = chosen, world, prepared
        self._validated = [world.instance("validation", seed) for seed in range(world.benchmark.num_validation_seeds)]
        self._graphs = [world.checked_graph(each) for each in self._validated]
        self._reference = np.array([world.reference(each) for each in self._validated])
        _check_something_to_learn(world, self._validated, self._reference)
        bank = GraphBank()
        self.env = WorldVecEnv(world, chosen.ppo.num_envs, chosen.seed, chosen.ppo.group, bank)
        self.model = make_ppo(
            GraphPolicy,
            self.env,
            chosen.ppo,
            {"spec": world.spec, "network": chosen.network, "bank": bank},
            total_steps=chosen.updates * chosen.ppo.steps_per_update,
            seed=chosen.seed,
            device=pick_device(chosen.device),
            buffer=(GroupedRolloutBuffer, {"env": self.env}),
        )
        self.model.set_logger(Logger(None, []))
        network = self.model.policy.get_submodule("network")
        assert isinstance(network, GraphNetwork)
        super().__init__(chosen, network, chosen.ppo.learning_rate, chosen.ppo.max_grad_norm)
        self._drawn: list[tuple[Any, InstanceGraph, NDArray[np.int64]]] = []

    def search(self, folder: Path) -> None:
        """Solve the instances that are imitated, once.

        Raises:
            NothingToLearnError: the search solves none of them.
        """
        chosen = self.chosen.imitation
        if chosen is None or self.stage != "imitation" or self._drawn:
            return
        generator = np.random.default_rng([self.chosen.seed, 2])
        seeds = generator.choice(WorldVecEnv.FIRST_SEED, chosen.instances, replace=False).tolist()
        path = GraphRunFolder(folder).solutions
        solutions = searched(self.world, seeds, chosen.rounds, path, self._prepared, self.chosen.num_workers)
        for seed, solution in zip(seeds, solutions, strict=True):
            if len(solution) > 0:
                instance = self.world.instance("training", seed)
                self._drawn.append((instance, self.world.checked_graph(instance), solution))
        if not self._drawn:
            raise NothingToLearnError(f"{self.world.reference_name} solves no instance to imitate", value=self.world.name)

    def imitate(self) -> None:
        """A minibatch of instances."""
        chosen = self.chosen.imitation
        assert chosen is not None, "there is an imitation"
        self.set_learning_rate(chosen.learning_rate, 1.0 - self.update / chosen.steps)
        places = self.rng.choice(len(self._drawn), min(chosen.minibatch, len(self._drawn)), replace=False)
        loss = imitation_loss(self.policy, self.world, [self._drawn[place] for place in places], chosen.decisions, self.rng)
        self.descend(loss)
        self.told = {"cross_entropy": float(loss.detach())}

    def improve(self) -> None:
        """Episodes of all groups, and an update of MaskablePPO."""
        self.model.learn(self.chosen.ppo.steps_per_update, use_masking=False, reset_num_timesteps=False)
        self.told = figures_of(self.model.logger)
        if self.env.returns:
            self.told["sampled"] = -float(np.mean(self.env.returns))
        self.env.forget_graphs()

    def validated(self) -> float:
        """The greedy values of the running average over those of the reference."""
        values = np.array(greedy_values(self.average.eval(), self.world, self._validated, self._graphs))
        return float(np.mean(np.minimum(values / self._reference, _MOST_OVER)))

    def saved(self, trained: dict[str, Any]) -> SavedGraphPolicy:
        """With the benchmark that it was trained on."""
        return SavedGraphPolicy.of(self.average, trained | {"benchmark": self.world.name, "changes": list(self.chosen.changes)})

    def generators(self) -> dict[str, Any]:
        """Those of PPO and of the episodes, with PPO's optimizer and the episodes in progress."""
        return {"model": checkpoint.on_cpu(model_state(self.model)), "env": self.env.state()}

    def restore_generators(self, data: dict[str, Any]) -> None:
        """What `generators` returned."""
        restore_weights(data["model"], self.model)
        restore_generators(data["model"], self.model)
        self.env.restore(data["env"])


def _check_something_to_learn(world: World[Any], instances: Sequence[Any], reference: NDArray[np.float64]) -> None:
    """Refuse a benchmark on which every result that is tried comes to the same.

    Raises:
        NothingToLearnError: the reference and two random results are equal on every instance.
    """
    rng, batch = np.random.default_rng(0), world.batch(len(instances), len(instances))
    for _ in range(2):
        batch.restart(instances)
        while batch.is_live.any():
            mask = batch.decisions.mask
            batch.step(np.where(mask, rng.random(mask.shape), -1.0).argmax(axis=1))
        if not np.allclose([batch.value(e) for e in range(len(instances))], reference, rtol=1e-9):
            return
    raise NothingToLearnError(
        f"random play is as good as {world.reference_name} on every validation instance: there is nothing to learn",
        field="benchmark",
        value=world.name,
    )
