"""`FleetEnv` and `FleetVectorEnv`: episodes of a fleet as environments of Gymnasium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...jobs.graph import JobGraph
from ..single import EpisodeEnv
from ..vector_env import BatchVectorEnv
from .batch import FleetBatch
from .benchmark import FleetBenchmark, load_fleet_benchmark
from .fleet import Fleet
from .menu_lines import menu_lines
from .record import FleetRecord


def fleet_episodes(
    num_episodes: int,
    benchmark: str | Path | FleetBenchmark = "preset:llm-256",
    *,
    fleet: Fleet | None = None,
    cache: str | Path | None = None,
) -> FleetBatch:
    """Return episodes of a fleet; for the arguments see `FleetEnv`."""
    if fleet is None:
        choice = benchmark if isinstance(benchmark, FleetBenchmark) else load_fleet_benchmark(str(benchmark))
        fleet = choice.build(cache=None if cache is None else Path(cache))
    return FleetBatch(fleet, num_episodes)


class FleetEnv(EpisodeEnv):
    """Decide which waiting job starts, by which layout on how many devices and where, and what running jobs do in rounds.

    **Id.** ``meshwright/JobPartitioning-v1``; ``gymnasium.make_vec`` gives `FleetVectorEnv`, which steps many episodes in
    compiled code. One step is one decision. Time stops while decisions are made, and continues when the agent passes or nothing
    else is possible.

    **Action.** ``Discrete(a)``. Number 0 passes: time continues, and jobs beyond the capacity of the queue are refused. Actions
    that start one of ``visible_jobs`` waiting jobs (first come first) follow, one for each of its menu's entries and each
    placement choice. Their number is ``1 + (job * entries_per_job + entry) * choices + choice``. With ``elastic`` as many
    follow for each running job that is offered in a round. The job stops at its last whole step and restarts from there. Then
    one action for each pauses it. With ``may_refuse`` one action more for each waiting job on offer refuses it for good; it
    counts as blocked. While hosts are picked one by one (placement ``construct``), the actions are the numbers of hosts.
    `action_masks` and the key ``action_mask`` say what is possible. Any other action counts as the
    first possible one: to pass, or the first host that may be picked; ``info["was_possible"]`` is false then.

    **Dynamics.** A job runs at the step time of its entry on its hosts. Jobs that share links slow each other down: every
    start, end or move changes the speed of its neighbours (``sharing``). A job that has run pays for its next start a fixed
    time and the writing and reading of its state. With ``failures`` hosts fail and are out for a while: their devices cannot be
    had, and jobs on them wait again. See `simulation.fleet.dynamics`.

    **Observation.** ``Dict``; features lie in [0, 1] (a time ``t`` as ``t / (t + mean duration of a job)``). ``m`` hosts, ``r``
    trunks (above a leaf switch or a site each), ``u`` running jobs, ``v`` jobs on offer, ``a`` actions. Features in order:
    the classes of `envs.fleet.features`; which hosts are below a trunk: `envs.fleet.features.trunk_members`.

    =================  ===========  =========================================================================
    key                shape        meaning
    =================  ===========  =========================================================================
    ``hosts``          (m, 7)       free devices, load out and in, picked, may be picked, device type.
    ``trunks``         (r, 7)       free devices and wholly free hosts below, load, jobs across, share of all hosts, site.
    ``running``        (u, 10)      devices, progress, time left, age, slowdown, restarts, spread, deadline.
    ``offers``         (v, 14)      jobs on offer: waiting or running, age, least time and device-seconds left.
                                    Devices asked for, deadline, progress, devices held, price of a restart, rank.
    ``context``        (15,)        free devices, jobs waiting, running, not offered and to come, round;
                                    of the entry whose hosts are picked: hosts to go, devices, times, memory.
    ``host_of``        (u, m)       share of each host that a running job holds.
    ``trunk_of``       (u, r)       how much of each trunk a running job uses.
    ``running_type``   (u,)         job type of each running job: its number in `graphs`; 0 in unused rows.
    ``offer_type``     (v,)         the same of each job on offer; with `menu` its rows of the menu.
    ``candidates``     (a, 8)       of each action: times and device-seconds, spread, deadline, and with
                                    ``candidate_features: simulated`` its slowdown and that of others; no rows with ``none``.
    ``action_mask``    (a,)         1 where the action is possible.
    ``links``          (r, m, 4)    only with ``observes_links: true``, for each host below each trunk. Bandwidths of its
                                    card and of the trunk, as shares of the fastest link's, and the load out of and into
                                    the host. 0 where it is not below. No policy here reads them.
    =================  ===========  =========================================================================

    **Reward.** Sums over an episode to a figure of all jobs, in mean durations of a job (see `envs.fleet.reward`). For mean
    completion time: minus each job's completion time, plus its usual time, which no decision changes, when its end is foreseen.

    **Episode end.** Terminated when every job has completed or been turned away; never truncated. Starts with an empty cluster.

    **Info.** ``now_s``, ``num_waiting``, ``num_running``; after a step ``was_possible``, whether the action was; at the end
    ``episode_counts``, counted jobs by what became of them.

    **Arguments.** ``benchmark`` (name, path or settings), ``fleet`` (already built, to share it between environments), ``cache``
    (folder of priced menus), ``render_mode`` (``ansi``).

    **Version history.** v1: queue, menu of layouts, shared links, elasticity. v0 (`envs.job_partitioning`) is a different
    environment, not an older v1: one job at a time, devices and links of its own.
    """

    make_batch = fleet_episodes
    _batch: FleetBatch

    @property
    def fleet(self) -> Fleet:
        """The fleet."""
        return self._batch.fleet

    def graphs(self) -> tuple[JobGraph, ...]:
        """Return the job graphs that ``offer_type`` and ``running_type`` number; `fleet.cluster` is where they run."""
        return self.fleet.graphs

    def menu(self) -> list[dict[str, Any]]:
        """Return the menu in plain figures, an entry a row (see `envs.fleet.menu_lines`)."""
        return menu_lines(self.fleet)

    def record(self) -> FleetRecord:
        """Return the record of the episode so far."""
        return FleetRecord.from_state(self._batch.state, 0)


class FleetVectorEnv(BatchVectorEnv):
    """Step many episodes of `FleetEnv`: the result of ``gymnasium.make_vec("meshwright/JobPartitioning-v1", num_envs=e)``."""

    make_batch = fleet_episodes
    batch: FleetBatch

    def graphs(self) -> tuple[JobGraph, ...]:
        """Return the job graphs that ``offer_type`` and ``running_type`` number."""
        return self.batch.fleet.graphs
