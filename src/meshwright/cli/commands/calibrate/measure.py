"""``meshwright calibrate measure``."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ... import output
from ...options import JsonFile

if TYPE_CHECKING:
    from ....devices import DeviceType
    from ....evaluation.calibration.kernel_table import Item


def measure_device(
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML to write; DEVICE-kernels.yaml in this folder by default.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="Device type; by default the one that the GPU's name holds.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few items of each family, in seconds.")] = False,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Of the random operands.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Measure products, attention, sweeps, whole layers and networks on the GPU that torch sees, in minutes."""
    from ....devices import device_type
    from ....evaluation.calibration.kernel_table import FAMILIES, to_data, write
    from ....evaluation.calibration.measure import measure

    output.check_file("--out", out)
    output.check_file("--json", json_file)
    command = ["meshwright", "calibrate", "measure", *(["--device", device] if device is not None else [])]
    command += [*(["--quick"] if quick else []), "--seed", str(seed)]
    with output.progress() as bars:
        found = measure(device, quick=quick, seed=seed, command=shlex.join(command), progress=output.phases(bars))
    target = Path(f"{found.device}-kernels.yaml") if out is None else out
    output.check_file("--out", target)
    write(target, found)
    console = output.console(json_file)
    peaks = device_type(found.device)
    lines = [[family, str(len(found.of(family))), *_shares(found.of(family), peaks)] for family in FAMILIES if found.of(family)]
    columns = ["family", "items", "share of", "least", "median", "most"]
    output.table(console, f"Kernels measured on {found.gpu}, as {found.device}", columns, lines)
    for one in found.left_out:
        console.print(f"LEFT OUT: {one.family}, {one.name}: {one.reason}", markup=False, soft_wrap=True)
    output.write_json(json_file, to_data(found))
    output.print_written(console, target, json_file)


def _shares(items: Sequence[Item], peaks: DeviceType) -> list[str]:
    """Of which peak the items reach what: arithmetic of products and attention, bandwidth of sweeps."""
    from ....costs.work.operations import Sweep

    what, found = "", []
    for item in items:
        priced = item.priced()
        if priced is None or item.us is None:
            return ["", "", "", ""]
        if isinstance(priced, Sweep):
            what, rate = "memory bandwidth", priced.moved_bytes / peaks.memory_bandwidth_bytes_per_s
        else:
            what, rate = "peak", priced.flops / peaks.peak_flops_per_s
        found.append(rate / (item.us / 1e6))
    return [what, *(f"{share:.1%}" for share in (min(found), statistics.median(found), max(found)))]
