"""`WorldEnv` and `WorldVectorEnv`: any world of `worlds.registry` as environments of Gymnasium."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import create_empty_array
from numpy.typing import NDArray

from ..errors import ConfigError, PlanError, PolicyError
from ..planners.policy_names import parsed
from ..worlds.registry import load_world
from ..worlds.typed_graph import InstanceGraph, Sizes, WorldSpec
from ..worlds.world import World
from .episodes import Advanced, BatchedEpisodes, Columns, Observations
from .single import EpisodeEnv
from .vector_env import BatchVectorEnv

SPLITS = ("test", "validation", "training")
_MOST = 1e9
"""No feature is larger."""


class WorldEpisodes(BatchedEpisodes):
    """Episodes of drawn instances, and what is observed of them; for the arguments see `WorldEnv`.

    Attributes:
        world: that is played.
        batch: the episodes.

    Raises:
        ConfigError: an unknown split, or less than one instance.
        PolicyError: what is compared is no rule of this world.
    """

    def __init__(
        self,
        num_episodes: int,
        benchmark: str | Path | World[Any] = "preset:tasklets-64",
        *,
        changes: Sequence[str] = (),
        instance: Any = None,
        split: str = "training",
        num_instances: int | None = None,
        compare: Sequence[str] = (),
    ) -> None:
        if split not in SPLITS:
            raise ConfigError("unknown split", field="split", value=split, choices=SPLITS)
        if num_instances is not None and num_instances < 1:
            raise ConfigError("must be at least 1", field="num_instances", value=num_instances)
        self.world: World[Any] = benchmark if isinstance(benchmark, World) else load_world(str(benchmark), changes)
        for spec in compare:
            if parsed(spec).whole not in self.world.rules:
                raise PolicyError("is no rule of this world", field="compare", value=spec, choices=self.world.rules)
        self._compare, self._graphs = tuple(compare), list[InstanceGraph | None]([None] * num_episodes)
        self._compared_s: list[dict[str, float]] = [{} for _ in range(num_episodes)]
        self._none = np.zeros(num_episodes, np.bool_)
        self.num_episodes, self._chosen_instance, self._split, self._num_instances = num_episodes, instance, split, num_instances
        self._sizes = self.world.sizes if instance is None else self.world.sizes_of(instance)
        self.batch = self.world.batch(num_episodes, num_episodes, self._sizes)
        self._shown = cast(Observations, create_empty_array(self.space, num_episodes))
        # The arrays of the next decision are the batch's own.
        self._shown |= {name: values for name, values in self.batch.decisions._asdict().items() if name in self._shown}
        self._remember()

    def _remember(self) -> None:
        """Make what remembers instances and graphs, and the solvers; functions that cannot be copied."""
        most = self._num_instances
        self._graph = lru_cache(self.num_episodes if most is None else most)(self.world.graph)
        self._instance = lru_cache(most or 1)(self.world.instance)
        self._solvers = {spec: self.world.solver(spec) for spec in self._compare}

    def __getstate__(self) -> dict[str, Any]:
        """Return all but what `_remember` makes."""
        return {key: value for key, value in self.__dict__.items() if key not in ("_graph", "_instance", "_solvers")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Continue from `__getstate__`."""
        self.__dict__.update(state)
        self._remember()

    @property
    def space(self) -> spaces.Dict:
        """See `BatchedEpisodes`."""
        return world_space(self.world.spec, self._sizes)

    @property
    def num_actions(self) -> int:
        """See `BatchedEpisodes`."""
        return self._sizes.actions

    def reset(self, e: int, rng: np.random.Generator, seed: int | None = None) -> None:
        """Start an episode on the instance of a seed, or else on a drawn one."""
        number = seed if seed is not None else int(rng.integers(self._num_instances or 2**31))
        instance = self._instance(self._split, number) if self._chosen_instance is None else self._chosen_instance
        is_other = self.batch.instances[e] is not instance
        if is_other:
            self.batch.put(e, instance)
        self.batch.begin(e, e)
        if self.world.spec.changes:
            self._show_changed(e)
        elif is_other:
            self._write(e, self._graph(instance))
        self._compared_s[e] = {spec: _value(solver, instance) for spec, solver in self._solvers.items()}

    def advance(self, actions: NDArray[np.int64]) -> Advanced:
        """See `BatchedEpisodes`."""
        rewards = self.batch.step(actions)
        if self.world.spec.changes:
            for e in np.flatnonzero(self.batch.is_live).tolist():
                self._show_changed(e)
        is_cut = self._none if self.batch.is_cut is None else self.batch.is_cut
        return rewards, ~self.batch.is_live & ~is_cut, is_cut

    def _show_changed(self, e: int) -> None:
        """Write the graph of an episode if it has changed."""
        graph = self.batch.checked_graph(e, self._graphs[e])
        if graph is not self._graphs[e]:
            self._graphs[e] = graph
            self._write(e, graph)

    def _write(self, e: int, graph: InstanceGraph) -> None:
        _write_graph(self.world.spec, graph, {name: values[e] for name, values in self._shown.items()})

    def shown(self) -> Observations:
        """See `BatchedEpisodes`."""
        self._shown["action_mask"] = self.batch.decisions.mask.astype(np.int8)
        return self._shown

    def masks(self) -> NDArray[np.bool_]:
        """See `BatchedEpisodes`."""
        return self.batch.decisions.mask

    def infos(self, which: Sequence[int]) -> Columns:
        """See `BatchedEpisodes`."""
        rows = {e: self.info(e) for e in which}
        columns: Columns = {}
        for name, example in next(iter(rows.values()), {}).items():
            is_number = isinstance(example, bool | int | float)
            columns[name] = np.zeros(self.num_episodes, type(example)) if is_number else np.full(self.num_episodes, None, object)
            for e, row in rows.items():
                columns[name][e] = row[name]
        return columns

    def info(self, e: int) -> dict[str, Any]:
        """See `BatchedEpisodes`: what the world says of an episode, and the values of solvers that are compared."""
        info = self.batch.info(e)
        return info | {"compared_s": dict(self._compared_s[e])} if self._solvers else info

    def frame(self, e: int, mode: str) -> str:
        """See `BatchedEpisodes`."""
        return "\n".join(self.batch.lines(e))


class WorldEnv(EpisodeEnv):
    """Play instances of a world, one decision after another.

    **Id.** ``meshwright/World-v0``; ``gymnasium.make_vec`` gives `WorldVectorEnv`. ``meshwright/OperatorPlacement-v0`` is the
    same with ``preset:latency-tight`` as its benchmark, ``meshwright/ElasticJobs-v0`` with ``preset:elastic-published-1.0``.

    **Action.** ``Discrete(a)``: a row of the table of actions; ``a`` is the most that a decision has. `action_masks` and the key
    ``action_mask`` say which are possible. Any other action counts as the first possible one; ``info["was_possible"]`` is false
    then.

    **Observation.** ``Dict``: the typed graph of the instance, and the next decision. Within an episode the graph changes only in
    worlds whose ``spec.changes`` says so. Names of features are those of ``world.spec``. Rows beyond the nodes that are there are
    0, nodes and ends of edges there -1.

    =======================  ==========  ===============================================================================
    key                      shape       meaning
    =======================  ==========  ===============================================================================
    ``nodes/TYPE``           (n, f)      features of the nodes of a type.
    ``ends/A-NAME-B``        (2, m)      source and target of each edge of a type.
    ``edges/A-NAME-B``       (m, f)      their features.
    ``counts``               (t,)        nodes of each type, in the order of the spec.
    ``whole``                (f,)        features of the instance.
    ``member``               (n,)        group that each member has joined, -1 before.
    ``state``                (f,)        features of the episode.
    ``nodes``                (a, s)      nodes of each action.
    ``features``             (a, f)      features of each action.
    ``action_mask``          (a,)        1 where an action is possible.
    =======================  ==========  ===============================================================================

    **Reward.** Minus the growth of the value of the decisions so far: see `OperatorEpisodes`, `TaskletEpisodes` and
    `ElasticEpisodes`.

    **Episode end.** Terminated when nothing is left to decide; truncated where the world cuts it, as elastic jobs after 20,000
    rounds.

    **Info.** ``instance`` and figures of the world; after a step ``was_possible``. With ``compare`` also ``compared_s``, the
    value of each solver by name, infinite where it finds nothing.

    **Arguments.** ``benchmark`` (name, path or a `World`), ``changes`` (``key=value`` texts that change its keys), ``instance``
    (always this one instead), ``split`` of the seeds (``training``). ``num_instances`` (size of the set that is drawn from
    without a seed, each drawn once; by default without end). ``compare`` (rules and searches of the world that solve each
    instance as well, as ``heft`` or ``annealing@0.1``), ``render_mode`` (``ansi``).

    **Seeds.** ``reset(seed=N)`` plays instance ``N`` of the split; without a seed the next one is drawn.

    **Version history.** v0: first.
    """

    make_batch = WorldEpisodes
    _batch: WorldEpisodes

    @property
    def world(self) -> World[Any]:
        """The world that is played."""
        return self._batch.world

    @property
    def instance(self) -> Any:
        """The instance of this episode.

        Raises:
            PolicyError: none has begun.
        """
        self._begun()
        return self._batch.batch.instances[0]

    def outcome(self, name: str = "episode") -> Any:
        """Return the placement of an episode that is over.

        Raises:
            PolicyError: it is not over.
            PlanError: it ended without one.
        """
        self._begun()
        if not self._is_over:
            raise PolicyError("the episode is not over")
        return self._batch.batch.outcome(0, name)


class WorldVectorEnv(BatchVectorEnv):
    """Step many episodes of `WorldEnv`: the result of ``gymnasium.make_vec("meshwright/World-v0", num_envs=e)``."""

    make_batch = WorldEpisodes
    batch: WorldEpisodes

    @property
    def instances(self) -> tuple[Any, ...]:
        """The instance of each environment, ``e`` of them."""
        return tuple(self.batch.batch.instances)


def _value(solver: Callable[[Any, int], Any], instance: Any) -> float:
    """Return the value that a solver finds; infinite where it finds none."""
    try:
        return float(solver(instance, 0).value_s)
    except PlanError:
        return float("inf")


def world_space(spec: WorldSpec, sizes: Sizes) -> spaces.Dict:
    """Return the observation space of a world's environment, see `WorldEnv`."""

    def real(*shape: int) -> spaces.Box:
        return spaces.Box(-_MOST, _MOST, shape, np.float32)

    most, a = max(sizes.nodes.values()), sizes.actions
    results: dict[str, spaces.Space[Any]] = {}
    for name, names in spec.nodes.items():
        results[f"nodes/{name}"] = real(sizes.nodes[name], len(names))
    for triple, names in spec.edges.items():
        m, text = sizes.edges[triple], "-".join(triple)
        results[f"ends/{text}"] = spaces.Box(-1, most - 1, (2, m), np.int64)
        results[f"edges/{text}"] = real(m, len(names))
    return spaces.Dict(
        {
            **results,
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
    """Write a graph in the place of another one."""
    for name, features in graph.nodes.items():
        out[f"nodes/{name}"][:] = 0.0
        out[f"nodes/{name}"][: len(features)] = features
    for triple, features in graph.edges.items():
        text, m = "-".join(triple), len(features)
        out[f"ends/{text}"][:], out[f"edges/{text}"][:] = -1, 0.0
        out[f"ends/{text}"][:, :m], out[f"edges/{text}"][:m] = graph.ends[triple], features
    out["counts"][:] = [len(graph.nodes[name]) for name in spec.nodes]
    out["whole"][:] = graph.whole
