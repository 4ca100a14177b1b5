"""Observations of a fleet: a graph of hosts, trunks above them, running jobs and jobs on offer, as padded arrays.

Every feature lies in [0, 1]; a time ``t`` is given as ``t / (t + mean duration of a job)``, other figures without a bound as
``x / (1 + x)``. A host that is out after a failure has no free device, and no job holds any of it.

Legend: ``m`` hosts, ``r`` trunks (a leaf switch or a site each; a host where links form no tree). ``u`` observed running jobs
(the first to start), ``v`` jobs on offer, ``a`` actions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...numba_records import by_reference
from ...planners.menu.named_entry import exactness_of, multiplier_of
from ...simulation.fleet.actions import start_number
from ...simulation.fleet.offers import choice_hosts, choice_step_s, left_of
from ...simulation.fleet.runs import again_s
from ...simulation.fleet.shared_steps import busiest, shared_step_times
from ...simulation.fleet.state import JobState, PlacementRule, Resource
from ...simulation.ragged import arrays_of
from .features import (
    CANDIDATE,
    CANDIDATE_STRATEGY,
    CONTEXT,
    HOST,
    LEFT,
    OFFER,
    PICKED_ENTRY,
    RUNNING,
    STRATEGY,
    TRUNK,
    CandidateColumn,
    CandidateStrategyColumn,
    ContextColumn,
    EntryColumn,
    HostColumn,
    LeftColumn,
    OfferColumn,
    RunningColumn,
    StrategyColumn,
    TrunkColumn,
)
from .fleet import Fleet

NONE, ANALYTIC, SIMULATED = 0, 1, 2
MAX_RUNNING_TOLD = 24
NUM_ENTRY, NUM_CANDIDATE = len(EntryColumn), len(CandidateColumn)


@by_reference
class FleetObserver(NamedTuple):
    """Data that `observe` reads in addition to problem and state.

    Attributes:
        duration_s: by which times are scaled.
        features: what candidates show.
        best_step_s: of each type, ``(t,)``.
        entry: features of each entry, ``(E, len(ENTRY))``; with those of `STRATEGY` where the menu has entries with names.
        exposed: see `planners.menu.build.Menu`; ``(0, 0, 0, 0)`` where it has none.
    """

    duration_s: float
    features: int
    best_step_s: NDArray[np.float64]
    entry: NDArray[np.float32]
    exposed: NDArray[np.float64]


@by_reference
class FleetObservations(NamedTuple):
    """Arrays, each with a leading ``e``.

    Attributes:
        hosts, trunks, running, offers, context: features by the lists of names above.
        host_of: share of each host that a running job holds, ``(e, u, m)``.
        trunk_of: share of the time for which a running job keeps each trunk busy, ``(e, u, r)``.
        running_type, offer_type: job type, ``(e, u)`` and ``(e, v)``.
        candidates: of each action, ``(e, a, len(CANDIDATE))``; where nothing is shown of them, of none.
        action_mask: ``(e, a)``.
    """

    hosts: NDArray[np.float32]
    trunks: NDArray[np.float32]
    running: NDArray[np.float32]
    offers: NDArray[np.float32]
    context: NDArray[np.float32]
    host_of: NDArray[np.float32]
    trunk_of: NDArray[np.float32]
    running_type: NDArray[np.int64]
    offer_type: NDArray[np.int64]
    candidates: NDArray[np.float32]
    action_mask: NDArray[np.int8]


def new_observations(fleet: Fleet, num_episodes: int) -> FleetObservations:
    """Make empty observations of ``e`` episodes."""
    problem, e = fleet.problem, num_episodes
    network = problem.network
    m, r, v, a = problem.num_hosts, network.num_trunks or network.num_groups, problem.num_offers, problem.num_actions
    u, tells = min(MAX_RUNNING_TOLD, problem.max_running), fleet.settings.candidate_features != "none"

    shapes = {
        "hosts": (e, m, len(HOST)),
        "trunks": (e, r, len(TRUNK)),
        "running": (e, u, len(RUNNING)),
        "offers": (e, v, len(OFFER)),
        "context": (e, len(CONTEXT) + fleet.has_strategies * (len(STRATEGY) + len(LEFT))),
        "host_of": (e, u, m),
        "trunk_of": (e, u, r),
        "running_type": (e, u),
        "offer_type": (e, v),
        "candidates": (e, a * tells, len(CANDIDATE) + fleet.has_strategies * len(CANDIDATE_STRATEGY)),
        "action_mask": (e, a),
    }
    return arrays_of(FleetObservations, shapes)


def observer(fleet: Fleet) -> FleetObserver:
    """Make the constants of a fleet that observations need."""
    menu = fleet.problem.menu
    least = menu.step_s.min(axis=(1, 2, 3))
    kind = np.repeat(np.arange(fleet.num_types), np.diff(menu.first_entry))
    best = np.array([least[kind == t].min() for t in range(fleet.num_types)])
    is_masked = np.isinf(least)  # what may not be chosen tells nothing
    least[is_masked] = 1.0
    of_type = np.where(is_masked[:, None], 1.0, menu.step_s.min(axis=(2, 3)))
    fastest_type = of_type.argmin(axis=1)
    apart = np.where(np.isfinite(menu.step_s), menu.step_s, 0).max(axis=(2, 3))[np.arange(len(least)), fastest_type]
    columns = {
        EntryColumn.DEVICES: np.log2(menu.degree + 1) / np.log2(fleet.cluster.num_devices + 1),
        EntryColumn.STEP: best[kind] / least,
        EntryColumn.DEVICE_SECONDS: menu.work_device_s[kind] / (least * menu.degree),
        EntryColumn.APART: 1 - least / np.maximum(apart, 1e-12),
        EntryColumn.SLOWEST_TYPE: 1 - least / of_type.max(axis=1),
        EntryColumn.MEMORY: menu.memory_bytes / max(float(fleet.cluster.memory_bytes.max()), 1.0),
        EntryColumn.HOSTS_WANTED: np.minimum(1.0, menu.degree / fleet.cluster.num_devices),
    }
    entry = np.stack([columns[column] for column in EntryColumn], axis=1)
    features = ("none", "analytic", "simulated").index(fleet.settings.candidate_features)
    entry[is_masked] = 0.0
    exposed = np.zeros((0, 0, 0, 0))
    if fleet.menu.exposed is not None:
        exposed = np.array(fleet.menu.exposed)
        named = [one.named for one in fleet.menu.entries]
        rho = np.array([multiplier_of(one) for one in named])
        at_best = exposed.reshape(len(rho), -1)[np.arange(len(rho)), menu.step_s.reshape(len(rho), -1).argmin(axis=1)]
        exactness = np.array([exactness_of(one) for one in named])
        more = {
            StrategyColumn.EXACTNESS: exactness,
            StrategyColumn.STEPS: rho / (1 + rho),
            StrategyColumn.EXPOSED: at_best,
        }
        entry = np.column_stack([entry, *(more[column] for column in StrategyColumn)])
    entry_values = np.ascontiguousarray(np.clip(entry, 0, 1), np.float32)
    return FleetObserver(fleet.mean_duration_s, features, best, entry_values, exposed)


@njit
def _of_time(observer, time_s):  # type: ignore[no-untyped-def]
    return max(0.0, time_s) / (max(0.0, time_s) + observer.duration_s) if time_s < np.inf else 1.0


@njit
def _of_count(count):  # type: ignore[no-untyped-def]
    return count / (1.0 + count)


@njit
def observe(problem, state, e, observer, out):  # type: ignore[no-untyped-def]
    """Write what is seen of episode ``e``."""
    _observe_hosts(problem, state, e, observer, out)
    _observe_running(problem, state, e, observer, out)
    _observe_offers(problem, state, e, observer, out)
    for a in range(out.action_mask.shape[1]):
        out.action_mask[e, a] = state.can_act[e, a]
    if observer.features != NONE:
        _observe_candidates(problem, state, e, observer, out)


@njit
def _observe_hosts(problem, state, e, observer, out):  # type: ignore[no-untyped-def]
    network = problem.network
    size, num_hosts = network.devices_per_host, len(network.host_group)
    is_building = state.building[e] >= 0
    free = 0
    for host in range(num_hosts):
        share = state.free[e, host] / size
        free += state.free[e, host]
        row = out.hosts[e, host]
        row[HostColumn.FREE], row[HostColumn.IS_FREE] = share, share == 1.0
        row[HostColumn.LOAD_OUT] = min(1.0, state.load[e, 2 * host] / 2)
        row[HostColumn.LOAD_IN] = min(1.0, state.load[e, 2 * host + 1] / 2)
        row[HostColumn.IS_PICKED], row[HostColumn.MAY_BE_PICKED] = 0.0, is_building and state.can_act[e, host]
        row[HostColumn.DEVICE_TYPE] = network.host_type[host] / max(1, problem.menu.step_s.shape[1] - 1)
    for i in range(state.num_built[e] if is_building else 0):
        out.hosts[e, state.built[e, i], HostColumn.IS_PICKED] = 1.0
    out.trunks[e] = 0.0
    for host in range(num_hosts):
        group = network.host_group[host]
        for trunk in (group, network.num_groups + network.group_site[group]):
            if trunk < out.trunks.shape[1]:  # a single site has no trunk
                out.trunks[e, trunk, TrunkColumn.FREE] += out.hosts[e, host, HostColumn.FREE]
                out.trunks[e, trunk, TrunkColumn.FREE_HOSTS] += out.hosts[e, host, HostColumn.IS_FREE]
                out.trunks[e, trunk, TrunkColumn.SHARE] += 1.0
    for trunk in range(out.trunks.shape[1]):
        row = out.trunks[e, trunk]
        row[TrunkColumn.FREE] /= row[TrunkColumn.SHARE]
        row[TrunkColumn.FREE_HOSTS] /= row[TrunkColumn.SHARE]
        row[TrunkColumn.SHARE] /= num_hosts
        if network.num_trunks > 0:
            up = 2 * (num_hosts + trunk)
            row[TrunkColumn.LOAD_UP] = min(1.0, state.load[e, up] / 2)
            row[TrunkColumn.LOAD_DOWN] = min(1.0, state.load[e, up + 1] / 2)
            row[TrunkColumn.IS_SITE] = trunk >= network.num_groups
    row = out.context[e]
    row[:] = 0.0
    row[ContextColumn.FREE] = free / (size * num_hosts)
    row[ContextColumn.WAITING] = state.num_waiting[e] / (1.0 + state.num_waiting[e])
    row[ContextColumn.RUNNING] = state.num_running[e] / (1.0 + state.num_running[e])
    hidden = max(0, state.num_waiting[e] - problem.visible_waiting)
    row[ContextColumn.HIDDEN] = hidden / (8.0 + hidden)
    row[ContextColumn.TO_COME] = 1.0 - state.num_arrived[e] / state.arrival_s.shape[1]
    row[ContextColumn.IS_ROUND] = state.in_round[e]
    if is_building:
        entry = state.building_entry[e]
        row[ContextColumn.PICKING] = 1.0
        row[ContextColumn.STILL_TO_PICK] = 1.0 - state.num_built[e] / max(1.0, problem.menu.degree[entry] / size)
        row[PICKED_ENTRY : PICKED_ENTRY + observer.entry.shape[1]] = observer.entry[entry]
    if len(observer.exposed) > 0:
        left = row[PICKED_ENTRY + observer.entry.shape[1] :]
        left[LeftColumn.TREES] = _of_count(left_of(problem, state, e, -1, Resource.TREES))
        left[LeftColumn.SERVERS] = _of_count(left_of(problem, state, e, -1, Resource.SERVERS))


@njit
def _observe_running(problem, state, e, observer, out):  # type: ignore[no-untyped-def]
    network = problem.network
    size = network.devices_per_host
    num_devices = size * len(network.host_group)
    out.running[e] = 0.0
    out.running_type[e] = 0
    out.host_of[e] = 0.0
    out.trunk_of[e] = 0.0
    has_trunks = network.num_trunks > 0
    seen = np.zeros(network.num_groups, np.bool_)
    for i in range(min(state.num_running[e], out.running.shape[1])):
        job = state.running[e, i]
        place = state.place[e, job]
        row = out.running[e, i]
        hosts, part = state.num_hosts[e, place], state.part[e, place]
        row[RunningColumn.DEVICES] = np.log2(hosts * part + 1) / np.log2(num_devices + 1)
        row[RunningColumn.PROGRESS] = min(1.0, state.done_steps[e, job] / state.num_steps[e, job])
        row[RunningColumn.TIME_LEFT] = _of_time(observer, state.finish_s[e, job] - state.now_s[e])
        row[RunningColumn.AGE] = _of_time(observer, state.now_s[e] - state.arrival_s[e, job])
        row[RunningColumn.SLOWDOWN] = 1.0 - state.alone_s[e, job] / state.step_s[e, job]
        row[RunningColumn.RESTARTS] = state.since_s[e, job] > state.now_s[e]
        row[RunningColumn.HOSTS] = hosts / len(network.host_group)
        row[RunningColumn.DEADLINE] = _of_time(observer, state.deadline_s[e, job] - state.now_s[e])
        row[RunningColumn.IS_THERE] = 1.0
        out.running_type[e, i] = state.job_type[e, job]
        seen[:] = False
        for j in range(hosts):
            host = state.hosts[e, place, j]
            out.host_of[e, i, host] = part / size
            seen[network.host_group[host]] = True
            if not has_trunks:
                out.trunk_of[e, i, host] = 1.0
        row[RunningColumn.GROUPS] = seen.sum() / network.num_groups
        for trunk in range(out.trunk_of.shape[2] if has_trunks else 0):
            out.trunk_of[e, i, trunk] = min(1.0, state.trunk_share[e, place, trunk])
            if out.trunk_of[e, i, trunk] > 0.0:
                jobs = out.trunks[e, trunk, TrunkColumn.JOBS]
                out.trunks[e, trunk, TrunkColumn.JOBS] = min(1.0, jobs + 0.25)


@njit
def _observe_offers(problem, state, e, observer, out):  # type: ignore[no-untyped-def]
    num_devices = problem.network.devices_per_host * len(problem.network.host_group)
    for place in range(out.offers.shape[1]):
        job = state.offered[e, place]
        row = out.offers[e, place]
        row[:] = 0.0
        out.offer_type[e, place] = 0
        if job < 0:
            continue
        kind = state.job_type[e, job]
        left = state.num_steps[e, job] - state.done_steps[e, job]
        is_running = state.status[e, job] == JobState.RUNNING
        row[OfferColumn.IS_THERE], row[OfferColumn.IS_RUNNING] = 1.0, is_running
        row[OfferColumn.AGE] = _of_time(observer, state.now_s[e] - state.arrival_s[e, job])
        row[OfferColumn.TIME_LEFT] = _of_time(observer, left * observer.best_step_s[kind])
        row[OfferColumn.DEVICE_SECONDS_LEFT] = _of_time(observer, 8.0 * left * problem.menu.work_device_s[kind] / num_devices)
        row[OfferColumn.REQUESTED] = np.log2(state.requested[e, job] + 1) / np.log2(num_devices + 1)
        row[OfferColumn.DEADLINE] = _of_time(observer, state.deadline_s[e, job] - state.now_s[e])
        row[OfferColumn.HAS_DEADLINE] = state.deadline_s[e, job] < np.inf
        row[OfferColumn.PROGRESS] = min(1.0, state.done_steps[e, job] / state.num_steps[e, job])
        if is_running and state.place[e, job] >= 0:
            held = state.place[e, job]
            row[OfferColumn.HELD] = np.log2(state.num_hosts[e, held] * state.part[e, held] + 1) / np.log2(num_devices + 1)
        if problem.every_s > 0 or state.is_out.shape[1] > 0:
            row[OfferColumn.RESTART] = _of_time(observer, again_s(problem, state, e, job, state.last_hosts[e, job]))
        if place < problem.visible_waiting:
            row[OfferColumn.LESS_WORK], row[OfferColumn.EARLIER_DEADLINE] = _before(problem, state, e, job)
        row[OfferColumn.IS_BEING_PLACED] = state.building[e] == place
        out.offer_type[e, place] = kind


@njit
def _before(problem, state, e, job):  # type: ignore[no-untyped-def]
    """Return the shares of the waiting jobs on offer that have less work left than a job, and an earlier deadline."""
    own = problem.menu.work_device_s[state.job_type[e, job]] * (state.num_steps[e, job] - state.done_steps[e, job])
    smaller, earlier = 0, 0
    for place in range(problem.visible_waiting):
        other = state.offered[e, place]
        if other < 0:
            continue
        work = problem.menu.work_device_s[state.job_type[e, other]] * (state.num_steps[e, other] - state.done_steps[e, other])
        smaller += work < own
        earlier += state.deadline_s[e, other] < state.deadline_s[e, job]
    return smaller / problem.visible_waiting, earlier / problem.visible_waiting


@njit
def _observe_candidates(problem, state, e, observer, out):  # type: ignore[no-untyped-def]
    menu, choices = problem.menu, len(problem.rule)
    out.candidates[e] = 0.0
    if state.building[e] >= 0:
        return
    hosts, link_load = np.empty(problem.max_hosts, np.int64), np.zeros(len(problem.network.capacity_bytes_per_s))
    for place in range(out.offers.shape[1]):
        job = state.offered[e, place]
        if job < 0:
            continue
        kind = state.job_type[e, job]
        left = state.num_steps[e, job] - state.done_steps[e, job]
        limit_s = state.deadline_s[e, job] - state.now_s[e]
        number = max(0, place - problem.visible_waiting + 1)
        trees = left_of(problem, state, e, job, Resource.TREES)
        servers = left_of(problem, state, e, job, Resource.SERVERS)
        for entry in range(menu.first_entry[kind], menu.first_entry[kind + 1]):
            for choice in range(choices):
                action = start_number(problem, place, entry - menu.first_entry[kind], choice)
                if not state.can_act[e, action]:
                    continue
                step_s = choice_step_s(problem, state, e, job, number, entry, choice)
                row = out.candidates[e, action]
                d = problem.entry_degree[entry]
                row[CandidateColumn.TIME_LEFT] = _of_time(observer, step_s * left)
                row[CandidateColumn.STEP] = observer.best_step_s[kind] / step_s
                row[CandidateColumn.DEVICE_SECONDS] = menu.work_device_s[kind] / (step_s * menu.degree[entry])
                row[CandidateColumn.SPREAD] = (1.0 + state.spread_index[e, number, d, choice]) / menu.step_s.shape[3]
                row[CandidateColumn.PART] = (1.0 + state.part_index[e, number, d, choice]) / menu.step_s.shape[2]
                row[CandidateColumn.DEADLINE] = min(1.0, step_s * left / limit_s) if limit_s > 0 else 1.0
                if len(observer.exposed) > 0:
                    part_index, spread = state.part_index[e, number, d, choice], state.spread_index[e, number, d, choice]
                    entry_row, more = observer.entry[entry], row[NUM_CANDIDATE:]
                    more[CandidateStrategyColumn.EXACTNESS] = entry_row[NUM_ENTRY + StrategyColumn.EXACTNESS]
                    more[CandidateStrategyColumn.STEPS] = entry_row[NUM_ENTRY + StrategyColumn.STEPS]
                    more[CandidateStrategyColumn.MEMORY] = entry_row[EntryColumn.MEMORY]
                    device_type = problem.rule_type[choice]
                    more[CandidateStrategyColumn.EXPOSED] = observer.exposed[entry, device_type, part_index, spread]
                    more[CandidateStrategyColumn.TREES_LEFT] = _of_count(trees - problem.entry_demand[entry, Resource.TREES])
                    more[CandidateStrategyColumn.SERVERS_LEFT] = _of_count(
                        servers - problem.entry_demand[entry, Resource.SERVERS]
                    )
                if observer.features != SIMULATED or problem.rule[choice] == PlacementRule.CONSTRUCT or number > 0:
                    continue
                part = choice_hosts(problem, state, e, job, entry, choice, hosts)
                num_hosts = menu.degree[entry] // part
                count, jobs, loads, shared_s = shared_step_times(problem, state, e, entry, hosts, num_hosts, part)
                others = 0.0
                for i in range(count):
                    if jobs[i] >= 0:
                        others += shared_s[i] / state.step_s[e, jobs[i]] - 1.0
                    else:
                        row[CandidateColumn.SLOWDOWN] = 1.0 - step_s / shared_s[i]
                row[CandidateColumn.SLOWDOWN_OF_OTHERS] = others / (1.0 + others)
                if len(observer.exposed) > 0:
                    left_on_link = max(0.0, 1.0 - busiest(loads, shared_s, count, link_load))
                    row[NUM_CANDIDATE + CandidateStrategyColumn.LINK_LEFT] = left_on_link
