"""``meshwright dev calibrate kernels``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .... import files as texts
from ....errors import ConfigError
from ... import output
from ..validate.kernels import ERRORS

if TYPE_CHECKING:
    from rich.console import Console

    from ....evaluation.calibration.least_squares import FittedKernels
    from ...key_models import KernelKeys


def calibrate_kernels(sources: Sequence[str], keys: KernelKeys, out: Path | None, json_file: str | None) -> None:
    """Fit the kernels' constants, and print them next to those in use.

    Of measured kernels every second row is fitted on; validate kernels shows the others and whole layers.
    """
    from ....evaluation.calibration.kernel_csv import is_kernel_csv

    files, device, start, multiprocessors = [*sources], keys.device, keys.start, keys.multiprocessors
    tables = [spec for spec in files if is_kernel_csv(spec)]
    given = {f"--set {key}": value for key, value in keys.model_dump().items()}
    if tables and len(tables) == len(files):
        _of_tables(tables, device, start, multiprocessors, out, json_file)
    elif wrong := next((name for name, value in given.items() if value is not None), None):
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


def _of_tables(
    tables: Sequence[str],
    device: str | None,
    start: str | None,
    multiprocessors: int | None,
    out: Path | None,
    json_file: str | None,
) -> None:
    """Constants of products and attention."""
    from ....evaluation.calibration.fit_tables import calibrate

    if device is None:
        raise ConfigError("the key is missing: a table does not say what it was measured on", field="--set device")
    with output.progress() as bars:
        found = calibrate(tables, device, start=start, num_multiprocessors=multiprocessors, progress=output.phases(bars))
    _show(found, "start", " and ".join(Path(table).name for table in tables), out, json_file)


def _is_measured(spec: str) -> bool:
    """Whether this is measured kernels, or is to be refused as such, rather than a published figure."""
    if Path(spec).suffix.lower() == ".csv":
        return False
    if Path(spec).suffix.lower() != ".json" or not Path(spec).is_file():
        return True
    data = texts.read_json(spec)
    return isinstance(data, dict) and "items" in data


def _of_measured(spec: str, out: Path | None, json_file: str | None) -> None:
    """Constants of any device, from what ``calibrate measure`` wrote."""
    from ....evaluation.calibration.fit_measured import at_bounds, calibrate

    with output.progress() as bars:
        found = calibrate(spec, progress=output.phases(bars))
    doubt = f"are the peaks of {found.constants.device} those of the device that was measured?"
    notes = [f"note: {name} ends where it can go no further; {doubt}" for name in at_bounds(found)]
    _show(found, "shipped", Path(spec).name, out, json_file, notes)


def _show(
    found: FittedKernels, before: str, source: str, out: Path | None, json_file: str | None, notes: Sequence[str] = ()
) -> None:
    """Print constants, what is left and notes; write both files."""
    from ....evaluation.calibration.fit_measured import write

    console = output.console(json_file)
    _constants(console, found.constants.device, found.values(), before)
    lines = [
        [family, side, str(data["items"]), *(f"{data[key]:{sign}.1%}" for key, sign in ERRORS)]
        for family, side, data in found.rows()
    ]
    output.table(console, "Rows", ["family", "", "rows", "mean error", "bias", "largest"], lines)
    for note in notes:
        console.print(note, markup=False, soft_wrap=True)
    if out is not None:
        write(out, found.constants, source)
        output.print_written(console, out, json_file)
    output.write_json(json_file, found.to_data())


def _of_published(paths: list[Path], json_file: str | None) -> None:
    """Those of the A100, from published figures."""
    from ....costs.training_step.kernels import kernel_settings
    from ....evaluation.calibration.fit_a100 import FITTED, calibrate

    with output.progress() as bars:
        found = calibrate(paths, progress=output.phases(bars))
    out = output.console(json_file)
    shipped = kernel_settings("a100")
    values = [(name, getattr(found.constants, name), getattr(shipped, name)) for name in FITTED]
    _constants(out, found.constants.device, values, "shipped")
    lines = [[r.item, f"{r.fitted:.2f}", f"{r.measured:.2f}", f"{r.relative_error:+.1%}"] for r in found.layers]
    output.table(out, "One layer of the 22B model", ["experiment", "fitted ms", "measured ms", "error"], lines)
    rows = found.to_data()["residuals"]["rows"]
    out.print(
        f"vTrain's rows of hidden size 1024: {rows['items']} rows, mean error {rows['mean_relative_error']:.1%}, "
        f"largest {rows['max_relative_error']:.1%}",
        markup=False,
    )
    output.write_json(json_file, found.to_data())


def _constants(out: Console, device: str, values: Sequence[tuple[str, float | None, float | None]], before: str) -> None:
    lines = [[name, *("-" if value is None else f"{value:.4g}" for value in pair)] for name, *pair in values]
    output.table(out, f"Constants of the {device.upper()}", ["constant", "fitted", before], lines)
