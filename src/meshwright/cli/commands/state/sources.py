"""``meshwright state from-slurm | from-kubernetes | from-ray``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ... import output
from ...options import SlurmTokenFile
from .changes import StateOption, keep_listing

if TYPE_CHECKING:
    from ....live.sources.source import Source

FromOption = Annotated[
    Path | None, typer.Option("--from", metavar="FILE", help="What was saved of the answer, in place of asking now.")
]


def from_slurm(
    state: StateOption,
    from_file: FromOption = None,
    by: Annotated[
        str,
        typer.Option(
            metavar="WAY", help="text: scontrol; json: squeue and sinfo; or slurmrestd: http://HOST:PORT, https://..., unix:PATH."
        ),
    ] = "text",
    slurm_token_file: SlurmTokenFile = None,
) -> None:
    """Read who holds which devices, and which hosts take no jobs, from Slurm."""
    from ....live.sources.source import slurm_source

    _keep(state, from_file, slurm_source(by, slurm_token_file))


def from_kubernetes(
    state: StateOption,
    from_file: FromOption = None,
    resource: Annotated[
        str, typer.Option(metavar="NAME", help="What a node's accelerators are called in its allocatable resources.")
    ] = "nvidia.com/gpu",
    context: Annotated[
        str | None, typer.Option(metavar="NAME", help="The context of kubectl; by default the current one.")
    ] = None,
) -> None:
    """Read who holds which devices, and which hosts take no jobs, from Kubernetes, by kubectl."""
    from ....live.sources.source import source

    _keep(state, from_file, source("kubernetes", resource=resource, context=context))


def from_ray(
    state: StateOption,
    from_file: FromOption = None,
    address: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Of the cluster, host:port; auto looks for one on this machine.")
    ] = "auto",
    host_label: Annotated[
        str, typer.Option(metavar="LABEL", help="The label of a Ray node that holds its host's name, as in an export.")
    ] = "host",
) -> None:
    """Read who holds which devices, and which hosts take no jobs, from Ray; needs the extra [ray]."""
    from ....live.sources.source import source

    _keep(state, from_file, source("ray", address=address, host_label=host_label))


def _keep(state: Path, file: Path | None, source: Source) -> None:
    """Keep what a source or a file lists, and print what it does not tell."""
    from .... import files
    from ....live.keeping import KeptState

    known = KeptState(state).read()
    found = source.listing(known) if file is None else source.said(files.read_bytes(file).decode(errors="replace"), known, file)
    keep_listing(state, found.state)
    output.print_remarks(output.console(), found.remarks)
