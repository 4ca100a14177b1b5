"""`WorldEnv` and `WorldVectorEnv`: any world of `worlds.registry` as an environment of Gymnasium."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from ..errors import ConfigError, PlanError, PolicyError
from ..planners.policy_names import parsed
from ..worlds.registry import load_world
from ..worlds.world import InstanceGraph, Sizes, World, WorldBatch, WorldSpec
from .single import NumberedInstances, check_render_mode, refuse_options, taken_action
from .vector_env import BatchVectorEnv, Infos, Observations, empty_observations, note, taken_actions

_NEXT_STEP = AutoresetMode.NEXT_STEP
_MOST = 1e9
"""No feature is larger."""


class WorldEnv(gymnasium.Env[Observations, np.int64]):
    """Play instances of a world, one decision after another.

    **Id.** ``meshwright/World-v0``; ``gymnasium.make_vec`` gives `WorldVectorEnv`. ``meshwright/OperatorPlacement-v0`` is the
    same with ``preset:latency-tight`` as its benchmark.

    **Action.** ``Discrete(a)``: a row of the table of actions; ``a`` is the most that a decision has. `action_masks` and the key
    ``action_mask`` say which are possible. Any other action counts as the first possible one; ``info["was_possible"]`` is false
    then.

    **Observation.** ``Dict``: the typed graph of the instance, which does not change within an episode, and the next decision.
    Names of features are those of ``world.spec``. Rows beyond an instance's own size are 0, nodes and ends of edges there -1.

    =======================  ==========  ===============================================================================
    key                      shape       meaning
    =======================  ==========  ===============================================================================
    ``nodes/TYPE``           (n, f)      features of the nodes of a type
    ``ends/A-NAME-B``        (2, m)      source and target of each edge of a type
    ``edges/A-NAME-B``       (m, f)      their features
    ``counts``               (t,)        nodes of each type, in the order of the spec
    ``whole``                (f,)        features of the instance
    ``member``               (n,)        group that each member has joined, -1 before
    ``state``                (f,)        features of the episode
    ``nodes``                (a, s)      nodes of each action
    ``features``             (a, f)      features of each action
    ``action_mask``          (a,)        1 where an action is possible
    =======================  ==========  ===============================================================================

    **Reward.** Minus what the value of what is decided grew, in lower bounds of the instance: see `OperatorEpisodes` and
    `TaskletEpisodes`.

    **Episode end.** Terminated when nothing is left to decide; never truncated.

    **Info.** ``instance`` and figures of the world; after a step ``was_possible``; with ``compare`` also ``compared_s``, the
    value of each solver by name, infinite where it finds nothing.

    **Arguments.** ``benchmark`` (name, path or a `World`), ``instance`` (always this one instead), ``split`` of the seeds
    (``training``), ``num_instances`` (how many are drawn from without a seed, each drawn once; by default without end),
    ``compare`` (of the single environment: rules and searches of the world that solve each instance as well, as ``heft`` or
    ``annealing@0.1``), ``render_mode`` (``ansi``).

    **Seeds.** ``reset(seed=N)`` plays instance ``N`` of the split; without a seed the next one is drawn.

    **Version history.** v0: first.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 - as in the base

    def __init__(
        self,
        benchmark: str | Path | World[Any] = "preset:tasklets-64",
        *,
        instance: Any = None,
        split: str = "training",
        num_instances: int | None = None,
        compare: Sequence[str] = (),
        render_mode: str | None = None,
    ) -> None:
        check_render_mode(render_mode, self.metadata["render_modes"])
        self._episodes = WorldEpisodes(benchmark, instance, split, num_instances, 1)
        self.world, self.render_mode = self._episodes.world, render_mode
        for spec in compare:
            if parsed(spec).whole not in self.world.rules:
                raise PolicyError("is no rule of this world", field="compare", value=spec, choices=self.world.rules)
        self._solvers = {spec: self.world.solver(spec) for spec in compare}
        self._compared_s: dict[str, float] = {}
        self.action_space = spaces.Discrete(self._episodes.sizes.actions)
        self.observation_space: spaces.Space[Any] = world_space(self.world.spec, self._episodes.sizes)

    @property
    def instance(self) -> Any:
        """The instance of this episode.

        Raises:
            PolicyError: none has begun.
        """
        return self._playing().instances[0]

    def outcome(self, name: str = "episode") -> Any:
        """Return the placement of an episode that is over.

        Raises:
            PolicyError: it is not over.
            PlanError: it ended without one.
        """
        if self._playing().is_live[0]:
            raise PolicyError("the episode is not over")
        return self._playing().outcome(0, name)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observations, dict[str, Any]]:
        """Start with an instance of which nothing is decided.

        Raises:
            ConfigError: any option is given; there are none.
        """
        super().reset(seed=seed)
        refuse_options(options)
        self._episodes.begin(0, self.np_random, seed)
        self._compared_s = {spec: _value(solver, self.instance) for spec, solver in self._solvers.items()}
        return self._observation(), self._info()

    def step(self, action: np.int64 | int) -> tuple[Observations, SupportsFloat, bool, bool, dict[str, Any]]:
        """Carry out an action.

        Raises:
            PolicyError: the action is no number of one, or the episode is over or has not begun.
        """
        batch = self._playing()
        if not batch.is_live[0]:
            raise PolicyError("the episode is over; reset the environment")
        taken, was_possible = taken_action(action, batch.decisions.mask[0])
        reward = batch.step(np.array([taken]))[0]
        return (
            self._observation(),
            float(reward),
            not bool(batch.is_live[0]),
            False,
            self._info() | {"was_possible": was_possible},
        )

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which actions are possible, ``(a,)``; the form that MaskablePPO asks for."""
        return np.array(self._playing().decisions.mask[0])

    def render(self) -> str | None:
        """Return the episode as text; None without a render mode."""
        return None if self.render_mode is None else "\n".join(self._playing().lines(0))

    def _info(self) -> dict[str, Any]:
        info = self._episodes.batch.info(0)
        return info | {"compared_s": dict(self._compared_s)} if self._solvers else info

    def _playing(self) -> WorldBatch[Any]:
        if self._episodes.batch.instances[0] is None:
            raise PolicyError("no episode has begun; reset the environment")
        return self._episodes.batch

    def _observation(self) -> Observations:
        return {key: values[0].copy() for key, values in self._episodes.observed().items()}


def _value(solver: Callable[[Any, int], Any], instance: Any) -> float:
    """Return the value that a solver finds; infinite where it finds none."""
    try:
        return float(solver(instance, 0).value_s)
    except PlanError:
        return float("inf")


class WorldVectorEnv(BatchVectorEnv):
    """Many episodes of a world at once: what ``gymnasium.make_vec`` gives; see `WorldEnv` for all else.

    Args:
        num_envs: ``e``.
        benchmark: as of `WorldEnv`.
        instance: as of `WorldEnv`.
        split: as of `WorldEnv`.
        num_instances: as of `WorldEnv`.
        autoreset_mode: see `BatchVectorEnv`.
        render_mode: none is known.
    """

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": _NEXT_STEP}  # noqa: RUF012 - as in the base

    def __init__(
        self,
        num_envs: int = 1,
        benchmark: str | Path | World[Any] = "preset:tasklets-64",
        *,
        instance: Any = None,
        split: str = "training",
        num_instances: int | None = None,
        autoreset_mode: str | AutoresetMode = _NEXT_STEP,
        render_mode: str | None = None,
    ) -> None:
        if num_envs < 1:
            raise ConfigError("must be at least 1", field="num_envs", value=num_envs)
        self._episodes = WorldEpisodes(benchmark, instance, split, num_instances, num_envs)
        self._was_possible = np.ones(num_envs, np.bool_)
        space = world_space(self._episodes.world.spec, self._episodes.sizes)
        super().__init__(num_envs, space, spaces.Discrete(self._episodes.sizes.actions), autoreset_mode, render_mode)

    @property
    def instances(self) -> tuple[Any, ...]:
        """The instance of each environment, ``e`` of them."""
        return tuple(self._episodes.batch.instances)

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which actions are possible, ``(e, a)``."""
        return np.array(self._episodes.batch.decisions.mask)

    def _begin(self, e: int, rng: np.random.Generator, seed: int | None) -> None:
        self._episodes.begin(e, rng, seed)

    def _advance(
        self, actions: NDArray[np.int64], is_stepped: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        batch = self._episodes.batch
        taken, self._was_possible = taken_actions(actions, batch.decisions.mask)
        rewards = batch.step(taken)
        return rewards, ~batch.is_live & is_stepped, np.zeros(self.num_envs, np.bool_)

    def _current(self) -> Observations:
        return self._episodes.observed()

    def _begun_infos(self, which: NDArray[np.bool_]) -> Infos:
        infos, rows = Infos(), {e: self._episodes.batch.info(e) for e in np.flatnonzero(which).tolist()}
        for name, example in next(iter(rows.values()), {}).items():
            values = np.full(self.num_envs, None, object) if isinstance(example, str) else np.zeros(self.num_envs, type(example))
            for e, row in rows.items():
                values[e] = row[name]
            note(infos, name, values, which)
        return infos

    def _stepped_infos(self, which: NDArray[np.bool_]) -> Infos:
        infos = self._begun_infos(which)
        note(infos, "was_possible", self._was_possible, which)
        return infos


class WorldEpisodes:
    """Episodes of drawn instances, and what is observed of them.

    Attributes:
        world: that is played.
        sizes: of the largest instance.
        batch: the episodes.

    Raises:
        ConfigError: an unknown split, or less than one instance.
    """

    def __init__(
        self, benchmark: str | Path | World[Any], instance: Any, split: str, num_instances: int | None, num_envs: int
    ) -> None:
        self.world: World[Any] = benchmark if isinstance(benchmark, World) else load_world(str(benchmark))
        self.sizes = self.world.sizes if instance is None else self.world.sizes_of(instance)
        self.batch = self.world.batch(num_envs, num_envs, self.sizes)
        self._source = NumberedInstances(self.world.instance, instance, split, num_instances)
        self._seen = empty_observations(world_space(self.world.spec, self.sizes), num_envs)
        # The arrays of the next decision are the batch's own.
        self._seen |= {name: values for name, values in self.batch.decisions._asdict().items() if name in self._seen}
        self._graph = lru_cache(num_envs if num_instances is None else num_instances)(self.world.checked_graph)

    def begin(self, e: int, rng: np.random.Generator, seed: int | None) -> None:
        """Start an episode on the next instance."""
        instance = self._source.instance(self._source.number(rng, seed))
        if self.batch.instances[e] is not instance:
            self.batch.put(e, instance)
            _write_graph(self.world.spec, self._graph(instance), {name: values[e] for name, values in self._seen.items()})
        self.batch.begin(e, e)

    def observed(self) -> Observations:
        """Return the observations, ``(e, ...)`` each."""
        self._seen["action_mask"] = self.batch.decisions.mask.astype(np.int8)
        return self._seen


def world_space(spec: WorldSpec, sizes: Sizes) -> spaces.Dict:
    """Return the observation space of a world's environment, see `WorldEnv`."""

    def real(*shape: int) -> spaces.Box:
        return spaces.Box(-_MOST, _MOST, shape, np.float32)

    most, a = max(sizes.nodes.values()), sizes.actions
    found: dict[str, spaces.Space[Any]] = {}
    for name, names in spec.nodes.items():
        found[f"nodes/{name}"] = real(sizes.nodes[name], len(names))
    for triple, names in spec.edges.items():
        m, text = sizes.edges[triple], "-".join(triple)
        found[f"ends/{text}"] = spaces.Box(-1, most - 1, (2, m), np.int64)
        found[f"edges/{text}"] = real(m, len(names))
    return spaces.Dict(
        {
            **found,
            "counts": spaces.Box(0, most, (len(spec.nodes),), np.int64),
            "whole": real(len(spec.whole)),
            "member": spaces.Box(-1, sizes.nodes[spec.group] - 1, (sizes.nodes[spec.member],), np.int32),
            "state": real(len(spec.state)),
            "nodes": spaces.Box(-1, most - 1, (a, len(spec.slots)), np.int32),
            "features": real(a, len(spec.action)),
            "action_mask": spaces.Box(0, 1, (a,), np.int8),
        }
    )


def _write_graph(spec: WorldSpec, graph: InstanceGraph, out: Observations) -> None:
    """Write what does not change within an episode."""
    for name, features in graph.nodes.items():
        out[f"nodes/{name}"][:] = 0.0
        out[f"nodes/{name}"][: len(features)] = features
    for triple, features in graph.edges.items():
        text, m = "-".join(triple), len(features)
        out[f"ends/{text}"][:], out[f"edges/{text}"][:] = -1, 0.0
        out[f"ends/{text}"][:, :m], out[f"edges/{text}"][:m] = graph.ends[triple], features
    out["counts"][:] = [len(graph.nodes[name]) for name in spec.nodes]
    out["whole"][:] = graph.whole
