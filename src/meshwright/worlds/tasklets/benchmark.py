"""A benchmark of tasklets as YAML: which networks are drawn, and what an evaluation of them compares."""

from __future__ import annotations

from collections.abc import Sequence

from ... import settings
from ...simulation.tasklets.generators import NetworkDraw
from ...simulation.tasklets.instance import TaskletInstance
from ..benchmark import WorldBenchmark
from ..benchmark_files import TASKLETS, find_benchmark_of


class TaskletBenchmark(WorldBenchmark):
    """Networks and what is compared on them.

    Attributes:
        tasklets: networks.
    """

    tasklets: NetworkDraw

    def instance(self, split: str, seed: int) -> TaskletInstance:
        """Return the network of a seed of a split."""
        return self.tasklets.draw(self.seed(split, seed))


def load_tasklet_benchmark(spec: str, *, changes: Sequence[str] | None = None) -> TaskletBenchmark:
    """Return a benchmark by ``preset:NAME`` (or a built-in's bare name) or by path.

    Args:
        spec: which one.
        changes: ``key=value`` texts that change its keys, as ``--set`` takes them.

    Raises:
        ConfigError: the preset is unknown, the YAML is wrong, or it is no benchmark of tasklets.
        InputFileError: the file is missing.
    """
    path, _ = find_benchmark_of(spec, TASKLETS, "tasklets")
    return settings.load(TaskletBenchmark, path, changes=changes)
