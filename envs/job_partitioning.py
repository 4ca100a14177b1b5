"""`JobPartitioningEnv` and `JobPartitioningVectorEnv`: job arrivals on a shared cluster as environments of Gymnasium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..budget_clock import clock_s
from ..jobs.graph import JobGraph
from ..planners.policy import Policy, checked
from ..simulation.cluster.decision import Decision, decision
from ..simulation.cluster.records import EpisodeRecord
from ..simulation.cluster.scenario import Scenario
from .batch import EpisodeBatch
from .benchmark import BenchmarkSettings, load_benchmark
from .single import EpisodeEnv
from .vector_env import BatchVectorEnv

_MODES = ["rgb_array", "ansi"]


def job_episodes(
    num_episodes: int,
    benchmark: str | Path | BenchmarkSettings = "preset:quickstart",
    *,
    scenario: Scenario | None = None,
    graphs_dir: str | Path | None = None,
) -> EpisodeBatch:
    """Return episodes of a benchmark; for the arguments see `JobPartitioningEnv`."""
    choice = benchmark if isinstance(benchmark, BenchmarkSettings) else load_benchmark(str(benchmark))
    if scenario is None:
        scenario = choice.build(graphs_dir=None if graphs_dir is None else Path(graphs_dir))
    return EpisodeBatch(scenario, num_episodes, choice.reward)


class JobPartitioningEnv(EpisodeEnv):
    """Decide, job by job, how each arriving training job is cut and where it runs, or turn it away.

    **Id.** ``meshwright/JobPartitioning-v0``; ``gymnasium.make_vec`` gives
    `JobPartitioningVectorEnv`. One step is one decision; time jumps to the next one in between.

    **Action.** ``Discrete(a)``, a candidate. Number 0 rejects the job. Then come the degrees (numbers of ranks) in ascending
    order, each with one candidate per placement rule. A candidate is a block of devices that the rule takes. It is free now,
    has the memory and lets the job meet its deadline. A candidate that is not offered (mask 0) rejects the job. A placed job
    owns its devices until it ends.

    With the rule ``all-blocks``, up to ``max_listed_blocks`` candidates follow, one for each suitable free block. Blocks that
    differ in nothing are listed once (see `simulation.cluster.candidates`).

    **PAC-ML.** With ``semantics: {kind: pacml}`` jobs are cut, priced and blocked as in the published PAC-ML simulator, with or
    without its defects. The rule ``published`` is its first fit, by which a job may hold several blocks. The mask shows the
    candidates that fit. Candidates of this rule may be tried against the mask, as its agents do.

    **Queue.** With ``queue_capacity: 0`` a rejected job is gone, and every step is an arrival. With a queue, a rejected job
    waits while there is room and its deadline can be met. Whenever devices become free, waiting jobs that fit are offered again
    one by one, in the order ``queue_order``. Number 0 keeps a job waiting. The job is then observed with the time that its
    deadline still allows. It leaves as blocked once no block could meet its deadline.

    **Interruptions.** With ``failures`` or ``preemption`` in the scenario, jobs may end later than predicted. The
    observation holds what is known by then, never what will happen.

    **Observation.** ``Dict``; every feature lies in [0, 1] (``x / (x + y)`` for unbounded figures).

    ===================  ============  =======================================================================
    key                  shape         meaning
    ===================  ============  =======================================================================
    ``graph_id``         ()            which of `graphs` arrived, a ``Discrete``.
    ``job``              (4,)          allowed against sequential time, duration, whether any candidate is
                                       offered, fastest possible against allowed time.
    ``cluster``          (2,)          share of free devices, mean time left.
    ``cluster_slots``    (d, 2 h)      for each of d degrees the share of its blocks free by each of h
                                       moments ahead, then whether any is.
    ``devices``          (n, 2)        is free, time left.
    ``candidates``       (a, 14)       offered, is the rejection, rule (one of 4), share of devices,
                                       doublings, completion against deadline, completion, device-seconds.
                                       Communication share, efficiency, free devices afterwards.
    ``candidate_slots``  (a, d, 2 h)   ``cluster_slots`` as they will be once the candidate has been taken.
    ``action_mask``      (a,)          1 where the candidate is offered.
    ===================  ============  =======================================================================

    **Reward.** The benchmark's weighted sum: by default +1 for a job that is placed and -1 for one turned away. A job that
    keeps waiting pays nothing. A job whose deadline expires in the queue pays as one turned away, in the step before that.

    **Episode end.** When the arrival after the last of ``num_jobs`` comes, the episode is truncated, as the cluster would
    continue; it never terminates by itself. Jobs that wait then count neither as placed nor as turned away. Starts with an
    empty cluster.

    **Info.** ``outcome`` of the decision in words, ``accepted``. With a queue ``num_expired``, jobs whose deadline expired
    since the decision. At the end ``episode_counts`` (counted jobs by outcome).

    **Arguments.** ``benchmark`` (name, path or settings), ``scenario`` (already built, to share it between
    environments), ``graphs_dir`` (folder of profiles by name), ``render_mode`` (``rgb_array``, ``ansi``).

    **Version history.** v0: first version.
    """

    metadata: dict[str, Any] = {**EpisodeEnv.metadata, "render_modes": _MODES}  # noqa: RUF012 - as in the base
    make_batch = job_episodes
    _batch: EpisodeBatch

    @property
    def scenario(self) -> Scenario:
        """Cluster, workload and rules."""
        return self._batch.scenario

    def graphs(self) -> tuple[JobGraph, ...]:
        """Return the job graphs that ``graph_id`` numbers; `scenario.cluster` is where they run."""
        return self.scenario.workload.graphs

    def decision(self) -> Decision:
        """Return the current decision in plain figures."""
        return decision(self.scenario, self._batch.episodes, 0)

    def record(self) -> EpisodeRecord:
        """Return the record of the episode so far."""
        return self._batch.record(0)


class JobPartitioningVectorEnv(BatchVectorEnv):
    """Step many episodes of `JobPartitioningEnv`; ``gymnasium.make_vec("meshwright/JobPartitioning-v0", num_envs=e)``."""

    metadata: dict[str, Any] = {**BatchVectorEnv.metadata, "render_modes": _MODES}  # noqa: RUF012 - as in the base
    make_batch = job_episodes
    batch: EpisodeBatch

    def graphs(self) -> tuple[JobGraph, ...]:
        """Return the job graphs that ``graph_id`` numbers."""
        return self.batch.scenario.workload.graphs


def play_episode(chooser: Policy, scenario: Scenario, seed: int, latency_s: list[float] | None = None) -> EpisodeRecord:
    """Play one episode; all randomness, also the policy's, follows from the seed.

    Args:
        chooser: the policy.
        scenario: what is played.
        seed: of the episode.
        latency_s: seconds that each decision took the policy are added to it.
    """
    observes = getattr(chooser, "observes", True)
    batch = EpisodeBatch(scenario, 1, observes=observes)
    batch.reset(0, np.random.default_rng(seed))
    chooser.reset(seed)
    while not batch.is_over[0]:
        observation = {key: value[0] for key, value in batch.observations.current().items()} if observes else {}
        current = decision(scenario, batch.episodes, 0)
        began = clock_s()
        choice = chooser.choose(current, observation)
        if latency_s is not None:
            latency_s.append(clock_s() - began)
        choice = checked(choice, chooser.name, scenario.problem.num_candidates)
        batch.step(np.array([choice], np.int64))
    return batch.record(0)
