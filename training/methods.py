"""Training by the method that a config names: `METHODS`, one function that reads a config, and one that trains.

A new method is a row of `METHODS`: the command line takes from it what it trains with and what it says of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from .. import settings
from ..errors import ConfigError

if TYPE_CHECKING:
    from ..simulation.cluster.scenario import Scenario
    from .elastic.settings import ElasticTrainSettings
    from .fleet.settings import FleetTrainSettings
    from .graph.settings import GraphTrainSettings
    from .hooks.callback import TrainingCallback
    from .hooks.names import RunSettings
    from .linear.settings import LinearSettings
    from .run_folder import RunFolder
    from .settings import TrainSettings

    SeedSettings: TypeAlias = TrainSettings | LinearSettings | FleetTrainSettings | ElasticTrainSettings | GraphTrainSettings
    """Configs of all methods."""
else:
    SeedSettings = settings.Settings

SetUp = Callable[[str, int, int], None]
"""Called while what is played is built: with its name, its number and how many there are."""


def percent(share: float) -> str:
    """Return a share in per cent."""
    return f"{100 * share:.2f} %"


def written(value: float) -> str:
    """Return a value of an objective to four digits, without powers of ten where thousands can be read."""
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


@dataclass(frozen=True)
class Method:
    """A method of training, and the texts of its reports.

    Classes and functions are named as ``MODULE:NAME``, and loaded when they are asked for.

    Attributes:
        settings: class of its config.
        learner: a `training.run.Learner`, made of the config and of what is built.
        ending: of the files of checkpoint and policy.
        benchmarks: subject of its benchmarks where they take no profiles; None for scenarios, which do.
        build: builds the benchmark, so that several learners may share it. It takes a config, a folder of profiles and a
            progress. It returns further arguments of the learner, and the built benchmark by its name. None: the learner builds
            it.
        is_less_better: whether less of what the validation measures is better, by config.
        key: of the validation in a row of the learning curve.
        step_key: of the steps there.
        text: writes a validation.
        measure: what is validated, in the table of a run; by default as the run itself calls it.
        column: the same, in the table of several seeds.
        title: of the table, before the name of the run.
        learned: heading of what the last row of the learning curve counts, and its key; None: the table leaves it out.
        first: whose validation the first row is.
    """

    settings: str
    learner: str
    ending: str = ".pt"
    benchmarks: str | None = None
    build: Callable[[Any, Path | None, SetUp | None], tuple[dict[str, Any], dict[str, Any]]] | None = None
    is_less_better: Callable[[Any], bool] = lambda value: True
    key: str = "validation"
    step_key: str = "steps"
    text: Callable[[float], str] = written
    measure: str | None = None
    column: str = "objective"
    title: str = "Trained"
    learned: tuple[str, str] | None = ("decisions learned from", "steps")
    first: str = "before training"


def load(name: str) -> Any:
    """Return a class or function of a `Method`."""
    module, _, result = name.partition(":")
    return getattr(import_module(module), result)


def _scenario(config: Any, graphs_dir: Path | None, progress: SetUp | None) -> tuple[dict[str, Any], dict[str, Any]]:
    from ..envs.benchmark import load_benchmark

    scenario = load_benchmark(config.benchmark, changes=config.changes).build(graphs_dir=graphs_dir, progress=progress)
    return {"graphs_dir": graphs_dir, "scenario": scenario}, {config.benchmark: scenario}


def _fleets(config: Any, graphs_dir: Path | None, progress: SetUp | None) -> tuple[dict[str, Any], dict[str, Any]]:
    from ..envs.fleet.benchmark import load_fleet_benchmark

    fleets = [load_fleet_benchmark(benchmark, changes=config.changes).build(progress=progress) for benchmark in config.benchmarks]
    return {"fleet": fleets[0], "mixed": fleets[1:]}, dict(zip(config.benchmarks, fleets, strict=True))


def _is_less_better_in_fleet(config: Any) -> bool:
    from ..envs.fleet.benchmark import load_fleet_benchmark
    from ..envs.fleet.reward import is_better

    return is_better(load_fleet_benchmark(config.benchmark, changes=config.changes).fleet, 0.0, 1.0)


METHODS: dict[str | None, Method] = {
    None: Method(
        "meshwright.training.settings:TrainSettings",
        "meshwright.training.train:PPOLearner",
        build=_scenario,
        key="validation_blocking_rate",
        text=percent,
        measure="blocking rate",
        column="blocking %",
    ),
    "linear": Method(
        "meshwright.training.linear.settings:LinearSettings",
        "meshwright.training.linear.search:LinearLearner",
        ".json",
        build=_scenario,
        key="validation_blocking_rate",
        step_key="generation",
        text=percent,
        measure="blocking rate",
        column="blocking %",
        title="Tuned",
        learned=("decisions played", "steps"),
        first="of the first mean",
    ),
    "fleet": Method(
        "meshwright.training.fleet.settings:FleetTrainSettings",
        "meshwright.training.fleet.train:FleetLearner",
        benchmarks="a fleet",
        build=_fleets,
        is_less_better=_is_less_better_in_fleet,
    ),
    "elastic": Method(
        "meshwright.training.elastic.settings:ElasticTrainSettings",
        "meshwright.training.elastic.search:ElasticLearner",
        ".json",
        benchmarks="elastic jobs",
        key="validation_mean_completion_s",
        step_key="generation",
        text="{:.1f} s".format,
        measure="completion time",
        column="completion s",
        title="Searched",
        learned=None,
        first="with weights by hand",
    ),
    "graph": Method(
        "meshwright.training.graph.settings:GraphTrainSettings",
        "meshwright.training.graph.train:GraphLearner",
        benchmarks="a world of graphs",
        step_key="update",
        text="{:.3f}".format,
        learned=("updates, steps of the imitation among them", "update"),
    ),
}
"""By the key ``method`` of a config; None is PPO on `JobPartitioning-v0`."""


def method_of(run_settings: RunSettings) -> Method:
    """Return the method of a config."""
    return METHODS[getattr(run_settings, "method", None)]


def method_named(path: str | Path, changes: Sequence[str] = ()) -> str | None:
    """Return the key ``method`` of a training config; None without one.

    Raises:
        InputFileError: the file is missing or unreadable.
        ConfigError: bad YAML, or no such method.
    """
    data, _ = settings.read_yaml(path)
    for change in changes:
        data = settings.override(data, change)
    named = data.get("method") if isinstance(data, dict) else None
    if not isinstance(named, str | None) or named not in METHODS:
        problem, choices = "no such method; leave the key out for PPO, and take graph for ops", filter(None, METHODS)
        raise ConfigError(problem, file=path, field="method", value=named, choices=choices)
    return named


def load_config(path: str | Path, changes: Sequence[str] = ()) -> SeedSettings:
    """Read a training config of any method, by its key ``method``; without one it is PPO's.

    Args:
        path: the YAML file.
        changes: ``key=value`` texts, applied in order.

    Raises:
        InputFileError: the file is missing or unreadable.
        ConfigError: bad YAML, a key twice, an unknown key or method, or an impossible value.
    """
    kind: type[SeedSettings] = load(METHODS[method_named(path, changes)].settings)
    from .settings import load_with_paths

    return load_with_paths(kind, path, changes)


def train(
    choice: SeedSettings | str | Path,
    folder: str | Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    command: Sequence[str] = (),
    graphs_dir: Path | None = None,
    scenario: Scenario | None = None,
    callbacks: Sequence[TrainingCallback] = (),
    built: Mapping[str, Any] | None = None,
) -> RunFolder:
    """Train a policy by the method of a config and leave a run folder.

    Args:
        choice: the config, or the path of its YAML.
        folder: the run folder; new unless ``resume`` or ``overwrite``.
        resume: continue from the folder's checkpoint (from the start where it has none yet), to the same numbers that an
            uninterrupted run reaches.
        overwrite: replace an existing run folder.
        command: the command line, for the record.
        graphs_dir: profiles by folder name (see `jobs.load_graph`); for PPO and linear scorers.
        scenario: of the benchmark, already built, to save its set-up; for PPO and linear scorers.
        callbacks: called at the start, after every update and validation, and at the end (see `training.hooks.callback`);
            they may stop the run.
        built: further arguments of the method's learner, in place of the two above (see `Method.build`).

    Returns:
        The run folder.

    Raises:
        NothingToLearnError: all policies do equally well on the validation episodes.
        MeshwrightError: the config, benchmark or checkpoint is wrong; the folder exists already. Nothing is written then.
    """
    choice = load_config(choice) if isinstance(choice, str | Path) else choice
    from .run import TrainingRun, check_callbacks  # loads torch
    from .run_folder import RunFolder

    method = method_of(choice)
    if built is None:
        built = {} if method.benchmarks is not None else {"graphs_dir": graphs_dir, "scenario": scenario}
    run_folder = RunFolder(Path(folder), method.ending)
    check_callbacks(callbacks)
    if resume:
        run_folder.check_begun(choice)
    else:
        run_folder.check_new(overwrite=overwrite)
    run = TrainingRun(choice, run_folder, load(method.learner)(choice, **built), callbacks)
    run.begin(resume=resume)
    if not resume:
        run_folder.create(choice, command, overwrite=overwrite)
    run.learn()
    return run_folder
