"""``meshwright calibrate kernels``."""

from __future__ import annotations

from pathlib import Path

from . import output


def run(paths: list[Path], json_file: str | None) -> None:
    """Refit the constants, print them beside those that ship, and what is left of each figure."""
    from ..costs.layouts.kernels import kernel_settings
    from ..evaluation.calibrate_kernels import FITTED, calibrate

    output.check_file("--json", json_file)
    with output.progress() as bars:
        found = calibrate(paths, progress=output.phases(bars))
    out = output.console(json_file)
    shipped = kernel_settings("a100").model_dump()
    fitted = found.constants.model_dump()
    lines = [[name, f"{fitted[name]:.4g}", f"{shipped[name]:.4g}"] for name in FITTED]
    output.table(out, "Constants of the A100", ["constant", "fitted", "shipped"], lines)
    lines = [[r.item, f"{r.fitted:.2f}", f"{r.measured:.2f}", f"{r.relative_error:+.1%}"] for r in found.layers]
    output.table(out, "One layer of the 22B model", ["experiment", "fitted ms", "measured ms", "error"], lines)
    rows = found.to_data()["residuals"]["rows"]
    out.print(
        f"vTrain's rows of hidden size 1024: {rows['items']} rows, mean error {rows['mean_relative_error']:.1%}, "
        f"largest {rows['max_relative_error']:.1%}",
        markup=False,
    )
    output.write_json(json_file, found.to_data())
