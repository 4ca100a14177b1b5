"""Seconds of a step where replicas agree now and then, or through a parameter server.

Legend: ``n`` workers, ``C`` seconds of a step of one, ``W`` bytes of gradients. ``H`` local steps, ``s`` staleness, ``r``
seconds of the way to the server and back, ``2 W beta``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...plans.training import Asynchronous, DiLoCo, LocalSgd, PostLocalSgd, StaleSynchronous
from .replicas import Replicas, slowest_of

ROUNDS = 400
"""Rounds of the recursion over which a steady rate is measured, after as many that begin it."""


def synchronous_s(replicas: Replicas) -> float:
    """Return the seconds of a synchronous step whose replicas wait for the slowest: ``E[max C] + what is shown of the sum``."""
    late = slowest_of(replicas.num_replicas, replicas.straggler_sigma)
    return replicas.synchronous_s + (late - 1) * replicas.local_s


def local_sgd_s(replicas: Replicas, every: int, share: float = 1.0) -> float:
    """Return the mean seconds of a step with one average of the parameters after ``every`` steps.

    ``t = (1/H) (E[max over workers of the sum of H steps] + AR_n(W))``.

    Args:
        replicas: of the layout.
        every: local steps, ``H``.
        share: of the gradients' bytes that is averaged.

    Source:
        Stich, "Local SGD converges fast and communicates little", 2019.
    """
    late = slowest_of(replicas.num_replicas, replicas.straggler_sigma, every)
    return late * replicas.local_s + (replicas.averaged_s(share) - replicas.local_s) / every


def periodic_s(replicas: Replicas, training: LocalSgd | PostLocalSgd | DiLoCo) -> float:
    """Return the mean seconds of a step of local SGD, post-local SGD or DiLoCo."""
    if isinstance(training, LocalSgd):
        return local_sgd_s(replicas, training.every)
    if isinstance(training, PostLocalSgd):
        first = training.warmup_steps / training.num_steps
        return first * local_sgd_s(replicas, 1) + (1 - first) * local_sgd_s(replicas, training.every)
    share, parts, every = training.quantise_bits / 32, training.fragments, training.every
    if parts == 1 and not training.overlap:
        return local_sgd_s(replicas, every, share)
    sent_s = parts * (replicas.averaged_s(share / parts) - replicas.local_s)
    late_s = slowest_of(replicas.num_replicas, replicas.straggler_sigma, every // parts) * replicas.local_s
    return max(late_s, sent_s / every) if training.overlap else late_s + sent_s / every


def bytes_of_period(training: LocalSgd | PostLocalSgd | DiLoCo, gradient_bytes: float) -> float:
    """Return the bytes per step of the buffers that are averaged, against ``W`` of synchronous training."""
    share = training.quantise_bits / 32 if isinstance(training, DiLoCo) else 1.0
    if isinstance(training, PostLocalSgd):
        first = training.warmup_steps / training.num_steps
        return gradient_bytes * (first + (1 - first) / training.every)
    return gradient_bytes * share / training.every


def server_round_s(replicas: Replicas) -> float:
    """Return the seconds in which a worker sends its gradients to the server and gets parameters back, ``2 W beta``."""
    if replicas.num_replicas == 1:
        return 0.0
    group = replicas.regular()._replace(size=2, per_host=1)  # ranks of a replica on one host send at once
    return 2 * replicas.group_s("send_recv", replicas.gradient_bytes, group)


def server_s(replicas: Replicas, training: StaleSynchronous | Asynchronous) -> float:
    """Return the mean seconds in which all workers do one step each, with stale parameters from a server.

    With stragglers each worker's steps are drawn, from a generator of a fixed seed.
    """
    staleness = training.staleness if isinstance(training, StaleSynchronous) else None
    n, sigma = replicas.num_replicas, replicas.straggler_sigma
    if n == 1:
        return replicas.local_s
    round_s = server_round_s(replicas)
    times_s = drawn_steps(replicas.workers_s, sigma, 2 * ROUNDS)
    return n / server_rate(times_s, round_s, staleness, num_carrying(replicas, training))


def num_carrying(replicas: Replicas, training: StaleSynchronous | Asynchronous) -> float:
    """Return servers' hosts, counted in workers' hosts of equal cards; at most all of these. They bound both ways' rate."""
    return min(training.servers * replicas.server_cards, replicas.num_replicas // replicas.regular().per_host)


def drawn_steps(worker_s: ArrayLike, sigma: float, num_rounds: int, seed: int = 0) -> NDArray[np.float64]:
    """Return the seconds of the steps of each worker, ``(rounds, n)``: its own, times a lognormal factor of mean 1."""
    own = np.asarray(worker_s, np.float64)
    draws = np.random.default_rng(seed).normal(size=(num_rounds, len(own)))
    return np.asarray(own * np.exp(sigma * draws - sigma**2 / 2), np.float64)


def server_rate(times_s: NDArray[np.float64], round_s: float, staleness: int | None, num_servers: float = 1) -> float:
    """Return the steps a second of all workers together, by the max-plus recursion over rounds.

    ``start_i^k = max(end_i^{k-1} + 2 W beta, max_j end_j^{k-1-s})``; without a bound, ``s`` infinite, the second term falls away.
    The servers' cards bound the rate by ``servers B / (2 W)``.

    Args:
        times_s: seconds of each step, ``(rounds, n)``; the second half of the rounds is measured.
        round_s: seconds of the way to the server and back, ``2 W beta``.
        staleness: ``s``; None is no bound.
        num_servers: hosts of the server.

    Source:
        Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server", 2013.
    """
    num_rounds, n = times_s.shape
    ends = np.zeros((num_rounds, n))
    for k in range(num_rounds):
        start = ends[k - 1] + round_s if k else np.zeros(n)
        if staleness is not None and k - 1 - staleness >= 0:
            start = np.maximum(start, ends[k - 1 - staleness].max())
        ends[k] = start + times_s[k]
    half = num_rounds // 2
    rate = float((half / (ends[-1] - ends[-1 - half])).sum())
    return min(rate, num_servers / round_s) if round_s > 0 else rate
