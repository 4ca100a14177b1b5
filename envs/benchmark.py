"""A benchmark as YAML: a scenario, its rewards, and what an evaluation of it compares.

A *family* is a benchmark with ``variants``, each a list of changes to it in the language of ``--set``. A variant is a benchmark
of its own, ``preset:FAMILY/VARIANT`` (or ``PATH/VARIANT``). Policies are trained on the family's own scenario and tested on its
variants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from .. import settings
from ..errors import ConfigError
from ..packaged import path_in_folder
from ..simulation.cluster import scenario
from ..simulation.cluster.scenario import Scenario, ScenarioSettings
from ..worlds.benchmark_files import (
    ELASTIC,
    FLEET,
    NAME,
    PLACEMENT,
    SCENARIO,
    TASKLETS,
    each_once,
    find_benchmark,
    kind_of,
    preset_names,
)
from .reward import RewardSettings

_TAKERS = {
    FLEET: ("a fleet, which `meshwright evaluate` and the environment meshwright/JobPartitioning-v1 take", "fleet", "llm-256"),
    ELASTIC: ("elastic jobs, which `meshwright evaluate` takes", "elastic", "learned-shares"),
    PLACEMENT: (
        "operator placement, which `meshwright evaluate` and the environment meshwright/OperatorPlacement-v0 take",
        "graph",
        "operators-latency",
    ),
    TASKLETS: (
        "tasklets, which `meshwright evaluate` and the environment meshwright/World-v0 take",
        "graph",
        "tasklets",
    ),
}
"""By kind of benchmark: its name and its commands, the method of its training configs, and an example of these."""


class BenchmarkSettings(settings.Settings):
    """A scenario and what is compared on it.

    Attributes:
        name: for tables; the file's stem in the built-in ones.
        scenario: cluster, workload and rules.
        reward: what an agent is paid.
        policies: compared where the command names none, in addition to those given.
        num_seeds: test episodes (seeds 0, 1, ...), the same for every policy.
        num_validation_seeds: episodes (seeds 100, 101, ...) on which a tuned baseline is chosen.
        variants: of a family, the changes that make each of its variants, ``key=value`` as for ``--set``.
    """

    name: str = Field(pattern=NAME)
    scenario: ScenarioSettings
    reward: RewardSettings = RewardSettings()
    policies: Annotated[tuple[str, ...], AfterValidator(each_once)] = ()
    num_seeds: int = Field(default=10, ge=2, le=100)
    num_validation_seeds: int = Field(default=5, ge=1, le=100)
    variants: dict[Annotated[str, Field(pattern=NAME)], tuple[str, ...]] = Field(default_factory=dict)

    @field_validator("variants")
    @classmethod
    def _are_possible(cls, variants: dict[str, tuple[str, ...]], info: ValidationInfo) -> dict[str, tuple[str, ...]]:
        if "scenario" in info.data and "name" in info.data:  # else something else is wrong
            family = cls.model_construct(**info.data, variants=variants)
            for name in variants:
                try:
                    family.variant(name)
                except ConfigError as error:
                    raise ValueError(f"{name}: {error}") from None
        return variants

    def variant(self, name: str) -> BenchmarkSettings:
        """Return one variant of a family as a benchmark of its own, called ``FAMILY/VARIANT``.

        Raises:
            ConfigError: there is none of this name, or its changes are wrong.
        """
        if name not in self.variants:
            problem = "no such variant" if self.variants else "this benchmark has no variants"
            raise ConfigError(problem, field=f"benchmark {self.name}", value=name, choices=self.variants)
        data = self.model_dump(mode="json", exclude={"variants"})
        for change in self.variants[name]:
            data = settings.override(data, change)
        return settings.build_settings(BenchmarkSettings, data).model_copy(update={"name": f"{self.name}/{name}"})

    def build(
        self,
        *,
        graphs_dir: Path | None = None,
        cache: Path | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> Scenario:
        """Build the scenario (see `simulation.cluster.scenario.build_scenario`)."""
        return scenario.build_scenario(self.scenario, graphs_dir=graphs_dir, cache=cache, progress=progress)


def benchmark_names() -> list[str]:
    """Return the built-in benchmarks of scenarios."""
    return preset_names(SCENARIO)


def load_benchmark(spec: str, *, changes: Sequence[str] | None = None, trace: str | Path | None = None) -> BenchmarkSettings:
    """Return a benchmark by ``preset:NAME`` (a built-in's bare name) or path; a family's variant by ``/VARIANT`` after these.

    Paths of cluster and workload in it refer to its own folder, or else to the current one.

    Args:
        spec: which one.
        changes: ``key=value`` texts that change its keys; those of a variant are changed after its own changes.
        trace: the CSV file of the trace that its jobs follow.

    Raises:
        ConfigError: the preset or variant is unknown, the YAML is wrong, or a trace is given to a benchmark that follows none.
        InputFileError: the file is missing.
    """
    target = list(changes or ())
    if trace is not None:
        target += settings.as_changes({"scenario": {"workload_changes": {"arrivals": {"file": str(Path(trace).absolute())}}}})
    family, variant = _parted(spec)
    if variant is None:
        return _load(family, target)
    result = _load(family, [])
    if variant not in result.variants:
        return result.variant(variant)  # the error names those that there are
    changed = result.model_copy(update={"variants": {variant: (*result.variants[variant], *target)}})
    try:
        return _with_paths(changed.variant(variant), family)
    except ConfigError as error:  # the variant's own changes were looked at before
        raise error if error.field == "--set" else error.at(file="--set") from None


def load_variants(
    spec: str, *, changes: Sequence[str] | None = None, trace: str | Path | None = None
) -> tuple[BenchmarkSettings, ...]:
    """Load the benchmarks that an evaluation plays: the variants of a family in their order, or the benchmark alone.

    Arguments and errors are those of `load_benchmark`.
    """
    result = load_benchmark(spec, changes=changes, trace=trace)
    if not result.variants:
        return (result,)
    return tuple(load_benchmark(f"{spec}/{name}", changes=changes, trace=trace) for name in result.variants)


def named_in_config(spec: str, config: str | Path, *, is_changed: bool) -> str:
    """Return a benchmark or policy that a config of training names, by an absolute path where it is one.

    A path that is nowhere is named in the folder of the config, so that its refusal says where it was looked for.

    Args:
        spec: ``preset:NAME``, ``shipped:NAME``, a bare name or a path.
        config: the file, whose folder paths refer to.
        is_changed: whether a change on the command line says so; paths refer to the current folder then.
    """
    if spec.startswith(("preset:", "shipped:")):
        return spec
    is_name = spec.partition("/")[0] in benchmark_names()
    for place in (Path(spec),) if is_changed else (Path(config).parent / spec, Path(spec)):
        is_run = place.is_dir() and not is_name  # with the policy in it
        if place.is_file() or is_run or place.parent.is_file():  # a variant lies below the file of its family
            return str(place.resolve())
    is_path = not is_name and ("/" in spec or Path(spec).suffix != "")
    return str(Path(config).parent / spec) if is_path and not is_changed else spec


def _load(spec: str, changes: Sequence[str]) -> BenchmarkSettings:
    path, is_built_in = find_benchmark(spec)
    other = _TAKERS.get(kind_of(spec) or SCENARIO)
    if other is not None:
        takers, method, config = other
        problem = (
            f"is a benchmark of {takers}; a training config with `method: {method}`, as preset:{config} has it, trains on it"
        )
        raise ConfigError(problem, field="benchmark", value=spec)
    loaded = settings.load(BenchmarkSettings, path, changes=changes)
    return loaded if is_built_in else _with_paths(loaded, spec)


def _with_paths(loaded: BenchmarkSettings, spec: str) -> BenchmarkSettings:
    """Return the same with paths that refer to the current folder, for a benchmark that a file holds."""
    choice, folder = loaded.scenario, Path(spec).parent
    result: dict[str, Any] = {key: path_in_folder(getattr(choice, key), folder) for key in ("cluster", "workload")}
    result["costs"] = choice.costs.relative_to(folder)
    arrivals: Any = choice.workload_changes.get("arrivals")
    file = arrivals.get("file") if isinstance(arrivals, dict) else None
    if isinstance(file, str) and (trace := folder / file).is_file():  # otherwise it is searched in the workload's folder
        result["workload_changes"] = choice.workload_changes | {"arrivals": {**arrivals, "file": str(trace.absolute())}}
    return loaded.model_copy(update={"scenario": choice.model_copy(update=result)})


def _parted(spec: str) -> tuple[str, str | None]:
    """Return the name of a benchmark and the variant after it, if there is one."""
    before, slash, name = spec.rpartition("/")
    is_variant = before.startswith("preset:") or before in benchmark_names() or Path(before).is_file()
    return (before, name) if slash and is_variant and not Path(spec).exists() else (spec, None)
