"""A job's own model of its step time, fitted to the steps that it has taken.

A pass takes ``a_c + b_c x`` for ``x`` samples. Gradients take ``a + b (ranks - 2)``, with one ``a`` and ``b`` between nodes and
others within a node. The step takes the ``gamma``-norm of both, which models their overlap. Parameters in this order: compute
``a``, ``b``; between nodes ``a``, ``b``; within a node ``a``, ``b``; ``gamma``.

Source:
    Qiao et al., "Pollux", OSDI 2021, sections 3.2 and 4.1: model, loss, priors and first parameters. The search for the least
    loss is a quasi-Newton method on logarithms of the parameters instead of L-BFGS-B on the parameters.
"""

import math

import numpy as np

from ...compiled import njit

LEAST = 1e-8
MOST_GAMMA = 10.0
NUM_ITERATIONS = 100
_FIRST = np.array([0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001])
# Weights of the priors: little overlap, little growth with the number of ranks.
_OVERLAP, _GROWTH = 1e-3, 1e-2
# Added to mean squared errors, less and less: the root of zero has no slope, and near it a descent zigzags.
_SMOOTH = (1e-3, 1e-6, 1e-9, 1e-14)
_TOLERANCE = 1e-9
_NUM = 7
# Of the first parameters, where those near zero start anew.
_RAISED = (1.0, 0.1)


@njit
def observe(jobs, e, j, step_s, sync_s):  # type: ignore[no-untyped-def]
    """Record the step time of a running job, and fit its model again if it is the first of its kind."""
    kind = (jobs.num_hosts[e, j], jobs.num_ranks[e, j], jobs.local_batch[e, j])
    num = jobs.num_observed[e, j]
    seen = jobs.observed[e, j]
    for o in range(num):
        if seen[o, 0] == kind[0] and seen[o, 1] == kind[1] and seen[o, 2] == kind[2]:
            return
    if num == len(seen):
        return
    seen[num, 0], seen[num, 1], seen[num, 2] = kind
    jobs.observed_s[e, j, num, 0], jobs.observed_s[e, j, num, 1] = step_s, sync_s
    jobs.num_observed[e, j] = num + 1
    jobs.max_profiled_ranks[e, j] = max(jobs.max_profiled_ranks[e, j], kind[1])
    jobs.fitted[e, j] = fit(seen[: num + 1], jobs.observed_s[e, j, : num + 1])


@njit
def fitted_step_s(p, num_hosts, num_ranks, local_batch):  # type: ignore[no-untyped-def]
    """Return the seconds of a step without accumulated passes, and of one such pass."""
    pass_s = p[0] + p[1] * local_batch
    net_s = _network_s(p, num_hosts, num_ranks)
    large, small = max(pass_s, net_s), min(pass_s, net_s)
    return large * (1.0 + (small / large) ** p[6]) ** (1.0 / p[6]), pass_s


@njit
def _network_s(p, num_hosts, num_ranks):  # type: ignore[no-untyped-def]
    if num_ranks == 1:
        return LEAST
    first = 2 if num_hosts > 1 else 4
    return p[first] + p[first + 1] * max(num_ranks - 2, LEAST)


@njit
def fit(observed, observed_s):  # type: ignore[no-untyped-def]
    """Return the parameters of the least loss.

    Args:
        observed: hosts, ranks and samples of a rank, ``(o, 3)``.
        observed_s: step and its wait for gradients, ``(o, 2)``.
    """
    p = _FIRST.copy()
    is_free = np.ones(_NUM, np.bool_)
    between = (observed[:, 0] > 1).any()
    within = ((observed[:, 0] == 1) & (observed[:, 1] > 1)).any()
    more_than_two = (observed[:, 1] > 2).any()
    pass_s = observed_s[:, 0] - observed_s[:, 1]
    if (observed[:, 2] == observed[0, 2]).all():
        # One batch does not tell a constant from a slope: half of the time each.
        p[0], is_free[0] = pass_s.mean() / 2.0, False
    if not between:
        p[2:4], is_free[2:4] = LEAST, False
    if not within:
        p[4:6], is_free[4:6] = LEAST, False
    if not more_than_two:
        p[3], is_free[3] = LEAST, False
        p[5], is_free[5] = LEAST, False
    u = np.log(p)
    log_pass, log_step = np.log(pass_s), np.log(observed_s[:, 0])
    value = _anneal(u, is_free, observed, log_pass, log_step)
    # On logarithms a parameter that came near zero stays there: its slope is in proportion to it. So all such ones start anew.
    for raised in _RAISED:
        tried = np.where(is_free, np.maximum(u, np.log(raised * _FIRST)), u)
        tried[6] = math.log(_FIRST[6])
        tried_value = _anneal(tried, is_free, observed, log_pass, log_step)
        if tried_value < value:
            u, value = tried, tried_value
    p = np.exp(u)
    if not between:
        p[2], p[3] = max(p[2], 1.1 * p[4]), max(p[3], 1.1 * p[5])
    return p


@njit
def _anneal(u, is_free, observed, log_pass, log_step):  # type: ignore[no-untyped-def]
    """Descend from ``u``, in place, on ever less smooth losses; returns the last one."""
    value = 0.0
    for smooth in _SMOOTH:
        value = _descend(u, is_free, observed, log_pass, log_step, smooth)
    return value


@njit
def _descend(u, is_free, observed, log_pass, log_step, smooth):  # type: ignore[no-untyped-def]
    """Run BFGS on the logarithms ``u`` within their bounds, in place; returns the loss."""
    lower = np.full(_NUM, math.log(LEAST))
    upper = np.full(_NUM, 700.0)
    lower[6], upper[6] = 0.0, math.log(MOST_GAMMA)
    slope, next_slope = np.empty(_NUM), np.empty(_NUM)
    inverse = np.eye(_NUM)
    value = loss(u, observed, log_pass, log_step, smooth, slope)
    is_fresh = True
    for _ in range(NUM_ITERATIONS):
        moves = is_free & ~((u <= lower) & (slope > 0)) & ~((u >= upper) & (slope < 0))
        direction = np.zeros(_NUM)
        for i in range(_NUM):
            if moves[i]:
                for k in range(_NUM):
                    if moves[k]:
                        direction[i] -= inverse[i, k] * slope[k]
        if not (direction * slope).sum() < 0.0:
            if is_fresh:
                return value
            inverse, is_fresh = np.eye(_NUM), True
            continue
        length = 1.0 / max(1.0, np.abs(direction).max())
        result = False
        for _ in range(30):
            tried = np.minimum(np.maximum(u + length * direction, lower), upper)
            tried_value = loss(tried, observed, log_pass, log_step, smooth, next_slope)
            if tried_value <= value + 1e-4 * (slope * (tried - u)).sum():
                result = True
                break
            length *= 0.4
        if not result:
            if is_fresh:
                return value
            inverse, is_fresh = np.eye(_NUM), True
            continue
        moved, change = tried - u, next_slope - slope
        fell = value - tried_value
        u[:], value = tried, tried_value
        slope[:] = next_slope
        along = (moved * change).sum()
        if along > 1e-12:
            _update(inverse, moved, change, along)
            is_fresh = False
        if fell <= _TOLERANCE * max(abs(value), 1e-3):
            return value
    return value


@njit
def _update(inverse, moved, change, along):  # type: ignore[no-untyped-def]
    """Update the inverse Hessian by Broyden, Fletcher, Goldfarb and Shanno."""
    bent = np.zeros(_NUM)
    for i in range(_NUM):
        for k in range(_NUM):
            bent[i] += inverse[i, k] * change[k]
    factor = (1.0 + (change * bent).sum() / along) / along
    for i in range(_NUM):
        for k in range(_NUM):
            inverse[i, k] += factor * moved[i] * moved[k] - (bent[i] * moved[k] + moved[i] * bent[k]) / along


@njit
def loss(u, observed, log_pass, log_step, smooth, slope):  # type: ignore[no-untyped-def]
    """Return root mean squared errors of the logarithms of pass and step time, and the priors.

    Args:
        u: logarithms of the parameters, ``(7,)``.
        observed: hosts, ranks and samples of a rank, ``(o, 3)``.
        log_pass: logarithm of the time of a pass, ``(o,)``.
        log_step: of a step, ``(o,)``.
        smooth: added to mean squared errors.
        slope: takes the derivatives by ``u``, ``(7,)``.
    """
    p = np.exp(u)
    gamma, num = p[6], len(observed)
    of_pass, of_step = np.zeros(_NUM), np.zeros(_NUM)
    pass_error = step_error = 0.0
    for o in range(num):
        hosts, ranks, local = observed[o]
        pass_s, net_s = p[0] + p[1] * local, _network_s(p, hosts, ranks)
        log_c, log_n = math.log(pass_s), math.log(net_s)
        # The share of each in the norm, from the larger one to avoid overflow.
        ratio = math.exp(-gamma * abs(log_c - log_n))
        spread = math.log1p(ratio)
        log_norm = max(log_c, log_n) + spread / gamma
        part = 1.0 / (1.0 + ratio)
        of_c = part if log_c >= log_n else 1.0 - part
        error = log_c - log_pass[o]
        pass_error += error * error
        shares = (p[0] / pass_s, p[1] * local / pass_s)
        of_pass[0] += error * shares[0]
        of_pass[1] += error * shares[1]
        error = log_norm - log_step[o]
        step_error += error * error
        of_step[0] += error * of_c * shares[0]
        of_step[1] += error * of_c * shares[1]
        if ranks > 1:
            first = 2 if hosts > 1 else 4
            of_step[first] += error * (1.0 - of_c) * p[first] / net_s
            of_step[first + 1] += error * (1.0 - of_c) * p[first + 1] * max(ranks - 2, LEAST) / net_s
        of_step[6] += error * gamma * (-spread / gamma**2 - (1.0 - part) * abs(log_c - log_n) / gamma)
    pass_rms, step_rms = math.sqrt(pass_error / num + smooth), math.sqrt(step_error / num + smooth)
    for i in range(_NUM):
        slope[i] = of_pass[i] / (num * pass_rms) + of_step[i] / (num * step_rms)
    slope[6] += 2.0 * _OVERLAP * (gamma - 1.0) * gamma
    total = pass_rms + step_rms + _OVERLAP * (gamma - 1.0) ** 2
    for first in (2, 4):
        growth = _GROWTH * (p[first + 1] / p[first]) ** 2
        total += growth
        slope[first] -= 2.0 * growth
        slope[first + 1] += 2.0 * growth
    return total
