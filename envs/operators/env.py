"""`OperatorPlacementEnv`: ops of one instance get devices, one group after another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ...errors import PlanError, PolicyError
from ...planners.operators.place import PLACEMENT_PLANNERS, place
from ...planners.operators.request import PlacementRequest
from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import lower_bound
from ..single import NumberedInstances, check_render_mode, refuse_options, taken_action
from .batch import PlacementBatch
from .benchmark import PlacementBenchmark, PlacementSettings, load_placement_benchmark
from .observation import new_placement_observations, observe_placements, placement_space

PlacementObservation = dict[str, Any]

_COMPARED_S = 0.1
_PROVED_S = 10.0
"""For a proof that may take hours; what is known by then counts."""


class OperatorPlacementEnv(gymnasium.Env[PlacementObservation, np.int64]):
    """An environment in which each op of a job graph is placed on a device.

    **Id.** ``meshwright/OperatorPlacement-v0``; ``gymnasium.make_vec`` gives `PlacementVectorEnv`. One episode places
    one instance; one step gives a group of ops a device. Groups come by the upward rank of their first op: ops that most
    depends on first, producers before their readers.

    **Action.** ``Discrete(m)``: a device; ``m`` is the most devices that the benchmark draws. `action_masks` and the key
    ``action_mask`` tell which may be chosen: those that run the ops, hold them in memory, and leave room for what is still to
    come as far as packing it largest first shows. Any other action counts as the first possible one; ``info["was_possible"]`` is
    false then.

    **Observation.** ``Dict``; ``n`` is the most ops that the benchmark draws, and features lie in [0, 1]. A time ``s`` is given
    as ``s / (s + unit)``: for ``op_dynamic`` and ``device_dynamic`` with the lower bound of the instance's value.

    ==================  ==========  =================================================================================
    key                 shape       meaning
    ==================  ==========  =================================================================================
    ``placed``          (n,)        1 plus the device of each op; 0 while it has none
    ``op_dynamic``      (n, 3)      of each op: start, end, and share of its input bytes whose producers have a device
    ``device_dynamic``  (m, 3)      of each device: end of its last op, memory left, seconds of work
    ``candidate``       (m, 17)     what each device would make of the next group, see `simulation.operators.decisions.candidates`
    ``current``         ()          the op that is placed next, the first of its group
    ``action_mask``     (m,)        1 where a device may be chosen
    ==================  ==========  =================================================================================

    The parts that do not change within an episode are those of `instance`: times, edges, tensors, links, memory.
    `models.operators.graphs.hetero_data` makes a graph of them for PyG.

    **Reward.** Minus what the value of the partial placement grew, in lower bounds of the instance; sums to minus the value
    over its bound. While ops are placed each starts where it ended first; with the last one the devices run their ops in the
    best order known (`simulation.operators.schedules.best_order`) where that ends sooner, and what that gains is in the reward. A
    step after which no device can hold the next ops ends the episode and costs 1 more; where a packing fits at the start this
    does not happen.

    **Episode end.** Terminated when every op has a device; never truncated.

    **Info.** ``instance`` (name), ``bound_s``, ``value_s`` of what is placed; after a step ``was_possible``; ``infeasible``
    at a dead end; with ``compare`` also ``compared_s``, seconds of each planner's placement by name, infinite where it has none.

    **Arguments.** ``benchmark`` (name, path or settings), ``instance`` (always this one instead), ``split`` of the seeds
    (``training``), ``num_instances`` (how many are drawn from without a seed, each drawn once; by default without end),
    ``compare`` (planners that place each instance as well, a search for a tenth of a second; of the single environment only),
    ``render_mode`` (``ansi``).

    **Seeds.** ``reset(seed=N)`` places instance ``N`` of the split; without a seed the next one is drawn.

    **Version history.** v0: first.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 - as in the base

    def __init__(
        self,
        benchmark: str | Path | PlacementBenchmark = "preset:latency-tight",
        *,
        instance: OperatorInstance | None = None,
        split: str = "training",
        num_instances: int | None = None,
        compare: Sequence[str] = (),
        render_mode: str | None = None,
    ) -> None:
        check_render_mode(render_mode, self.metadata["render_modes"])
        self._compare = tuple(compare)
        self._compared_s: dict[str, float] = {}
        self._source = InstanceSource.of(benchmark, instance, split, num_instances)
        able = [name for name, each in PLACEMENT_PLANNERS.items() if self._source.objective in each.objectives]
        for name in compare:
            if name not in able:
                problem = f"no planner of this name plans for {self._source.objective}"
                raise PolicyError(problem, field="compare", value=name, choices=able)
        self.render_mode = render_mode
        n, m = self._source.most
        self._batch: PlacementBatch | None = None
        self._seen = new_placement_observations(1, n, m)
        self.action_space = spaces.Discrete(m)
        self.observation_space: spaces.Space[Any] = placement_space(n, m)

    @property
    def instance(self) -> OperatorInstance:
        """What is placed in this episode.

        Raises:
            PolicyError: none has begun.
        """
        return self._playing().instances[0]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[PlacementObservation, dict[str, Any]]:
        """Start with an instance on which nothing is placed.

        Raises:
            ConfigError: any option is given; there are none.
        """
        super().reset(seed=seed)
        refuse_options(options)
        instance = self._source.instance(self._source.number(self.np_random, seed))
        self._batch = PlacementBatch([instance], self._source.objective, 1)
        self._batch.begin(np.zeros(1, np.int64))
        self._compared_s = {name: self._by_planner(name, instance) for name in self._compare}
        return self._observation(), self._info()

    def step(self, action: np.int64 | int) -> tuple[PlacementObservation, SupportsFloat, bool, bool, dict[str, Any]]:
        """Place a group of ops on a device.

        Raises:
            PolicyError: the action is no number of one, or the episode is over or has not begun.
        """
        batch = self._playing()
        if not batch.is_live[0]:
            raise PolicyError("the episode is over; reset the environment")
        device, was_possible = taken_action(action, self.action_masks())
        reward = batch.step(np.array([device]))[0]
        info = {**self._info(), "was_possible": was_possible}
        if batch.is_dead[0]:
            info["infeasible"] = True
        return self._observation(), float(reward), not bool(batch.is_live[0]), False, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Devices that may be chosen, ``(m,)``; the form that MaskablePPO asks for."""
        found, mask = self._playing().state.can_place[0], np.zeros(self._source.most[1], np.bool_)
        mask[: len(found)] = found
        return mask

    def render(self) -> str | None:
        """A line for each device: its ops so far, seconds of work and memory; None without a render mode."""
        if self.render_mode is None:
            return None
        batch, instance = self._playing(), self.instance
        state = batch.state
        lines = [f"{instance.name}: {state.value_s[0]:.4g} s placed"]
        of_op = state.device_of[0][instance.group]
        for device, name in enumerate(instance.device_names):
            ops = np.flatnonzero(of_op == device)
            told = f"{name}: {len(ops)} ops, {state.work_s[0, device]:.3g} s of work"
            if 0 < instance.memory_bytes[device] < np.inf:
                told += f", {100 * state.held_bytes[0, device] / instance.memory_bytes[device]:.0f} % of its memory"
            lines.append(told)
        return "\n".join(lines)

    def _playing(self) -> PlacementBatch:
        if self._batch is None:
            raise PolicyError("no episode has begun; reset the environment")
        return self._batch

    def _info(self) -> dict[str, Any]:
        batch = self._playing()
        bound = lower_bound(batch.instances[0], batch.objective)
        info = {"instance": batch.instances[0].name, "bound_s": bound, "value_s": float(batch.state.value_s[0])}
        return {**info, "compared_s": dict(self._compared_s)} if self._compare else info

    def _by_planner(self, name: str, instance: OperatorInstance) -> float:
        """Seconds of a planner's placement; infinite where it finds none."""
        request = PlacementRequest(self._source.objective, _COMPARED_S if PLACEMENT_PLANNERS[name].is_search else _PROVED_S)
        try:
            return place(instance, name, request).value_s
        except PlanError:
            return float("inf")

    def _observation(self) -> PlacementObservation:
        batch = self._playing()
        observe_placements(batch.stacked, batch.state, batch.lead, np.ones(1, np.bool_), self._seen)
        return {key: values[0].copy() for key, values in self._seen._asdict().items()}


class InstanceSource(NumberedInstances[OperatorInstance]):
    """The choice of the instance that an episode places.

    Attributes:
        objective: what counts.
        most: ops and devices that an instance has at most.

    Raises:
        ConfigError: an unknown split, or less than one instance.
    """

    def __init__(
        self, settings: PlacementSettings, instance: OperatorInstance | None, split: str, num_instances: int | None
    ) -> None:
        super().__init__(settings.instance, instance, split, num_instances)
        self.objective = settings.objective
        self.most = (instance.num_ops, instance.num_devices) if instance is not None else settings.most()

    @classmethod
    def of(
        cls,
        benchmark: str | Path | PlacementBenchmark,
        instance: OperatorInstance | None,
        split: str,
        num_instances: int | None,
    ) -> InstanceSource:
        """Make a source of instances from the arguments of an environment.

        Raises:
            ConfigError: rewards are not of the benchmark's form.
        """
        chosen = benchmark if isinstance(benchmark, PlacementBenchmark) else load_placement_benchmark(str(benchmark))
        chosen.placement.check_default_form()
        return cls(chosen.placement, instance, split, num_instances)
