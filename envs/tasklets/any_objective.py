"""The environments of ``meshwright/OperatorPlacement-v0``: which one depends on what the benchmark's objective is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...simulation.tasklets.instance import TaskletInstance
from ..benchmark_files import TASKLETS, kind_of
from ..operators.benchmark import PlacementBenchmark
from ..operators.env import OperatorPlacementEnv
from ..operators.vector_env import PlacementVectorEnv
from .benchmark import TaskletBenchmark
from .env import TaskletEnv
from .vector_env import TaskletVectorEnv

AnyBenchmark = str | Path | PlacementBenchmark | TaskletBenchmark | None


def placement_env(benchmark: AnyBenchmark = None, **options: Any) -> OperatorPlacementEnv | TaskletEnv:
    """The environment of a benchmark of operator placement or of tasklets; the options are those of its class.

    Without a benchmark it is the default one of the class that fits ``instance``, or else of `OperatorPlacementEnv`.
    """
    given: dict[str, Any] = options if benchmark is None else {"benchmark": benchmark, **options}
    return TaskletEnv(**given) if _is_of_tasklets(benchmark, options) else OperatorPlacementEnv(**given)


def placement_vector_env(
    num_envs: int = 1, benchmark: AnyBenchmark = None, **options: Any
) -> PlacementVectorEnv | TaskletVectorEnv:
    """Make an environment that plays many episodes of operator placement at once, of ops or of tasklets."""
    given: dict[str, Any] = options if benchmark is None else {"benchmark": benchmark, **options}
    made = TaskletVectorEnv if _is_of_tasklets(benchmark, options) else PlacementVectorEnv
    return made(num_envs, **given)


def _is_of_tasklets(benchmark: AnyBenchmark, options: dict[str, Any]) -> bool:
    if isinstance(benchmark, TaskletBenchmark) or isinstance(options.get("instance"), TaskletInstance):
        return True
    return isinstance(benchmark, str | Path) and kind_of(str(benchmark)) == TASKLETS
