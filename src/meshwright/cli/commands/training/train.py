"""``meshwright train``: a policy, by the method that the config's key ``method`` names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .... import inputs
from ....errors import ConfigError
from ....packaged import train_presets
from ... import output
from ...options import Changes, GraphsDir, argument, option
from .sweep import sweep_config


def train_policy(
    config: Annotated[
        str | None, argument("CONFIG", "YAML of the run, a benchmark or a sweep, or preset:NAME; not with --resume.")
    ] = None,
    changes: Changes = None,
    resume: Annotated[Path | None, option("RUN", "Continue from a run folder's last checkpoint.")] = None,
    out: Annotated[Path | None, option("DIR", "Run folder; runs/NAME by default.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing run folder.")] = False,
    seeds: Annotated[str | None, option("N,N,...", "A run for each seed, in DIR-seed-N; --resume takes the same DIR.")] = None,
    jobs: Annotated[
        str, option("N|RAY", "With --seeds or --sweep: runs at a time; or a Ray cluster, HOST:PORT or local:N.")
    ] = "1",
    minutes: Annotated[
        float | None, option("M", "CPU minutes of the run at most; of a sweep, minutes after which no trial begins.")
    ] = None,
    sweeps: Annotated[
        bool, typer.Option("--sweep", help="CONFIG is a sweep: try values of some keys, and write the best config.")
    ] = False,
    graphs: GraphsDir = None,
    json_file: Annotated[str | None, option("FILE", "Write the result as JSON; - for standard output.", "--json")] = None,
) -> None:
    """Train a policy from a config into a run folder, or resume one.

    Of a benchmark without a config the preset of its kind is trained, in ten minutes by default. Rules are played first; a policy
    that is not better than the best of them is kept with that rule in its place.

    Examples:
      meshwright train preset:quickstart
      meshwright train mine.yaml --minutes 30 --set network.hidden=32
      meshwright train --resume runs/mine
    """
    from ....training.hooks.names import MOST_MINUTES

    if minutes is not None and not 0 < minutes <= MOST_MINUTES:
        raise ConfigError(f"must be above 0, up to {MOST_MINUTES:,.0f}", field="--minutes", value=str(minutes))
    if sweeps:
        output.refuse({"--overwrite": overwrite or None, "--seeds": seeds, "--graphs": graphs}, "does not go with --sweep")
        path = None if config is None else Path(config)
        sweep_config(path, changes, resume, out, None if minutes is None else 60 * minutes, jobs, json_file)
        return
    from ....training.run_folder import resumed_files

    for path in () if resume is None or seeds is not None else resumed_files(resume):
        inputs.declare("--resume", path, is_update=True)
    output.check_file("--json", json_file)
    output.check_folder("--out", out if seeds is None else None, is_replaced=True)
    if graphs is not None:
        from ....jobs.load import profile_names

        profile_names(graphs)  # refuses a folder without any
    if resume is not None and (out is not None or overwrite):
        raise ConfigError("continues in its own run folder; leave out --out and --overwrite", field="--resume", value=str(resume))
    if resume is None and config is None:
        raise ConfigError("name a config, or a run folder with --resume", field="CONFIG", choices=train_presets())
    from .run import TrainRequest, train_run

    request = TrainRequest(config, tuple(changes or ()), resume, out, overwrite, graphs, json_file, minutes)
    if seeds is not None:
        from .train_seeds import train_seeds

        train_seeds(request, seeds, jobs)
        return
    if jobs != "1":
        raise ConfigError("goes with --seeds or --sweep: one run is trained in one process", field="--jobs", value=jobs)
    try:
        train_run(request)
    except KeyboardInterrupt:
        raise request.interrupt() from None
