"""The linear scorer: each candidate's features times weights that were tuned beforehand, and the highest sum is taken.

Features of a candidate are *changes*: what the blocks of the cluster are worth once it has been taken, less what they are worth
now. A block is worth its weight times the share of the slots ahead (see `planners.afterstate_features`) by which it is free.
``next`` counts the first slot alone, ``later`` all, the nearer ones more. Blocks of 1, 2, 4, 8 and 16 ranks have weights.
Degrees between two of these interpolate by the logarithm, larger ones take that of 16.

The rejection has features of its own, so a job may be turned away to keep room for others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import files
from ..errors import CheckpointError, InputFileError, PolicyError
from ..simulation.cluster.decision import Decision
from ..simulation.cluster.scenario import Scenario
from .afterstate_features import NUM_PLAIN, BlockTable, DecisionState, Scorer, best_candidate

FORMAT_VERSION = 1
KIND = "linear scorer"
# Arrivals ahead that are looked at; the longest jobs of the published benchmark take twice as long.
NUM_SLOTS = 20
# Weight of a slot over that of the one before it.
DECAYS = {"next": 0.0, "later": 0.85}
NODES = (1, 2, 4, 8, 16)

PLAIN_FEATURES = (
    "reject",
    "reject x load",
    "device-seconds",
    "device-seconds x load",
    "device slots",
    "devices",
    "devices x load",
    "completion",
    "completion x load",
    "completion over deadline",
    "ends after the episode",
)
FEATURES = (
    *(f"blocks of {node} {when}" for node in NODES for when in DECAYS),
    *(f"first block of {node} {when}" for node in NODES for when in DECAYS),
    *PLAIN_FEATURES,
)
DIGEST = files.digest([*FEATURES, NUM_SLOTS, *DECAYS.values()])
# No weight is as large as this.
HUGE = 1e300
NUM_WORTHS = len(NODES) * len(DECAYS)


@dataclass(frozen=True, eq=False)
class LinearWeights:
    """Weights as they lie on disk.

    Attributes:
        weights: in the order of `FEATURES`.
        placement_rules: among whose candidates the scorer chooses.
        trained: how the weights were found, plain data.
    """

    weights: NDArray[np.float64]
    placement_rules: tuple[str, ...]
    trained: dict[str, Any] = field(default_factory=dict)

    def save(self, path: str | Path) -> None:
        """Write them as JSON, whole or not at all."""
        files.write_json(path, self.to_data())

    def to_data(self) -> dict[str, Any]:
        """Return the data that `save` writes."""
        return {
            "kind": KIND,
            "format_version": FORMAT_VERSION,
            "features": DIGEST,
            "placement_rules": list(self.placement_rules),
            "weights": {name: float(weight) for name, weight in zip(FEATURES, self.weights, strict=True)},
            "trained": self.trained,
        }

    @classmethod
    def load(cls, path: str | Path) -> LinearWeights:
        """Read what `save` wrote.

        Raises:
            CheckpointError: missing, no JSON, of another kind, version or set of features, or with a weight that is no number.
        """
        try:
            data = files.read_json(path)
        except InputFileError as error:
            raise CheckpointError(error.problem, file=path, line=error.line) from None
        return cls.from_data(data, path)

    @classmethod
    def from_data(cls, data: Any, file: str | Path) -> LinearWeights:
        """Return the weights that `to_data` described; for the errors see `load`."""
        if not isinstance(data, dict) or data.get("kind") != KIND or data.get("format_version") != FORMAT_VERSION:
            raise CheckpointError(f"is no {KIND} of version {FORMAT_VERSION}", file=file)
        if data.get("features") != DIGEST:
            raise CheckpointError("was tuned for other features than these; tune it again", file=file, field="features")
        rules, trained = data.get("placement_rules"), data.get("trained")
        if not isinstance(rules, list) or not rules or not all(isinstance(rule, str) for rule in rules):
            raise CheckpointError("must be a list of placement rules", file=file, field="placement_rules")
        weights = named_weights(data.get("weights"), FEATURES, file)
        if not isinstance(trained, dict):
            raise CheckpointError("must be a mapping", file=file, field="trained")
        return cls(weights, tuple(rules), trained)


def named_weights(named: Any, names: Sequence[str], file: str | Path) -> NDArray[np.float64]:
    """Return the weights of a file in the order of their names.

    Raises:
        CheckpointError: no mapping, a weight that is unknown or missing, or one that is no finite number.
    """
    if not isinstance(named, dict):
        raise CheckpointError("must be a mapping", file=file, field="weights")
    for name in [*sorted(set(named) - set(names)), *sorted(set(names) - set(named))]:
        problem = "no such feature" if name in named else "the weight is missing"
        raise CheckpointError(problem, file=file, field="weights", value=name, choices=names)
    for name, weight in named.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not abs(weight) < HUGE:
            raise CheckpointError("must be a finite number", file=file, field=f"weights.{name}", value=str(weight))
    return np.array([named[name] for name in names], np.float64)


class LinearScorer:
    """Weights bound to a scenario; takes the candidate with the highest score, without randomness.

    Args:
        name: for tables.
        saved: the weights.
        scenario: in which it acts.

    Raises:
        PolicyError: the scenario lacks a placement rule among whose candidates the weights were tuned to choose.
    """

    observes = False

    def __init__(self, name: str, saved: LinearWeights, scenario: Scenario) -> None:
        self.name = name
        self.placement_rules = saved.placement_rules
        for rule in saved.placement_rules:
            if rule not in scenario.settings.placement_rules or rule == "published":
                problem = "was tuned to choose among candidates of a placement rule that the scenario does not have"
                raise PolicyError(problem, field=name, value=rule, choices=scenario.settings.placement_rules)
        self.scorer = scorer(scenario, saved.weights)

    def reset(self, seed: int) -> None:
        """Do nothing: the policy has no state."""

    def choose(self, decision: Decision, observation: Mapping[str, NDArray[Any]]) -> int:
        """See `planners.policy.Policy`."""
        is_offered = np.zeros(len(decision.degree), np.bool_)
        for rule in self.placement_rules:
            is_offered[decision.offered(rule)] = True
        return int(best_candidate(self.scorer, state_of(decision, is_offered)))


def state_of(decision: Decision, is_offered: NDArray[np.bool_]) -> DecisionState:
    """Return a decision as the compiled functions read it.

    Raises:
        PolicyError: the decision has no figures of the cluster.
    """
    cluster = decision.occupancy
    if cluster is None:
        raise PolicyError("the decision does not say when devices become free (occupancy), which this policy needs")
    return DecisionState(
        decision.now_s,
        cluster.num_left,
        decision.allowed_s,
        cluster.free_at_s,
        cluster.block_free_at_s,
        decision.block,
        decision.completion_s,
        is_offered,
    )


def check_single_blocks(scenario: Scenario) -> None:
    """Refuse a scenario with candidates that a linear scorer cannot read.

    Raises:
        PolicyError: there are such that hold several blocks, as published.
    """
    if "published" in scenario.settings.placement_rules:
        problem = "a linear scorer reads candidates of single blocks alone; leave out those of this rule"
        raise PolicyError(problem, field="placement_rules", value="published")


def scorer(scenario: Scenario, weights: NDArray[np.float64]) -> Scorer:
    """Return the weights, in the order of `FEATURES`, made ready for the blocks of a scenario."""
    problem, num = scenario.problem, scenario.space.num_blocks
    blocks = BlockTable(
        len(problem.degrees),
        problem.degree[:num].copy(),
        problem.start[: num + 1].copy(),
        problem.neighbour_start[: num + 1].copy(),
        problem.neighbours[: problem.neighbour_start[num]].copy(),
    )
    values = [worth[0] for worth in folded(scenario, weights[None])]
    return Scorer(blocks, scenario.workload.mean_interarrival_s, *values)


def folded(
    scenario: Scenario, weights: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the value of blocks by the degrees of a scenario and by slots, and the other weights, of ``w`` sets of weights.

    Args:
        scenario: where blocks have the degrees ``d``.
        weights: ``(w, f)``, features in the order of `FEATURES`.

    Returns:
        Worth of a block ``(w, d, h + 1)``, of the first block ``(w, d, h + 1)``, and plain weights ``(w, p)``.
    """
    degree = np.log2(np.minimum(np.array(scenario.space.degrees, np.float64), NODES[-1]))
    shares = np.maximum(0.0, 1.0 - np.abs(degree[:, None] - np.log2(NODES)))
    shares = shares / np.maximum(shares.sum(axis=0), 1e-300)  # each weight counts once, however many degrees have a share of it
    decay = np.array(list(DECAYS.values()))[:, None] ** np.arange(NUM_SLOTS)
    decay = decay / decay.sum(axis=1, keepdims=True)
    free_share = np.zeros((len(DECAYS), NUM_SLOTS + 1))
    free_share[:, :-1] = decay[:, ::-1].cumsum(axis=1)[:, ::-1]
    num_blocks = np.bincount(scenario.space.degree, minlength=len(scenario.space.degrees)).astype(np.float64)
    of_block, of_first = weights[:, :NUM_WORTHS], weights[:, NUM_WORTHS : 2 * NUM_WORTHS]
    values = [
        np.ascontiguousarray(np.einsum("wjq,dj,qh->wdh", part.reshape(len(part), len(NODES), len(DECAYS)), shares, free_share))
        for part in (of_block, of_first)
    ]
    plain = np.ascontiguousarray(weights[:, 2 * NUM_WORTHS :])
    assert plain.shape[1] == NUM_PLAIN
    return values[0] / num_blocks[None, :, None], values[1], plain
