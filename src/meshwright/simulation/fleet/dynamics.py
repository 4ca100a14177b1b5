"""The dynamics of a fleet: jobs arrive, wait, start, share links, are resized and end; compiled, many episodes side by side.

Time does not advance during decisions. An action is

- ``0``: pass. Jobs beyond the queue's capacity are refused, the last to come first, but none that has run; time advances.
- ``1 + (offer * entries_per_job + entry) * choices + choice``: the job on that place of offer runs by its entry of that number,
  on hosts of the placement choice. A running job stops at its last whole step and starts again there after the seconds of a
  restart (`runs.restart_s`). In these it holds its devices and sends nothing. So does a job that was paused.
- with `PlacementRule.CONSTRUCT`, the next actions are hosts, one by one, until the job has as many as it needs.
- ``first_pause + i``: the running job on offer ``i`` stops and waits.
- ``first_refusal + i``: the waiting job on offer ``i`` is refused, where refusals are allowed.

Events are the arrival of a job, its end, the end of a restart, the failure or the repair of a host, and a round. In a round
running jobs are offered too. After each event, jobs whose deadline no entry could meet any more leave the queue
(`JobState.EXPIRED`). Then actions are offered (`offers`); if only passing is possible, the episode passes at once. At equal times
ends come first, of the job that started first, then failures and repairs by the number of the host. Arrivals one by one and
rounds follow. Restarts that end at that time have ended for all of them.

A round comes every ``every_s`` seconds while there are jobs, the first ``every_s`` after an arrival at an empty system. With
``at_events`` each arrival and each end of a job is one too. It lasts until the next pass. A job that was started, resized, moved
or paused in a round is not offered again in it.

A host that fails (`turn`) stops the jobs on it as a pause does: they wait again, and are stopped at their last whole step.

An episode ends when all jobs have come and none runs; those that wait are refused. It continues, however, if a job on offer could
start with all hosts up.

Links are shared as in `sharing`: whenever a job starts, stops or ends and when a restart ends, all step times are computed anew.
The foreseen end of a job follows from its step time and its steps left, and changes only with its step time.
"""

import numpy as np

from ...compiled import njit
from ..random_times import FAILURE, exponential_s
from .actions import first_pause, first_refusal
from .offers import can_start, choice_hosts, has_choice, offer, offer_hosts
from .placing import largest_part
from .runs import leave_queue, release, restart_s, run, send_back, stop
from .shared_steps import share_links
from .state import JobState, PlacementRule, Total


@njit
def start(problem, state, e):  # type: ignore[no-untyped-def]
    """Empty the cluster of episode ``e`` and go to the first decision; its jobs have been written before."""
    state.now_s[e] = 0.0
    state.num_arrived[e] = 0
    state.is_over[e] = False
    state.next_round_s[e] = problem.every_s if problem.every_s > 0 else np.inf
    state.in_round[e] = False
    state.num_waiting[e] = 0
    state.num_running[e] = 0
    state.free[e] = problem.network.devices_per_host
    state.owner[e] = -1
    state.status[e] = JobState.TO_COME
    state.entry[e] = -1
    state.start_s[e] = np.nan
    state.finish_s[e] = np.nan
    state.done_steps[e] = 0.0
    state.since_s[e] = 0.0
    state.alone_s[e] = 0.0
    state.hidden_s[e] = 0.0
    state.step_s[e] = 0.0
    state.place[e] = -1
    state.is_taken[e] = False
    state.num_restarts[e] = 0
    state.last_hosts[e] = 0
    state.held_device_s[e] = 0.0
    state.shared_s[e] = 0.0
    state.load[e] = 0.0
    state.trunk_share[e] = 0.0
    state.totals[e] = 0.0
    state.was_offered[e] = False
    state.building[e] = -1
    state.num_built[e] = 0
    draw_failures(problem, state, e)
    advance(problem, state, e)


@njit
def act(problem, state, e, action):  # type: ignore[no-untyped-def]
    """Carry out an action that is possible and go to the next decision."""
    if decide(problem, state, e, action):
        advance(problem, state, e)


@njit
def decide(problem, state, e, action):  # type: ignore[no-untyped-def]
    """Carry out a legal action; return whether time advances then, since it passes or nothing else is possible."""
    if action != 0 or state.building[e] >= 0:
        if state.building[e] >= 0:
            _add_host(problem, state, e, action)
        elif action >= first_refusal(problem):
            _turn_away(state, e, state.offered[e, action - first_refusal(problem)], JobState.REFUSED)
        elif action >= first_pause(problem):
            _pause(problem, state, e, state.offered[e, problem.visible_waiting + action - first_pause(problem)])
        else:
            _place(problem, state, e, action)
        if state.building[e] >= 0:
            return False
        offer(problem, state, e)
        if has_choice(problem, state, e):
            return False
    _pass(problem, state, e)
    return True


@njit
def _pass(problem, state, e):  # type: ignore[no-untyped-def]
    _refuse(problem, state, e)
    state.in_round[e] = False


@njit
def advance(problem, state, e):  # type: ignore[no-untyped-def]
    """Go from event to event until there is something to decide, or the episode is over."""
    while not next_event(problem, state, e):
        pass


@njit
def next_event(problem, state, e):  # type: ignore[no-untyped-def]
    """Go to the next event; whether there is something to decide then, or the episode is over."""
    num_jobs = state.arrival_s.shape[1]
    arrival = state.arrival_s[e, state.num_arrived[e]] if state.num_arrived[e] < num_jobs else np.inf
    if arrival == np.inf and state.num_running[e] == 0 and not _awaits_repair(problem, state, e):
        _close(state, e)
        return True
    end, ending, resume = np.inf, -1, np.inf
    for i in range(state.num_running[e]):
        job = state.running[e, i]
        if state.finish_s[e, job] < end:
            end, ending = state.finish_s[e, job], job
        if state.since_s[e, job] > state.now_s[e]:
            resume = min(resume, state.since_s[e, job])
    has_work = state.num_running[e] + state.num_waiting[e] > 0
    tick = state.next_round_s[e] if has_work else np.inf
    host, fault = -1, np.inf
    if state.turns_at_s.shape[1] > 0:
        host, fault = next_turn(state, e)
    time = min(min(min(arrival, end), min(tick, resume)), fault)
    _let_pass(problem, state, e, time)
    opens_round = False
    if end == time:
        _end(problem, state, e, ending)
        opens_round = problem.at_events
    elif fault == time:
        turn(problem, state, e, host)
    elif arrival == time:
        _arrive(problem, state, e)
        opens_round = problem.at_events
    elif tick == time:
        state.next_round_s[e] += problem.every_s
        opens_round = True
    if opens_round:
        state.in_round[e] = True
        state.was_offered[e] = False
    if resume == time:
        share_links(problem, state, e)
    if problem.every_s > 0 and not has_work:
        state.next_round_s[e] = state.now_s[e] + problem.every_s
    _expire(problem, state, e)
    offer(problem, state, e)
    if has_choice(problem, state, e):
        return True
    _pass(problem, state, e)
    return False


@njit
def _awaits_repair(problem, state, e):  # type: ignore[no-untyped-def]
    """Return whether a job on offer could start if no host were out; asked where no job runs."""
    if state.num_waiting[e] == 0 or not state.is_out[e].any():
        return False
    state.free[e] = problem.network.devices_per_host
    offer(problem, state, e)
    for host in range(state.is_out.shape[1]):
        if state.is_out[e, host]:
            state.free[e, host] = 0
    return can_start(problem, state, e)


@njit
def _close(state, e):  # type: ignore[no-untyped-def]
    """End the episode; refuse jobs that still wait."""
    for i in range(state.num_waiting[e]):
        state.status[e, state.waiting[e, i]] = JobState.REFUSED
    state.totals[e, Total.BLOCKED] += state.num_waiting[e]
    state.num_waiting[e] = 0
    state.is_over[e] = True
    state.can_act[e] = False


@njit
def _refuse(problem, state, e):  # type: ignore[no-untyped-def]
    """Refuse jobs beyond the queue's capacity, the last to come first; those that have run stay, and count."""
    i = state.num_waiting[e] - 1
    while state.num_waiting[e] > problem.queue_capacity and i >= 0:
        job = state.waiting[e, i]
        if np.isnan(state.start_s[e, job]):
            _turn_away(state, e, job, JobState.REFUSED)
        i -= 1


@njit
def _turn_away(state, e, job, status):  # type: ignore[no-untyped-def]
    """Turn a waiting job away, which will never run."""
    state.status[e, job] = status
    state.totals[e, Total.BLOCKED] += 1
    leave_queue(state, e, job)


@njit
def _let_pass(problem, state, e, time):  # type: ignore[no-untyped-def]
    """Advance time: sums grow and running jobs make their steps."""
    passed = time - state.now_s[e]
    state.now_s[e] = time
    state.totals[e, Total.IN_SYSTEM_S] += passed * (state.num_waiting[e] + state.num_running[e])
    can_stop = problem.every_s > 0.0 or state.is_out.shape[1] > 0
    state.totals[e, Total.WAITING_S] += passed * (_num_new(state, e) if can_stop else state.num_waiting[e])
    if state.is_out.shape[1] > 0:
        state.totals[e, Total.OUT_DEVICE_S] += passed * (state.is_out[e].sum() * problem.network.devices_per_host)
    for i in range(state.num_running[e]):
        job = state.running[e, i]
        held = state.num_hosts[e, state.place[e, job]] * state.part[e, state.place[e, job]]
        state.held_device_s[e, job] += passed * held
        state.totals[e, Total.HELD_DEVICE_S] += passed * held
        ran = time - state.since_s[e, job]
        if ran > 0:
            steps = ran / state.step_s[e, job]
            state.done_steps[e, job] += steps
            state.shared_s[e, job] += steps * (state.step_s[e, job] - state.alone_s[e, job])
            state.since_s[e, job] = time


@njit
def _num_new(state, e):  # type: ignore[no-untyped-def]
    """Return waiting jobs that have never run."""
    count = 0
    for i in range(state.num_waiting[e]):
        count += np.isnan(state.start_s[e, state.waiting[e, i]])
    return count


@njit
def _arrive(problem, state, e):  # type: ignore[no-untyped-def]
    job = state.num_arrived[e]
    state.num_arrived[e] += 1
    state.status[e, job] = JobState.WAITING
    state.waiting[e, state.num_waiting[e]] = job
    state.num_waiting[e] += 1


@njit
def _end(problem, state, e, job):  # type: ignore[no-untyped-def]
    state.done_steps[e, job] = state.num_steps[e, job]
    state.finish_s[e, job] = state.now_s[e]
    state.status[e, job] = JobState.COMPLETED
    state.totals[e, Total.MET if state.now_s[e] <= state.deadline_s[e, job] else Total.LATE] += 1
    release(problem, state, e, job)
    share_links(problem, state, e)


@njit
def _expire(problem, state, e):  # type: ignore[no-untyped-def]
    """Turn away waiting jobs whose deadline no entry could meet any more."""
    i = 0
    while i < state.num_waiting[e]:
        job = state.waiting[e, i]
        if state.deadline_s[e, job] < np.inf and state.now_s[e] + _fastest_s(problem, state, e, job) > state.deadline_s[e, job]:
            _turn_away(state, e, job, JobState.EXPIRED)
        else:
            i += 1


@njit
def _fastest_s(problem, state, e, job):  # type: ignore[no-untyped-def]
    """Return the seconds that the rest of a job takes at least."""
    menu, kind = problem.menu, state.job_type[e, job]
    left, least_s = state.num_steps[e, job] - state.done_steps[e, job], np.inf
    for entry in range(menu.first_entry[kind], menu.first_entry[kind + 1]):
        for g in range(menu.step_s.shape[2]):
            step_s = menu.step_s[entry, :, g].min()
            if step_s < np.inf:
                least_s = min(least_s, step_s * left + restart_s(problem, state, e, job, menu.degree[entry] >> g))
    return least_s


@njit
def _pause(problem, state, e, job):  # type: ignore[no-untyped-def]
    send_back(problem, state, e, job)
    state.was_offered[e, job] = True
    share_links(problem, state, e)


@njit
def _place(problem, state, e, action):  # type: ignore[no-untyped-def]
    choices = len(problem.rule)
    choice, rest = (action - 1) % choices, (action - 1) // choices
    number, place = rest % problem.entries_per_job, rest // problem.entries_per_job
    job = state.offered[e, place]
    entry = problem.menu.first_entry[state.job_type[e, job]] + number
    if problem.rule[choice] == PlacementRule.CONSTRUCT:
        state.building[e] = place
        state.building_entry[e] = entry
        state.num_built[e] = 0
        if place >= problem.visible_waiting:
            stop(problem, state, e, job)
        offer_hosts(problem, state, e)
        return
    if place >= problem.visible_waiting:
        stop(problem, state, e, job)
    hosts = np.empty(problem.max_hosts, np.int64)
    part = choice_hosts(problem, state, e, job, entry, choice, hosts)
    run(problem, state, e, job, entry, hosts, problem.menu.degree[entry] // part, part)


@njit
def _add_host(problem, state, e, host):  # type: ignore[no-untyped-def]
    entry = state.building_entry[e]
    degree = problem.menu.degree[entry]
    part = largest_part(problem.network.devices_per_host, degree)
    state.built[e, state.num_built[e]] = host
    state.num_built[e] += 1
    if state.num_built[e] < degree // part:
        offer_hosts(problem, state, e)
        return
    job, count = state.offered[e, state.building[e]], state.num_built[e]
    state.building[e] = -1
    hosts = np.empty(count, np.int64)
    taken = 0
    for group in range(problem.network.num_groups):  # neighbouring ranks share a leaf switch
        for i in range(count):
            if problem.network.host_group[state.built[e, i]] == group:
                hosts[taken] = state.built[e, i]
                taken += 1
    run(problem, state, e, job, entry, hosts, count, part)


@njit
def draw_failures(problem, state, e):  # type: ignore[no-untyped-def]
    """Draw the first failure of every host; all are up.

    Each host fails after independent exponential times of being up, whoever uses it, so that all policies meet the same failures
    in an episode. It is out for ``repair_s``. While it is out none of its devices is free. Jobs on it go back to the queue.
    """
    state.is_out[e] = False
    state.host_failures[e] = 0
    state.num_failures[e] = 0
    state.lost_device_s[e] = 0.0
    for host in range(state.turns_at_s.shape[1]):
        state.turns_at_s[e, host] = exponential_s(problem.mean_failure_s, state.seed[e], FAILURE, host, 0)


@njit
def next_turn(state, e):  # type: ignore[no-untyped-def]
    """Return the host that fails or is repaired next, of several the first, and when; infinite where none does."""
    result, time = -1, np.inf
    for host in range(state.turns_at_s.shape[1]):
        if state.turns_at_s[e, host] < time:
            result, time = host, state.turns_at_s[e, host]
    return result, time


@njit
def turn(problem, state, e, host):  # type: ignore[no-untyped-def]
    """Fail a host that is up, or repair one that is out."""
    size = problem.network.devices_per_host
    if state.is_out[e, host]:
        state.is_out[e, host] = False
        state.free[e, host] = size
        up_s = exponential_s(problem.mean_failure_s, state.seed[e], FAILURE, host, state.host_failures[e, host])
        state.turns_at_s[e, host] = state.now_s[e] + up_s
        return
    state.is_out[e, host] = True
    state.host_failures[e, host] += 1
    state.turns_at_s[e, host] = state.now_s[e] + problem.repair_s
    for device in range(host * size, (host + 1) * size):
        job = state.owner[e, device]
        if job >= 0:
            place, done = state.place[e, job], state.done_steps[e, job]
            held = state.num_hosts[e, place] * state.part[e, place]
            state.num_failures[e, job] += 1
            send_back(problem, state, e, job)
            state.lost_device_s[e, job] += max(0.0, done - state.done_steps[e, job]) * state.step_s[e, job] * held
    state.free[e, host] = 0
    share_links(problem, state, e)
