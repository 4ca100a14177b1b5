"""The state of many episodes of elastic jobs side by side, as flat arrays.

Legend: ``e`` episodes, ``j`` jobs, ``d`` devices, ``o`` observations of a job's own step time.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...jobs.readers.elastic import ElasticWorkload
from ...numba_records import by_reference
from ..ragged import arrays_of

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

NOT_YET = -1
"""A job that has not ended, or not begun."""


class BatchRule(IntEnum):
    """The rule that chooses a job's global batch.

    ``FIXED``: the user. ``ESTIMATED``: the job, for the largest goodput by a model fitted to its own steps so far.
    ``KNOWN``: the job, by the measured step times and gradients of its application.
    """

    FIXED = 0
    ESTIMATED = 1
    KNOWN = 2


@by_reference
class ElasticJobs(NamedTuple):
    """All jobs of all episodes.

    Attributes:
        batch_rule: a `BatchRule`, ``(1,)``.
        now_s: ``(e,)``.
        num_jobs: ``(e,)``; arrays of jobs are filled up to the largest.
        application: ``(e, j)``.
        submission_s: ``(e, j)``.
        requested_ranks: what the user asks for, ``(e, j)``.
        fixed_batch: the user's global batch, 0 where the job chooses, ``(e, j)``.
        completion_s: when it ended, ``(e, j)``.
        progress: steps of the smallest batch that its steps so far are worth, ``(e, j)``.
        epoch: completed epochs, ``(e, j)``.
        service_s: device-seconds held, ``(e, j)``.
        restart_s: of its last restart still to go, ``(e, j)``.
        num_restarts: -1 before it first begins, ``(e, j)``.
        node_of_rank: where each rank is, -1 beyond the last one, ``(e, j, d)``; ranks of a node follow each other.
        num_ranks: ``(e, j)``.
        num_hosts: ``(e, j)``.
        placement: by `measured.placement_index`, ``(e, j)``.
        local_batch: samples of a rank in a pass, ``(e, j)``.
        passes: accumulated before the last one of a step, ``(e, j)``.
        grad_sqr: as last seen, ``(e, j)``.
        grad_var: ``(e, j)``.
        max_profiled_ranks: the most that it has run on, ``(e, j)``.
        num_observed: ``(e, j)``.
        observed: hosts, ranks and samples of a rank, ``(e, j, o, 3)``.
        observed_s: step and wait for gradients, ``(e, j, o, 2)``.
        fitted: parameters of `fitting`, ``(e, j, 7)``; zeros before the first fit.
    """

    batch_rule: Whole
    now_s: Whole
    num_jobs: Whole
    application: Whole
    submission_s: Whole
    requested_ranks: Whole
    fixed_batch: Whole
    completion_s: Whole
    progress: Floats
    epoch: Whole
    service_s: Whole
    restart_s: Whole
    num_restarts: Whole
    node_of_rank: NDArray[np.int16]
    num_ranks: Whole
    num_hosts: Whole
    placement: Whole
    local_batch: Whole
    passes: Whole
    grad_sqr: Floats
    grad_var: Floats
    max_profiled_ranks: Whole
    num_observed: Whole
    observed: Whole
    observed_s: Floats
    fitted: Floats


def first_state(
    workloads: Sequence[ElasticWorkload],
    batch_rule: BatchRule,
    fixed_batch: Sequence[Whole],
    num_devices: int,
    num_observed: int,
) -> ElasticJobs:
    """Return the state before anything is submitted.

    Args:
        workloads: one an episode.
        batch_rule: who chooses where no batch is fixed.
        fixed_batch: of each of their jobs, 0 where the job chooses.
        num_devices: of the cluster.
        num_observed: how many observations a job keeps.
    """
    counts = np.array([len(each.job_names) for each in workloads])
    e, j = len(workloads), int(counts.max())
    jobs = arrays_of(
        ElasticJobs,
        {
            "now_s": e,
            "application submission_s requested_ranks fixed_batch completion_s progress epoch service_s restart_s": (e, j),
            "num_restarts num_ranks num_hosts placement local_batch passes grad_sqr grad_var max_profiled_ranks": (e, j),
            "num_observed": (e, j),
            "node_of_rank": (e, j, num_devices),
            "observed": (e, j, num_observed, 3),
            "observed_s": (e, j, num_observed, 2),
            "fitted": (e, j, 7),
        },
        {"completion_s num_restarts": NOT_YET, "node_of_rank placement": -1},
        batch_rule=np.array([batch_rule], np.int64),
        num_jobs=counts,
    )
    for number, (each, batches) in enumerate(zip(workloads, fixed_batch, strict=True)):
        own = number, slice(len(each.job_names))
        jobs.application[own], jobs.submission_s[own] = each.application, each.submission_s
        jobs.requested_ranks[own], jobs.fixed_batch[own] = each.num_ranks, batches
    return jobs
