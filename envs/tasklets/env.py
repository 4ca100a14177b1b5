"""`TaskletEnv`: distant devices join the stages of a pipeline, one after another."""

from __future__ import annotations

from pathlib import Path
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ...errors import PolicyError
from ...simulation.tasklets.instance import TaskletInstance
from ..single import NumberedInstances, check_render_mode, refuse_options, taken_action
from .batch import FillingBatch
from .benchmark import TaskletBenchmark, load_tasklet_benchmark
from .observation import filling_space, new_filling_observations, observe_filling, observe_network

FillingObservation = dict[str, Any]


class TaskletEnv(gymnasium.Env[FillingObservation, np.int64]):
    """Group distant devices into the stages of a pipeline, with a replica on each device.

    **Id.** ``meshwright/OperatorPlacement-v0`` with a benchmark of tasklets, such as ``preset:tasklets-64``;
    ``gymnasium.make_vec`` gives `TaskletVectorEnv`. One episode is one network of ``n`` devices; stages are filled one after
    another along the pipeline, and one step says which device joins the stage that is being filled.

    **Action.** ``Discrete(n)``: a device; ``n`` is the most devices that the benchmark draws. `action_masks` and the key
    ``action_mask`` tell which are in no stage yet. Any other action counts as the first possible one; ``info["was_possible"]``
    is false then.

    **Observation.** ``Dict``; features lie in [0, 1]. A time ``s`` is given as ``s / (s + unit)``, where the unit is the mean of
    its kind over the pairs of the network, times the number of them that a stage or a pipeline has.

    ===============  =======  =======================================================================================
    key              shape    meaning
    ===============  =======  =======================================================================================
    ``stage``        (n,)     1 plus the stage of each device; 0 while it has none
    ``reduce``       (n, n)   exchange of a stage's gradients between two devices
    ``hand_over``    (n, n)   hand-over of activations between two devices
    ``candidate``    (n, 16)  what each device would make of the stage, see `simulation.tasklets.filling`
    ``progress``     (5,)     how far the episode is, see there
    ``action_mask``  (n,)     1 where a device may join
    ===============  =======  =======================================================================================

    **Reward.** Minus what the value of the stages filled so far grew, in lower bounds of the network; sums to minus the value
    over its bound. While stages are filled they follow each other as they were filled; with the last device they are put in the
    best order, and what that gains is in the last reward.

    **Episode end.** Terminated when every device is in a stage; never truncated.

    **Info.** ``instance`` (name), ``bound_s``, ``value_s`` of what is filled; after a step ``was_possible``.

    **Arguments.** ``benchmark`` (name, path or settings), ``instance`` (always this one instead), ``split`` of the seeds
    (``training``), ``num_instances`` (how many are drawn from without a seed, each drawn once; by default without end),
    ``render_mode`` (``ansi``).

    **Seeds.** ``reset(seed=N)`` plays network ``N`` of the split; without a seed the next one is drawn.

    **Version history.** v0: first.

    Source: Yuan et al., "Decentralized training of foundation models in heterogeneous environments", 2022, for the objective.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 - as in the base

    def __init__(
        self,
        benchmark: str | Path | TaskletBenchmark = "preset:tasklets-64",
        *,
        instance: TaskletInstance | None = None,
        split: str = "training",
        num_instances: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        check_render_mode(render_mode, self.metadata["render_modes"])
        self._source = NetworkSource(benchmark, instance, split, num_instances)
        self.render_mode = render_mode
        n = self._source.most_devices
        self._batch = FillingBatch.with_room(1, 1, n)
        self._seen = new_filling_observations(1, n)
        self.action_space = spaces.Discrete(n)
        self.observation_space: spaces.Space[Any] = filling_space(n)

    @property
    def instance(self) -> TaskletInstance:
        """The network of this episode.

        Raises:
            PolicyError: none has begun.
        """
        return self._playing().instances[0]

    @property
    def stages(self) -> NDArray[np.int64]:
        """Devices of each stage of an episode that is over, ``(k, p)``.

        Raises:
            PolicyError: it is not over.
        """
        batch = self._playing()
        if batch.is_live[0]:
            raise PolicyError("the episode goes on: not every device is in a stage")
        return batch.stages(0)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FillingObservation, dict[str, Any]]:
        """Start with a network whose stages are empty.

        Raises:
            ConfigError: any option is given; there are none.
        """
        super().reset(seed=seed)
        refuse_options(options)
        self._batch.put(0, self._source.instance(self._source.number(self.np_random, seed)))
        self._batch.begin_with(0, 0)
        observe_network(self._batch.stacked, self._batch.state, 0, self._seen)
        return self._observation(), self._info()

    def step(self, action: np.int64 | int) -> tuple[FillingObservation, SupportsFloat, bool, bool, dict[str, Any]]:
        """Add a device to the stage that is being filled.

        Raises:
            PolicyError: the action is no number of one, or the episode is over or has not begun.
        """
        batch = self._playing()
        if not batch.is_live[0]:
            raise PolicyError("the episode is over; reset the environment")
        taken, was_possible = taken_action(action, self.action_masks())
        reward = batch.step(np.array([taken]))[0]
        info = {**self._info(), "was_possible": was_possible}
        return self._observation(), float(reward), not bool(batch.is_live[0]), False, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Devices that may join, ``(n,)``; the form that MaskablePPO asks for."""
        return np.array(self._playing().state.can_join[0])

    def render(self) -> str | None:
        """A line for each stage that has a device; None without a render mode."""
        if self.render_mode is None:
            return None
        batch, instance = self._playing(), self.instance
        joined = batch.state.joined[0, : batch.state.num_joined[0]].tolist()
        lines = [f"{instance.name}: {batch.state.value_s[0]:.4g} s"]
        for first in range(0, len(joined), instance.num_replicas):
            members = joined[first : first + instance.num_replicas]
            lines.append(f"stage {first // instance.num_replicas}: {' '.join(map(str, members))}")
        return "\n".join(lines)

    def _playing(self) -> FillingBatch:
        if not self._batch.is_filled(0):
            raise PolicyError("no episode has begun; reset the environment")
        return self._batch

    def _info(self) -> dict[str, Any]:
        batch = self._playing()
        return {
            "instance": batch.instances[0].name,
            "bound_s": float(batch.stacked.scale_s[0]),
            "value_s": float(batch.state.value_s[0]),
        }

    def _observation(self) -> FillingObservation:
        observe_filling(self._batch.stacked, self._batch.state, np.ones(1, np.bool_), self._seen)
        return {key: values[0].copy() for key, values in self._seen._asdict().items()}


class NetworkSource(NumberedInstances[TaskletInstance]):
    """The choice of the network that an episode plays, from the arguments of an environment.

    Attributes:
        most_devices: of a network.

    Raises:
        ConfigError: an unknown split, or less than one network.
    """

    def __init__(
        self,
        benchmark: str | Path | TaskletBenchmark,
        instance: TaskletInstance | None,
        split: str,
        num_instances: int | None,
    ) -> None:
        chosen = benchmark if isinstance(benchmark, TaskletBenchmark) else load_tasklet_benchmark(str(benchmark))
        super().__init__(chosen.instance, instance, split, num_instances)
        self.most_devices = instance.num_devices if instance is not None else chosen.tasklets.most_devices
