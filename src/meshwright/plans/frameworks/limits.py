"""Limits of training frameworks: keys of a layout, the values that they may have, and when a limit counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...jobs.transformer import TransformerKeys
from ..partition import Layout
from .defaults import LauncherName
from .numbering import Numbering

Switches = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Some keys of a layout to others."""


class LayoutOfModel(NamedTuple):
    """A layout of a model, as it is checked against the limits of a framework.

    Attributes:
        layout: how the job is cut.
        shape: the model, where it is known and a transformer.
        sequence_length: tokens of a sequence, where they are known.
    """

    layout: Layout
    shape: TransformerKeys | None = None
    sequence_length: int | None = None


class Refusal(NamedTuple):
    """Why a framework does not run a layout.

    Attributes:
        key: of the layout.
        value: that it has.
        problem: what is wrong, with the nearest layout that can be run where it is known.
    """

    key: str
    value: Any
    problem: str


@dataclass(frozen=True)
class Limit:
    """A limit on the layouts that a framework runs.

    Attributes:
        key: of the layout.
        problem: the problem of another value, a text or a function that makes it.
        values: those that the key may have; None: none, where the limit counts.
        when: whether it counts.
        of_figures: whether the framework starts such a layout, but its prices do not hold. Searches keep to such a limit; exports
            do not refuse by it.
    """

    key: str
    problem: str | Callable[[LayoutOfModel], str]
    values: tuple[Any, ...] | None = None
    when: Callable[[LayoutOfModel], bool] = lambda case: True
    of_figures: bool = False

    def refusal(self, case: LayoutOfModel) -> Refusal | None:
        """Return the problem of a layout, or None."""
        value = getattr(case.layout, self.key)
        if (self.values is not None and value in self.values) or not self.when(case):
            return None
        return Refusal(self.key, value, self.problem if isinstance(self.problem, str) else self.problem(case))


@dataclass(frozen=True)
class Framework:
    """A training framework.

    Attributes:
        name: as ``--for`` spells it.
        title: as it calls itself.
        default: how its examples shard over all devices: ``fsdp`` or ``zero-3``, see `planning.comparisons.references`; None:
            they do not.
        limits: on the layouts that it runs.
        numbering: whether it starts the ranks of a layout in a given order.
        needs_layers: whether it knows transformers alone.
        zero_stages: ZeRO stages where there are copies.
        as_cut: unsearched keys as the framework sets them, for a layout whose degrees are known.
        as_run: the same, for a layout whose schedule and ZeRO stage are known too. None makes a step
            faster than the default key does.
    """

    name: LauncherName
    title: str
    default: str | None
    limits: tuple[Limit, ...]
    numbering: Numbering
    needs_layers: bool = False
    zero_stages: tuple[int, ...] = (0, 1, 2, 3)
    as_cut: Switches = lambda keys: {}
    as_run: Switches = lambda keys: {}

    def refusals(self, case: LayoutOfModel, *, as_priced: bool = True) -> Iterator[Refusal]:
        """Yield everything that is wrong, in the order of the limits; unless ``as_priced``, without those of figures alone."""
        for limit in self.limits:
            if (as_priced or not limit.of_figures) and (result := limit.refusal(case)) is not None:
                yield result

    def refusal(self, case: LayoutOfModel, *, as_priced: bool = True) -> Refusal | None:
        """Return the first thing that is wrong, or None where the framework runs the layout."""
        return next(self.refusals(case, as_priced=as_priced), None)
