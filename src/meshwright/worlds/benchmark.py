"""Common parts of the benchmarks of all worlds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from .. import settings
from ..budget_clock import BudgetClock
from ..errors import ConfigError
from .benchmark_files import NAME, each_once, find_benchmark, kind_of, preset_names

FIRST_SEED = {"test": 0, "validation": 100, "training": 1_000}
"""Of the instances of each split."""

MOST_TESTED, MOST_VALIDATED = 100, 450
"""As many more instances of validation as are validated on are kept for verdicts."""
MOST_OVER = 1e3
"""Ratios beyond this, among them those of episodes without a result, count as this much where policies are trained."""


def over_reference(values: Any, reference: Any) -> NDArray[np.float64]:
    """Return values over those of the reference, infinity without a result, of any equal shape; at most `MOST_OVER`."""
    capped: NDArray[np.float64] = np.minimum(values / reference, MOST_OVER)
    return capped


class Benchmark(settings.Settings):
    """A benchmark of one kind, which a key of its file says.

    Attributes:
        kind: that key, see `benchmark_files`.
        about: what it is a benchmark of, for messages.
    """

    kind: ClassVar[str]
    about: ClassVar[str]

    @classmethod
    def load(cls, spec: str, *, changes: Sequence[str] | None = None) -> Self:
        """Return a benchmark by ``preset:NAME`` (or a built-in's bare name) or by path.

        Paths in it refer to its own folder, or else to the current one.

        Args:
            spec: which one.
            changes: ``key=value`` texts that change its keys, as ``--set`` takes them.

        Raises:
            ConfigError: the preset is unknown, the YAML is wrong, or it is a benchmark of another kind.
            InputFileError: the file is missing.
        """
        path, is_built_in = find_benchmark(spec)
        if is_built_in and kind_of(spec) != cls.kind:  # what is wrong with a file is said by its keys
            raise ConfigError(f"is no benchmark of {cls.about}", field="benchmark", value=spec, choices=preset_names(cls.kind))
        loaded = settings.load(cls, path, changes=changes)
        return loaded if is_built_in else loaded.read_from(path, changes or ())

    def read_from(self, path: Path, changes: Sequence[str]) -> Self:
        """Return the same with its paths looked for in the folder of the file that it was read from."""
        return self


class WorldBenchmark(Benchmark):
    """Instances and what is compared on them; a world's own benchmark adds the key that says what is drawn.

    Attributes:
        name: for tables; the file's stem in the built-in ones.
        policies: compared in addition to those given.
        best_known_s: seconds of the search for the best known solution, with a seed of its own. The best of it and of all
            policies is the best known.
        clock: by which times and budgets are counted (see `budget_clock`); ``cpu`` where other processes share the machine.
        num_seeds: test instances (seeds 0, 1, ...), the same for every policy.
        num_validation_seeds: instances (seeds 100, 101, ...) on which training is validated.
    """

    name: str = Field(pattern=NAME)
    policies: Annotated[tuple[str, ...], AfterValidator(each_once)] = ()
    best_known_s: float = Field(default=10.0, gt=0, le=3600)
    clock: BudgetClock = "wall"
    num_seeds: int = Field(default=40, ge=2, le=MOST_TESTED)
    num_validation_seeds: int = Field(default=40, ge=2, le=MOST_VALIDATED)

    def seed(self, split: str, seed: int) -> int:
        """Return the number of a seed of a split; up to the numbers that a benchmark may ask for, no two splits share one.

        Raises:
            ConfigError: there is no such split.
        """
        if split not in FIRST_SEED:
            raise ConfigError("unknown split", field="split", value=split, choices=tuple(FIRST_SEED))
        return FIRST_SEED[split] + seed
