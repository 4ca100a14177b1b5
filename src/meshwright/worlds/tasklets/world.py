"""`TaskletWorld`: networks of distant devices as a world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...planners.arrangement.arrange import CHAIN, SOLVERS, ArrangementRequest, arrange, arrange_from
from ...planners.policy_names import budget_in, parsed
from ...simulation.tasklets.filling import CANDIDATE_FEATURES, PROGRESS_FEATURES
from ...simulation.tasklets.generators import NetworkDraw
from ...simulation.tasklets.instance import TaskletInstance
from ...simulation.tasklets.placement import TaskletPlacement
from ..benchmark import WorldBenchmark
from ..benchmark_files import TASKLETS
from ..typed_graph import Sizes, WorldSpec
from ..world import World
from .episodes import TaskletEpisodes
from .graph import DEVICE, LINK, LINKS, MOST_LINKS, NETWORK, STAGE

_OWN_SEED = 1_000_003
"""Seeds of the search for the best known begin here, so that it repeats no search that is compared."""


class TaskletBenchmark(WorldBenchmark):
    """Networks and what is compared on them.

    Attributes:
        tasklets: networks.
    """

    kind = TASKLETS
    about = "tasklets"

    tasklets: NetworkDraw

    def instance(self, split: str, seed: int) -> TaskletInstance:
        """Return the network of a seed of a split."""
        return self.tasklets.draw(self.seed(split, seed))


load_tasklet_benchmark = TaskletBenchmark.load


class TaskletWorld(World[TaskletInstance]):
    """Group distant devices into the stages of a pipeline, a replica on each device.

    Source: Yuan et al., "Decentralized training of foundation models in heterogeneous environments", 2022, for the objective.

    Args:
        benchmark: of the networks; None for networks of the caller's own.
    """

    spec = WorldSpec(
        name="tasklets",
        nodes={"device": DEVICE, "stage": STAGE},
        edges={LINKS: LINK},
        whole=NETWORK,
        member="device",
        group="stage",
        slots=("device", "stage", "stage"),
        action=CANDIDATE_FEATURES,
        state=PROGRESS_FEATURES,
    )
    case = "network"
    reference_name = CHAIN
    rules = tuple(SOLVERS)

    def __init__(self, benchmark: TaskletBenchmark | None = None) -> None:
        self.benchmark = benchmark

    @property
    def sizes(self) -> Sizes:
        """See `World`."""
        draw = self._drawn().tasklets
        return _sizes(draw.most_devices, max(draw.num_stages))

    def sizes_of(self, instance: TaskletInstance) -> Sizes:
        """See `World`."""
        return _sizes(instance.num_devices, instance.num_stages)

    def instance(self, split: str, seed: int) -> TaskletInstance:
        """See `World`."""
        return self._drawn().instance(split, seed)

    def batch(self, num_places: int, num_episodes: int, sizes: Sizes | None = None) -> TaskletEpisodes:
        """See `World`."""
        return TaskletEpisodes(self.spec, sizes or self.sizes, num_places, num_episodes)

    def reference(self, instance: TaskletInstance) -> float:
        """See `World`: a round of ``chain``, in seconds."""
        return arrange(instance, ArrangementRequest(num_rounds=1)).value_s

    def solve(self, instance: TaskletInstance, rounds: int, seed: int) -> NDArray[np.int64]:
        """See `World`: the stage of each device in what ``chain`` finds."""
        stages = arrange(instance, ArrangementRequest(num_rounds=rounds, seed=seed)).device_of
        stage_of = np.empty(instance.num_devices, np.int64)
        stage_of[stages] = np.arange(len(stages))[:, None]
        return stage_of

    def improve(
        self, instance: TaskletInstance, outcomes: Sequence[TaskletPlacement], budget_s: float, seed: int
    ) -> TaskletPlacement:
        """See `World`: by the moves of ``chain``."""
        if instance.num_stages == 1:
            return outcomes[0]
        return arrange_from(instance, ArrangementRequest(budget_s, seed), [each.device_of for each in outcomes])

    def tiny(self) -> TaskletInstance:
        """See `World`."""
        return TaskletInstance("tiny", ("a",) * 4, np.ones((4, 4)), np.ones((4, 4)), 2, 1.0, 1.0)

    def solver(self, spec: str) -> Callable[[TaskletInstance, int], TaskletPlacement]:
        """See `World`: with ``@SECONDS`` behind it, 1 by default."""
        name, *_, how = parsed(spec)
        budget_s = budget_in(spec, how)
        return lambda instance, seed: arrange(instance, ArrangementRequest(budget_s, seed, name))

    def best_known(self, instance: TaskletInstance, seed: int) -> TaskletPlacement:
        """See `World`: by ``chain``."""
        return arrange(instance, ArrangementRequest(self._drawn().best_known_s, _OWN_SEED + seed))

    def classes(self, cases: Sequence[int]) -> list[dict[str, Any]]:
        """See `World`: kinds of networks."""
        kinds = self._drawn().tasklets.kinds
        of = {kind: [place for place, case in enumerate(cases) if kinds[case % len(kinds)] == kind] for kind in kinds}
        results = [{"dimension": "kind", "class": kind, "cases": places} for kind, places in of.items() if places]
        return results if len(results) > 1 else []

    def equivalent(self, instance: TaskletInstance, solution: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """See `World`: either end of the pipeline may be filled first."""
        return instance.num_stages - 1 - solution if rng.random() < 0.5 else solution

    def _drawn(self) -> TaskletBenchmark:
        benchmark: TaskletBenchmark = self.benchmark
        return benchmark


def load_tasklet_world(spec: str, changes: Sequence[str] | None = None) -> TaskletWorld:
    """Return the world of a benchmark; see `benchmark.load_tasklet_benchmark`."""
    return TaskletWorld(load_tasklet_benchmark(spec, changes=changes))


def _sizes(num_devices: int, num_stages: int) -> Sizes:
    links = num_devices * min(MOST_LINKS, num_devices - 1)
    return Sizes({"device": num_devices, "stage": num_stages}, {LINKS: links}, num_devices)
