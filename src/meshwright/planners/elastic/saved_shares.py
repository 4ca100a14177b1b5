"""Shares of elastic jobs with weights that were searched for, as they lie on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ... import files
from ...errors import CheckpointError, InputFileError
from ..linear import named_weights
from .expected_remaining import WITHOUT_SIZE, ExpectedRemaining
from .scheduler import ElasticScheduler
from .shortest_remaining import BY_HAND, ShortestRemaining

FORMAT_VERSION = 1
KIND = "elastic shares"

WEIGHTS = (
    "size",
    "size squared",
    "jobs",
    "size x jobs",
    "size x backlog",
    "concavity",
    "concavity x size",
    "concavity x jobs",
    "concavity x backlog",
    "restart",
    "change",
    "begin",
)
"""Names of the weights of `shortest_remaining`, in their order."""


class ShareRule(NamedTuple):
    """A rule whose weights can be searched for.

    Attributes:
        scheduler: makes it of weights.
        names: of the weights, in order.
        by_hand: the weights that a search starts from.
    """

    scheduler: Callable[[Sequence[float]], ElasticScheduler]
    names: tuple[str, ...]
    by_hand: tuple[float, ...]


SHARE_RULES = {
    "shortest-remaining": ShareRule(ShortestRemaining, WEIGHTS, BY_HAND),
    "expected-remaining": ShareRule(ExpectedRemaining, (*WEIGHTS, "first", "asked", "again"), WITHOUT_SIZE),
}
"""Purposes of weights."""


@dataclass(frozen=True, eq=False)
class SavedShares:
    """Weights of a rule.

    Attributes:
        rule: one of `SHARE_RULES`.
        weights: in the order of the rule's names.
        trained: how they were found, plain data.
    """

    rule: str
    weights: NDArray[np.float64]
    trained: dict[str, Any] = field(default_factory=dict)

    def scheduler(self) -> ElasticScheduler:
        """Return the rule with these weights."""
        return SHARE_RULES[self.rule].scheduler(self.weights.tolist())

    def save(self, path: str | Path) -> None:
        """Write them as JSON, whole or not at all."""
        weights = dict(zip(SHARE_RULES[self.rule].names, self.weights.tolist(), strict=True))
        data = {"kind": KIND, "format_version": FORMAT_VERSION, "rule": self.rule, "weights": weights, "trained": self.trained}
        files.write_json(path, data)

    @classmethod
    def load(cls, path: str | Path) -> SavedShares:
        """Read what `save` wrote.

        Raises:
            CheckpointError: missing, no JSON, of another kind or version, of an unknown rule, or with a weight that is no number.
        """
        try:
            data = files.read_json(path)
        except InputFileError as error:
            raise CheckpointError(error.problem, file=path, line=error.line) from None
        if not isinstance(data, dict) or data.get("kind") != KIND or data.get("format_version") != FORMAT_VERSION:
            raise CheckpointError(f"is no policy of {KIND} of version {FORMAT_VERSION}", file=path)
        rule, trained = data.get("rule"), data.get("trained")
        if rule not in SHARE_RULES:
            raise CheckpointError("no such rule", file=path, field="rule", value=rule, choices=SHARE_RULES)
        if not isinstance(trained, dict):
            raise CheckpointError("must be a mapping", file=path, field="trained")
        weights, names = data.get("weights"), SHARE_RULES[rule].names
        # Of a rule that had no others yet: those by hand change nothing.
        if isinstance(weights, dict) and weights.keys() == set(WEIGHTS):
            weights = dict(zip(names, SHARE_RULES[rule].by_hand, strict=True)) | weights
        return cls(rule, named_weights(weights, names, path), trained)
