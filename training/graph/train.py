"""`GraphLearner`: imitation of a search, then PPO, on any world.

PPO is sb3-contrib's MaskablePPO with groups of episodes that meet the same instances. Advantages are relative to those of the
others of a group (`GroupedRolloutBuffer`); sources of that baseline: see `beyond_group`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer
from stable_baselines3.common.logger import Logger
from torch import Tensor

from ... import files
from ...errors import ConfigError, NothingToLearnError
from ...models.graph.compiled_head import PlayedNetwork
from ...models.graph.graph_network import GraphBank, GraphNetwork
from ...models.graph.graph_player import greedy_values
from ...models.graph.saved_graph_policy import SavedGraphPolicy, load_graph_player
from ...models.policy_files import STAGES, stage, with_weights
from ...worlds.benchmark import over_reference
from ...worlds.registry import load_world
from ...worlds.typed_graph import InstanceGraph
from ...worlds.world import World
from ..device import pick_device
from ..hooks.names import WITHOUT_EFFECT
from ..ppo import average_in, beyond_group, figures_of, learn_by_ppo, make_ppo, model_state, restore_model
from ..run import Learner, ReportedMeasure, TrainingRun
from .imitation import imitation_loss, searched
from .settings import GraphTrainSettings
from .vec_env import WorldVecEnv

_MOST_STEPS = 2**32

LEAST_RATE = 0.05
"""Share of the first step size below which that of the imitation does not fall."""


class GraphLearner(Learner):
    """Learns a graph policy; a step is one of the imitation, or an update of PPO.

    Args:
        settings: the config.

    Raises:
        ConfigError: an episode may have more decisions than a rollout, and no values are learned.
        NothingToLearnError: random play and the reference come to the same on all validation instances.
        MeshwrightError: the config is wrong.
    """

    clocks = ("elapsed_s", "cpu_s")

    def __init__(self, settings: GraphTrainSettings) -> None:
        torch.set_num_threads(settings.num_threads)
        self._settings, self._world = settings, load_world(settings.benchmark, settings.changes)
        world = self._world
        self.reported = ReportedMeasure("graph", f"over_{world.reference_name}", "updates")
        self.key = files.digest(settings.model_dump(exclude=set(WITHOUT_EFFECT)), world.benchmark.model_dump())
        self.total_steps = settings.imitation_steps + settings.updates
        most, steps, changes = world.sizes.nodes[world.spec.member], settings.ppo.rollout_steps, world.spec.changes
        if changes and settings.ppo.value == 0:
            problem = "must be above 0 where graphs change, for an episode may have more decisions than a rollout"
            raise ConfigError(problem, field="ppo.value", value=settings.ppo.value)
        if steps < most and not changes:
            problem = f"an episode may have {most} decisions, and nothing is learned from those that a rollout cuts off"
            raise ConfigError(problem, field="ppo.rollout_steps", value=steps)
        self._validated = [world.instance("validation", seed) for seed in range(world.benchmark.num_validation_seeds)]
        self._graphs = [] if changes else [world.graph(each) for each in self._validated]
        self._reference = np.array([world.reference(each) for each in self._validated])
        _check_something_to_learn(world, self._validated, self._reference)
        bank = GraphBank()
        self._env = WorldVecEnv(world, settings.ppo.num_envs, settings.seed, settings.ppo.group, bank)
        self._model = make_ppo(
            partial(PlayedNetwork, world.spec, settings.network, bank),
            self._env,
            settings.ppo,
            total_steps=settings.updates * settings.ppo.update_steps,
            seed=settings.seed,
            device=pick_device(settings.device),
            buffer=(GroupedRolloutBuffer, {"env": self._env, "has_values": changes}),
        )
        self._model.set_logger(Logger(None, []))
        network = self._model.policy.get_submodule("network")
        assert isinstance(network, GraphNetwork)
        self._network, self._average = network, copy.deepcopy(network).cpu()
        self._optimizer = torch.optim.Adam(network.parameters(), lr=settings.ppo.learning_rate)
        self._rng = np.random.default_rng([settings.seed, 1])
        self._begun = list[dict[str, Any]]()
        self._figures = dict[str, float]()
        self._update = 0

    @property
    def step(self) -> int:
        """Steps of the imitation and updates of PPO so far."""
        return self._update

    def begin(self) -> None:
        """Take the weights of another policy, where the config has one to start with.

        Raises:
            CheckpointError: it is of another network.
        """
        settings = self._settings
        if settings.start is None:
            return
        begun = load_graph_player(settings.start, self._world, field="start")[0]
        if begun.network.settings != settings.network:
            own = begun.network.settings.model_dump_json()
            raise ConfigError("has another network; give network the same keys", field="start", value=own)
        for network in (self._network, self._average):
            with_weights(network, begun.network.state_dict(), settings.start)
        self._begun = begun.trained.get(STAGES, [])

    def learn(self, run: TrainingRun) -> None:
        """See `Learner`."""
        settings, drawn = self._settings, list[tuple[Any, InstanceGraph, NDArray[np.int64]]]()
        while settings.imitation is not None and self._update < settings.imitation.steps:
            self._between(run, "imitation", settings.imitation.validate_every_steps)
            drawn = drawn or self._solved(run)
            self._imitate(drawn)
        drawn.clear()
        learn_by_ppo(self._model, settings.updates * settings.ppo.update_steps, lambda is_last: self._after_update(run))

    def validate(self, run: TrainingRun, stage: str) -> dict[str, Any]:
        """Play greedily by the running average; its values over those of the reference, mean of the validation instances."""
        values = np.array(greedy_values(self._average.eval(), self._world, self._validated, self._graphs))
        value = float(np.mean(over_reference(values, self._reference)))
        return {"update": self._update, "stage": stage, "validation": value, **self._figures}

    def policy(self, run: TrainingRun) -> SavedGraphPolicy:
        """See `Learner`."""
        settings = self._settings
        about = {
            "config": settings.name,
            "seed": settings.seed,
            "update": self._update,
            "validation": run.curve[-1]["validation"],
            STAGES: self._stages(run),
        }
        of = {"benchmark": self._world.name, "changes": list(settings.changes)}
        return SavedGraphPolicy.from_network(self._average, about | of | self._world.learned_on)

    def state(self) -> dict[str, Any]:
        """See `Learner`."""
        return {
            "update": self._update,
            "begun": self._begun,
            "average": self._average.state_dict(),
            "imitation": self._optimizer.state_dict(),
            "generator": files.json_text(self._rng.bit_generator.state),
            **model_state(self._model),
            "env": self._env.state(),
        }

    def restore(self, state: dict[str, Any], file: Path) -> None:
        """See `Learner`."""
        self._update, self._begun = state["update"], state["begun"]
        self._average.load_state_dict(state["average"])
        self._optimizer.load_state_dict(state["imitation"])
        self._rng.bit_generator.state = files.parse_json(state["generator"])
        restore_model(state, self._model)
        self._env.restore(state["env"])

    def _between(self, run: TrainingRun, stage: str, every: int) -> None:
        """Validate every so many steps of a stage and at the end, save then, and report."""
        first = 0 if stage == "imitation" else self._settings.imitation_steps
        is_due = (self._update - first) % every == 0 or self._update == self.total_steps
        is_due &= not run.curve or run.curve[-1]["update"] != self._update
        is_imitated = self._settings.imitation is not None and self._update == self._settings.imitation_steps
        also = run.folder.imitated if is_imitated else None
        run.between(stage, self._figures, validates=is_due, saves=is_due, also=also)

    def _solved(self, run: TrainingRun) -> list[tuple[Any, InstanceGraph, NDArray[np.int64]]]:
        """Return the instances that are imitated, the graph of each, and its solution by the world's search.

        Raises:
            NothingToLearnError: the search solves none of them.
            TrainingStopped: a callback has stopped the run; what was solved is kept.
        """
        imitation, world = self._settings.imitation, self._world
        assert imitation is not None, "there is an imitation"
        generator = np.random.default_rng([self._settings.seed, 2])
        seeds = generator.choice(WorldVecEnv.FIRST_SEED, imitation.instances, replace=False).tolist()
        num_workers = 1 if self._settings.minutes else self._settings.num_workers
        path, result = run.folder.solutions, list[tuple[Any, InstanceGraph, NDArray[np.int64]]]()
        solutions = searched(world, seeds, imitation.rounds, path, lambda done, of: run.staged("search", done / of), num_workers)
        for seed, solution in zip(seeds, solutions, strict=True):
            if len(solution) > 0:
                instance = world.instance("training", seed)
                result.append((instance, world.graph(instance), solution))
        if not result:
            raise NothingToLearnError(f"{world.reference_name} solves no instance to imitate", value=world.name)
        return result

    def _imitate(self, drawn: Sequence[tuple[Any, InstanceGraph, NDArray[np.int64]]]) -> None:
        """Learn a minibatch of instances."""
        imitation = self._settings.imitation
        assert imitation is not None, "there is an imitation"
        for group in self._optimizer.param_groups:
            group["lr"] = imitation.learning_rate * max(LEAST_RATE, 1.0 - self._update / imitation.steps)
        places = self._rng.choice(len(drawn), min(imitation.minibatch, len(drawn)), replace=False)
        loss = imitation_loss(self._network, self._world, [drawn[place] for place in places], imitation.decisions, self._rng)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._network.parameters(), self._settings.ppo.max_grad_norm)
        self._optimizer.step()
        self._count({"cross_entropy": float(loss.detach())})

    def _after_update(self, run: TrainingRun) -> None:
        """Note what an update of PPO has learned, where there was one, validate, save and report."""
        settings = self._settings
        if settings.imitation_steps + self._model.num_timesteps // settings.ppo.update_steps > self._update:
            figures = figures_of(self._model.logger)
            if self._env.returns:
                figures["sampled"] = -float(np.mean(self._env.returns))
            self._env.forget_graphs()
            self._count(figures)
        self._between(run, "ppo", settings.validate_every_updates)

    def _count(self, figures: dict[str, float]) -> None:
        """Average the weights after a step."""
        average_in(self._average, self._network, max(self._settings.ppo.averaging, 1.0 / (self._update + 1.0)))
        self._update, self._figures = self._update + 1, figures

    def _stages(self, run: TrainingRun) -> list[dict[str, Any]]:
        """Return the stages that the weights went through, as policy files hold them."""
        imitated = min(self._update, self._settings.imitation_steps)

        def last(is_of: bool) -> float | None:
            of = [row["validation"] for row in run.curve if (row["update"] <= self._settings.imitation_steps) == is_of]
            return of[-1] if of else None

        done = [("imitation", imitated, "steps"), ("ppo", self._update - imitated, "updates")]
        own = [stage(name, steps, unit, last(name == "imitation")) for name, steps, unit in done if steps > 0]
        return [*self._begun, *own]


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


class GroupedRolloutBuffer(MaskableDictRolloutBuffer):
    """A buffer that subtracts from each advantage the mean of the same decision in others, and the part explained by the past.

    The mean of the others is a baseline. So is the part of the rest that follows from how much more than they an episode has lost
    before: one with a longer schedule so far has less to lose. That part is linear, with a slope for each distance from the end.
    Advantages are in the mean results of the others, so that no kind of instance outweighs others.

    Nothing is learned from decisions of episodes that the rollout cuts off, unless values are learned. Without values the later
    costs of these decisions are unknown, and rewards until then alone would make a policy short-sighted.

    Args:
        env: that is played; it numbers the instance and decision of each step.
        has_values: whether values are learned.
    """

    def __init__(self, *args: Any, env: WorldVecEnv, has_values: bool = False, **kwargs: Any) -> None:
        self._env, self._has_values = env, has_values
        super().__init__(*args, **kwargs)

    def reset(self) -> None:
        """Empty the buffer."""
        self._at: NDArray[np.int64] = np.zeros((self.buffer_size, self.n_envs), np.int64)
        self._past: NDArray[np.float32] = np.zeros((self.buffer_size, self.n_envs), np.float32)
        super().reset()

    def add(self, *args: Any, **kwargs: Any) -> None:
        """Keep the decision that the environment has just carried out."""
        self._at[self.pos] = self._env.at[:, 0] * _MOST_STEPS + self._env.at[:, 1]
        self._past[self.pos] = self._env.past
        super().add(*args, **kwargs)

    def compute_returns_and_advantage(self, last_values: Tensor, dones: NDArray[np.bool_]) -> None:
        """Write advantages and returns; values are learned from returns without the groups' baseline."""
        super().compute_returns_and_advantage(last_values, dones)
        left, group = steps_left(self.episode_starts, dones), self._env.group
        beyond, past = (beyond_group(each, self._at, group) for each in (self.advantages, self._past))
        whole = self._past + self.returns
        others = np.abs(whole - beyond_group(whole, self._at, group))
        unit = np.where(others > 0, others, 1.0).astype(np.float32)
        self.advantages[:] = np.where((left > 0) | self._has_values, beyond_past(beyond / unit, past / unit, left), 0.0)


def steps_left(episode_starts: NDArray[np.float32], dones: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the steps until each one's episode ends, itself among them; 0 where that is beyond the rollout, ``(steps, e)``.

    Args:
        episode_starts: 1 where a step is the first of its episode, ``(steps, e)``.
        dones: whether the last step ended an episode, ``(e,)``.
    """
    ends = np.concatenate([episode_starts[1:], dones[None]]) > 0
    left = np.zeros((len(ends) + 1, ends.shape[1]), np.int64)
    for step in range(len(ends) - 1, -1, -1):
        left[step] = np.where(ends[step], 1, left[step + 1] + (left[step + 1] > 0))
    return left[:-1]


def beyond_past(
    advantages: NDArray[np.floating[Any]], past: NDArray[np.floating[Any]], left: NDArray[np.int64]
) -> NDArray[np.floating[Any]]:
    """Return advantages minus what is linear in the past, with a slope for each power of two of the steps left.

    Args:
        advantages: less the mean of the group's others, ``(steps, e)``.
        past: rewards before the step, less the mean of the group's others, ``(steps, e)``.
        left: steps until the end, 0 where that is not known, ``(steps, e)``.
    """
    result, distance = advantages.copy(), np.log2(np.maximum(left, 1)).astype(np.int64)
    for each in range(int(distance.max()) + 1):
        rows = (distance == each) & (left > 0)
        slope = float((advantages[rows] * past[rows]).sum()) / max(float((past[rows] ** 2).sum()), 1e-12)
        result[rows] -= slope * past[rows]
    return result
