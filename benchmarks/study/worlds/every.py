"""The worlds of a study, by the spelling of a benchmark."""

from __future__ import annotations

from meshwright.envs.benchmark import BenchmarkSettings
from meshwright.envs.benchmark_files import ELASTIC, FLEET, PLACEMENT, kind_of
from meshwright.envs.elastic.benchmark import ElasticBenchmark
from meshwright.envs.fleet.benchmark import FleetBenchmark
from meshwright.envs.operators.benchmark import PlacementBenchmark

from ..places import Places
from .elastic import Elastic
from .fleets import Fleets
from .operators import Operators
from .scenarios import Scenarios
from .world import World

AnyBenchmark = BenchmarkSettings | ElasticBenchmark | FleetBenchmark | PlacementBenchmark


class Worlds:
    """Every world of a study."""

    def __init__(self, places: Places) -> None:
        self._scenarios = Scenarios(places)
        self._others: dict[str | None, World] = {FLEET: Fleets(), PLACEMENT: Operators(), ELASTIC: Elastic()}

    def of(self, spec: str) -> World:
        """That of a benchmark, by its spelling; of one that is not there, scenarios, whose reader tells so."""
        return self._others.get(kind_of(spec), self._scenarios)
