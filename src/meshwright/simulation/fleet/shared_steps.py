"""Step times of the running jobs of a fleet, each among the others, and what every link carries."""

import numpy as np

from ...compiled import njit
from .network import add_loads
from .placing import log2, step_on
from .sharing import step_times
from .state import SharingMode


@njit
def share_links(problem, state, e):  # type: ignore[no-untyped-def]
    """Step times of all running jobs, the ends of those whose step time has changed, and the load of every link."""
    if problem.sharing != SharingMode.NONE:
        hosts = np.empty(0, np.int64)
        count, jobs, loads, step_s = shared_step_times(problem, state, e, -1, hosts, 0, 1)
        first, link, busy_s = loads
        state.load[e] = 0.0
        num_hosts = state.free.shape[1]
        has_trunks = problem.network.num_trunks > 0
        for i in range(count):
            share = state.trunk_share[e, state.place[e, jobs[i]]]
            share[:] = 0.0
            if step_s[i] != state.step_s[e, jobs[i]]:
                state.step_s[e, jobs[i]] = step_s[i]
                state.finish_s[e, jobs[i]] = np.nan
            for j in range(first[i], first[i + 1]):
                busy = busy_s[j] / step_s[i]
                state.load[e, link[j]] += busy
                if has_trunks and link[j] >= 2 * num_hosts:
                    group = (link[j] - 2 * num_hosts) // 2
                    share[group] = max(share[group], busy)
    for i in range(state.num_running[e]):
        job = state.running[e, i]
        if np.isnan(state.finish_s[e, job]):  # rounding may have counted a little more than all steps
            left = max(0.0, state.num_steps[e, job] - state.done_steps[e, job])
            state.finish_s[e, job] = state.since_s[e, job] + left * state.step_s[e, job]


@njit
def shared_step_times(problem, state, e, entry, hosts, num_hosts, part):  # type: ignore[no-untyped-def]
    """Return the sharing model over the jobs that send; those that restart send nothing yet.

    Args:
        problem, state, e: whose jobs.
        entry: of one more job on ``hosts``, the last of the result; -1 for none.
        hosts, num_hosts, part: where it would run.

    Returns:
        Number of jobs, their numbers, their loads (first, link, busy seconds) and their step times.
    """
    network, menu = problem.network, problem.menu
    num_links, parts = len(network.capacity_bytes_per_s), menu.step_s.shape[2]
    busy_s, streams = np.zeros(num_links), np.zeros(num_links)
    touched = np.empty(num_links, np.int64)
    most = state.num_running[e] + 1
    jobs = np.empty(most, np.int64)
    first = np.zeros(most + 1, np.int64)
    room = _room(problem, num_hosts)
    for i in range(state.num_running[e]):
        room += _room(problem, state.num_hosts[e, state.place[e, state.running[e, i]]])
    link, link_busy_s, link_streams = np.empty(room, np.int64), np.empty(room), np.empty(room)
    alone_s, hidden_s = np.empty(most), np.empty(most)
    count, num_loads = 0, 0
    for i in range(most):
        if i < state.num_running[e]:
            job = state.running[e, i]
            if state.since_s[e, job] > state.now_s[e]:
                continue
            place = state.place[e, job]
            row = state.entry[e, job] * parts + log2(state.part[e, place])
            its_hosts = state.hosts[e, place]
            alone_s[count], hidden_s[count] = state.alone_s[e, job], state.hidden_s[e, job]
        elif entry >= 0:
            job, row, its_hosts = -1, entry * parts + log2(part), hosts
            alone_s[count], hidden_s[count] = step_on(problem, entry, hosts, num_hosts, part)
        else:
            break
        if menu.flow_first[row] < menu.flow_first[row + 1]:
            result = add_loads(
                network,
                menu.flow_from,
                menu.flow_to,
                menu.flow_bytes,
                menu.flow_streams,
                menu.flow_first[row],
                menu.flow_first[row + 1],
                its_hosts,
                busy_s,
                streams,
                touched,
            )
            for j in range(result):
                one = touched[j]
                link[num_loads], link_busy_s[num_loads], link_streams[num_loads] = one, busy_s[one], streams[one]
                busy_s[one], streams[one] = 0.0, 0.0
                num_loads += 1
        jobs[count] = job
        count += 1
        first[count] = num_loads
    step_s = np.empty(count)
    step_times(
        count, alone_s, hidden_s, first, link, link_busy_s, link_streams, problem.sharing_constants, problem.sharing, step_s
    )
    return count, jobs, (first, link, link_busy_s), step_s


@njit
def busiest(loads, step_s, count, link_load):  # type: ignore[no-untyped-def]
    """Return the greatest load among the links of the last job, with all jobs on them.

    Args:
        loads, step_s, count: of `shared_step_times`.
        link_load: room, ``(L,)``, zero before and after.
    """
    first, link, busy_s = loads
    for i in range(count):
        for j in range(first[i], first[i + 1]):
            link_load[link[j]] += busy_s[j] / step_s[i]
    most = 0.0
    for j in range(first[count - 1], first[count]):
        most = max(most, link_load[link[j]])
    for j in range(first[count]):
        link_load[link[j]] = 0.0
    return most


@njit
def _room(problem, num_hosts):  # type: ignore[no-untyped-def]
    """Return the most links that a job on so many hosts uses."""
    if problem.network.num_trunks == 0:
        return len(problem.network.capacity_bytes_per_s) if num_hosts > 1 else 0
    return 6 * num_hosts
