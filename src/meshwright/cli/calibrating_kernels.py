"""``meshwright calibrate kernels``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigError
from . import output

if TYPE_CHECKING:
    from rich.console import Console

    from ..costs.layouts.kernels import KernelSettings


def run(paths: list[Path], out: Path | None, json_file: str | None) -> None:
    """Fit the constants, print them beside those in use, and what is left of each figure.

    Raises:
        ConfigError: ``--out`` without measured kernels.
    """
    output.check_file("--out", out)
    output.check_file("--json", json_file)
    if len(paths) == 1 and paths[0].suffix not in (".csv", ".json"):
        _of_measured(paths[0], out, json_file)
    elif out is not None:
        raise ConfigError(
            "wants one file of measured kernels; the A100's constants come with meshwright", field="--out", value=out
        )
    else:
        _of_published(paths, json_file)


def _of_measured(path: Path, out: Path | None, json_file: str | None) -> None:
    """Constants of any device, from what ``calibrate measure`` wrote."""
    from ..evaluation.calibrate_measured import FITTED, calibrate, summary, write

    with output.progress() as bars:
        found = calibrate(path, progress=output.phases(bars))
    console = output.console(json_file)
    _constants(console, [*FITTED, "uncertainty"], found.constants, found.shipped)
    lines = [
        [family, side, str(data["items"]), *(f"{data[key]:{sign}.1%}" for key, sign in ERRORS)]
        for family in found.fitted
        for side, rows in (("fitted on", found.fitted[family]), ("left out", found.left_out.get(family, ())))
        if rows
        for data in (summary(rows),)
    ]
    output.table(console, "Rows", ["family", "", "rows", "mean error", "bias", "largest"], lines)
    if out is not None:
        write(out, found, path.name)
        output.tell_written(console, out, json_file)
    output.write_json(json_file, found.to_data())


def _of_published(paths: list[Path], json_file: str | None) -> None:
    """Those of the A100, from published figures."""
    from ..costs.layouts.kernels import kernel_settings
    from ..evaluation.calibrate_kernels import FITTED, calibrate

    with output.progress() as bars:
        found = calibrate(paths, progress=output.phases(bars))
    out = output.console(json_file)
    _constants(out, list(FITTED), found.constants, kernel_settings("a100"))
    lines = [[r.item, f"{r.fitted:.2f}", f"{r.measured:.2f}", f"{r.relative_error:+.1%}"] for r in found.layers]
    output.table(out, "One layer of the 22B model", ["experiment", "fitted ms", "measured ms", "error"], lines)
    rows = found.to_data()["residuals"]["rows"]
    out.print(
        f"vTrain's rows of hidden size 1024: {rows['items']} rows, mean error {rows['mean_relative_error']:.1%}, "
        f"largest {rows['max_relative_error']:.1%}",
        markup=False,
    )
    output.write_json(json_file, found.to_data())


ERRORS = (("mean_relative_error", ""), ("mean_signed_error", "+"), ("max_relative_error", ""))


def _constants(out: Console, names: Sequence[str], fitted: KernelSettings, shipped: KernelSettings) -> None:
    lines = [[name, f"{getattr(fitted, name):.4g}", f"{getattr(shipped, name):.4g}"] for name in names]
    output.table(out, f"Constants of the {fitted.device.upper()}", ["constant", "fitted", "shipped"], lines)
