"""The rollout planner: each candidate is tried in sampled futures that a base policy plays on, and the best one is taken.

The futures are drawn from the workload, never from the episode that is played. The planner knows what an agent knows: the
cluster, the current job and the number of arrivals left. All candidates of a decision meet the same futures; the better half of
them meets more, repeatedly. A candidate earns one for each placed job of this and the next decisions. Where jobs that run when
the episode ends count as blocked, the job must also be expected to end in time.

Source:
    Bertsekas, Tsitsiklis and Wu, "Rollout algorithms for combinatorial optimization", 1997; the halving: Karnin, Koren and
    Somekh, "Almost optimal exploration in multi-armed bandits", 2013.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import PolicyError
from ..simulation.cluster.decision import Decision, Occupancy
from ..simulation.cluster.problem import RULE_NAMES, Problem, Rule
from ..simulation.cluster.scenario import Scenario
from ..simulation.cluster.state import new_episodes
from .linear import FEATURES, LinearWeights, scorer
from .rollout_kernel import Base, CurrentDecision, block_of_base, earnings

HORIZON = 40
NUM_FUTURES = 32
# Jobs from which futures are cut.
BANK_SIZE = 4096
MIN_EPISODES, MAX_EPISODES = 4, 64
# Standard errors by which a candidate must do better than the base policy's own: the best of many looks better than it is.
SURE = 2.0
LADDER_RULES = ("first-fit", "best-fit", "fastest")


@dataclass(frozen=True, eq=False)
class Ladder:
    """A base policy: the first of these degrees that can be placed by a rule.

    Attributes:
        degrees: ranks, the preferred ones first.
        placement_rule: one of `LADDER_RULES`.
    """

    degrees: tuple[int, ...]
    placement_rule: str


class Rollout:
    """A rollout planner bound to a scenario; its random numbers follow from the episode's seed.

    Args:
        name: for tables.
        scenario: in which it acts.
        base: who plays the futures.
        horizon: decisions of a future after the one at hand; less where the episode ends.
        num_futures: that the most promising candidates meet.

    Raises:
        PolicyError: jobs wait or are interrupted in the scenario, or it lacks a placement rule of the base policy.
    """

    observes = False

    def __init__(
        self,
        name: str,
        scenario: Scenario,
        base: Ladder | LinearWeights,
        *,
        horizon: int = HORIZON,
        num_futures: int = NUM_FUTURES,
    ) -> None:
        settings = scenario.settings
        if settings.queue_capacity > 0:
            raise PolicyError("a rollout planner knows no queue", field="queue_capacity", value=settings.queue_capacity)
        if scenario.problem.interruptions.is_on:
            raise PolicyError("a rollout planner knows no failures and no preemption; switch them off in the scenario")
        if horizon < 0 or num_futures < 1:
            raise PolicyError("at least one future, of no less than zero decisions, is wanted", field=name)
        self.name = name
        self._scenario = scenario
        self._horizon = min(horizon, settings.num_jobs - 1)
        self._num_futures = num_futures
        self._rules = (base.placement_rule,) if isinstance(base, Ladder) else base.placement_rules
        known = LADDER_RULES if isinstance(base, Ladder) else [rule for rule in settings.placement_rules if rule != "published"]
        for rule in self._rules:
            if rule not in settings.placement_rules or rule not in known:
                problem = "is no placement rule of the scenario by which a base policy can play on"
                offered = [rule for rule in settings.placement_rules if rule in known]
                raise PolicyError(problem, field=name, value=rule, choices=offered)
        degrees = base.degrees if isinstance(base, Ladder) else ()
        ladder = np.array([scenario.space.degrees.index(degree) for degree in degrees], np.int64)
        weights = np.zeros(len(FEATURES)) if isinstance(base, Ladder) else base.weights
        self._base = Base(len(ladder) == 0, ladder, int(RULE_NAMES[self._rules[0]]), scorer(scenario, weights))
        self._seen: Problem | None = None
        self._renew()
        self._futures = new_episodes(self._problem, num_futures, self._horizon + 1, scenario.cluster.num_devices)
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Draw the jobs from which the futures of this episode are cut."""
        self._rng = np.random.default_rng([seed, 2])
        num_jobs = self._scenario.settings.num_jobs
        num_episodes = min(max(-(-BANK_SIZE // num_jobs), MIN_EPISODES), MAX_EPISODES)
        drawn = [self._scenario.sample(self._rng, num_jobs + 1) for _ in range(num_episodes)]
        self._gap_s = np.array([np.diff(jobs.arrival_s) for jobs in drawn])
        self._graph_id = np.array([jobs.graph_id[1:] for jobs in drawn])
        self._num_steps = np.array([jobs.num_steps[1:] for jobs in drawn])
        fraction = np.array([jobs.deadline_fraction[1:] for jobs in drawn])
        self._allowed_s = fraction * self._num_steps * self._scenario.problem.sequential_step_s[self._graph_id]

    def choose(self, decision: Decision, observation: Mapping[str, NDArray[Any]]) -> int:
        """See `planners.policy.Policy`."""
        cluster = decision.occupancy
        if cluster is None:
            raise PolicyError("the decision does not say when devices become free (occupancy), which this policy needs")
        candidate = np.flatnonzero(decision.can_place & (decision.block < self._scenario.space.num_blocks))
        if len(candidate) == 1:  # the rejection
            return 0
        self._renew()
        current = self._current(decision, cluster)
        self._draw(decision)
        block = np.where(candidate > 0, decision.block[candidate], -1)
        own = np.flatnonzero(block == block_of_base(self._problem, self._futures, self._base, current))
        return int(candidate[self._best(current, block, decision.completion_s[candidate], int(own[0]))])

    def _best(self, current: CurrentDecision, block: NDArray[np.int64], time_s: NDArray[np.float64], own: int) -> int:
        """Return which candidate to take: the base policy's own one unless another surely earns more."""
        left = np.arange(len(block))
        earned = np.zeros((len(block), self._num_futures))
        for first, end in _rounds(self._num_futures):
            result = np.zeros((len(left), self._num_futures))
            earnings(self._problem, self._futures, self._base, current, block[left], time_s[left], first, end, result)
            earned[left, first:end] = result[:, first:end]
            more = earned[left, :end] - earned[own, :end]
            margin = more.mean(axis=1) - SURE * more.std(axis=1) / np.sqrt(end)
            best = left[np.argsort(-more.mean(axis=1), kind="stable")]
            surest = int(left[np.argmax(np.where(left == own, 0.0, margin))])
            best = best[: max(2, -(-len(best) // 4))]
            left = np.unique(np.append(best, own))
        return surest if margin.max() > 0 else own

    def _current(self, decision: Decision, cluster: Occupancy) -> CurrentDecision:
        end_s = decision.now_s + cluster.num_left * self._scenario.workload.mean_interarrival_s
        return CurrentDecision(
            decision.now_s,
            cluster.num_left,
            cluster.free_at_s,
            cluster.block_free_at_s,
            cluster.fixed_block,
            end_s if self._scenario.settings.defects.running_jobs_are_blocked else np.inf,
            min(self._horizon, cluster.num_left - 1),
        )

    def _draw(self, decision: Decision) -> None:
        """Write the current job and new futures."""
        jobs, length = self._futures, self._horizon + 1
        row = self._rng.integers(len(self._gap_s), size=self._num_futures)[:, None]
        place = self._rng.integers(self._gap_s.shape[1] - length + 1, size=self._num_futures)[:, None] + np.arange(length)
        jobs.arrival_s[:, 0], jobs.graph_id[:, 0], jobs.num_steps[:, 0] = decision.now_s, decision.graph_id, decision.num_steps
        jobs.allowed_s[:, 0] = decision.allowed_s
        jobs.arrival_s[:, 1:] = decision.now_s + np.cumsum(self._gap_s[row, place], axis=1)
        jobs.graph_id[:, 1:] = self._graph_id[row, place]
        jobs.num_steps[:, 1:] = self._num_steps[row, place]
        jobs.allowed_s[:, 1:] = self._allowed_s[row, place]

    def _renew(self) -> None:
        """Take over the scenario's arrays, which grow as placements are found, with the candidates of the base policy."""
        whole = self._scenario.problem
        if whole is self._seen:
            return
        numbers = [int(RULE_NAMES[rule]) for rule in self._rules]
        is_kept = np.isin(whole.candidate_rule, [-1, *numbers])
        self._seen = whole
        self._problem = whole._replace(
            rules=np.array([number for number in numbers if number != Rule.ALL_BLOCKS], np.int64),
            candidate_degree=whole.candidate_degree[is_kept],
            candidate_rule=whole.candidate_rule[is_kept],
            published=whole.published._replace(is_on=False),
        )


def _rounds(num_futures: int) -> list[tuple[int, int]]:
    """Return the ranges of futures: a quarter for all candidates, as many again for those that are left, then the rest."""
    ends = sorted({0, -(-num_futures // 4), -(-num_futures // 2), num_futures})
    return list(pairwise(ends))
