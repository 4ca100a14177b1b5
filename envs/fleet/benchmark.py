"""A benchmark of a fleet as YAML: the fleet, and what an evaluation of it compares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from ... import settings
from ...errors import MeshwrightError
from ...worlds.benchmark import Benchmark
from ...worlds.benchmark_files import FLEET, NAME, each_once
from .fleet import Fleet, build_fleet
from .settings import FleetSettings


class FleetBenchmark(Benchmark):
    """A fleet and what is compared on it.

    Attributes:
        name: for tables; the file's stem in the built-in ones.
        fleet: cluster, jobs, menu and rules of the game.
        policies: compared in addition to those given, where the command names none (see `evaluation.fleet.policies`).
        num_seeds: test episodes (seeds 0, 1, ...), the same for every policy.
        num_validation_seeds: episodes (seeds 100, 101, ...) on which a tuned baseline is chosen.
    """

    kind = FLEET
    about = "a fleet"

    name: str = Field(pattern=NAME)
    fleet: FleetSettings
    policies: Annotated[tuple[str, ...], AfterValidator(each_once)] = ()
    num_seeds: int = Field(default=20, ge=2, le=100)
    num_validation_seeds: int = Field(default=5, ge=1, le=100)
    _read_from: tuple[Path, tuple[str, ...]] | None = None
    """The file of it and what was changed, for errors that come up when it is built; None for those of the package."""

    def build(self, *, cache: Path | None = None, progress: Callable[[str, int, int], None] | None = None) -> Fleet:
        """Build the fleet (see `envs.fleet.fleet.build_fleet`).

        Raises:
            MeshwrightError: as `build_fleet` says; with file and line where these are known.
        """
        try:
            return build_fleet(self.fleet, cache=cache, progress=progress)
        except MeshwrightError as error:
            if self._read_from is None:
                raise
            path, changes = self._read_from
            raise settings.located(error, path, changes, below="fleet") from None

    def read_from(self, path: Path, changes: Sequence[str]) -> FleetBenchmark:
        """See `Benchmark`: cluster, job types and kernels."""
        result = self.model_copy(update={"fleet": self.fleet.relative_to(path.parent)})
        result._read_from = (path, tuple(changes))
        return result


load_fleet_benchmark = FleetBenchmark.load
