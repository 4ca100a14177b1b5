"""A benchmark of tasklets as YAML: which networks are drawn, and what an evaluation of them compares."""

from __future__ import annotations

from ...simulation.tasklets.generators import NetworkDraw
from ...simulation.tasklets.instance import TaskletInstance
from ..benchmark import WorldBenchmark
from ..benchmark_files import TASKLETS


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
