"""``meshwright dev calibrate measure``."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ... import output
from ...kinds import no_source

if TYPE_CHECKING:
    from ....devices import DeviceType
    from ....evaluation.calibration.kernel_table import Item
    from ...key_models import MeasureKeys


def measure_device(sources: Sequence[str], keys: MeasureKeys, out: Path | None, json_file: str | None) -> None:
    """Measure products, attention, sweeps, whole layers and networks on the GPU that torch sees, in minutes."""
    from ....devices import device_type
    from ....evaluation.calibration.kernel_table import FAMILIES, to_data, write
    from ....evaluation.calibration.measure import measure

    no_source(sources)
    device, quick, seed = keys.device, keys.quick, keys.seed
    words = [*([f"device={device}"] if device is not None else []), *(["quick=true"] if quick else []), f"seed={seed}"]
    command = ["meshwright", "dev", "calibrate", "measure", *(part for word in words for part in ("--set", word))]
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
    """Return the share of the peak that the items reach: arithmetic of products and attention, bandwidth of sweeps."""
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
