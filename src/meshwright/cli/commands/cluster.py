"""``meshwright cluster``: files of clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import output

cluster = typer.Typer(name="cluster", help="Make the file of a cluster.", no_args_is_help=True)


@cluster.command("from-topo", short_help="A YAML to be completed, from what machines say of their wiring.")
def from_topology(
    sources: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Of nvidia-smi topo -m, NCCL's topology (XML) or Slurm's topology.conf."),
    ],
    device: Annotated[str | None, typer.Option(metavar="TYPE", help="Device type of the GPUs.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the YAML; by default it is printed.")] = None,
) -> None:
    """Write the YAML of a cluster from the wiring of its machines; keys that no file gives are comments, to be completed."""
    from ... import files
    from ...clusters.from_topology import cluster_yaml, read_topology
    from ...devices import device_type
    from ...live.sources.host_lists import hosts_in

    output.check_file("--out", out)
    known = None if device is None else device_type(device)
    text = cluster_yaml(read_topology([(str(one), files.read_text(one)) for one in sources], hosts_in), known)
    if out is not None:
        files.write_text(out, text)
    typer.echo(text if out is None else f"written: {out}", nl=out is not None)
