"""A benchmark as YAML: a scenario, its rewards, and what an evaluation of it compares."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.resources import files as resources
from pathlib import Path

from pydantic import Field, field_validator

from .. import settings
from ..errors import ConfigError
from ..simulation import scenario
from ..simulation.scenario import Scenario, ScenarioSettings
from .reward import RewardSettings


class BenchmarkSettings(settings.Settings):
    """A scenario and what is compared on it.

    Attributes:
        name: for tables; the file's stem in the built-in ones.
        scenario: cluster, workload and rules.
        reward: what an agent is paid.
        policies: compared where the command names none beside those given.
        num_seeds: test episodes (seeds 0, 1, ...), the same for every policy.
        num_validation_seeds: episodes (seeds 100, 101, ...) on which a tuned baseline is chosen.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    scenario: ScenarioSettings
    reward: RewardSettings = RewardSettings()
    policies: tuple[str, ...] = ()
    num_seeds: int = Field(default=10, ge=2, le=100)
    num_validation_seeds: int = Field(default=5, ge=1, le=100)

    @field_validator("policies")
    @classmethod
    def _each_once(cls, policies: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(policies)) < len(policies):
            raise ValueError("must name each policy once")
        return policies

    def build(
        self,
        *,
        graphs_dir: Path | None = None,
        cache: Path | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> Scenario:
        """Build the scenario (see `simulation.scenario.build`)."""
        return scenario.build(self.scenario, graphs_dir=graphs_dir, cache=cache, progress=progress)


def benchmark_names() -> list[str]:
    """The built-in benchmarks."""
    return sorted(p.name.removesuffix(".yaml") for p in _folder().iterdir() if p.name.endswith(".yaml"))


def load_benchmark(spec: str, *, changes: list[str] | None = None) -> BenchmarkSettings:
    """A benchmark by ``preset:NAME`` (or a built-in's bare name) or by path.

    Paths of cluster and workload in it refer to its own folder, or else to the current one.

    Raises:
        ConfigError: the preset is unknown, or the YAML is wrong.
        InputFileError: the file is missing.
    """
    name = spec.removeprefix("preset:")
    if spec.startswith("preset:") or (spec in benchmark_names() and not Path(spec).is_file()):
        if name not in benchmark_names():
            raise ConfigError("unknown benchmark", field="benchmark", value=name, choices=benchmark_names())
        return settings.load(BenchmarkSettings, _folder() / f"{name}.yaml", changes=changes or ())
    if not Path(spec).exists() and "/" not in spec and not spec.endswith((".yaml", ".yml")):
        choices = [f"preset:{n}" for n in benchmark_names()]
        raise ConfigError("no such benchmark and no such file", field="benchmark", value=spec, choices=choices)
    loaded = settings.load(BenchmarkSettings, spec, changes=changes or ())
    chosen, folder = loaded.scenario, Path(spec).parent
    paths = {"cluster": beside(chosen.cluster, folder), "workload": beside(chosen.workload, folder)}
    return loaded.model_copy(update={"scenario": chosen.model_copy(update=paths)})


def beside(spec: str, folder: Path) -> str:
    """A path from the folder of the file that names it, where a file is there; any other spelling as it is."""
    inside = folder / spec
    return str(inside) if not spec.startswith("preset:") and os.path.isfile(inside) else spec


def _folder() -> Path:
    return Path(str(resources("meshwright.configs"))) / "benchmarks"
