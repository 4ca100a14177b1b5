"""Whether told uncertainties match errors: how many rows of a published family lie inside the intervals that are told of them.

An uncertainty is a standard deviation of a logarithm, so ``z = ln(measured / predicted) / uncertainty``. Rows of one family
are off together, and the figure for that, `doubts.RUN_UNCERTAINTY`, comes from the families themselves. What is said of a
family is therefore said twice: with the uncertainty that is told, and with the one that the other families give.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..costs.layouts.doubts import NORMAL_95, RUN_UNCERTAINTY, SOFTWARE, uncertainty

FAMILY_ERRORS = {
    "megatron-lm-2021": 0.039,
    "megatron-lm-2021-zero3-vs-ptd": -0.070,
    "korthikanti-2022": 0.018,
    "vtrain-h2048": -0.081,
    "torchtitan-2024": 0.103,
    "llama3-2024": -0.211,
}
"""Mean of ``ln(measured / predicted)`` of the families of the reference data that nothing is fitted on."""


class Told(NamedTuple):
    """What was told of a row, and what became of it.

    Attributes:
        predicted: the figure.
        measured: the figure.
        doubts: what the uncertainty is made of, by name.
    """

    predicted: float
    measured: float
    doubts: Mapping[str, float]

    @property
    def uncertainty(self) -> float:
        """One standard deviation of the figure's logarithm."""
        return uncertainty(self.doubts)

    @property
    def z(self) -> float:
        """By how many uncertainties what was measured is longer."""
        return math.log(self.measured / self.predicted) / self.uncertainty

    def with_runs(self, runs: float) -> Told:
        """With another figure for what runs differ by."""
        return self._replace(doubts={**self.doubts, SOFTWARE: runs})


@dataclass(frozen=True)
class Coverage:
    """How the rows of a family lie in their intervals.

    Attributes:
        mean_uncertainty: of the rows.
        inside_68: share of rows within one uncertainty.
        inside_95: share within the interval that is to hold 95 % of them.
        rms_z: root mean square of ``z``: 1 where uncertainties match errors, more where too little is told, less where too
            much is.
        largest_z: the one farthest from zero.
    """

    mean_uncertainty: float
    inside_68: float
    inside_95: float
    rms_z: float
    largest_z: float

    @classmethod
    def of(cls, rows: Sequence[Told]) -> Coverage:
        """Of some rows, at least one."""
        z = [row.z for row in rows]
        inside_68, inside_95 = (sum(abs(one) <= limit for one in z) / len(z) for limit in (1.0, NORMAL_95))
        mean = math.fsum(row.uncertainty for row in rows) / len(rows)
        return cls(mean, inside_68, inside_95, math.sqrt(math.fsum(one * one for one in z) / len(z)), max(z, key=abs))


def between_runs(errors: Iterable[float]) -> float:
    """The standard deviation to tell of a run of a family that is not among those of these mean errors.

    It is their root mean square, a prediction being meant to have none, times a factor for their small number: so few say
    little of how wide such errors spread, and an interval of 95 % then wants Student's quantile, with as many degrees of freedom
    as there are families, in place of the normal distribution's.

    Args:
        errors: mean of ``ln(measured / predicted)`` of each family, at least one.
    """
    from scipy.stats import t

    known = list(errors)
    spread = math.sqrt(math.fsum(error * error for error in known) / len(known))
    return spread * float(t.ppf(0.975, len(known))) / NORMAL_95


def left_out(family: str) -> float:
    """`between_runs` of all known families but one; a family that is not among them is left out anyway."""
    if family not in FAMILY_ERRORS:
        return RUN_UNCERTAINTY
    return between_runs(error for name, error in FAMILY_ERRORS.items() if name != family)
