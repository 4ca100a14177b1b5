"""``meshwright validate``: our figures held against figures from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

validate = typer.Typer(
    name="validate",
    help="Hold our figures against figures from elsewhere; exit 1 where one disagrees.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    rich_markup_mode=None,
)

JsonFile = Annotated[str | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output.")]


@validate.command(short_help="Finish times of flows by max-min fair sharing.")
def flows(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="JSON of links and flows with their finish times.")],
    max_error: Annotated[
        float | None, typer.Option(metavar="X", help="Relative error up to which a finish time agrees; 1e-9 by default.")
    ] = None,
    latency_first: Annotated[
        bool, typer.Option("--latency-first", help="A flow takes its share only once its first byte has arrived.")
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Hold finish times of flows against max-min fair sharing of every link."""
    from . import validating_flows

    validating_flows.run(files, max_error, latency_first, json_file)


@validate.command(short_help="Figures and decision logs of the published PAC-ML simulator.")
def pacml(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON of the published figures and decision logs.")],
    graphs: Annotated[Path, typer.Option("--graphs", metavar="DIR", help="Folder of the profiles DIR/NAME/graph.txt.")],
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Also play the published policies on episodes of our own.")
    ] = False,
    seeds: Annotated[int, typer.Option(metavar="N", help="Episodes of each policy, with --statistics.")] = 10,
    json_file: JsonFile = None,
) -> None:
    """Compute the published PAC-ML figures again and replay the decision logs."""
    from . import validating_pacml

    validating_pacml.run(file, graphs, statistics, seeds, json_file)
