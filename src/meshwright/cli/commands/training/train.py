"""``meshwright train``: a policy, by the method that the config's key ``method`` names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .... import inputs
from ....errors import ConfigError
from ....packaged import train_presets
from ... import output
from ...options import Changes, GraphsDir, JsonFile


def train_policy(
    config: Annotated[
        str | None, typer.Argument(metavar="CONFIG", help="YAML of the run or of a benchmark, or preset:NAME; not with --resume.")
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
    minutes: Annotated[
        float | None,
        typer.Option(metavar="M", help="CPU minutes after which it ends, or earlier where PPO no longer improves."),
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help="Writers of validations: stdout, csv, tensorboard; none for none."),
    ] = None,
    graphs: GraphsDir = None,
    json_file: JsonFile = None,
) -> None:
    """Train a policy from a config into a run folder, or resume one.

    Of a benchmark without a config, as mybenchmark.yaml or preset:rail-256, the preset of its kind is trained, in ten minutes by
    default. Rules are played first; a policy that is not better than the best of them is kept with that rule in its place.
    """
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
    from ....training.hooks.names import MOST_MINUTES
    from .run import TrainRequest, train_run

    if minutes is not None and not 0 < minutes <= MOST_MINUTES:
        raise ConfigError(f"must be above 0, up to {MOST_MINUTES:,.0f}", field="--minutes", value=str(minutes))
    asked = TrainRequest(config, tuple(changes or ()), resume, out, overwrite, graphs, json_file, log, minutes)
    if seeds is not None:
        from .train_seeds import train_seeds

        train_seeds(asked, seeds, jobs, ray)
        return
    if jobs != 1 or ray is not None:
        option, value = ("--jobs", str(jobs)) if ray is None else ("--ray", ray)
        raise ConfigError("goes with --seeds: one run is trained in one process", field=option, value=value)
    try:
        train_run(asked)
    except KeyboardInterrupt:
        raise asked.interrupt() from None
