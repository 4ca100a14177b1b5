"""Training strategies of a job under a layout in closed form; `simulation.training.strategy_step` has the event path.

A strategy with a declared multiplier is compared by ``multiplier x step``. One without has only a break-even: the multiple of
synchronous training's steps at which it is no faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..costs.training.masked import PhaseStep
from ..costs.training.strategy_step import check_strategy, strategy_step
from ..costs.training.synchronisation import synchronous_s
from ..errors import PlanError
from ..plans.compression import AnyCompression, exactness_of, multiplier_source, parse_compression, steps_multiplier
from ..plans.document import Figure
from ..plans.training import AnyTraining, Synchronous, parse_training
from .job_work import JobWork


@dataclass(frozen=True)
class TrainingPrice:
    """A layout trained by a strategy.

    Attributes:
        training: the strategy.
        compression: the code of its gradients, if any.
        step_s: mean seconds of a step.
        synchronous_s: of a synchronous step of the same layout, with the same stragglers.
        extra_bytes: held by the fullest rank in addition.
        sent_bytes: of gradients or parameters for each step and rank, as buffers; the network carries about twice as much.
        remarks: what the strategy cannot promise, for people.
        phases: steps of each phase, where a job has several.
        resharding_s: in which the model goes from the places of one phase to those of the next; none where both have one plan.
    """

    training: AnyTraining
    compression: AnyCompression | None
    step_s: float
    synchronous_s: float
    extra_bytes: float
    sent_bytes: float
    remarks: tuple[str, ...] = ()
    phases: tuple[PhaseStep, ...] = ()
    resharding_s: float = 0.0

    @property
    def multiplier(self) -> float | None:
        """Steps needed over synchronous ones; None where none was declared."""
        return steps_multiplier(self.training, self.compression)

    @property
    def source(self) -> str:
        """The source of the multiplier."""
        return multiplier_source(self.training, self.compression)

    @property
    def effective_s(self) -> float | None:
        """``multiplier x step``, in which strategies may be compared; None without a multiplier."""
        return None if self.multiplier is None else self.multiplier * self.step_s

    @property
    def is_exact(self) -> bool:
        """Whether it is synchronous training up to the order of additions."""
        return exactness_of(self.training, self.compression) == "exact"

    @property
    def text(self) -> str:
        """The strategy as ``--training`` and ``--compression`` spell it."""
        return self.training.text + (f" with {self.compression.text}" if self.compression else "")

    def break_even(self, exact_s: float | None = None) -> float:
        """Return the break-even ``rho*``: the strategy is faster only if it needs fewer than this many times the steps.

        Args:
            exact_s: seconds of a step of the best exact training; by default of the same layout.
        """
        return (self.synchronous_s if exact_s is None else exact_s) / self.step_s

    def summary(self, exact_s: float | None = None) -> str:
        """Describe its speed relative to exact training, for people."""
        if self.is_exact:
            return ""
        rho = self.break_even(exact_s)
        if self.multiplier is None:
            return f"faster only if it needs fewer than {rho:.4g} times the steps; no multiplier is declared, so it is not ranked"
        return f"{self.multiplier:g} times the steps ({self.source}); break-even {rho:.4g}"

    def figures(self) -> tuple[Figure, ...]:
        """Return ``steps_multiplier`` and ``effective_step_s``, where a multiplier is declared, with what is held in addition."""
        result = [("extra_memory_bytes", self.extra_bytes, "bytes")] if self.extra_bytes > 0 else []
        if self.multiplier is not None and not self.is_exact:
            assert self.effective_s is not None
            result += [("steps_multiplier", self.multiplier, "1"), ("effective_step_s", self.effective_s, "s")]
        return tuple(Figure.predicted(name, value, unit) for name, value, unit in result)

    def to_data(self, exact_s: float | None = None) -> dict[str, Any]:
        """Return the price as plain data."""
        data: dict[str, Any] = {
            "training": self.training.model_dump(mode="json", exclude_none=True),
            "exactness": exactness_of(self.training, self.compression),
            "step_s": self.step_s,
            "synchronous_step_s": self.synchronous_s,
            "break_even_multiplier": self.break_even(exact_s),
            "extra_memory_bytes": self.extra_bytes,
            "sent_bytes_per_step": self.sent_bytes,
            "remarks": list(self.remarks),
        }
        if self.compression is not None:
            data["compression"] = self.compression.model_dump(mode="json", exclude_none=True)
        if self.phases:
            data["phases"] = [phase._asdict() for phase in self.phases]
            data["resharding_s"] = self.resharding_s
        if self.multiplier is not None:
            data |= {"steps_multiplier": self.multiplier, "effective_step_s": self.effective_s, "multiplier_source": self.source}
        return data


def strategies_of(training: str | None, compression: str | None) -> list[tuple[AnyTraining, AnyCompression | None]]:
    """Return the strategies that two texts spell; a code goes with synchronous training, which need not be named.

    Raises:
        PlanError: an unknown kind or key, or an impossible value.
    """
    kinds: tuple[AnyTraining, ...] = parse_training(training) if training else ()
    codes = parse_compression(compression) if compression else ()
    return [(kind, None) for kind in kinds] + [(Synchronous(), code) for code in codes]


def check_trained_on(maker: JobWork, request: Sequence[tuple[AnyTraining, AnyCompression | None]]) -> None:
    """Refuse strategies that are not priced on devices of several types.

    Raises:
        PlanError: there is one.
    """
    if maker.stage_devices is None:
        return
    names = ", ".join(kind.name for kind in maker.cluster.device_types)
    if any(training.kind == "masked" for training, _ in request):
        raise PlanError(f"kind=masked is priced on devices of one type, not {names}", field="training")


def price_training(
    maker: JobWork, work: Any, training: AnyTraining, compression: AnyCompression | None = None, order: str | None = None
) -> TrainingPrice:
    """Return the closed form of a strategy.

    Args:
        maker: the job on its cluster.
        work: of a layout.
        training: the strategy.
        compression: the code of the gradients.
        order: how ranks are numbered; by default in the layout's own order.

    Raises:
        PlanError: the job or layout cannot be trained so.
    """
    check_strategy(maker.name, work.layout, training, compression)
    replicas = maker.replicas(work, order)
    result = strategy_step(replicas, training, compression)
    exact_s = synchronous_s(replicas)
    return TrainingPrice(
        training, compression, result.step_s, exact_s, result.extra_bytes, result.sent_bytes, result.remarks, result.phases
    )
