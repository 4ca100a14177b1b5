"""The global batch of a job: the user's, or the one of the largest goodput.

Goodput is progress per second: steps a second times what a step of that batch is worth.

Source:
    Qiao et al., "Pollux", OSDI 2021, sections 3.1 and 4.1.
"""

import math

from ...compiled import njit
from .fitting import fitted_step_s
from .measured import ROUNDING, gain, gradient_statistics, split_batch, step_times
from .state import BatchRule

NUM_BATCHES = 50
"""Global batches that are tried, in equal ratios from the smallest possible to the largest."""

_FIXED, _ESTIMATED, _KNOWN = int(BatchRule.FIXED), int(BatchRule.ESTIMATED), int(BatchRule.KNOWN)


@njit
def choose_batch(apps, jobs, e, j):  # type: ignore[no-untyped-def]
    """Write a job's samples of a rank and accumulated passes for the ranks that it has."""
    a, num_ranks, num_hosts = jobs.application[e, j], jobs.num_ranks[e, j], jobs.num_hosts[e, j]
    batch = jobs.fixed_batch[e, j]
    if jobs.batch_rule[0] == _KNOWN and batch == 0:
        _, local, passes = known_goodput(apps, a, jobs.epoch[e, j], jobs.placement[e, j], num_hosts, num_ranks)
    elif batch == 0 and jobs.fitted[e, j, 6] > 0.0:
        goodput = (jobs.fitted[e, j], jobs.grad_sqr[e, j], jobs.grad_var[e, j])
        _, local, passes = fitted_goodput(apps, a, goodput, num_hosts, num_ranks)
        local = min(local, apps.max_batch[a] // (num_ranks * (passes + 1)))
    else:
        if batch == 0:
            batch = max(apps.initial_batch[a], apps.min_local[a] * num_ranks)
        local, passes = split_batch(apps, a, batch, num_ranks)
    jobs.local_batch[e, j], jobs.passes[e, j] = local, passes


@njit
def tried_batch(apps, a, num_ranks, number):  # type: ignore[no-untyped-def]
    """Return samples of a rank and accumulated passes of one of the batches that are tried; no samples if they do not fit."""
    least = float(max(apps.initial_batch[a], apps.min_local[a] * num_ranks))
    most = float(apps.max_batch[a])
    batch = least * (most / least) ** (number / (NUM_BATCHES - 1))
    if number == 0:
        batch = least
    elif number == NUM_BATCHES - 1:
        batch = most
    local = batch / num_ranks
    passes = math.ceil(local / apps.max_local[a] - ROUNDING) - 1
    # From the only pass of a single rank no variance of the gradient can be had.
    if num_ranks == 1 and local > apps.initial_batch[a] + ROUNDING:
        passes = max(passes, 1)
    per_pass = math.ceil(local / (passes + 1) - ROUNDING)
    if per_pass < apps.min_local[a] or per_pass > apps.max_local[a]:
        return 0, passes
    return per_pass, passes


@njit
def fitted_goodput(apps, a, model, num_hosts, num_ranks):  # type: ignore[no-untyped-def]
    """Return the largest goodput by a job's own model, and its samples of a rank and passes.

    Args:
        apps: all applications.
        a: the application.
        model: fitted parameters, squared gradient, variance of the gradient.
        num_hosts: hosts of the job.
        num_ranks: ranks of the job.
    """
    fitted, sqr, var = model
    best, best_local, best_passes = -1.0, 0, 0
    for number in range(NUM_BATCHES):
        local, passes = tried_batch(apps, a, num_ranks, number)
        goodput = 0.0
        if local > 0:
            step_s, pass_s = fitted_step_s(fitted, num_hosts, num_ranks, local)
            scale = num_ranks * local * (passes + 1) / apps.initial_batch[a]
            goodput = gain(sqr, var, scale) / (step_s + passes * pass_s)
        if goodput > best:
            best, best_local, best_passes = goodput, local, passes
    return best, best_local, best_passes


@njit
def known_goodput(apps, a, epoch, placement, num_hosts, num_ranks):  # type: ignore[no-untyped-def]
    """Return the largest goodput of an application in an epoch, by what was measured of it; as `fitted_goodput`.

    No goodput, no samples where no batch fits so many ranks.
    """
    best, best_local, best_passes = 0.0, 0, 0
    for number in range(NUM_BATCHES):
        local, passes = tried_batch(apps, a, num_ranks, number)
        batch = num_ranks * local * (passes + 1)
        if local == 0 or batch > apps.max_batch[a]:
            continue
        step_s, sync_s = step_times(apps, a, placement, num_hosts, num_ranks, local)
        sqr, var = gradient_statistics(apps, a, batch, epoch)
        if math.isnan(step_s) or math.isnan(sqr):
            continue
        goodput = gain(sqr, var, batch / apps.initial_batch[a]) / (step_s + passes * (step_s - sync_s))
        if goodput > best:
            best, best_local, best_passes = goodput, local, passes
    return best, best_local, best_passes
