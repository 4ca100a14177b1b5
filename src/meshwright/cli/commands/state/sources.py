"""``meshwright state read``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ... import output
from ...help import takes_keys
from ...keys import own_keys
from ...options import KeyChanges
from .changes import StateOption, keep_listing

if TYPE_CHECKING:
    from ....live.sources.source import Source


@takes_keys(("ReadKeys", ""))
def read_source(
    name: Annotated[
        str, typer.Argument(metavar="SOURCE", help="slurm, slurm:json, slurm:URL of slurmrestd, kubernetes, ray or file:PATH.")
    ],
    state: StateOption,
    from_file: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="A saved answer of the source, in place of asking it now.")
    ] = None,
    changes: KeyChanges = None,
) -> None:
    """Read which job holds which devices, and which hosts take no jobs, from a scheduler.

    Ray needs the extra [ray].

    Examples:
      meshwright state read slurm --state now.db
      meshwright state read kubernetes --state now.db --set context=prod
    """
    from ....live.sources.source import source
    from ...key_models import ReadKeys

    _keep(state, from_file, source(name, **own_keys(ReadKeys, changes).model_dump()))


def _keep(state: Path, file: Path | None, source: Source) -> None:
    """Keep the listing of a source or file, and print remarks on it."""
    from .... import files
    from ....live.keeping import KeptState

    known = KeptState(state).read()
    found = source.listing(known) if file is None else source.said(files.read_bytes(file).decode(errors="replace"), known, file)
    keep_listing(state, found.state)
    output.print_remarks(output.console(), found.remarks)
