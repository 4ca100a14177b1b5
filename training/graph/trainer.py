"""The state of a run that imitates a search and then learns by PPO, and how a checkpoint continues it."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.logger import Logger

from ... import files
from ...errors import CheckpointError, ConfigError, NothingToLearnError
from ...models.graph.graph_network import GraphBank, GraphNetwork
from ...models.graph.graph_player import greedy_values
from ...models.graph.graph_policy import GraphPolicy
from ...models.graph.saved_graph_policy import SavedGraphPolicy, load_graph_player
from ...models.policy_files import STAGES, stage, with_weights
from ...models.tensor_file import save_tensors
from ...worlds.benchmark import over_reference
from ...worlds.world import InstanceGraph, World
from .. import checkpoint
from ..averaging import average_in
from ..device import pick_device
from ..ppo import figures_of, make_ppo, model_state, restore_generators, restore_weights
from ..run_folder import AnyRunFolder
from .grouped_buffer import GroupedRolloutBuffer
from .imitation import imitation_loss, searched
from .settings import GraphTrainSettings
from .vec_env import WorldVecEnv

LEAST_RATE = 0.05
"""Share of the first step size below which that of the imitation does not fall."""
_FORMAT_VERSION = 1


class GraphTrainer:
    """Instances of a run, the network and its running average, optimisers, generators and learning curve.

    Args:
        chosen: the config.
        world: that is learned.

    Attributes:
        update: steps of the imitation and updates of PPO done so far.
        curve: a row per validation.
        best: the least value of all validations.
        figures: of the latest step or update.

    Raises:
        ConfigError: an episode may have more decisions than a rollout.
        CheckpointError: the policy to start with is of another network.
        NothingToLearnError: random play and the reference come to the same on all validation instances.
    """

    def __init__(self, chosen: GraphTrainSettings, world: World[Any], *, is_resumed: bool = False) -> None:
        self._chosen, self._world, self._learned_on = chosen, world, world.learned_on
        most, steps = world.sizes.nodes[world.spec.member], chosen.ppo.rollout_steps
        if steps < most:
            problem = f"an episode may have {most} decisions, and nothing is learned from those that a rollout cuts off"
            raise ConfigError(problem, field="ppo.rollout_steps", value=steps)
        self._validated = [world.instance("validation", seed) for seed in range(world.benchmark.num_validation_seeds)]
        self._graphs = [world.checked_graph(each) for each in self._validated]
        self._reference = np.array([world.reference(each) for each in self._validated])
        _check_something_to_learn(world, self._validated, self._reference)
        bank = GraphBank()
        self._env = WorldVecEnv(world, chosen.ppo.num_envs, chosen.seed, chosen.ppo.group, bank)
        self._model = make_ppo(
            GraphPolicy,
            self._env,
            chosen.ppo,
            {"spec": world.spec, "network": chosen.network, "bank": bank},
            total_steps=chosen.updates * chosen.ppo.update_steps,
            seed=chosen.seed,
            device=pick_device(chosen.device),
            buffer=(GroupedRolloutBuffer, {"env": self._env}),
        )
        self._model.set_logger(Logger(None, []))
        network = self._model.policy.get_submodule("network")
        assert isinstance(network, GraphNetwork)
        self._begun: list[dict[str, Any]] = []
        if chosen.start is not None and not is_resumed:
            begun = load_graph_player(chosen.start, world, field="start")[0]
            if begun.network.settings != chosen.network:
                own = begun.network.settings.model_dump_json()
                raise ConfigError("has another network; give network the same keys", field="start", value=own)
            with_weights(network, begun.network.state_dict(), chosen.start)
            self._begun = begun.trained.get(STAGES, [])
        self.policy, self.average = network, copy.deepcopy(network).cpu()
        self._optimizer = torch.optim.Adam(network.parameters(), lr=chosen.ppo.learning_rate)
        self._rng = np.random.default_rng([chosen.seed, 1])
        self._drawn: list[tuple[Any, InstanceGraph, NDArray[np.int64]]] = []
        self.update, self.best = 0, np.inf
        self.curve: list[dict[str, Any]] = []
        self.figures: dict[str, float] = {}
        self._began, self._cpu_began, self._before = time.perf_counter(), time.process_time(), (0.0, 0.0)

    @property
    def stage(self) -> str:
        """``imitation`` while it lasts, then ``ppo``."""
        return "imitation" if self.update < self._chosen.imitation_steps else "ppo"

    @property
    def is_validation_due(self) -> bool:
        """Whether the policy is to be validated before the next update."""
        if self.curve and self.curve[-1]["update"] == self.update:
            return False
        chosen, imitated = self._chosen, self._chosen.imitation
        if imitated is not None and self.update < chosen.imitation_steps:
            return self.update % imitated.validate_every_steps == 0
        is_due = (self.update - chosen.imitation_steps) % chosen.validate_every_updates == 0
        return is_due or self.update == chosen.total_updates

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began, interruptions left out."""
        return float(self._before[0] + time.perf_counter() - self._began)

    def search(self, path: Path, progress: Callable[[int, int], None]) -> None:
        """Solve the instances that are imitated, once, where the imitation begins or was stopped.

        Args:
            path: where solutions are kept.
            progress: called with how many of how many are searched.

        Raises:
            NothingToLearnError: the search solves none of them.
        """
        chosen, world = self._chosen.imitation, self._world
        if chosen is None or self.stage != "imitation" or self._drawn:
            return
        generator = np.random.default_rng([self._chosen.seed, 2])
        seeds = generator.choice(WorldVecEnv.FIRST_SEED, chosen.instances, replace=False).tolist()
        solutions = searched(world, seeds, chosen.rounds, path, progress, 1 if self._chosen.minutes else self._chosen.num_workers)
        for seed, solution in zip(seeds, solutions, strict=True):
            if len(solution) > 0:
                instance = world.instance("training", seed)
                self._drawn.append((instance, world.checked_graph(instance), solution))
        if not self._drawn:
            raise NothingToLearnError(f"{world.reference_name} solves no instance to imitate", value=world.name)

    def learn(self) -> None:
        """Take one step of the imitation, or one update of PPO."""
        if self.stage == "imitation":
            self._imitate()
        else:
            self._improve()
        average_in(self.average, self.policy, max(self._chosen.ppo.averaging, 1.0 / (self.update + 1.0)))
        self.update += 1

    def _imitate(self) -> None:
        """Learn a minibatch of instances."""
        chosen = self._chosen.imitation
        assert chosen is not None, "there is an imitation"
        for group in self._optimizer.param_groups:
            group["lr"] = chosen.learning_rate * max(LEAST_RATE, 1.0 - self.update / chosen.steps)
        places = self._rng.choice(len(self._drawn), min(chosen.minibatch, len(self._drawn)), replace=False)
        loss = imitation_loss(self.policy, self._world, [self._drawn[place] for place in places], chosen.decisions, self._rng)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self._chosen.ppo.max_grad_norm)
        self._optimizer.step()
        self.figures = {"cross_entropy": float(loss.detach())}

    def _improve(self) -> None:
        """Play episodes of all groups, and update by MaskablePPO."""
        self._drawn.clear()
        self._model.learn(self._chosen.ppo.update_steps, use_masking=False, reset_num_timesteps=False)
        self.figures = figures_of(self._model.logger)
        if self._env.returns:
            self.figures["sampled"] = -float(np.mean(self._env.returns))
        self._env.forget_graphs()

    def validated(self) -> float:
        """Return the greedy values of the running average over those of the reference, mean of the validation instances."""
        values = np.array(greedy_values(self.average.eval(), self._world, self._validated, self._graphs))
        return float(np.mean(over_reference(values, self._reference)))

    def validate(self, run: AnyRunFolder[Any]) -> None:
        """Validate, keep the best policy and the imitated one, write the learning curve."""
        value = self.validated()
        cpu_s = self._before[1] + time.process_time() - self._cpu_began
        row = {"update": self.update, "stage": self.stage, "validation": value, "elapsed_s": self.elapsed_s, "cpu_s": cpu_s}
        self.curve.append(row | self.figures)
        chosen = self._chosen
        about = {"config": chosen.name, "seed": chosen.seed, "update": self.update, "validation": value, STAGES: self._stages()}
        of = {"benchmark": self._world.name, "changes": list(chosen.changes)}
        saved = SavedGraphPolicy.of(self.average, about | of | self._learned_on)
        if value < self.best:
            self.best = value
            saved.save(run.policy)
        if chosen.imitation is not None and self.update == chosen.imitation_steps:
            saved.save(run.imitated)
        files.write_json(run.learning_curve, self.curve)

    def _stages(self) -> list[dict[str, Any]]:
        """Return the stages that the weights went through, as policy files hold them."""
        imitated = min(self.update, self._chosen.imitation_steps)

        def last(is_of: bool) -> float | None:
            of = [row["validation"] for row in self.curve if (row["update"] <= self._chosen.imitation_steps) == is_of]
            return of[-1] if of else None

        done = [("imitation", imitated, "steps"), ("ppo", self.update - imitated, "updates")]
        own = [stage(name, steps, unit, last(name == "imitation")) for name, steps, unit in done if steps > 0]
        return [*self._begun, *own]

    def save(self, path: Path, key: str) -> None:
        """Write a checkpoint, which no GPU is needed to read."""
        data = {
            "format_version": _FORMAT_VERSION,
            "key": key,
            "update": self.update,
            "begun": self._begun,
            "policy": checkpoint.on_cpu(self.policy.state_dict()),
            "average": checkpoint.on_cpu(self.average.state_dict()),
            "optimizer": checkpoint.on_cpu(self._optimizer.state_dict()),
            "numpy_generator": files.json_text(self._rng.bit_generator.state),
            "curve": self.curve,
            "best": self.best,
            "model": checkpoint.on_cpu(model_state(self._model)),
            "env": self._env.state(),
        }
        save_tensors(path, {**data, checkpoint.DIGEST: checkpoint.digest_of(data)})

    @staticmethod
    def checkpoint(path: Path, key: str) -> dict[str, Any]:
        """Return what `save` wrote, for `restore`.

        Raises:
            CheckpointError: damaged, of another version, or of another run.
        """
        data = checkpoint.load(path, _FORMAT_VERSION, ("numpy_generator",))
        if data["key"] != key:
            raise CheckpointError("belongs to another config or benchmark than this run's", file=path)
        return data

    def restore(self, data: dict[str, Any]) -> None:
        """Continue where a checkpoint was written."""
        self.update, self.curve, self.best = data["update"], data["curve"], data["best"]
        self._begun = data.get("begun", [])
        restore_weights(data["model"], self._model)
        self.average.load_state_dict(data["average"])
        self._optimizer.load_state_dict(data["optimizer"])
        self._rng.bit_generator.state = files.parse_json(data["numpy_generator"])
        restore_generators(data["model"], self._model)
        self._env.restore(data["env"])
        self._before = (self.curve[-1]["elapsed_s"], self.curve[-1]["cpu_s"])


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
