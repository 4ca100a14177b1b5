"""How long a step of each running job takes among the others: jobs that meet on links slow each other down.

A training job sends in bursts. Where two jobs of different periods meet on a link, one finds the other sending for the
share of time that the other sends, and while both send the link is parted by their streams, as max-min fair sharing
does. Let job ``j`` alone have ``n_jl`` seconds on link ``l`` in a step, ``N_j`` on its busiest link, ``x_j`` seconds of
network time that are not hidden behind computation, and ``w_jl`` streams. What it sends takes ``s_j`` times as long as alone:

    u_k   = min(1, N_k s_k / T_k)                          share of time in which k sends
    c_jkl = n_jl / max(N_j, x_j) n_kl / N_k w_kl / w_jl    what k costs j on link l while it sends
    s_j   = 1 + a max_l sum_k c_jkl u_k + b sum_k max_l c_jkl u_k
    T_j   = alone_j + x_j (s_j - 1)

The first sum is the link that holds a message up most, as all flows of a collective wait for the slowest; the second
one counts that other jobs disturb other links of it at other times. Constants ``a`` and ``b`` are fitted. The fixed point
is approached from below, in a fixed number of rounds: no job alone on its links is touched, to the last bit, and another
job, or a network slower as a whole, never makes anybody faster.

Where jobs take turns (`INTERLEAVED`), those with steps of one length shift their phases so that they disturb each other only
as far as their bursts do not fit into one period (`contention.interleaving`): of the time ``q_j q_k`` in which two of them
would send at once, ``q_j + q_k - 1`` is left, and on a link whose jobs all keep their phases, what they want beyond it.

Legend: ``J`` running jobs, ``e`` loads of all jobs: links that each one uses.

Source:
    Rajasekaran, Ghobadi and Akella, "CASSINI: network-aware job scheduling in machine learning clusters", 2024 (bursts
    and shifts); Reiser and Lavenberg, "Mean-value analysis of closed multichain queuing networks", 1980 (an arriving
    customer sees the mean of the others).
"""

from __future__ import annotations

import numpy as np

from ...compiled import njit

ROUNDS = 5
"""After so many rounds step times change by less than a hundredth; the constants are fitted to that many."""

SAME_PERIOD = 1e-6
"""Steps that differ by less than this share keep their phases, as in `contention.interleaving`."""

INTERLEAVED = 2
"""Mode in which jobs take turns; in any other their bursts meet by chance."""

CONSTANTS = np.array([0.74, 0.095])
"""Weights of the link on which a job is disturbed most, ``a``, and of every other job wherever it is, ``b``.

Fitted by least error of step time to simulated sets of jobs, see ``docs/sharing.md``."""


@njit(error_model="numpy")
def step_times(  # type: ignore[no-untyped-def]
    num_jobs, alone_s, hidden_s, first_load, load_link, load_busy_s, load_streams, constants, mode, out_step_s
):
    """Seconds of a step of each job among the others.

    Args:
        num_jobs: running jobs, ``J``; the arrays may have room for more.
        alone_s: of a step of each job by itself, ``(J,)``.
        hidden_s: seconds on the job's busiest link that lie behind computation, ``(J,)``. What is left of them, ``x``, is
            by how much a step gets longer where all links between hosts have half their bandwidth; below zero where a
            job uses one link after another.
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
    link_start, who, share, takes, yields = _shared_links(
        num_jobs, first_load, load_link, load_busy_s, load_streams, busiest_s, np.maximum(busiest_s, exposed_s)
    )
    worst = np.zeros((num_jobs, num_jobs))  # max over links of c_jkl
    for link in range(len(link_start) - 1):
        for a in range(link_start[link], link_start[link + 1]):
            for b in range(link_start[link], link_start[link + 1]):
                if a != b:
                    worst[who[a], who[b]] = max(worst[who[a], who[b]], yields[a] * takes[b])
    slowdown, sends, held_up = np.ones(num_jobs), np.zeros(num_jobs), np.zeros(num_jobs)
    for _ in range(ROUNDS):
        for j in range(num_jobs):
            sends[j] = min(1.0, busiest_s[j] * slowdown[j] / out_step_s[j])
            held_up[j] = 0.0
        for link in range(len(link_start) - 1):
            _hold_up(link_start[link], link_start[link + 1], who, share, takes, yields, sends, alone_s, mode, held_up)
        for j in range(num_jobs):
            disturbed = 0.0
            if mode == INTERLEAVED:
                for k in range(num_jobs):
                    disturbed += worst[j, k] * sends[k] * _meeting(alone_s[j], alone_s[k], sends[j], sends[k])
            else:
                for k in range(num_jobs):
                    disturbed += worst[j, k] * sends[k]
            slowdown[j] = 1.0 + constants[0] * held_up[j] + constants[1] * disturbed
        for j in range(num_jobs):
            out_step_s[j] = alone_s[j] + exposed_s[j] * (slowdown[j] - 1.0)


@njit(error_model="numpy")
def _shared_links(num_jobs, first_load, load_link, load_busy_s, load_streams, busiest_s, network_s):  # type: ignore[no-untyped-def]
    """Loads of the links that more than one job uses, link by link: whose, its share of its busiest, what it takes, what it yields."""
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
    size = start[num_links]
    who, share, takes, yields = np.empty(size, np.int64), np.empty(size), np.empty(size), np.empty(size)
    for j in range(num_jobs):
        for e in range(first_load[j], first_load[j + 1]):
            link = load_link[e]
            if load_busy_s[e] > 0.0 and start[link] < start[link + 1]:
                users[link] -= 1
                place = start[link] + users[link]
                who[place] = j
                share[place] = load_busy_s[e] / busiest_s[j]
                takes[place] = share[place] * load_streams[e]
                yields[place] = load_busy_s[e] / network_s[j] / load_streams[e]
    return start, who, share, takes, yields


@njit(error_model="numpy")
def _hold_up(first, last, who, share, takes, yields, sends, alone_s, mode, held_up):  # type: ignore[no-untyped-def]
    """Note for each job on a link how much longer the others let its messages take there, where no other link is worse."""
    total = wanted = 0.0
    keep_phases = mode == INTERLEAVED
    for a in range(first, last):
        total += takes[a] * sends[who[a]]
        if keep_phases:
            keep_phases = _is_same(alone_s[who[first]], alone_s[who[a]])
            wanted += sends[who[a]] * share[a]
    for a in range(first, last):
        j = who[a]
        here = yields[a] * (total - takes[a] * sends[j])
        if keep_phases:
            own = sends[j] * share[a]
            by_chance = own * (wanted - own)
            here *= min(1.0, max(0.0, wanted - 1.0) / by_chance) if by_chance > 0.0 else 0.0
        held_up[j] = max(held_up[j], here)


@njit(error_model="numpy")
def _meeting(one_s, other_s, one_sends, other_sends):  # type: ignore[no-untyped-def]
    """Share of their meetings by chance that is left to two jobs which take turns."""
    if not _is_same(one_s, other_s):
        return 1.0
    by_chance = one_sends * other_sends
    return min(1.0, max(0.0, one_sends + other_sends - 1.0) / by_chance) if by_chance > 0.0 else 0.0


@njit(error_model="numpy")
def _is_same(one_s, other_s):  # type: ignore[no-untyped-def]
    """Whether two steps are as long."""
    return abs(one_s - other_s) <= SAME_PERIOD * max(one_s, other_s)
