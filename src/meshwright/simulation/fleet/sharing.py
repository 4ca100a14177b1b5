"""How long a step of each running job takes among the others: jobs that meet on links slow each other down.

A training job sends in bursts. Alone, job ``j`` has ``w_jl`` streams and ``n_jl`` seconds on link ``l`` in a step, ``N_j`` on its
busiest link. ``x_j`` seconds of network time are not hidden behind computation. Among others its messages take ``s_j`` times as
long, and it sends this share of the time:

    u_k = min(1, N_k s_k / T_k)

While ``k`` sends on a link, max-min fair sharing leaves ``j`` the share ``w_jl / (w_jl + w_kl)``, or more if ``k`` does not want
its own. With ``d_jl = n_jl / max(N_j, x_j)`` and ``e_kl = n_kl / N_k``, that costs ``j``

    c_jkl = (1 - t) f_jkl + t r_jkl

    f_jkl = d_jl e_kl w_kl / w_jl                                   each sends at full rate, some of the time

    r_jkl = max(0, d_jl / max(w_jl / (w_jl + w_kl), 1 - e_kl) - 1)  each sends all the time, at some rate

A burst of ``j`` that meets several of ``k`` is slowed by their mean rate. A burst that meets part of a single one is slowed by
the mean of its time. Between them lies ``v_jk = u_k / (1 + h (1 - u_k) max_l c_jkl)``. Then

    s_j = 1 + a max_l sum_k c_jkl v_jk + b sum_k max_l c_jkl v_jk
    T_j = alone_j + x_j (s_j - 1)

The first sum is of the link that delays messages most, as all flows of a collective wait for the slowest. The second sum counts
disturbances of other links at other times. The constants ``a``, ``b``, ``h`` and ``t`` are fitted. A fixed number of rounds
approaches the fixed point from below. So a job that shares no link is unchanged to the last bit, and another job, or a slower
network, never makes a job faster.

Where jobs take turns (`INTERLEAVED`), those with steps of one length shift their phases. They then disturb each other only as far
as their bursts do not fit into one period. Of the time ``u_j u_k`` in which two of them would send at once, ``u_j + u_k - 1``
remains. On a link whose jobs all keep their phases, their demand beyond its bandwidth remains.

Legend: ``J`` running jobs, ``e`` loads of all jobs: links that each one uses.

Source:
    Rajasekaran, Ghobadi and Akella, "CASSINI: network-aware job scheduling in machine learning clusters", 2024 (bursts and
    shifts). Reiser and Lavenberg, "Mean-value analysis of closed multichain queuing networks", 1980 (an arriving customer sees
    the mean of the others).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit

Loads = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]

ROUNDS = 4
"""More of them change step times by some hundredths where much is shared; the constants are fitted to that many."""

SAME_PERIOD = 1e-6
"""Steps that differ by less than this share keep their phases."""

INTERLEAVED = 2
"""Mode in which jobs take turns; in any other their bursts meet by chance."""

CONSTANTS = np.array([0.93, 0.08, 0.55, 0.61])
"""``a``, ``b``, ``h`` and ``t``, of least error on 59 simulated sets of jobs by ``meshwright dev calibrate sharing``."""


@njit(error_model="numpy")
def step_times(  # type: ignore[no-untyped-def]
    num_jobs, alone_s, hidden_s, first_load, load_link, load_busy_s, load_streams, constants, mode, out_step_s
):
    """Compute the seconds of a step of each job among the others.

    Args:
        num_jobs: running jobs, ``J``; the arrays may have room for more.
        alone_s: of a step of each job by itself, ``(J,)``.
        hidden_s: seconds on the job's busiest link that lie behind computation, ``(J,)``. The rest, ``x``, is the time that a
            step gains where all links between hosts have half their bandwidth. Below zero where a job uses one link after
            another.
        first_load: loads of job ``j`` are ``first_load[j]:first_load[j + 1]``, ``(J + 1,)``.
        load_link: link of each load, each once a job, ``(e,)``.
        load_busy_s: seconds that the job's bytes of a step take on that link at its full bandwidth, ``(e,)``.
        load_streams: messages of the job that are on the link at once, at least 1, ``(e,)``.
        constants: as `CONSTANTS`.
        mode: whether jobs take turns where their bursts fit (`INTERLEAVED`).
        out_step_s: written, ``(J,)``.
    """
    busiest_s, exposed_s = np.zeros(num_jobs), np.zeros(num_jobs)
    for j in range(num_jobs):
        out_step_s[j] = alone_s[j]
        for e in range(first_load[j], first_load[j + 1]):
            busiest_s[j] = max(busiest_s[j], load_busy_s[e])
        exposed_s[j] = min(max(busiest_s[j] - hidden_s[j], 0.0), alone_s[j])
    start, who, load = _shared_links(num_jobs, first_load, load_link, load_busy_s)
    share = np.empty(len(who))
    for i in range(len(who)):
        share[i] = load_busy_s[load[i]] / busiest_s[who[i]]
    cost, worst = _costs(start, who, load, share, load_streams, busiest_s, exposed_s, constants[3])
    slowdown, sends, held_up = np.ones(num_jobs), np.zeros(num_jobs), np.zeros(num_jobs)
    meets = np.zeros((num_jobs, num_jobs))  # v_jk
    for _ in range(ROUNDS):
        for j in range(num_jobs):
            sends[j] = min(1.0, busiest_s[j] * slowdown[j] / out_step_s[j])
        for j in range(num_jobs):
            disturbed = 0.0
            for k in range(num_jobs):
                if worst[j, k] > 0.0:
                    meets[j, k] = sends[k] / (1.0 + constants[2] * worst[j, k] * (1.0 - sends[k]))
                    left = _left_in_turns(alone_s[j], alone_s[k], sends[j], sends[k]) if mode == INTERLEAVED else 1.0
                    disturbed += worst[j, k] * meets[j, k] * left
            slowdown[j] = 1.0 + constants[1] * disturbed
            held_up[j] = 0.0
        pair = 0
        for link in range(len(start) - 1):
            first, last = start[link], start[link + 1]
            in_turns = mode == INTERLEAVED and first < last
            demand = 0.0
            if in_turns:
                for i in range(first, last):
                    in_turns = in_turns and _is_same(alone_s[who[first]], alone_s[who[i]])
                    demand += sends[who[i]] * share[i]
            for i in range(first, last):
                j = who[i]
                here = 0.0
                for other in range(first, last):
                    here += cost[pair] * meets[j, who[other]]
                    pair += 1
                if in_turns:
                    here *= _left(demand - 1.0, sends[j] * share[i] * (demand - sends[j] * share[i]))
                held_up[j] = max(held_up[j], here)
        for j in range(num_jobs):
            slowdown[j] += constants[0] * held_up[j]
            out_step_s[j] = alone_s[j] + exposed_s[j] * (slowdown[j] - 1.0)


def slowdown_parts(
    alone_s: NDArray[np.float64],
    hidden_s: NDArray[np.float64],
    step_s: NDArray[np.float64],
    loads: Loads,
    constants: NDArray[np.float64],
    mode: int,
) -> NDArray[np.float64]:
    """Return the share of each job's loss that each other job causes, ``(J, J)``.

    The sums of the model are split at its step times. Job ``k`` causes the part that it adds to ``s_j``: ``a c_jkl v_jk`` on the
    link that delays ``j`` most, and ``b max_l c_jkl v_jk``. Where all of these are zero, ``max_l c_jkl`` counts. A row sums to 1.
    The row of a job that is not slowed is zero, and so is the part of a job that shares no link with it. Not compiled: it serves
    single episodes.

    Args:
        alone_s, hidden_s, constants, mode: as in `step_times`.
        step_s: among the others, by `step_times`, ``(J,)``.
        loads: first load of each job, then link, busy seconds and streams of each load, as there.
    """
    first, link, busy_s, streams = loads
    num_jobs = len(alone_s)
    parts = np.zeros((num_jobs, num_jobs))
    is_slowed = step_s > alone_s
    if not is_slowed.any():
        return parts
    busiest_s = np.array([busy_s[first[j] : first[j + 1]].max(initial=0.0) for j in range(num_jobs)])
    exposed_s = np.minimum(np.maximum(busiest_s - hidden_s, 0.0), alone_s)
    start, who, load = _shared_links(num_jobs, first, link, busy_s)
    share = busy_s[load] / busiest_s[who]
    cost, worst = _costs(start, who, load, share, streams, busiest_s, exposed_s, constants[3])
    slowdown = 1.0 + np.divide(step_s - alone_s, exposed_s, out=np.zeros(num_jobs), where=exposed_s > 0.0)
    sends = np.minimum(1.0, busiest_s * slowdown / step_s)
    meets = sends / (1.0 + constants[2] * worst * (1.0 - sends))
    in_turns = mode == INTERLEAVED
    left = np.ones((num_jobs, num_jobs))
    for j, k in np.argwhere(worst > 0.0) if in_turns else ():
        left[j, k] = _left_in_turns(alone_s[j], alone_s[k], sends[j], sends[k])
    held_up, pair = np.zeros(num_jobs), 0
    for begin, end in pairwise(start.tolist()):
        if begin == end:
            continue
        jobs = who[begin:end]
        terms = cost[pair : pair + len(jobs) ** 2].reshape(len(jobs), len(jobs)) * meets[np.ix_(jobs, jobs)]
        pair += terms.size
        if in_turns and all(_is_same(alone_s[jobs[0]], alone_s[k]) for k in jobs):
            own = sends[jobs] * share[begin:end]
            terms *= np.array([_left(own.sum() - 1.0, one * (own.sum() - one)) for one in own])[:, None]
        here = terms.sum(axis=1)
        more = here > held_up[jobs]
        held_up[jobs[more]] = here[more]
        parts[jobs[more]] = 0.0
        parts[np.ix_(jobs[more], jobs)] = terms[more]
    parts *= constants[0]
    parts += constants[1] * worst * meets * left
    is_zero = ~parts.any(axis=1)
    parts[is_zero] = worst[is_zero]
    parts[~is_slowed] = 0.0
    parts[is_slowed] /= parts[is_slowed].sum(axis=1, keepdims=True)
    return parts


@njit(error_model="numpy")
def _shared_links(num_jobs, first_load, load_link, load_busy_s):  # type: ignore[no-untyped-def]
    """Return the jobs on each link that more than one job uses, one link behind the other: starts, job and load of each."""
    num_links = 0
    for e in range(first_load[0], first_load[num_jobs]):
        num_links = max(num_links, load_link[e] + 1)
    users = np.zeros(num_links, np.int64)
    for e in range(first_load[0], first_load[num_jobs]):
        if load_busy_s[e] > 0.0:
            users[load_link[e]] += 1
    start = np.zeros(num_links + 1, np.int64)
    for link in range(num_links):
        start[link + 1] = start[link] + (users[link] if users[link] > 1 else 0)
    who, load = np.empty(start[num_links], np.int64), np.empty(start[num_links], np.int64)
    for j in range(num_jobs):
        for e in range(first_load[j], first_load[j + 1]):
            link = load_link[e]
            if load_busy_s[e] > 0.0 and start[link] < start[link + 1]:
                users[link] -= 1
                who[start[link] + users[link]] = j
                load[start[link] + users[link]] = e
    return start, who, load


@njit(error_model="numpy")
def _costs(start, who, load, share, streams, busiest_s, exposed_s, at_some_rate):  # type: ignore[no-untyped-def]
    """Return ``c_jkl`` of all pairs on each link, zero of a job with itself; and the greatest of each two jobs, ``(J, J)``."""
    num_pairs = 0
    for link in range(len(start) - 1):
        num_pairs += (start[link + 1] - start[link]) ** 2
    cost = np.zeros(num_pairs)
    worst = np.zeros((len(busiest_s), len(busiest_s)))
    pair = 0
    for link in range(len(start) - 1):
        for a in range(start[link], start[link + 1]):
            j = who[a]
            own = share[a] * busiest_s[j] / max(busiest_s[j], exposed_s[j])
            own_streams = streams[load[a]]
            for b in range(start[link], start[link + 1]):
                if a != b:
                    other_streams = streams[load[b]]
                    left = max(own_streams / (own_streams + other_streams), 1.0 - share[b])
                    result = (1.0 - at_some_rate) * own * share[b] * other_streams / own_streams
                    cost[pair] = result + at_some_rate * max(0.0, own / left - 1.0)
                    worst[j, who[b]] = max(worst[j, who[b]], cost[pair])
                pair += 1
    return cost, worst


@njit(error_model="numpy")
def _left_in_turns(one_s, other_s, one_sends, other_sends):  # type: ignore[no-untyped-def]
    """Return the share of their meetings by chance that is left to two jobs which take turns."""
    return _left(one_sends + other_sends - 1.0, one_sends * other_sends) if _is_same(one_s, other_s) else 1.0


@njit(error_model="numpy")
def _left(excess, by_chance):  # type: ignore[no-untyped-def]
    """Return the share of meetings by chance that does not fit."""
    return min(1.0, max(0.0, excess) / by_chance) if by_chance > 0.0 else 0.0


@njit(error_model="numpy")
def _is_same(one_s, other_s):  # type: ignore[no-untyped-def]
    """Return whether two steps are as long."""
    return abs(one_s - other_s) <= SAME_PERIOD * max(one_s, other_s)
