"""``meshwright dev calibrate`` of kernels, and their measurement."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ... import files as texts
from ...errors import ConfigError
from .. import output
from ..kinds import no_source
from .validate.kernels import ERRORS

if TYPE_CHECKING:
    from rich.console import Console

    from ...devices import DeviceType
    from ...evaluation.calibration.kernel_table import Item
    from ...evaluation.calibration.least_squares import FittedKernels
    from ..key_models import KernelKeys, MeasureKeys


def calibrate_kernels(sources: Sequence[str], keys: KernelKeys, out: Path | None, json_file: str | None) -> None:
    """Fit the kernels' constants, and print them next to those in use.

    Of measured kernels every second row is fitted on; validate kernels shows the others and whole layers.
    """
    from ...evaluation.calibration.kernel_csv import is_kernel_csv

    files = [*sources]
    tables = [spec for spec in files if is_kernel_csv(spec)]
    options = {f"--set {key}": value for key, value in keys.model_dump().items()}
    if tables and len(tables) == len(files):
        _of_tables(tables, keys, out, json_file)
    elif wrong := next((name for name, value in options.items() if value is not None), None):
        raise ConfigError("goes with tables of products or attention as CSV, and with nothing else", field=wrong)
    elif len(files) == 1 and _is_measured(files[0]):
        _of_measured(files[0], out, json_file)
    elif any(_is_measured(spec) for spec in files):
        raise ConfigError("files of measured kernels are fitted one at a time", field="SOURCE", value=" ".join(files))
    elif out is not None:
        problem = "wants one file of measured kernels; the A100's constants come with meshwright"
        raise ConfigError(problem, field="--out", value=str(out))
    else:
        _of_published([Path(spec) for spec in files], json_file)


def _of_tables(tables: Sequence[str], keys: KernelKeys, out: Path | None, json_file: str | None) -> None:
    """Show constants of products and attention."""
    from ...evaluation.calibration.fit_tables import calibrate

    if keys.device is None:
        raise ConfigError("the key is missing: a table does not say what it was measured on", field="--set device")
    with output.progress() as bars:
        report, number = output.phases(bars), keys.multiprocessors
        result = calibrate(tables, keys.device, start=keys.start, num_multiprocessors=number, progress=report)
    _show(result, "start", " and ".join(Path(table).name for table in tables), out, json_file)


def _is_measured(spec: str) -> bool:
    """Return whether this is measured kernels, or is to be refused as such, rather than a published figure."""
    if Path(spec).suffix.lower() == ".csv":
        return False
    if Path(spec).suffix.lower() != ".json" or not Path(spec).is_file():
        return True
    data = texts.read_json(spec)
    return isinstance(data, dict) and "items" in data


def _of_measured(spec: str, out: Path | None, json_file: str | None) -> None:
    """Show constants of any device, from what ``calibrate measure`` wrote."""
    from ...evaluation.calibration.fit_measured import at_bounds, calibrate

    with output.progress() as bars:
        result = calibrate(spec, progress=output.phases(bars))
    doubt = f"are the peaks of {result.constants.device} those of the device that was measured?"
    notes = [f"note: {name} ends where it can go no further; {doubt}" for name in at_bounds(result)]
    _show(result, "shipped", Path(spec).name, out, json_file, notes)


def _show(
    kernels: FittedKernels, before: str, source: str, out: Path | None, json_file: str | None, notes: Sequence[str] = ()
) -> None:
    """Print constants, what is left and notes; write both files."""
    from ...evaluation.calibration.fit_measured import write

    console = output.console(json_file)
    _constants(console, kernels.constants.device, kernels.values(), before)
    lines = [
        [family, side, str(data["items"]), *(f"{data[key]:{sign}.1%}" for key, sign in ERRORS)]
        for family, side, data in kernels.rows()
    ]
    output.table(console, "Rows", ["family", "", "rows", "mean error", "bias", "largest"], lines)
    for note in notes:
        console.print(note, soft_wrap=True)
    if out is not None:
        write(out, kernels.constants, source)
        output.print_written(console, out, json_file)
    output.write_json(json_file, kernels.to_data())


def _of_published(paths: list[Path], json_file: str | None) -> None:
    """Show those of the A100, from published figures."""
    from ...evaluation.calibration.fit_a100 import calibrate

    with output.progress() as bars:
        result = calibrate(paths, progress=output.phases(bars))
    out = output.console(json_file)
    _constants(out, result.constants.device, result.values(), "shipped")
    lines = [[r.item, f"{r.fitted:.2f}", f"{r.measured:.2f}", f"{r.relative_error:+.1%}"] for r in result.fitted["layer times"]]
    output.table(out, "One layer of the 22B model", ["experiment", "fitted ms", "measured ms", "error"], lines)
    rows = result.to_data()["residuals"]["rows"]
    out.print(
        f"vTrain's rows of hidden size 1024: {rows['items']} rows, mean error {rows['mean_relative_error']:.1%}, "
        f"largest {rows['max_relative_error']:.1%}",
    )
    output.write_json(json_file, result.to_data())


def _constants(out: Console, device: str, values: Sequence[tuple[str, float | None, float | None]], before: str) -> None:
    lines = [[name, *("-" if value is None else f"{value:.4g}" for value in pair)] for name, *pair in values]
    output.table(out, f"Constants of the {device.upper()}", ["constant", "fitted", before], lines)


def measure_device(sources: Sequence[str], keys: MeasureKeys, out: Path | None, json_file: str | None) -> None:
    """Measure products, attention, sweeps, whole layers and networks on the GPU that torch sees, in minutes."""
    from ...devices import device_type
    from ...evaluation.calibration.kernel_table import FAMILIES, to_data, write
    from ...evaluation.calibration.measure import measure

    no_source(sources)
    device, quick, seed = keys.device, keys.quick, keys.seed
    words = [*([f"device={device}"] if device is not None else []), *(["quick=true"] if quick else []), f"seed={seed}"]
    command = ["meshwright", "dev", "calibrate", "measure", *(part for word in words for part in ("--set", word))]
    with output.progress() as bars:
        result = measure(device, quick=quick, seed=seed, command=shlex.join(command), progress=output.phases(bars))
    target = Path(f"{result.device}-kernels.yaml") if out is None else out
    output.check_file("--out", target)
    write(target, result)
    console = output.console(json_file)
    peaks = device_type(result.device)
    lines = [
        [family, str(len(result.of(family))), *_shares(result.of(family), peaks)] for family in FAMILIES if result.of(family)
    ]
    columns = ["family", "items", "share of", "least", "median", "most"]
    output.table(console, f"Kernels measured on {result.gpu}, as {result.device}", columns, lines)
    for one in result.left_out:
        console.print(f"LEFT OUT: {one.family}, {one.name}: {one.reason}", soft_wrap=True)
    output.write_json(json_file, to_data(result))
    output.print_written(console, target, json_file)


def _shares(items: Sequence[Item], peaks: DeviceType) -> list[str]:
    """Return the share of the peak that the items reach: arithmetic of products and attention, bandwidth of sweeps."""
    from ...costs.work.operations import Sweep

    what, results = "", []
    for item in items:
        priced = item.priced()
        if priced is None or item.us is None:
            return ["", "", "", ""]
        if isinstance(priced, Sweep):
            what, rate = "memory bandwidth", priced.moved_bytes / peaks.memory_bandwidth_bytes_per_s
        else:
            what, rate = "peak", priced.flops / peaks.peak_flops_per_s
        results.append(rate / (item.us / 1e6))
    return [what, *(f"{share:.1%}" for share in (min(results), statistics.median(results), max(results)))]
