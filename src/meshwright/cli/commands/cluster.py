"""``meshwright cluster``: files of clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import output
from ..help import group
from ..options import argument, file_option, option

MOST_RATES = 4
"""Of links, that are listed."""


def show_cluster(
    spec: Annotated[str, argument("CLUSTER", "preset:NAME or a path to YAML.")],
) -> None:
    """Print the hosts, devices and links of a cluster.

    Examples:
      meshwright cluster show preset:dgx-a100-8x8
    """
    import numpy as np

    from ...clusters import load_cluster

    result = load_cluster(spec)
    counts = np.bincount(result.device_type, minlength=len(result.device_types))
    rows = [["topology", result.settings.topology.kind], ["hosts", f"{result.num_hosts:,}"]]
    for kind, count in zip(result.device_types, counts.tolist(), strict=True):
        figures = f"{kind.memory_bytes / 1e9:g} GB, {kind.peak_flops_per_s / 1e12:g} TFLOP/s"
        rows.append(["devices", f"{count:,} {kind.name}, each {figures}"])
    rates = sorted(set(result.links.bandwidth_bytes_per_s.tolist()), reverse=True)
    shown = ", ".join(f"{rate / 1e9:g}" for rate in rates[:MOST_RATES]) + (", ..." if len(rates) > MOST_RATES else "")
    rows.append(["directed links", f"{len(result.links):,} of {shown} GB/s"])
    rows.append(["equal hosts", "yes" if result.hosts_are_equal else "no"])
    output.table(output.console(), f"Cluster {result.name}", ["", ""], rows, numbers_from=2)


def from_topology(
    sources: Annotated[list[Path], argument("FILE...", "Of nvidia-smi topo -m, NCCL's topology (XML) or Slurm's topology.conf.")],
    device: Annotated[str | None, option("TYPE", "Device type of the GPUs.")] = None,
    out: Annotated[Path | None, file_option("Write the YAML; by default it is printed.", "--out")] = None,
) -> None:
    """Write the YAML of a cluster from the wiring of its machines; missing keys are comments, to be completed.

    Examples:
      meshwright cluster from-topo topo.txt --device h100 --out cluster.yaml
    """
    from ... import files
    from ...clusters.from_topology import cluster_yaml, missing_keys, read_topology
    from ...devices import device_type
    from ...live.sources.host_lists import hosts_in

    known = None if device is None else device_type(device)
    text = cluster_yaml(read_topology([(str(source), files.read_text(source)) for source in sources], hosts_in), known)
    if out is not None:
        files.write_text(out, text)
    typer.echo(text if out is None else f"written: {out}", nl=out is not None)
    if out is not None and (missing := missing_keys(text)):
        typer.echo(f"keys to fill in: {', '.join(missing)}")


cluster = group(
    "cluster",
    """Show a cluster, or make the file of one.

    Examples:
      meshwright cluster show preset:dgx-a100-8x8
      meshwright cluster from-topo topo.txt --device h100 --out cluster.yaml
    """,
    {
        "from-topo": (from_topology, "Write a YAML from the wiring of machines."),
        "show": (show_cluster, "Print hosts, devices and links."),
    },
)
