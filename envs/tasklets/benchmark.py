"""A benchmark of tasklets as YAML: which networks are drawn, and what an evaluation of them compares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from ... import settings
from ...budget_clock import BudgetClock
from ...simulation.operators.generators import SPLITS, Split
from ...simulation.tasklets.generators import NetworkDraw
from ...simulation.tasklets.instance import TaskletInstance
from ..benchmark_files import NAME, TASKLETS, each_once, find_benchmark_of

FIRST_SEED: dict[Split, int] = dict(zip(SPLITS, (0, 100, 1_000), strict=True))
"""Of the networks of each split: test, validation, training."""

MOST_TESTED, MOST_VALIDATED = 100, 900


class TaskletBenchmark(settings.Settings):
    """Networks and what is compared on them.

    Attributes:
        name: for tables; the file's stem in the built-in ones.
        tasklets: networks.
        policies: compared in addition to those given (see `evaluation.tasklets.policies`).
        best_known_s: seconds of the search ``chain`` with a seed of its own; the best of it and of all policies is the best
            known.
        clock: by which times and budgets are counted (see `budget_clock`); ``cpu`` where other processes share the machine.
        num_seeds: test networks (seeds 0, 1, ...), the same for every policy.
        num_validation_seeds: networks (seeds 100, 101, ...) on which training is validated.
    """

    name: str = Field(pattern=NAME)
    tasklets: NetworkDraw
    policies: Annotated[tuple[str, ...], AfterValidator(each_once)] = ()
    best_known_s: float = Field(default=10.0, gt=0, le=3600)
    clock: BudgetClock = "wall"
    num_seeds: int = Field(default=40, ge=2, le=MOST_TESTED)
    num_validation_seeds: int = Field(default=40, ge=2, le=MOST_VALIDATED)

    def instance(self, split: Split, seed: int) -> TaskletInstance:
        """The network of a seed of a split; up to the numbers that a benchmark may ask for no split has those of another."""
        return self.tasklets.draw(FIRST_SEED[split] + seed)


def load_tasklet_benchmark(spec: str, *, changes: Sequence[str] | None = None) -> TaskletBenchmark:
    """A benchmark by ``preset:NAME`` (or a built-in's bare name) or by path.

    Args:
        spec: which one.
        changes: ``key=value`` texts that change its keys, as ``--set`` takes them.

    Raises:
        ConfigError: the preset is unknown, the YAML is wrong, or it is no benchmark of tasklets.
        InputFileError: the file is missing.
    """
    path, _ = find_benchmark_of(spec, TASKLETS, "tasklets")
    return settings.load(TaskletBenchmark, path, changes=changes)
