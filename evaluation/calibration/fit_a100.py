"""Fit the constants of kernels on an A100, on figures that are never used to validate.

The calibration set: vTrain's single-host table, rows of hidden size 1024 only, and the times of one layer of the 22B model
(Korthikanti et al. 2022, table 4). Both are read from the files that `dev validate step-times` reads; nothing else in them is
read. The fit is least squares of logarithms. The table's times are exactly linear in layers and micro-batches, sums of few
measured parts: a layer, and embedding with head, of each pair of tensor-parallel degree and micro-batch, and what a step does
once. So the parts are fitted (`_Parts`), each with a deviation of 10 %, and not the hundreds of sums of them. The work that a
step does once counts as ``2 T(m) - T(2 m)``, all of it together as much as `INDEPENDENT` such figures. The ten layer times are
seven figures: a forward pass without sequence parallelism is the same in three rows, one with it in two. Four of the seven are
independent of each other (two forward passes, a backward pass, attention computed again). So the seven count as four, with a
deviation of 2 % each. Wide priors, `BELIEFS`, hold the constants that neither determines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import files, quantities
from ...costs.process_groups.group_network import HostNetwork, whole_lane
from ...costs.training_step.kernels import KernelModel, KernelSettings, kernel_settings
from ...costs.training_step.passes import pass_time
from ...costs.training_step.step_time import Pricer
from ...costs.work import layer
from ...costs.work.work import LayoutWork, describe
from ...devices import device_type
from ...errors import InputFileError
from ...plans.partition import Layout
from ..progress import Progress
from ..validation.step_times.published_step import PublishedStep, gpt
from ..validation.step_times.published_step_times import CALIBRATION_FAMILY, CALIBRATION_HIDDEN, read_rows
from ..validation.step_times.validate import _layout
from .least_squares import FittedKernels, Residual, fit_constants, summary

FITTED = {
    "product_efficiency": (0.3, 0.8, 1.0),
    "attention_product_efficiency": (0.1, 0.4, 1.0),
    "product_overhead_k": (0.0, 10.0, 400.0),
    "memory_efficiency": (0.3, 0.85, 1.0),
    "loss_efficiency": (0.1, 0.5, 2.0),
    "spread_loss_efficiency": (0.1, 1.0, 2.0),
    "host_us_per_kernel": (1.0, 50.0, 200.0),
    "host_us_per_message": (1.0, 60.0, 2000.0),
    "optimizer_bytes_per_parameter": (10.0, 34.0, 200.0),
    "step_overhead_ms": (0.0, 0.5, 50.0),
}
"""The constants: lower bound, where the fit starts, upper bound."""

BELIEFS = {
    "product_efficiency": (0.8, 0.1),
    "attention_product_efficiency": (0.5, 0.2),
    "product_overhead_k": (64.0, 64.0),
    "memory_efficiency": (0.85, 0.07),
}
"""Mean and deviation of the priors. Large products reach 70 to 90 % of the peak. A product's start and end cost a few steps of
32 along its sums. Copies reach 80 to 90 % of the memory's bandwidth."""

INDEPENDENT, INDEPENDENT_LAYER_TIMES = 32, 4
LAYER_DEVIATION, PART_DEVIATION = 0.02, 0.10

LAYER_TIMES = (
    ("baseline no recompute", False, "none"),
    ("sequence parallelism", True, "none"),
    ("baseline with full recompute", False, "full"),
    ("selective recompute", False, "selective"),
    ("selective + sequence", True, "selective"),
)
"""Rows of the table: name, sequence parallelism, recomputation."""


class Calibration(FittedKernels):
    """See `FittedKernels`; rows are ten "layer times", ms, "parts" that add up to the table's times, and its "rows", s."""

    def to_data(self) -> dict[str, Any]:
        """Return the calibration as plain data."""
        residuals: dict[str, Any] = {family: [asdict(row) for row in rows] for family, rows in self.fitted.items()}
        residuals["rows"] = {key: value for key, value in summary(self.fitted["rows"]).items() if key != "mean_signed_error"}
        return {"constants": self.constants.model_dump(), "fitted": sorted(self.names), "residuals": residuals}


def calibrate(paths: Sequence[str | Path], *, progress: Progress | None = None) -> Calibration:
    """Fit the constants.

    Args:
        paths: the JSON that holds ``korthikanti_table4_per_layer_22B`` and the CSV of vTrain, in any order.
        progress: called with a phase, steps done and steps.

    Raises:
        InputFileError: one of the two is missing, or the table lacks rows, or its times contradict each other.
    """
    layers = _layer_figures(paths)
    rows = _rows(paths)
    alone = [(row, work) for row, work in rows if work.layout.pp == 1]
    parts, pairs = _parts(alone), _pairs(alone)
    start = kernel_settings("a100")
    _check_separates_parts(alone, parts, pairs, _model(start, {}))
    names = list(FITTED)
    middle = np.array([FITTED[name][1] for name in names])

    def residuals(values: NDArray[np.float64]) -> NDArray[np.float64]:
        model = _model(start, dict(zip(names, values.tolist(), strict=True)))
        times = {(r.fitted, r.measured): math.log(r.fitted / r.measured) for r in _layer_residuals(model, layers)}
        one = np.array(list(times.values()))  # each figure once
        of_rows = _row_residuals(model, alone)
        many = np.array([math.log(r.fitted / r.measured) for r in _part_residuals(parts, of_rows)])
        once = np.array([math.log(r.fitted / r.measured) for r in _once_residuals(pairs, of_rows)])
        one *= math.sqrt(INDEPENDENT_LAYER_TIMES / len(one)) / LAYER_DEVIATION
        once *= math.sqrt(INDEPENDENT / len(once)) / PART_DEVIATION
        held = [(dict(zip(names, values, strict=True))[name] - mean) / deviation for name, (mean, deviation) in BELIEFS.items()]
        return np.concatenate([one, many / PART_DEVIATION, once, held])

    constants = fit_constants(residuals, FITTED, middle, progress, 200, max_nfev=60)
    model = _model(start, constants)
    of_parts = _part_residuals(parts, _row_residuals(model, alone))
    fitted = {"layer times": _layer_residuals(model, layers), "parts": of_parts, "rows": _row_residuals(model, rows)}
    return Calibration(start.model_copy(update=constants), start, names, fitted, {})


def _model(start: KernelSettings, values: dict[str, float]) -> KernelModel:
    return KernelModel(device_type("a100"), start.model_copy(update=values))


def _layer_figures(paths: Sequence[str | Path]) -> dict[str, tuple[float, float]]:
    for path in paths:
        if Path(path).suffix.lower() != ".json":
            continue
        data = files.read_json(path)
        table = data.get("korthikanti_table4_per_layer_22B") if isinstance(data, dict) else None
        if table is not None:
            try:
                return {row["experiment"]: (_ms(row["fwd_ms"]), _ms(row["bwd_ms"])) for row in table["rows"]}
            except (KeyError, TypeError, ValueError):
                raise InputFileError(
                    "not the table of layer times", file=path, field="korthikanti_table4_per_layer_22B"
                ) from None
    file = next((path for path in paths if Path(path).suffix.lower() == ".json"), None)
    problem = (
        "no JSON with the layer times is given" if file is None else "holds neither measured kernels (items) nor layer times"
    )
    raise InputFileError(problem, file=file, field="korthikanti_table4_per_layer_22B")


def _ms(cell: object) -> float:
    value = quantities.number(str(cell), "ms")
    if value <= 0:
        raise ValueError("must be positive")
    return value


def _rows(paths: Sequence[str | Path]) -> list[tuple[PublishedStep, LayoutWork]]:
    for path in paths:
        if Path(path).suffix.lower() == ".csv":
            rows = [row for row in read_rows(path) if row.family.endswith(CALIBRATION_FAMILY)]
            works = [describe(row.shape, _layout(row, {}), row.sequence_length) for row in rows if row.shape is not None]
            if works:
                return list(zip((row for row in rows if row.shape is not None), works, strict=True))
    raise InputFileError(f"no CSV with rows of hidden size {CALIBRATION_HIDDEN} is given")


def _layer_residuals(model: KernelModel, figures: dict[str, tuple[float, float]]) -> list[Residual]:
    shape = gpt(48, 6144, 64, 51_200, 2048)
    wires = HostNetwork(8, 300e9, 200e9)
    result = []
    for name, sequence_parallel, recompute in LAYER_TIMES:
        if name not in figures:
            raise InputFileError("the table of layer times lacks a row", field=name)
        switches = {"sequence_parallel": sequence_parallel, "recompute": recompute, "attention": "unfused"}
        layout = Layout(tp=8, micro_batch=4, global_batch=4, **switches)
        work, groups = layer.layer(shape, layout, 2048), whole_lane(wires, layout).at(0)
        for part, items, measured_ms in (
            ("forward", work.forward, figures[name][0]),
            ("backward", work.recompute + work.backward, figures[name][1]),
        ):
            time = pass_time(items, model, lambda m: wires.group_s(m.operation, m.payload_bytes, groups[m.axis]), 2)  # noqa: B023
            result.append(Residual(f"{name}, {part}", 1e3 * time.seconds, measured_ms))
    return result


def _row_residuals(model: KernelModel, rows: Sequence[tuple[PublishedStep, LayoutWork]]) -> list[Residual]:
    first = rows[0][0]
    assert first.device is not None
    assert first.wires is not None
    pricer = Pricer(first.device, first.wires, kernels=model)
    return [Residual(row.name, pricer.price_work(work).step_s, row.measured_s) for row, work in rows]


_Parts = tuple[list[int], list[str], NDArray[np.floating[Any]]]


def _parts(rows: Sequence[tuple[PublishedStep, LayoutWork]]) -> list[_Parts]:
    """Return the parts that add up to the times of rows without a pipeline, for each tensor-parallel degree.

    They are those of the least data-parallel degree. A row of ``m`` micro-batches and ``l`` layers is ``m l`` times a layer and
    ``m`` times embedding and head, each of its micro-batch's size. The work done once is added: ``l`` times a share of it and
    another one.

    Returns:
        Places of the rows, names of the parts without what is done once, and the parts by least squares, ``(parts, rows)``.
    """
    result = []
    for tp in sorted({work.layout.tp for _, work in rows}):
        of_tp = [place for place, (_, work) in enumerate(rows) if work.layout.tp == tp]
        dp = min(rows[place][1].layout.dp for place in of_tp)
        places = [place for place in of_tp if rows[place][1].layout.dp == dp]
        sizes = sorted({rows[place][1].layout.micro_batch for place in places})
        columns = np.zeros((len(places), 2 * len(sizes) + 2))
        for number, place in enumerate(places):
            work = rows[place][1]
            m, layers = work.layout.num_micro_batches, work.shape.num_layers
            kind = 2 * sizes.index(work.layout.micro_batch)
            columns[number, kind : kind + 2] = m * layers, m
            columns[number, -2:] = layers, 1
        names = [f"{part}, tp {tp}, micro-batch {size}" for size in sizes for part in ("layer", "embedding and head")]
        result.append((places, names, np.linalg.pinv(columns)[: len(names)]))
    return result


def _part_residuals(parts: Sequence[_Parts], rows: Sequence[Residual]) -> list[Residual]:
    result = []
    for places, names, solve in parts:
        fitted, measured = (solve @ np.array([getattr(rows[place], key) for place in places]) for key in ("fitted", "measured"))
        result += [Residual(*each) for each in zip(names, np.maximum(fitted, 1e-9).tolist(), measured.tolist(), strict=True)]
    return result


def _pairs(rows: Sequence[tuple[PublishedStep, LayoutWork]]) -> list[tuple[int, int]]:
    """Return the places of rows, each with that of twice as many micro-batches and nothing else changed."""
    by_layout: dict[tuple[int, ...], int] = {}
    for place, (_, work) in enumerate(rows):
        layout = work.layout
        by_layout[work.shape.num_layers, layout.tp, layout.dp, layout.micro_batch, layout.global_batch] = place
    doubled = [(one, by_layout.get((*key[:-1], 2 * key[-1]))) for key, one in by_layout.items()]
    return [(one, other) for one, other in doubled if other is not None]


def _once_residuals(pairs: Sequence[tuple[int, int]], rows: Sequence[Residual]) -> list[Residual]:
    """Return the time of the work that a step does once, of each pair."""
    return [
        Residual(a.item, max(2 * a.fitted - b.fitted, 1e-9), 2 * a.measured - b.measured)
        for a, b in ((rows[one], rows[other]) for one, other in pairs)
    ]


def _check_separates_parts(
    rows: Sequence[tuple[PublishedStep, LayoutWork]],
    parts: Sequence[_Parts],
    pairs: Sequence[tuple[int, int]],
    model: KernelModel,
) -> None:
    """Raise if a table does not determine the parts, or a part takes no time.

    Raises:
        InputFileError: so it is.
    """
    expected = f"rows of hidden size {CALIBRATION_HIDDEN} without a pipeline are wanted, some with twice as many micro-batches"
    if not rows or not pairs:
        raise InputFileError(f"{expected}; the table has {len(rows)} of the former", field="vTrain's table")
    of_rows = _row_residuals(model, rows)
    for part in (*_part_residuals(parts, of_rows), *_once_residuals(pairs, of_rows)):
        if not (part.measured > 0 and part.fitted > 0):
            raise InputFileError("the table's times contradict each other, or are too few", field=part.item, value=part.measured)
