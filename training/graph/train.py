"""`train_graph`: imitation of a search and PPO on any world, from a config to a run folder.

PPO is sb3-contrib's MaskablePPO with groups of episodes that meet the same instances (`grouped_buffer`). On a CPU the same seed
gives the same numbers, also when the run was stopped and resumed.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger

from ... import files
from ...errors import CheckpointError, NothingToLearnError
from ...models.graph.graph_network import GraphBank, GraphNetwork
from ...models.graph.graph_player import greedy_values
from ...models.graph.graph_policy import GraphPolicy
from ...models.graph.saved_graph_policy import SavedGraphPolicy
from ...models.policy_files import STAGES, stage
from ...models.tensor_file import save_tensors
from ...worlds.registry import load_world
from ...worlds.world import World
from .. import checkpoint
from ..device import pick_device
from ..hooks.callback import TrainingCallback
from ..hooks.reporter import ReportedMeasure, RunReporter
from ..ppo import figures_of, make_ppo, model_state, restore_generators, restore_weights
from ..run_folder import AnyRunFolder
from .grouped_buffer import GroupedRolloutBuffer
from .imitation import Solutions, imitation_loss, searched
from .settings import GraphTrainSettings
from .vec_env import WorldVecEnv

_FORMAT_VERSION = 1
_LEAST_RATE = 0.05
"""Share of the imitation's first step size below which it does not fall."""
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


@dataclass(frozen=True)
class GraphProgress:
    """What a progress display may show.

    Attributes:
        update: steps of the imitation and updates of PPO done so far.
        value: of greedy play over the reference, mean of the latest validation.
        best: the best so far.
    """

    update: int
    value: float
    best: float


def train_graph(
    chosen: GraphTrainSettings,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    command: Sequence[str] = (),
    progress: Callable[[GraphProgress], None] = lambda now: None,
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
    restored = _checkpoint(run.checkpoint, key) if resume and run.checkpoint.exists() else None
    trainer = _Trainer(chosen, world, run, key, reporter, progress)
    if not resume:
        GraphRunFolder.create(folder, chosen, command, overwrite=overwrite)
    if restored is not None:
        trainer.restore(restored)
    with reporter.running(trainer.curve, trainer.update, is_resumed=resume):
        trainer.imitate(prepared)
        trainer.improve()
    return run


def _checkpoint(path: Path, key: str) -> dict[str, Any]:
    data = checkpoint.load(path, _FORMAT_VERSION, ("numpy_generator",))
    if data["key"] != key:
        raise CheckpointError("belongs to another config or benchmark than this run's", file=path)
    return data


class _Trainer:
    """Model, running average of its weights, and learning curve of a run.

    Attributes:
        update: steps of the imitation and updates of PPO done so far.
        curve: a row per validation.
        best: the least value of all validations.
    """

    def __init__(
        self,
        chosen: GraphTrainSettings,
        world: World[Any],
        run: GraphRunFolder,
        key: str,
        reporter: RunReporter,
        progress: Callable[[GraphProgress], None],
    ) -> None:
        self.chosen, self.world, self.run, self._key = chosen, world, run, key
        self._reporter, self._progress = reporter, progress
        self._validated = [world.instance("validation", seed) for seed in range(world.benchmark.num_validation_seeds)]
        self._graphs = [world.graph(each) for each in self._validated]
        for graph in self._graphs:
            graph.check(world.spec)
        self._reference = np.array([world.reference(each) for each in self._validated])
        _check_something_to_learn(world, self._validated, self._reference)
        bank = GraphBank()
        self.env = WorldVecEnv(world, chosen.ppo.num_envs, chosen.seed, chosen.ppo.group, bank)
        self.model = make_ppo(
            GraphPolicy,
            self.env,
            chosen.ppo,
            {"spec": world.spec, "network": chosen.network, "bank": bank},
            total_steps=chosen.ppo.updates * chosen.ppo.steps_per_update,
            seed=chosen.seed,
            device=pick_device(chosen.device),
            buffer=(GroupedRolloutBuffer, {"env": self.env}),
        )
        self.model.set_logger(Logger(None, []))
        self.average: GraphNetwork = copy.deepcopy(self.network).cpu()
        self._adam = torch.optim.Adam(self.network.parameters(), lr=1e-3)
        self.rng = np.random.default_rng([chosen.seed, 1])
        self.update, self.best = 0, np.inf
        self.curve: list[dict[str, Any]] = []
        self._figures: dict[str, float] = {}
        self._began, self._cpu_began, self._before = time.perf_counter(), time.process_time(), (0.0, 0.0)

    @property
    def network(self) -> GraphNetwork:
        """The network that learns."""
        network = self.model.policy.get_submodule("network")
        assert isinstance(network, GraphNetwork)
        return network

    @property
    def stage(self) -> str:
        """``imitation`` while it lasts, then ``ppo``."""
        return "imitation" if self.update < self.chosen.imitation_steps else "ppo"

    def imitate(self, prepared: Callable[[int, int], None]) -> None:
        """Learn solutions of the search up to the end of the stage."""
        chosen = self.chosen.imitation
        if chosen is None or self.stage != "imitation":
            return
        seeds = (
            np.random.default_rng([self.chosen.seed, 2]).choice(WorldVecEnv.FIRST_SEED, chosen.instances, replace=False).tolist()
        )
        solutions = searched(self.world, seeds, chosen.rounds, self.run.solutions, prepared, self.chosen.num_workers)
        kept = [place for place, each in enumerate(solutions) if len(each) > 0]
        if not kept:
            raise NothingToLearnError(
                f"{self.world.reference_name} finds no solution of any instance to imitate", value=self.world.name
            )
        instances = {place: self.world.instance("training", seeds[place]) for place in kept}
        while self.stage == "imitation":
            if self.update % chosen.validate_every_steps == 0:
                self.validate()
            self._note()
            self._imitate_once(kept, instances, solutions)
            self._take_average()

    def _imitate_once(self, kept: Sequence[int], instances: dict[int, Any], solutions: Solutions) -> None:
        chosen = self.chosen.imitation
        assert chosen is not None
        for group in self._adam.param_groups:
            group["lr"] = chosen.learning_rate * max(_LEAST_RATE, 1.0 - self.update / chosen.steps)
        places = self.rng.choice(kept, min(chosen.minibatch, len(kept)), replace=False).tolist()
        drawn, known = [instances[place] for place in places], [solutions[place] for place in places]
        loss = imitation_loss(self.network, self.world, drawn, known, chosen.decisions, self.rng)
        self._adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.chosen.ppo.max_grad_norm)
        self._adam.step()
        self._figures = {"cross_entropy": float(loss.detach())}

    def improve(self) -> None:
        """Run PPO to the end of the config, validate and keep the best."""
        left = self.chosen.total_updates - self.update
        if left > 0:
            self.model.learn(
                left * self.chosen.ppo.steps_per_update, _EachUpdate(self), use_masking=False, reset_num_timesteps=False
            )
        if not self.curve or self.curve[-1]["update"] != self.update:
            self.validate()
        self._note()

    def begin_rollout(self) -> None:
        """Note the update that was made, validate where it is due."""
        ppo = self.chosen.ppo
        done = self.chosen.imitation_steps + self.model.num_timesteps // ppo.steps_per_update
        if done > self.update:
            self._figures = figures_of(self.model.logger)
            if self.env.returns:
                self._figures["sampled"] = -float(np.mean(self.env.returns))
            self._take_average()
        if (self.update - self.chosen.imitation_steps) % ppo.validate_every_updates == 0:
            self.validate()
        self._note()
        self.env.forget_graphs()

    def _take_average(self) -> None:
        share = max(self.chosen.ppo.averaging, 1.0 / (self.update + 1.0))
        with torch.no_grad():
            for average, newest in zip(self.average.parameters(), self.network.parameters(), strict=True):
                average.lerp_(newest.to(average.device), share)
        self.update += 1

    def _note(self) -> None:
        """Report an update, and leave the run where a callback has stopped it."""
        self._progress(GraphProgress(self.update, self.curve[-1]["validation"], self.best))
        self._reporter.updated(self.stage, self.update, self._figures)
        if self._reporter.is_stopping:
            self.save()
            self._reporter.stop_if_asked()

    def validate(self) -> None:
        """Play the validation instances by the averaged weights, keep the best policy, write learning curve and checkpoint."""
        if self.curve and self.curve[-1]["update"] == self.update:
            return
        values = np.array(greedy_values(self.average.eval(), self.world, self._validated, self._graphs))
        value = float(np.mean(np.minimum(values / self._reference, _MOST_OVER)))
        seconds = self._before[0] + time.perf_counter() - self._began
        cpu_s = self._before[1] + time.process_time() - self._cpu_began
        row = {"update": self.update, "stage": self.stage, "validation": value, "elapsed_s": seconds, "cpu_s": cpu_s}
        self.curve.append(row | self._figures)
        chosen, of = self.chosen, {"benchmark": self.world.name, "changes": list(self.chosen.changes)}
        about = {"config": chosen.name, "seed": chosen.seed, "update": self.update, "validation": value, STAGES: self._stages()}
        saved = SavedGraphPolicy.of(self.average, about | of)
        if value < self.best:
            self.best = value
            saved.save(self.run.policy)
        if chosen.imitation is not None and self.update == chosen.imitation_steps:
            saved.save(self.run.imitated)
        files.write_json(self.run.learning_curve, self.curve)
        self.save()
        self._reporter.validated(self.curve[-1], self.stage)

    def _stages(self) -> list[dict[str, Any]]:
        """Return the stages that the weights went through, as policy files hold them."""
        first = self.chosen.imitation_steps
        imitated = min(self.update, first)
        found = []
        for name, steps, unit in (("imitation", imitated, "steps"), ("ppo", self.update - imitated, "updates")):
            rows = [row["validation"] for row in self.curve if (row["update"] <= first) == (name == "imitation")]
            of = f"{self.world.reference_name}, {self.chosen.imitation.instances} instances" if self.chosen.imitation else None
            if steps > 0:
                found.append(stage(name, steps, unit, rows[-1] if rows else None, of=of if name == "imitation" else None))
        return found

    def save(self) -> None:
        """Write a checkpoint, which no GPU is needed to read."""
        data = {
            "format_version": _FORMAT_VERSION,
            "key": self._key,
            "update": self.update,
            "model": checkpoint.on_cpu(model_state(self.model)),
            "average": self.average.state_dict(),
            "adam": checkpoint.on_cpu(self._adam.state_dict()),
            "env": self.env.state(),
            "numpy_generator": files.json_text(self.rng.bit_generator.state),
            "curve": self.curve,
            "best": self.best,
        }
        save_tensors(self.run.checkpoint, {**data, checkpoint.DIGEST: checkpoint.digest_of(data)})

    def restore(self, data: dict[str, Any]) -> None:
        """Continue where a checkpoint was written."""
        self.update, self.curve, self.best = data["update"], data["curve"], data["best"]
        restore_weights(data["model"], self.model)
        restore_generators(data["model"], self.model)
        self.average.load_state_dict(data["average"])
        self._adam.load_state_dict(data["adam"])
        self.env.restore(data["env"])
        self.rng.bit_generator.state = files.parse_json(data["numpy_generator"])
        self._before = (self.curve[-1]["elapsed_s"], self.curve[-1]["cpu_s"])


class _EachUpdate(BaseCallback):
    """Calls the trainer before each rollout."""

    def __init__(self, trainer: _Trainer) -> None:
        super().__init__()
        self._trainer = trainer

    def _on_rollout_start(self) -> None:
        self._trainer.begin_rollout()

    def _on_training_end(self) -> None:
        self._trainer.begin_rollout()

    def _on_step(self) -> bool:
        return True


def _check_something_to_learn(world: World[Any], instances: Sequence[Any], reference: np.ndarray[Any, Any]) -> None:
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
