"""Jobs take devices, run and give them back."""

import numpy as np

from ...compiled import njit
from .placing import step_on
from .shared_steps import share_links
from .state import JobState


@njit
def run(problem, state, e, job, entry, hosts, count, part):  # type: ignore[no-untyped-def]
    """Start a job that holds no devices."""
    network = problem.network
    place = 0
    while state.is_taken[e, place]:
        place += 1
    state.is_taken[e, place] = True
    state.place[e, job] = place
    state.num_hosts[e, place] = count
    state.part[e, place] = part
    state.trunk_share[e, place] = 0.0
    for i in range(count):
        host = hosts[i]
        state.hosts[e, place, i] = host
        state.free[e, host] -= part
        left = part
        for device in range(host * network.devices_per_host, (host + 1) * network.devices_per_host):
            if left > 0 and state.owner[e, device] < 0:
                state.owner[e, device] = job
                left -= 1
    delay = restart_s(problem, state, e, job, count)
    state.last_hosts[e, job] = count
    if state.status[e, job] == JobState.WAITING:
        leave_queue(state, e, job)
    if np.isnan(state.start_s[e, job]):
        state.start_s[e, job] = state.now_s[e]
    state.status[e, job] = JobState.RUNNING
    state.was_offered[e, job] = True
    state.entry[e, job] = entry
    state.since_s[e, job] = state.now_s[e] + delay
    alone, hidden = step_on(problem, entry, hosts, count, part)
    state.alone_s[e, job] = alone
    state.hidden_s[e, job] = hidden
    state.step_s[e, job] = alone
    state.finish_s[e, job] = np.nan
    state.running[e, state.num_running[e]] = job
    state.num_running[e] += 1
    share_links(problem, state, e)


@njit
def stop(problem, state, e, job):  # type: ignore[no-untyped-def]
    """Remove a running job from its devices; what it did since its last whole step is lost."""
    state.done_steps[e, job] = np.floor(state.done_steps[e, job] + 1e-9)
    state.num_restarts[e, job] += 1
    release(problem, state, e, job)


@njit
def send_back(problem, state, e, job):  # type: ignore[no-untyped-def]
    """Stop a running job; it waits again, at the place in the queue that its arrival gives it."""
    stop(problem, state, e, job)
    state.status[e, job] = JobState.WAITING
    state.finish_s[e, job] = np.nan
    i = state.num_waiting[e]
    while i > 0 and state.waiting[e, i - 1] > job:
        state.waiting[e, i] = state.waiting[e, i - 1]
        i -= 1
    state.waiting[e, i] = job
    state.num_waiting[e] += 1


@njit
def release(problem, state, e, job):  # type: ignore[no-untyped-def]
    """Release the devices of a running job."""
    place, size = state.place[e, job], problem.network.devices_per_host
    for i in range(state.num_hosts[e, place]):
        host = state.hosts[e, place, i]
        state.free[e, host] += state.part[e, place]
        for device in range(host * size, (host + 1) * size):
            if state.owner[e, device] == job:
                state.owner[e, device] = -1
    state.is_taken[e, place] = False
    state.place[e, job] = -1
    count = 0
    for i in range(state.num_running[e]):
        if state.running[e, i] != job:
            state.running[e, count] = state.running[e, i]
            count += 1
    state.num_running[e] = count


@njit
def leave_queue(state, e, job):  # type: ignore[no-untyped-def]
    """Remove a job from the queue."""
    count = 0
    for i in range(state.num_waiting[e]):
        if state.waiting[e, i] != job:
            state.waiting[e, count] = state.waiting[e, i]
            count += 1
    state.num_waiting[e] = count


@njit
def restart_s(problem, state, e, job, count):  # type: ignore[no-untyped-def]
    """Return the seconds that the next start of a job on a number of hosts costs: none before it has run, then as `again_s`."""
    return 0.0 if np.isnan(state.start_s[e, job]) else again_s(problem, state, e, job, count)


@njit
def again_s(problem, state, e, job, count):  # type: ignore[no-untyped-def]
    """Return the seconds of a restart: a fixed time, and the state written and read.

    One rate holds for each job, or for each of its hosts: the job's last hosts write, its next hosts read.
    """
    state_bytes = problem.menu.state_bytes[state.job_type[e, job]]
    if not problem.stores_by_host:
        return problem.restart_s + 2.0 * state_bytes / problem.storage_bytes_per_s
    shares = 1.0 / max(1, state.last_hosts[e, job]) + 1.0 / max(1, count)
    return problem.restart_s + shares * state_bytes / problem.storage_bytes_per_s
