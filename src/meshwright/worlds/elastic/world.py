"""`ElasticWorld`: elastic jobs that share a cluster as a world, one choice of ranks a job and round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...budget_clock import clock_s
from ...jobs.readers.elastic import ElasticWorkload
from ...planners.elastic.goodput_shares import GoodputShares
from ...planners.elastic.known_curves import KnownCurves, known_curves, rank_choices
from ...planners.elastic.saved_shares import SHARE_RULES
from ...planners.elastic.scheduler import PUBLISHED, ElasticScheduler, play
from ...simulation.elastic.simulation import ElasticSimulation
from ...simulation.elastic.workload_draws import WorkloadDraws
from ..typed_graph import Sizes, WorldSpec
from ..world import World
from .benchmark import ElasticBenchmark, load_elastic_benchmark
from .elastic_round import JOB, MAY, MAY_BE_OF, MAY_HAVE, ROUND, SHARE, STATE, active_jobs
from .episodes import ElasticEpisodes, ElasticOutcome
from .modelled import ModelledDraws


class ElasticWorld(World[ElasticWorkload]):
    """Share a cluster among elastic jobs, round after round.

    Source: Qiao et al., "Pollux: co-adaptive cluster scheduling for goodput-optimized deep learning", OSDI 2021, for the cluster,
    applications and workloads.

    Args:
        benchmark: of the workloads.
    """

    spec = WorldSpec(
        name="elastic",
        nodes={"job": JOB, "share": SHARE},
        edges={MAY_HAVE: MAY, MAY_BE_OF: MAY},
        whole=ROUND,
        member="job",
        group="share",
        slots=("job", "share"),
        action=MAY,
        state=STATE,
        prior={"speedup": 4.0},  # an untrained policy leaves no job without ranks for ever
        changes=True,
    )
    case = "workload"
    reference_name = "shortest-remaining"
    rules = (*PUBLISHED, "pollux", *SHARE_RULES)

    def __init__(self, benchmark: ElasticBenchmark) -> None:
        self.benchmark = benchmark

    @cached_property
    def simulation(self) -> ElasticSimulation:
        """The applications on the cluster."""
        simulation: ElasticSimulation = self.benchmark.simulation()
        return simulation

    @cached_property
    def num_ranks(self) -> NDArray[np.int64]:
        """Numbers of ranks of the actions from 1 on, ``(o,)``."""
        return rank_choices(self.simulation.cluster.num_devices)

    @cached_property
    def _curves(self) -> KnownCurves | None:
        return known_curves(self.simulation) if self.benchmark.elastic.knows == "applications" else None

    @cached_property
    def _draws(self) -> WorkloadDraws | ModelledDraws:
        draws: WorkloadDraws | ModelledDraws = self.benchmark.draws(self.simulation, self.benchmark.elastic.trace)
        return draws

    @property
    def sizes(self) -> Sizes:
        """See `World`."""
        return self._sizes(self.benchmark.elastic.num_jobs)

    def sizes_of(self, instance: ElasticWorkload) -> Sizes:
        """See `World`."""
        return self._sizes(len(instance.job_names))

    def _sizes(self, num_jobs: int) -> Sizes:
        num_shares = 1 + len(self.num_ranks)
        most = num_jobs * len(self.num_ranks)
        return Sizes({"job": num_jobs, "share": num_shares}, {MAY_HAVE: most, MAY_BE_OF: most}, num_shares)

    def instance(self, split: str, seed: int) -> ElasticWorkload:
        """See `World`; none is a published workload."""
        return self._draws.draw(self.benchmark.seed(split, seed), self.benchmark.elastic.num_jobs)

    def batch(self, num_places: int, num_episodes: int, sizes: Sizes | None = None) -> ElasticEpisodes:
        """See `World`."""
        known = self.simulation, self.num_ranks, self._curves
        return ElasticEpisodes(self.spec, sizes or self.sizes, num_places, num_episodes, *known)

    def solve(self, instance: ElasticWorkload, rounds: int, seed: int) -> NDArray[np.int64]:
        """See `World`: the decisions of the rule that knows what the policy knows, with weights by hand."""
        watched = _Watched(scheduler_of("expected-remaining" if self._curves is None else "shortest-remaining", 0))
        play(self.simulation, watched, [instance])
        ranks = np.concatenate(watched.ranks)
        return np.asarray(np.searchsorted(self.num_ranks, ranks) + (ranks > 0))

    def scheduled(self, instance: ElasticWorkload, scheduler: ElasticScheduler, name: str) -> ElasticOutcome:
        """Return what a scheduler makes of a workload."""
        watched = _Watched(scheduler)
        play(self.simulation, watched, [instance])
        return ElasticOutcome.from_simulation(self.simulation, name, watched.spent_s / len(watched.ranks))

    def tiny(self) -> ElasticWorkload:
        """See `World`: one job of the application that takes the shortest."""
        spans_s, one = known_curves(self.simulation).after_s[:, 0, 0], np.ones(1, np.int64)
        batch = self.simulation.applications[int(spans_s.argmin())].batch[:1]
        return ElasticWorkload("tiny", ("job",), 0 * one, spans_s.argmin() * one, one, batch)

    def solver(self, spec: str) -> Callable[[ElasticWorkload, int], ElasticOutcome]:
        """See `World`."""
        return lambda instance, seed: self.scheduled(instance, scheduler_of(spec, seed), spec)


class _Watched:
    """A scheduler of one episode whose decisions are timed and noted.

    Attributes:
        spent_s: on all decisions.
        ranks: of the jobs in the system, in each round, ``(j,)``.
    """

    def __init__(self, scheduler: ElasticScheduler) -> None:
        self._scheduler, self.batch_rule, self.begin = scheduler, scheduler.batch_rule, scheduler.begin
        self.spent_s, self.ranks = 0.0, list[NDArray[np.int64]]()

    def allocate(self, simulation: ElasticSimulation) -> NDArray[np.int16]:
        """See `ElasticScheduler`."""
        began_s = clock_s()
        node_of_rank = self._scheduler.allocate(simulation)
        self.spent_s += clock_s() - began_s
        self.ranks.append((node_of_rank[0] >= 0).sum(axis=1)[active_jobs(simulation)])
        return node_of_rank


def scheduler_of(rule: str, seed: int) -> ElasticScheduler:
    """Return the scheduler of one of the world's rules; shares have weights set by hand, and the seed is of a search."""
    if rule in SHARE_RULES:
        return SHARE_RULES[rule].scheduler(SHARE_RULES[rule].by_hand)
    return PUBLISHED[rule]() if rule in PUBLISHED else GoodputShares(first=seed)


def load_elastic_world(spec: str, changes: Sequence[str] | None = None) -> ElasticWorld:
    """Return the world of a benchmark; see `benchmark.load_elastic_benchmark`."""
    return ElasticWorld(load_elastic_benchmark(spec, changes=changes))
