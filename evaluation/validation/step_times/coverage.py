"""How well uncertainties match errors: the share of the rows of a published family that lie inside their intervals.

An uncertainty is a standard deviation of a logarithm, so ``z = ln(measured / predicted) / uncertainty``. Rows of one family have
a common error. Its size comes from the families themselves. `uncertainty.RUN_UNCERTAINTY` comes from frameworks on which no
constants of kernels were fitted, ``steps_of`` of the constants from the steps of one on which they were. Each family therefore
has two results: with the stated uncertainty, and with the one from the other families.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ....costs.training_step.uncertainty import KNOWN_SOFTWARE, NORMAL_95, RUN_UNCERTAINTY, SOFTWARE, uncertainty
from .published_step import PublishedStep

MEGATRON_LM = "megatron-lm"
DEEPSPEED = "deepspeed"

SOFTWARE_OF = {
    "megatron-lm-2021": MEGATRON_LM,
    "megatron-lm-2021-zero3-vs-ptd": MEGATRON_LM,
    "korthikanti-2022": MEGATRON_LM,
}
"""Families of the reference data whose rows name no software but whose source does; rows with ZeRO-3 are DeepSpeed's."""


class OfFamily(NamedTuple):
    """The common error of the rows of a family.

    Attributes:
        error: mean of ``ln(measured / predicted)``.
        doubt: root mean square of the rows' stated uncertainties without `RUN_UNCERTAINTY`.
    """

    error: float
    doubt: float


FAMILIES = {
    "megatron-lm-2021-zero3-vs-ptd": OfFamily(-0.158, 0.207),
    "vtrain-h2048": OfFamily(-0.081, 0.100),
    "torchtitan-2024": OfFamily(0.115, 0.250),
    "llama3-2024": OfFamily(-0.196, 0.288),
    "mt-nlg-2022": OfFamily(0.314, 0.100),
}
"""Families without fitted constants, of frameworks whose whole steps were not fitted either. DeepSpeed's ZeRO-3 (Narayanan et
al. 2021, table 2). Megatron-DeepSpeed on single hosts (vTrain) and over hundreds (Smith et al. 2022, arXiv 2201.11990, section
2.4, with whole layers recomputed, as its TFLOP/s show). PyTorch (torchtitan) and Meta's (Llama 3), both by their tables alone,
without the text around them. A layout is treated so if its framework and switches are unknown."""

RUNS_UNDER = {
    "fsdp2": {"torchtitan-2024": (4, 0.0712), "fsdp2-one-h200": (15, 0.0827)},
    "megatron": {
        "megatron-lm-2021": (10, 0.0473),
        "megatron-lm-2021-zero3-vs-ptd": (6, 0.0246),
        "korthikanti-2022": (9, 0.0261),
        "vtrain-h2048": (16, 0.1169),
    },
}
"""By framework, rows of its families with dense models in 16 bits, and the same figure of them.

They are torchtitan's four in bf16, our own fifteen on an H200, and Megatron-LM's; rows of one cell of vTrain's table err equally.
`uncertainty.STEPS_UNDER` is what they give. ``steps_of`` of the A100's constants is from Korthikanti's rows alone, which are held
against those of 2021."""


class Prediction(NamedTuple):
    """Prediction and measurement of a row.

    Attributes:
        predicted: the figure.
        measured: the figure.
        uncertainty_terms: parts of the uncertainty, by name.
    """

    predicted: float
    measured: float
    uncertainty_terms: Mapping[str, float]

    @property
    def uncertainty(self) -> float:
        """One standard deviation of the figure's logarithm."""
        return uncertainty(self.uncertainty_terms)

    @property
    def z(self) -> float:
        """How many uncertainties the measured figure lies above the predicted one."""
        return math.log(self.measured / self.predicted) / self.uncertainty

    def with_term(self, name: str, value: float) -> Prediction:
        """Return the prediction with another value of one term of its uncertainty; itself where it has no term of that name."""
        return (
            self._replace(uncertainty_terms={**self.uncertainty_terms, name: value}) if name in self.uncertainty_terms else self
        )


def coverage(rows: Sequence[Prediction]) -> dict[str, float]:
    """Return how the rows of a family lie in their intervals.

    Args:
        rows: at least one.

    Returns:
        ``mean_uncertainty`` of the rows. The share of them within one uncertainty, ``inside_68``, and within the interval that is
        to hold 95 % of them, ``inside_95``. ``rms_z``, the root mean square of ``z``: 1 where uncertainties match errors, more
        where they are too small, less where too large. ``largest_z``, the one farthest from zero.
    """
    z = [row.z for row in rows]
    inside = {f"inside_{n}": sum(abs(one) <= limit for one in z) / len(z) for n, limit in ((68, 1.0), (95, NORMAL_95))}
    mean, rms_z = math.fsum(row.uncertainty for row in rows) / len(rows), math.sqrt(math.fsum(one * one for one in z) / len(z))
    return {"mean_uncertainty": mean, **inside, "rms_z": rms_z, "largest_z": max(z, key=abs)}


def software_of(row: PublishedStep) -> str | None:
    """Return the framework that ran a row, as the row or its source says."""
    if row.software is None and row.layout.get("zero") == 3 and row.family in SOFTWARE_OF:
        return DEEPSPEED
    return row.software or SOFTWARE_OF.get(row.family)


def between_runs(families: Iterable[OfFamily]) -> float:
    """Return the standard deviation of runs of any framework in addition to their other uncertainties.

    With it the errors of families are as large as stated: the sum over them of ``error^2 / (doubt^2 + s^2)`` is their number.
    Zero where the other doubts explain the errors alone.

    Args:
        families: at least one.

    Source:
        Paule and Mandel, "Consensus values and weighting factors", 1982, with a mean known to be zero.
    """
    from scipy.optimize import brentq

    known = list(families)

    def excess(s: float) -> float:
        return math.fsum(one.error**2 / (one.doubt**2 + s * s) for one in known) - len(known)

    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, math.sqrt(math.fsum(one.error**2 for one in known))))


def spread(num_rows: int, rms_error: float) -> float:
    """Return the standard deviation to state of a further row, by the errors of some: a prediction is meant to have none.

    Few rows say little of how wide errors spread, so that an interval of 95 % wants Student's quantile in place of the normal
    distribution's.

    Args:
        num_rows: at least one.
        rms_error: root mean square of their ``ln(measured / predicted)``.
    """
    from scipy.stats import t

    return rms_error * float(t.ppf(0.975, num_rows)) / NORMAL_95


def under_framework(families: Iterable[tuple[int, float]]) -> float:
    """Return the standard deviation to state of a further row under a framework.

    Args:
        families: rows and root mean square error of each; they have equal weights.
    """
    known = list(families)
    rms = math.sqrt(math.fsum(error**2 for _, error in known) / len(known))
    return spread(sum(number for number, _ in known), rms)


HOST_FAMILY = "vtrain-h2048"
"""`HOST_UNCERTAINTY` is fitted on nine of its ten rows: without the family there is none."""


def left_out(family: str, prediction: Prediction, framework: str | None = None) -> Prediction:
    """Return a row as the other families predict it, of its layout's framework if it names one; itself if of none."""
    if KNOWN_SOFTWARE in prediction.uncertainty_terms and family in (runs := RUNS_UNDER.get(framework or "", {})):
        if family == HOST_FAMILY:
            prediction = prediction.with_term("host", 0.0)
        return prediction.with_term(KNOWN_SOFTWARE, under_framework(run for name, run in runs.items() if name != family))
    if KNOWN_SOFTWARE in prediction.uncertainty_terms and family == "korthikanti-2022":
        return prediction.with_term(KNOWN_SOFTWARE, spread(*RUNS_UNDER["megatron"]["megatron-lm-2021"]))
    others = [one for name, one in FAMILIES.items() if name != family]
    return prediction.with_term(SOFTWARE, between_runs(others) if family in FAMILIES else RUN_UNCERTAINTY)
