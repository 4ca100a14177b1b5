"""``meshwright dev validate kernels``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...key_models import HeldKernelKeys


from .... import files
from ....errors import ConfigError, InputFileError
from ... import output
from ...kinds import one_source
from .published import judge_families

ERRORS = (("mean_relative_error", ""), ("mean_signed_error", "+"), ("max_relative_error", ""))
WORST = 5  # rows that are shown of a family; the JSON holds all


def validate_kernels(sources: Sequence[str], keys: HeldKernelKeys, json_file: str | None) -> None:
    """Hold measured kernels that nothing was fitted on, and whole layers, against the constants in use.

    Of a table of products or attention they are every second row, as calibrate kernels leaves them out. Exit 1 only where the
    mean error of a family of layers, or of a table's kernels, is larger than the key allows.
    """
    from ....evaluation.calibration.kernel_csv import is_kernel_csv
    from ....evaluation.calibration.least_squares import summary
    from ....evaluation.validation.kernels import LAYER, validate

    file = one_source(sources)
    plot, device, constants, max_mean_error = keys.plot, keys.device, keys.constants, keys.max_mean_error
    output.check_file("--set plot", plot)
    if plot is not None and plot.suffix != ".svg":
        raise InputFileError("the name must end in .svg", field="--set plot", value=str(plot))
    if is_kernel_csv(file):
        if plot is not None:
            raise ConfigError("goes with measured kernels and layers, not with a table", field="--set plot", value=str(plot))
        _of_table(file, device, constants, max_mean_error, json_file)
        return
    if device is not None:
        raise ConfigError("goes with tables of products or attention as CSV", field="--set device", value=device)
    with output.progress() as bars:
        result = validate(file, constants=constants, progress=output.phases(bars))
    out = output.console(json_file)
    measured = result.measured
    own = "fitted on this type of device" if result.constants.calibrated else "another device's shares of its peaks"
    source = f"those of {constants}" if constants is not None else own
    out.print(
        f"{measured.gpu}, {measured.date}, torch {measured.torch}, CUDA {measured.cuda}, driver {measured.driver}; "
        f"constants: {source}",
        soft_wrap=True,
    )
    layers = [row for family, rows in result.families.items() if family.startswith(LAYER) for row in rows]
    worst = sorted(layers, key=lambda row: -abs(row.relative_error))[:WORST]
    lines = [[r.item, f"{r.fitted:.0f}", f"{r.measured:.0f}", f"{r.relative_error:+.1%}"] for r in worst]
    if lines:
        output.table(out, "The worst layers", ["layer", "predicted us", "measured us", "error"], lines)
    families = result.summary()
    lines = [
        [
            family,
            str(data["items"]),
            str(data["of_the_host"] or ""),
            *(f"{data[key]:{sign}.1%}" if data["items"] else "" for key, sign in ERRORS),
            "" if data["is_modelled"] else "not modelled",
        ]
        for family, data in families.items()
    ]
    columns = ["family", "rows", "the host's", "mean error", "bias", "largest", ""]
    output.table(out, "Families", columns, lines)
    num_of_host = sum(result.num_of_host.values())
    if num_of_host:
        note = f"the host's: {num_of_host} passes that wait for the host to issue kernels; they are left out"
        out.print(note, soft_wrap=True)
    if layers:
        every = summary(layers)
        note = f"The {every['items']} other passes through layers: mean error {every['mean_relative_error']:.1%}"
        out.print(note, soft_wrap=True)
    else:
        out.print("No pass through a layer shows the device.")
    output.write_json(json_file, result.to_data())
    if plot is not None:
        from ....evaluation.plots.kernels import kernels_figure
        from ....evaluation.plots.static import svg

        files.write_text(plot, svg(kernels_figure(result)))
        output.print_written(out, plot)
    if max_mean_error is not None and not layers:
        raise ConfigError("holds no pass through a layer that shows the device, so nothing can be judged", file=file)
    judge_families(out, {family: data for family, data in families.items() if family.startswith(LAYER)}, max_mean_error)


def _of_table(file: str, device: str | None, constants: str | None, max_mean_error: float | None, json_file: str | None) -> None:
    """Show what the model says of the rows of a table on which nothing is fitted, by family."""
    from ....costs.training_step.kernels import KernelModel, kernel_settings
    from ....devices import device_type
    from ....evaluation.calibration.kernel_csv import read
    from ....evaluation.calibration.least_squares import Residual, summary

    if device is None:
        raise ConfigError("the key is missing: a table does not say what it was measured on", field="--set device")
    kernels = KernelModel(device_type(device), kernel_settings(device, constants))
    families: dict[str, list[Residual]] = {}
    for row in read(file):
        if row.number % 2:
            predicted_us = 1e6 * kernels.kernel_s(row.kernel)
            families.setdefault(row.family, []).append(Residual(row.item, predicted_us, row.us))
    if not families:
        raise ConfigError("holds one row, and every second one is held against the constants", file=file)
    result = {family: summary(rows) for family, rows in families.items()}
    out = output.console(json_file)
    lines = [[family, str(data["items"]), *(f"{data[key]:{sign}.1%}" for key, sign in ERRORS)] for family, data in result.items()]
    output.table(out, f"Families on {device}", ["family", "rows", "mean error", "bias", "largest"], lines)
    output.write_json(json_file, {"device": device, "constants": kernels.constants.model_dump(), "summary": result})
    output.print_written(out, json_file)
    judge_families(out, result, max_mean_error)
