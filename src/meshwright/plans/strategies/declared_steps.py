"""What everything declares that changes the mathematics of training: how many steps it needs, and by what source."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from ... import settings

Exactness = Literal["exact", "bounded", "approximate"]
"""Whether the update is that of synchronous training up to the order of additions; is so in the limit of a bound; or is not."""


class DeclaredSteps(settings.Settings):
    """What is declared of the number of steps; the base of everything that changes the mathematics.

    Attributes:
        multiplier: steps wanted over steps of synchronous training; None: nobody says so, and then it is not ranked.
        multiplier_source: where the multiplier is from; it speaks for the model and the data of that source alone.
    """

    exactness: ClassVar[Exactness] = "approximate"

    multiplier: float | None = Field(default=None, gt=0, description="steps wanted over steps of synchronous training")
    multiplier_source: str | None = Field(default=None, min_length=1, description="where the multiplier is from")

    @model_validator(mode="after")
    def _has_source(self) -> DeclaredSteps:
        if self.multiplier is not None and self.multiplier_source is None:
            raise ValueError("a multiplier wants a multiplier_source: a text that says where it is from")
        if self.multiplier is None and self.multiplier_source is not None:
            raise ValueError("a multiplier_source wants a multiplier")
        return self

    @property
    def steps_multiplier(self) -> float | None:
        """The factor on steps: 1 where the kind is exact, None where none was declared."""
        return 1.0 if self.exactness == "exact" else self.multiplier

    def extra_bytes(self, gradient_bytes: float, num_replicas: int) -> float:
        """Bytes that a rank holds in addition: none where parameters are averaged in place, or on hosts of their own.

        Args:
            gradient_bytes: of a replica's gradients, ``W``.
            num_replicas: ``n``.
        """
        return 0.0

    @property
    def text(self) -> str:
        """The keys that are not defaults, as ``--training`` spells them, without the source."""
        data = self.model_dump(mode="json", exclude_defaults=True, exclude={"multiplier_source"})
        kind = str(getattr(self, "kind"))  # noqa: B009
        data.pop("kind", None)
        return ",".join([f"kind={kind}", *(f"{key}={_spelled(value)}" for key, value in data.items())])


def _spelled(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}:{_spelled(held)}" for key, held in value.items())
    if isinstance(value, list):
        return "/".join(map(_spelled, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
