"""``meshwright serve hooks``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ... import output


def write_hooks(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write; one of an earlier call is replaced.")],
    server: Annotated[str, typer.Option(metavar="URL", help="Where the service listens: http://HOST:PORT or unix:PATH.")],
    header_file: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="A file with the line 'Authorization: Bearer TOKEN', for a service with tokens."),
    ] = None,
) -> None:
    """Write the scripts by which Slurm asks a service for hosts and reports jobs that start and end.

    Examples:
      meshwright serve hooks --out hooks --server http://127.0.0.1:8765
    """
    from ....export import write
    from ....export.writer import check_replaceable
    from ....live.actuators.slurm_hook_files import hook_files

    output.check_folder("--out", out, is_replaced=True)
    check_replaceable(out)
    contents = hook_files(str(out.absolute()), server=server, header_file=header_file)
    write(contents, out)
    console = output.console()
    console.print(str(contents["README"]), markup=False, soft_wrap=True, end="")
    output.print_written(console, out)
