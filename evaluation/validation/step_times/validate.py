"""Step times of published runs compared with ours: a row each; error, rank order and regret of each family.

A field that a source leaves open takes the fastest legal value by the model, never by the error. A value is not legal if the
source's software did not have it yet, or if the step then exceeds the devices' memory. Where none fits, the leanest is taken.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ....costs.training_step.kernels import kernel_model, kernel_settings
from ....costs.training_step.step_figures import StepTime
from ....costs.training_step.step_time import Pricer
from ....costs.training_step.uncertainty import interval
from ....costs.work.memory import RUNTIME_BYTES, peak_memory
from ....costs.work.work import describe
from ....errors import ConfigError, PlanError
from ....planners.layouts.space import divisors
from ....plans.frameworks.names import build_of_plan
from ....plans.partition import Layout
from ...progress import Progress, reported
from ..comparison import gathered
from .coverage import Prediction, coverage, left_out, software_of
from .published_step import PublishedStep
from .published_step_times import ASYNC_TP_SINCE, CALIBRATION_FAMILY, COUNTS, UNEVEN_ROUNDS_SINCE, read_rows

CALIBRATION_SET = (
    "vTrain's single-host table, rows of hidden size 1024 (VIA-Research/vTrain)",
    "time of one layer of the 22B model (Korthikanti et al. 2022, table 4)",
    "NCCL all-reduce on DGX A100 (VIA-Research/vTrain, trace/a100)",
    "every second message size of nccl-tests on A100 (ai-dynamo/aiconfigurator)",
)

MAX_MICRO_BATCH = 64

SETTINGS = "settings not printed"

SWITCHES = ("sequence_parallel", "zero", "overlap_tp", "overlap_pp", "compile")
"""Fields that are open where a row says ``null``; one that is absent has the layout's default."""


@dataclass(frozen=True)
class PredictedStep:
    """One row as predicted.

    Attributes:
        row: what was published.
        predicted: our step; None where the row is unsupported.
        choice: fields that the source leaves open, with the value taken.
        memory_bytes: of the fullest rank.
        allocated_bytes: those of its tensors.
        remark: why the row is unsupported, or what is odd about it.
        settings: what those fields leave open of the step, one standard deviation; see `_settings_doubt`.
    """

    row: PublishedStep
    predicted: StepTime | None
    choice: dict[str, Any] = field(default_factory=dict)
    memory_bytes: float = 0.0
    allocated_bytes: float = 0.0
    remark: str | None = None
    settings: float = 0.0

    @property
    def held_bytes(self) -> float:
        """Bytes of the fullest rank that PyTorch's allocator holds: without those of the driver and NCCL."""
        return self.memory_bytes - RUNTIME_BYTES

    @property
    def step_s(self) -> float:
        """Seconds as predicted."""
        assert self.predicted is not None
        return self.predicted.step_s

    @property
    def relative_error(self) -> float:
        """Distance over what was measured."""
        assert self.predicted is not None
        return abs(self.predicted.step_s - self.row.measured_s) / self.row.measured_s

    @property
    def uncertainty_terms(self) -> dict[str, float]:
        """Return the parts of the row's uncertainty: that of its layout, and of fields that the source leaves open."""
        assert self.predicted is not None
        return self.predicted.uncertainty_terms | ({SETTINGS: self.settings} if self.settings else {})

    @property
    def prediction(self) -> Prediction:
        """The row as `coverage` takes it."""
        return Prediction(self.step_s, self.row.measured_s, self.uncertainty_terms)

    def to_data(self) -> dict[str, Any]:
        """Return the row as plain data."""
        data: dict[str, Any] = {"item": self.row.name, "family": self.row.family, "reference": self.row.measured_s}
        data["notes"] = list(self.row.notes)
        if self.predicted is None:
            return data | {"unsupported": self.remark}
        return data | {
            "predicted": self.predicted.step_s,
            "relative_error": self.relative_error,
            "uncertainty": self.prediction.uncertainty,
            "uncertainty_parts": self.uncertainty_terms,
            "interval_95": interval(self.step_s, self.prediction.uncertainty),
            "z": self.prediction.z,
            "chosen": self.choice,
            "memory_bytes": self.memory_bytes,
            "held_bytes": self.held_bytes,
            "allocated_bytes": self.allocated_bytes,
            "measured_allocated_bytes": self.row.allocated_bytes,
            "measured_held_bytes": self.row.held_bytes,
            "breakdown_s": self.predicted.breakdown_s,
            "remark": self.remark,
        }


@dataclass(frozen=True)
class StepTimeValidation:
    """All rows of a validation.

    Attributes:
        predictions: the rows, in order.
        calibration: constants by device type.
    """

    predictions: tuple[PredictedStep, ...]
    calibration: dict[str, dict[str, Any]]

    def summary(self) -> dict[str, dict[str, Any]]:
        """Return the rows, unsupported rows, mean and largest error, bias, Kendall's tau, regret and coverage, by family."""
        return {family: _summary(rows) for family, rows in self.families().items()}

    def families(self) -> dict[str, list[PredictedStep]]:
        """Return the rows of each family."""
        return gathered(self.predictions, lambda one: one.row.family)

    def to_data(self) -> dict[str, Any]:
        """Return plain data: every row, the summary, what the constants were fitted on and what they are."""
        return {
            "rows": [one.to_data() for one in self.predictions],
            "summary": self.summary(),
            "calibration_set": list(CALIBRATION_SET),
            "calibration": self.calibration,
        }


def validate(paths: Sequence[str | Path], progress: Progress | None = None) -> StepTimeValidation:
    """Predict every row of some files.

    Args:
        paths: files of either form, see `published_step_times`.
        progress: called with the file, rows done and rows.

    Raises:
        InputFileError: a file is missing or of neither form.
    """
    pricers: dict[Any, Pricer] = {}
    results = []
    for path in paths:
        results += [predict(row, pricers) for row in reported(read_rows(path), str(path), progress)]
    names = sorted({one.row.device.name for one in results if one.row.device is not None})
    return StepTimeValidation(tuple(results), {name: kernel_settings(name).model_dump() for name in names})


def predict(row: PublishedStep, pricers: dict[Any, Pricer] | None = None) -> PredictedStep:
    """Return the step of one row, open fields taken as the fastest legal ones."""
    if row.unsupported is not None or row.shape is None or row.device is None or row.wires is None:
        return PredictedStep(row, None, remark=row.unsupported)
    pricers = {} if pricers is None else pricers
    key = (row.device, row.wires, software := known_software(row))
    if key not in pricers:
        pricers[key] = Pricer(row.device, row.wires, kernels=kernel_model(row.device, software=software))
    pricer = pricers[key]
    fitting: list[PredictedStep] = []
    other: list[PredictedStep] = []
    problem = None
    for choice in _choices(row):
        try:
            layout = _layout(row, choice)
            work = describe(row.shape, layout, row.sequence_length)
        except PlanError as error:
            problem = problem or str(error)  # of the smallest values of the open fields: what is wrong with the given ones
            continue
        memory = peak_memory(work)[1]
        try:
            price = pricer.price_work(work)
        except ConfigError as error:  # kernels in a precision of which the device has no constants
            return PredictedStep(row, None, remark=f"layout.precision: {error}")
        result = PredictedStep(row, price, choice, memory.total, memory.allocated)
        (fitting if memory.total <= row.device.memory_bytes else other).append(result)
    if fitting or other:
        best = min(fitting or other, key=lambda one: (0.0 if fitting else one.memory_bytes, one.step_s))
        is_interleaved = row.layout.get("schedule") == "interleaved" and row.layout.get("pp") != 1
        lacks_chunks = is_interleaved and all(one.choice.get("virtual_stages") == 1 for one in fitting + other)
        return replace(best, settings=_settings_doubt(best, fitting or other, lacks_chunks), remark=_remark(best, lacks_chunks))
    return PredictedStep(row, None, remark=problem or "no values of the open fields go with the given ones")


def known_software(row: PublishedStep) -> str | None:
    """Return the framework of a row where the constants of kernels know whole steps of it."""
    assert row.device is not None
    software = software_of(row)
    return software if software in kernel_settings(row.device.name).steps_of else None


def _remark(step: PredictedStep, lacks_chunks: bool) -> str | None:
    """Return a remark on an unusual layout that is priced for a row."""
    assert step.row.device is not None
    counted, device_bytes = step.memory_bytes, step.row.device.memory_bytes
    remarks = (
        [f"we count {counted / 1e9:.1f} GB on a rank, the device has {device_bytes / 1e9:.1f} GB"]
        if counted > device_bytes
        else []
    )
    if lacks_chunks:
        remarks.append("no number of chunks above one divides the layers among the stages: priced as if not interleaved")
    return "; ".join(remarks) or None


def _settings_doubt(best: PredictedStep, steps: Sequence[PredictedStep], lacks_chunks: bool) -> float:
    """Return the uncertainty of a step by fields that a source leaves open, one standard deviation.

    For each field it is the root mean square of the logarithm of the step with another value over the step with the taken value.
    Other values are all others of a switch or choice, and the next smaller and larger number; the other open fields take their
    best values. An interleaved schedule may be priced with one chunk because no other number is legal; two would leave half the
    bubble.
    """
    total = 0.0
    for key, taken in best.choice.items():
        if key == "schedule" and "virtual_stages" in best.choice:
            continue  # the one says the other
        least: dict[Any, float] = {}
        for one in steps:
            least[one.choice[key]] = min(one.step_s, least.get(one.choice[key], math.inf))
        others = sorted(least)
        if key in COUNTS:
            place = others.index(taken)
            others = others[max(0, place - 1) : place + 2]
        logs = [math.log(least[value] / best.step_s) for value in others if value != taken]
        if key == "virtual_stages" and lacks_chunks:
            assert best.predicted is not None
            logs = [-math.log(1 - best.predicted.breakdown_s["bubble"] / 2 / best.step_s)]
        total += math.fsum(log * log for log in logs) / max(1, len(logs))
    return math.sqrt(total)


def _layout(row: PublishedStep, choice: dict[str, Any]) -> Layout:
    keys = {key: value for key, value in row.layout.items() if key != "num_devices" and value is not None} | choice
    if keys.get("pp", 1) == 1 and keys.get("schedule") not in (None, "none"):
        keys["schedule"] = "1f1b"
    layout = build_of_plan(Layout, keys, prefix="layout.")
    if layout.world != row.layout["num_devices"]:
        raise PlanError(f"the layout has {layout.world} ranks, the cluster {row.layout['num_devices']} devices")
    return layout


def _choices(row: PublishedStep) -> list[dict[str, Any]]:
    """Return every combination of values of the fields that the row leaves open."""
    keys = row.layout
    open_fields = [
        key for key in ("tp", "pp", "dp", "micro_batch", "virtual_stages", "schedule", "recompute") if keys.get(key) is None
    ]
    open_fields += [key for key in SWITCHES if key in keys and keys[key] is None]
    assert row.shape is not None
    if keys.get("pp") == 1:
        open_fields = [key for key in open_fields if key != "virtual_stages"]
    devices = keys["num_devices"]
    degrees = divisors(devices)
    heads = row.shape.num_heads
    num_layers = row.shape.num_layers + sum(keys.get(key) or 0 for key in ("first_stage_less_layers", "last_stage_less_layers"))
    chunks = list(range(1, num_layers + 1))
    batch = keys.get("global_batch")
    options: dict[str, list[Any]] = {
        "tp": [d for d in degrees if d <= 8 and heads % d == 0],
        "pp": [d for d in degrees if d <= num_layers],
        "dp": degrees,
        "micro_batch": [b for b in range(1, MAX_MICRO_BATCH + 1) if batch is None or batch % b == 0],
        "virtual_stages": chunks,
        "schedule": ["1f1b", "interleaved"],
        "recompute": ["none", "selective", "full"],
        "sequence_parallel": [False, True],
        "zero": [0],
        "overlap_tp": [False, True] if keys.get("framework") != "fsdp2" or row.year >= ASYNC_TP_SINCE else [False],
        "overlap_pp": [False, True],
        "compile": [False, True],
    }
    results = []
    for values in itertools.product(*(options[key] for key in open_fields)):
        choice = dict(zip(open_fields, values, strict=True))
        full = keys | choice
        tp, pp, dp = (full.get(key) or 1 for key in ("tp", "pp", "dp"))
        v = full.get("virtual_stages") or 1
        cp = full.get("cp") or 1
        if tp * pp * dp * cp != devices and "num_devices" in keys and any(key in open_fields for key in ("tp", "pp", "dp")):
            continue
        schedule = full.get("schedule")
        is_cut_open = "virtual_stages" in open_fields or "schedule" in open_fields
        if is_cut_open and v > 1 and (schedule != "interleaved" or pp == 1 or num_layers % (pp * v)):
            continue
        if "schedule" in open_fields and schedule == "interleaved" and v == 1:
            continue
        micro_batches = (batch or 0) // ((full.get("micro_batch") or 1) * dp)
        if is_cut_open and v > 1 and row.year < UNEVEN_ROUNDS_SINCE and micro_batches % pp:
            continue
        results.append(choice)
    return results if open_fields else [{}]


def _summary(rows: list[PredictedStep]) -> dict[str, Any]:
    known = [row for row in rows if row.predicted is not None]
    data: dict[str, Any] = {
        "items": len(rows),
        "unsupported": len(rows) - len(known),
        "is_calibration": rows[0].row.family.endswith(CALIBRATION_FAMILY),
    }
    if not known:
        return data
    errors = [one.relative_error for one in known]
    left = [left_out(one.row.family, one.prediction, one.row.layout.get("framework")) for one in known]
    signed = [one.step_s / one.row.measured_s - 1 for one in known]
    return data | {
        "mean_relative_error": math.fsum(errors) / len(errors),
        "max_relative_error": max(errors),
        "mean_signed_error": math.fsum(signed) / len(signed),
        "kendall_tau": kendall_tau(known),
        **_regret(known),
        "mean_log_error": math.fsum(math.log(one.row.measured_s / one.step_s) for one in known) / len(known),
        "coverage": coverage([one.prediction for one in known]),
        "coverage_left_out": coverage(left),
    }


def kendall_tau(rows: Sequence[PredictedStep]) -> float | None:
    """Return Kendall's tau-b of predicted and measured times; None for a single row."""
    if len(rows) < 2:
        return None
    from scipy.stats import kendalltau

    predicted = [row.step_s for row in rows]
    tau = float(kendalltau(predicted, [row.row.measured_s for row in rows]).statistic)
    return None if math.isnan(tau) else tau


def _regret(rows: Sequence[PredictedStep]) -> dict[str, Any]:
    """Return the relative loss of our choice of layout against the best measured one.

    It is taken over groups of rows that do the same work on the same devices."""
    regrets = []
    for group in gathered(rows, lambda one: one.row.group).values():
        if len(group) < 2:
            continue
        ours = min(group, key=lambda one: one.step_s)
        regrets.append(ours.row.measured_s / min(one.row.measured_s for one in group) - 1)
    if not regrets:
        return {"regret_groups": 0}
    return {"regret_groups": len(regrets), "mean_regret": math.fsum(regrets) / len(regrets), "max_regret": max(regrets)}
