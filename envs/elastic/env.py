"""`ElasticEnv` and `ElasticVectorEnv`: jobs that change their number of ranks while they run, with measured speeds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...simulation.elastic.simulation import ElasticSimulation
from ..single import EpisodeEnv
from ..vector_env import BatchVectorEnv
from .episodes import ElasticEpisodes


class ElasticEnv(EpisodeEnv):
    """Share a cluster among elastic jobs, round after round.

    **Id.** ``meshwright/ElasticJobs-v0``; ``gymnasium.make_vec`` gives `ElasticVectorEnv`. One episode plays one workload of the
    published elastic workloads' kind (Pollux, OSDI 2021): six applications with measured step times and gradient statistics, a
    restart of 30 s, rounds of 60 s. The measurements are not part of the project; the benchmark says where they lie.

    **Action.** ``Discrete(o + 1)``: how many ranks the current job has in the next round; 0 none, else ``num_ranks[action -
    1]``. In a round all jobs in the system are decided one after another, first come first, while no time passes. Then a job
    whose number stays keeps its nodes, and the others get theirs, the largest first onto the fewest nodes. `action_masks` and
    the key ``action_mask`` tell which numbers fit what is left, and can be used by the job. Any other action counts as none;
    ``info["was_possible"]`` is false then.

    **Observation.** ``Dict``; features lie in [0, 1]. ``j`` jobs of the episode, ``o`` numbers of ranks.

    ===============  =======  =========================================================================================
    key              shape    meaning
    ===============  =======  =========================================================================================
    ``jobs``         (j, 8)   active, decided this round, ranks now, ranks given, ranks that its user asks for, device-
                              seconds held, age, restarts; zeros for jobs that have not come or have ended
    ``spans``        (j, o)   remaining time on each number of ranks, ``s / (s + 3600)``; 1 where it cannot be used
    ``cluster``      (1,)     share of devices still to be given this round
    ``current``      ()       the job that is decided
    ``action_mask``  (o+1,)   1 where an action is possible
    ===============  =======  =========================================================================================

    **Reward.** After the last decision of a round minus the time that jobs spent in the system in it, over the number of jobs, in
    units of 1,000 s; else 0. Sums to minus the mean completion time.

    **Episode end.** Terminated when every job has ended; truncated after 20,000 rounds.

    **Info.** ``now_s``, ``active`` jobs; after a step ``was_possible``; at the end ``mean_completion_s``.

    **Arguments.** ``benchmark`` (name, path or settings: measurements and cluster are taken from it), ``knows``
    (``applications``: remaining times are those of jobs whose applications ran before, and jobs choose the batch that is best by
    what was measured; ``profiles``: what jobs saw of their own steps so far, as for Pollux), ``workload`` (always this one),
    ``split`` of the drawn workloads (``training``), ``num_jobs`` of each (160), ``trace`` from which they are drawn,
    ``render_mode`` (``ansi``).

    **Seeds.** ``reset(seed=N)`` plays drawn workload ``N`` of the split; without a seed the next one is drawn. No published
    workload is among them.

    **Version history.** v0: first.
    """

    make_batch = ElasticEpisodes
    _batch: ElasticEpisodes

    @property
    def simulation(self) -> ElasticSimulation:
        """The cluster with the state of its jobs."""
        return self._batch.simulations[0]

    @property
    def num_ranks(self) -> NDArray[np.int64]:
        """Numbers of ranks of the actions from 1 on, ``(o,)``."""
        return self._batch.num_ranks


class ElasticVectorEnv(BatchVectorEnv):
    """What ``gymnasium.make_vec("meshwright/ElasticJobs-v0", num_envs=e)`` gives: many episodes of `ElasticEnv`."""

    make_batch = ElasticEpisodes
