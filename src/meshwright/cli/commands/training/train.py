"""``meshwright train``: a network, or what the config's key ``method`` says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from .... import inputs
from ....errors import CheckpointError, ConfigError, MeshwrightError
from ....packaged import config_path, train_presets
from ... import interrupts, output
from ...options import Changes, GraphsDir, JsonFile
from .kept import kept_rows
from .request import TrainRequest

if TYPE_CHECKING:
    from ....training.linear.settings import LinearSettings
    from ....training.linear.tune import TuneProgress
    from ....training.run_folder import AnyRunFolder
    from ....training.settings import TrainSettings
    from ....training.train import TrainProgress

    Chosen = TypeVar("Chosen", TrainSettings, LinearSettings)

LINEAR = "linear"
FLEET = "fleet"
ELASTIC = "elastic"
OPERATORS = "operators"
GRAPH = "graph"


def train_policy(
    config: Annotated[
        str | None, typer.Argument(metavar="CONFIG", help="YAML of the run, or preset:NAME; left out with --resume.")
    ] = None,
    changes: Changes = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Go on from a run folder's last checkpoint.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Run folder; runs/NAME by default.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing run folder.")] = False,
    seeds: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="A run for each seed, in DIR-seed-N; --resume takes the same DIR.")
    ] = None,
    jobs: Annotated[int, typer.Option(metavar="N", help="Processes for the runs of --seeds.")] = 1,
    ray: Annotated[
        str | None,
        typer.Option(metavar="CLUSTER", help="A Ray cluster in their place, HOST:PORT or local:N, whose nodes share folders."),
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help="Writers of validations: stdout, csv, tensorboard; none for none."),
    ] = None,
    graphs: GraphsDir = None,
    json_file: JsonFile = None,
) -> None:
    """Train a policy from a config into a run folder, or go on training one."""
    from ....training.run_folder import resumed_files

    for path in () if resume is None or seeds is not None else resumed_files(resume):
        inputs.declare("--resume", path, is_update=True)
    output.check_file("--json", json_file)
    output.check_folder("--out", out if seeds is None else None, is_replaced=True)
    if graphs is not None:
        from ....jobs.load import profile_names

        profile_names(graphs)  # refuses a folder without any
    if resume is not None and (out is not None or overwrite):
        raise ConfigError("goes on in its own run folder; leave out --out and --overwrite", field="--resume", value=str(resume))
    if resume is None and config is None:
        raise ConfigError("name a config, or a run folder with --resume", field="CONFIG", choices=train_presets())
    begun = resume if resume is None or seeds is None else first_of(resume, seeds)
    chosen_method = method(config, changes or (), begun)
    config_file = None if config is None else config_path(config)
    if seeds is not None:
        from .train_seeds import train_seeds

        train_seeds(seeds, config_file, chosen_method, changes or [], log, resume, out, overwrite, graphs, jobs, ray, json_file)
        return
    if jobs != 1 or ray is not None:
        option, value = ("--jobs", str(jobs)) if ray is None else ("--ray", ray)
        raise ConfigError("goes with --seeds: one run is trained in one process", field=option, value=value)
    asked = _ScenarioRequest(config_file, tuple(changes or ()), resume, out, overwrite, graphs, json_file, log)
    try:
        _METHODS[chosen_method](asked)
    except KeyboardInterrupt:
        raise asked.interrupt() from None


@dataclass(frozen=True)
class _ScenarioRequest(TrainRequest):
    """The same, for what is trained on a scenario: networks and linear scorers."""

    def settings(self, of: type[Chosen], kind: type[AnyRunFolder[Chosen]]) -> Chosen:
        """The config, or that of the run folder that is resumed."""
        from ....training.settings import load_with_paths

        chosen = load_with_paths(of, self.config, self.changes) if self.config is not None else None
        if self.resume is not None:
            begun = kind.open(self.resume).settings()
            if chosen is None and self.changes:
                raise CheckpointError(
                    "a run is resumed as it was begun; leave out --set", file=self.resume, value=self.changes[0]
                )
            chosen = chosen or begun
        assert chosen is not None
        return self.logged(chosen)

    def run(
        self, chosen: Chosen, train: Callable[..., Any], shown: str, total: int, update: Callable[[Any], dict[str, Any]]
    ) -> Any:
        """Train with a progress bar.

        Args:
            chosen: the config.
            train: `training.train.train` or `training.linear.tune.tune`.
            shown: what the bar counts, up to ``total``.
            update: what the bar shows of a progress.

        Returns:
            The run folder.
        """
        folder = self.folder(chosen.name)
        with output.progress() as bars, interrupts.remembered() as check_interrupt:
            from ....envs.benchmark import load_benchmark

            with output.set_up(bars) as simulated:
                benchmark = load_benchmark(chosen.benchmark, changes=chosen.changes)
                scenario = benchmark.build(graphs_dir=self.graphs, progress=simulated)
            task = bars.add_task(shown, total=total, note="")

            def report(now: Any) -> None:
                check_interrupt()
                bars.update(task, **update(now))

            return train(
                chosen,
                folder,
                graphs_dir=self.graphs,
                scenario=scenario,
                progress=report,
                **self.arguments({chosen.benchmark: scenario}),
            )

    def show_blocking(
        self,
        made: AnyRunFolder[Any],
        title: str,
        steps: str,
        where: Callable[[Mapping[str, Any]], str],
        first: Callable[[Mapping[str, Any]], str],
        last: str,
    ) -> None:
        """Print what the run reached: after the steps, by what they are called, the rows of `kept.kept_rows`."""
        curve = self.curve(made)
        about = kept_rows(
            curve,
            "validation_blocking_rate",
            "validation blocking rate",
            _percent,
            where,
            made.policy.name,
            first(curve[0]),
            last=last,
        )
        self.show(made, title, curve, [[steps, f"{curve[-1]['steps']:,}"], *about])


def _percent(rate: float) -> str:
    return f"{100 * rate:.2f} %"


def _train_network(asked: _ScenarioRequest) -> None:
    from ....training.run_folder import RunFolder
    from ....training.settings import TrainSettings

    def train(*arguments: Any, **options: Any) -> RunFolder:
        from ....training import train as training  # takes a while, and bars are there by now

        return training.train(*arguments, **options)

    def shown(now: TrainProgress) -> dict[str, Any]:
        note = "" if now.blocking_rate is None else asked.note(now.blocking_rate, now.best, _percent, "blocking")
        if now.tuned < 1.0:
            note = f"linear scorer, {100 * now.tuned:.0f} %: {note}"
        return {"total": now.total_steps, "completed": min(now.steps, now.total_steps), "note": note}

    def where(row: Mapping[str, Any]) -> str:
        return f"at {row['steps']:,} decisions"

    def first(row: Mapping[str, Any]) -> str:
        return "of the untrained network" if row["steps"] == 0 else "at the first look"

    chosen = asked.settings(TrainSettings, RunFolder)
    made = asked.run(chosen, train, "training", chosen.total_steps, shown)
    asked.show_blocking(made, f"Trained {chosen.name}", "decisions learned from", where, first, "of the last network")


def _tune_scorer(asked: _ScenarioRequest) -> None:
    from ....training.linear.settings import LinearSettings
    from ....training.linear.tune import LinearRun, tune

    def shown(now: TuneProgress) -> dict[str, Any]:
        return {"completed": now.generation, "note": asked.note(now.blocking_rate, now.best, _percent, "blocking")}

    def where(row: Mapping[str, Any]) -> str:
        return f"after {row['generation']} generations"

    chosen = asked.settings(LinearSettings, LinearRun)
    made = asked.run(chosen, tune, "generations", chosen.generations, shown)
    first = "of the first mean"
    asked.show_blocking(made, f"Tuned {chosen.name}", "decisions played", where, lambda row: first, "of the last mean")


def _train_fleet(asked: TrainRequest) -> None:
    from .train_fleet import train_fleet_policy

    train_fleet_policy(asked)


def _train_elastic(asked: TrainRequest) -> None:
    from .train_elastic import train_elastic_policy

    train_elastic_policy(asked)


def _train_operators(asked: TrainRequest) -> None:
    from .train_operators import train_operator_policy

    train_operator_policy(asked)


def _train_graph(asked: TrainRequest) -> None:
    from .train_graph import train_graph_policy

    train_graph_policy(asked)


_METHODS: dict[str | None, Callable[[_ScenarioRequest], None]] = {
    None: _train_network,
    LINEAR: _tune_scorer,
    FLEET: _train_fleet,
    ELASTIC: _train_elastic,
    OPERATORS: _train_operators,
    GRAPH: _train_graph,
}


def method(config: str | None, changes: Sequence[str], resume: Path | None) -> str | None:
    """How the policy is found: the key ``method`` of the config, or else of the run folder's; None without one, for PPO.

    What is wrong with a config otherwise is told by those who read all of it.

    Raises:
        ConfigError: no such method.
        CheckpointError: config and run folder differ in it.
    """
    from .... import settings

    found: list[str | None] = []
    for path, changed in ((None if config is None else config_path(config), changes), (resume and resume / "config.yaml", [])):
        if path is None:
            continue
        try:
            data, _ = settings.read_yaml(path)
            for change in changed:
                data = settings.override(data, change)
        except MeshwrightError:
            continue
        named = data.get("method") if isinstance(data, dict) else None
        if named not in _METHODS:
            raise ConfigError(
                "no such method; leave the key out for PPO",
                file=path,
                field="method",
                value=named,
                choices=filter(None, _METHODS),
            )
        found.append(named)
    if len(found) == 2 and found[0] != found[1]:
        raise CheckpointError("differs from the config that the run was begun with", file=resume, field="method")
    return found[0] if found else None


def first_of(prefix: Path, seeds: str) -> Path:
    """The run folder of the first of some seeds.

    Raises:
        ConfigError: these are no seeds.
    """
    from ....training.seeds import seed_folder, seeds_of

    return seed_folder(prefix, seeds_of(seeds)[0])
