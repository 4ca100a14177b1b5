"""Declarations of all options that change the mathematics of training: how many steps they need, and by which source.

Strategies and codes are read as a command line or a YAML file spells them.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, get_args

from pydantic import Field, model_validator

from ... import settings
from ...errors import ConfigError, PlanError
from ..frameworks.names import build_of_plan

Exactness = Literal["exact", "bounded", "approximate"]
"""Whether the update is that of synchronous training up to the order of additions; is so in the limit of a bound; or is not."""


class DeclaredSteps(settings.Settings):
    """The declared number of steps; the base of all options that change the mathematics.

    Attributes:
        multiplier: steps needed over steps of synchronous training; None: not declared, so that the option is not ranked.
        multiplier_source: of the multiplier, which holds for the model and the data of that source alone.
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
        """Return the bytes that a rank holds in addition: none where parameters are averaged in place, or on hosts of their own.

        Nor does a masked job: the whole model and its optimizer are held in both phases, and the mask is known by its key.

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


def kinds_of(union: Any) -> dict[str, Any]:
    """Return the kinds of a union of strategies, or of codes, by name."""
    return {str(one.model_fields["kind"].default): one for one in get_args(union)}


def build_strategy(data: dict[str, Any], kinds: dict[str, Any], *, field: str, default: str | None = None) -> Any:
    """Return the strategy, or the code, of plain data.

    Args:
        data: its keys.
        kinds: every kind by name.
        field: what errors name.
        default: the kind where the keys have none.

    Raises:
        PlanError: an unknown kind or key, or an impossible value.
    """
    kind = data.get("kind", default)
    if kind not in kinds:
        raise PlanError("unknown kind", field=f"{field}.kind", value=str(kind), choices=kinds)
    return build_of_plan(kinds[kind], data, prefix=f"{field}.")


def split_strategies(text: str, kinds: Any, *, field: str) -> list[dict[str, Any]]:
    """Return the keys of each strategy of a text, every combination of the values with ``|`` between them by itself.

    Raises:
        PlanError: no kind, a key twice, or a text that is no ``key=value``.
    """
    if text.endswith((".yaml", ".yml")):
        return _of_file(text, field)
    strategies: list[dict[str, list[str]]] = []
    last = ""
    for word in (word.strip() for word in text.split("|")):
        first, *others = [part.strip() for part in word.split(",")]
        begins = first in kinds or first.startswith("kind=")
        if begins:
            strategies.append({})
        elif not strategies or not last or "=" in first:
            raise PlanError(f"must name a kind, as {next(iter(kinds))} or kind=...", field=field, value=word, choices=kinds)
        else:
            strategies[-1][last].append(first)
        for part in [first, *others] if begins else others:
            key, equals, value = (half.strip() for half in part.partition("="))
            if not equals and key in kinds and begins and part is first:
                key, value = "kind", part
            elif not equals or not key or not value:
                raise PlanError("must read key=value, or a kind", field=field, value=part)
            if key in strategies[-1]:
                raise PlanError("the key appears twice", field=f"{field}.{key}", value=part)
            strategies[-1][key] = [value]
            last = key
    result: list[dict[str, Any]] = []
    for keys in strategies:
        combined: list[dict[str, Any]] = [{}]
        for key, values in keys.items():
            combined = [one | {key: _read(key, value, field)} for one in combined for value in values]
        result += combined
    return result


def _of_file(path: str, field: str) -> list[dict[str, Any]]:
    """Read one strategy, or a list of them, under a key of a YAML file."""
    data, _ = settings.read_yaml(path)
    result = data.get(field) if isinstance(data, dict) else None
    strategies = result if isinstance(result, list) else [result]
    known = [strategy for strategy in strategies if isinstance(strategy, dict)]
    if len(known) < len(strategies):
        raise PlanError(f"must hold the keys of a strategy under {field}:", file=path, field=field)
    return known


def _read(key: str, text: str, field: str) -> Any:
    if key in ("kind", "multiplier_source"):
        return text
    try:
        return settings.override({}, f"{key}={text}")[key]
    except ConfigError as error:
        raise PlanError(error.problem, field=f"{field}.{key}", value=text) from None
