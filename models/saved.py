"""Networks of `JobPartitioning-v0` on disk, and a saved network as a policy that acts in any scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from numpy.typing import NDArray

from .. import files
from ..envs.observation import CANDIDATE_FEATURES, CLUSTER_FEATURES, DEVICE_FEATURES, JOB_FEATURES, SLOTS
from ..envs.static_features import DEGREE_FEATURES, OP_FEATURES, StaticFeatures, static_features
from ..errors import CheckpointError
from ..planners.linear import LinearWeights
from ..simulation.cluster.decision import Decision
from ..simulation.cluster.problem import ONE_BLOCK_RULES, RULE_NAMES
from ..simulation.cluster.scenario import Scenario
from ..simulation.cluster.scenario_settings import ScenarioSettings
from .linear_prior import KEY as PRIOR
from .linear_prior import LinearPrior
from .network import CandidateNetwork
from .saved_policy import READS, SavedPolicy
from .settings import NetworkSettings

FORMAT_VERSION = 2
FEATURES = files.digest(
    [OP_FEATURES, DEGREE_FEATURES, JOB_FEATURES, CLUSTER_FEATURES, DEVICE_FEATURES, CANDIDATE_FEATURES, SLOTS]
)
_RULE_COLUMNS = [CANDIDATE_FEATURES.index(f"rule {rule}") for rule in ONE_BLOCK_RULES]


def scenario_metadata(scenario: ScenarioSettings) -> dict[str, Any]:
    """Return the entry of a policy's file on the scenario of its training: placement rules and length of a slot."""
    return {"rules": list(scenario.placement_rules), "arrivals_per_slot": scenario.arrivals_per_slot}


@dataclass(frozen=True, eq=False)
class SavedNetwork(SavedPolicy):
    """A network of `JobPartitioning-v0` as it lies on disk.

    Attributes:
        prior: the linear scorer within it; None without one.
    """

    prior: LinearWeights | None = None

    head: ClassVar = {"format_version": FORMAT_VERSION, READS: FEATURES}
    refused = f"is no policy of version {FORMAT_VERSION}; train it again"
    widths = NetworkSettings

    def to_data(self) -> dict[str, Any]:
        """See `SavedPolicy`."""
        return super().to_data() | ({} if self.prior is None else {"prior": self.prior.to_data()})

    @classmethod
    def from_data(cls, data: Any, file: str | Path, **more: Any) -> Self:
        """See `SavedPolicy`."""
        saved = super().from_data(data, file, **more)
        rules, arrivals = saved.trained.get("rules", []), saved.trained.get("arrivals_per_slot", 1.0)
        if not isinstance(rules, list) or not all(rule in list(RULE_NAMES) for rule in rules) or not isinstance(arrivals, float):
            raise CheckpointError("a part of the policy is not what it should be", file=file, field="trained")
        return replace(saved, prior=LinearWeights.from_data(data["prior"], file)) if "prior" in data else saved

    def network(self, static: StaticFeatures) -> CandidateNetwork:
        """Return a network with these weights that serves a scenario.

        Raises:
            CheckpointError: the weights do not fit the widths.
        """
        network = CandidateNetwork(self.settings, static, has_prior=self.prior is not None)
        try:
            network.load_state_dict(self.weights)
        except RuntimeError:
            raise CheckpointError("the weights do not fit the widths in the file", file=self.file) from None
        return network.eval()


class NetworkPolicy:
    """A saved network bound to a scenario; takes the best-scored candidate, without randomness.

    It chooses among the candidates of the placement rules of its training and sees them as then, whatever other rules the
    scenario has.

    Args:
        name: for tables.
        saved: the network.
        scenario: in which it acts.
        sees_graphs: False: the embedding of every job graph is zero, whatever the network makes of it.

    Raises:
        CheckpointError: the scenario has none of the rules of its training.
    """

    def __init__(self, name: str, saved: SavedNetwork, scenario: Scenario, *, sees_graphs: bool = True) -> None:
        self.name = name
        self._network = saved.network(static_features(scenario))
        if not sees_graphs:
            self._network.blind_to_graphs()
        offered = scenario.settings.placement_rules
        rules = saved.trained.get("rules", offered)
        if not set(rules) & set(offered):
            problem = f"chooses among {', '.join(rules)}; the benchmark's placement_rules have none of them"
            raise CheckpointError(problem, file=saved.file, field="placement_rules", value=list(offered))
        self._prior = None if saved.prior is None else LinearPrior(saved.prior, scenario)
        self._rules = None if tuple(rules) == tuple(offered) else [rule for rule in rules if rule in offered]

    def reset(self, seed: int) -> None:
        """Do nothing: the policy has no state."""

    def choose(self, decision: Decision, observation: Mapping[str, NDArray[Any]]) -> int:
        """See `planners.policy.Policy`."""
        if self._prior is not None:
            observation = {**observation, PRIOR: self._prior.of_decision(decision)}
        if self._rules is None:
            return int(self.scores(observation).argmax())
        own = self._own(decision, self._rules)
        candidates = observation["candidates"].copy()
        candidates[:, _RULE_COLUMNS] = 0.0
        for candidate, rule in own.items():
            if rule in ONE_BLOCK_RULES:
                candidates[candidate, _RULE_COLUMNS[ONE_BLOCK_RULES.index(rule)]] = 1.0
        job = observation["job"].copy()
        job[JOB_FEATURES.index("has candidate")] = len(own) > 1
        seen = {**observation, "job": job, "candidates": candidates}
        numbers = list(own)
        of_candidates = {key: value[numbers] for key, value in seen.items() if key.startswith(("candidate", "action_mask"))}
        return numbers[int(self.scores({**seen, **of_candidates}).argmax())]

    def scores(self, observation: Mapping[str, NDArray[Any]]) -> torch.Tensor:
        """Return the score of each candidate, ``(a,)``."""
        batch = {key: torch.as_tensor(value)[None] for key, value in observation.items()}
        with torch.no_grad():
            scores: torch.Tensor = self._network(batch)[0][0]
        return scores

    @staticmethod
    def _own(decision: Decision, rules: Sequence[str]) -> dict[int, str]:
        """Return the candidates that would be offered if there were no other rules, in the order that they would have, and whose.

        Where an earlier rule of the scenario takes the same block, its candidate is taken for theirs.
        """
        one_each = [rule for rule in rules if rule != "all-blocks"]
        results = [(int(decision.degree[c]), i, int(c)) for i, rule in enumerate(one_each) for c in decision.offered(rule)]
        own = {0: ""}
        for _, i, candidate in sorted(results):
            if decision.can_place[candidate]:
                own.setdefault(candidate, one_each[i])
        if "all-blocks" in rules:
            for candidate in decision.offered("all-blocks").tolist():
                own.setdefault(candidate, "all-blocks")
        return own
