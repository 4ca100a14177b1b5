"""Free devices that are of no use where they lie."""

import dataclasses

import numpy as np
import pytest

from meshwright.evaluation.cluster.cluster_figures import ClusterFigures, free_devices


def placed(record, toy, devices, start_s, finish_s):
    """The record with its first jobs on single devices, all others turned away."""
    block_of = {int(toy.space.block(b)[0]): b for b in np.flatnonzero(toy.space.degree == 0)}
    k = len(record.arrival_s)
    block, outcome = np.full(k, -1), np.full(k, 3)
    start, finish = np.full(k, np.nan), np.full(k, np.nan)
    for job, device in enumerate(devices):
        block[job], outcome[job], start[job], finish[job] = block_of[device], 0, start_s, finish_s
    return dataclasses.replace(record, block=block, outcome=outcome, start_s=start, finish_s=finish)


def test_two_free_devices_that_share_no_block_are_one_half_lost(record, toy):
    # Devices 0 and 2 of four are held for good: 1 and 3 are free, and no pair of free devices is a block.
    assert {tuple(toy.space.block(b).tolist()) for b in np.flatnonzero(toy.space.degree == 1)} == {(0, 1), (2, 3)}
    # The first arrival finds all free, the second one device held and a pair free: nothing lost. All others lose 1/2.
    k = len(record.arrival_s)
    assert ClusterFigures(placed(record, toy, [0, 2], 0.0, 1e9), toy).fragmentation == pytest.approx((k - 2) * 0.5 / k)


def test_two_free_devices_that_are_a_block_are_not_lost(record, toy):
    assert ClusterFigures(placed(record, toy, [0, 1], 0.0, 1e9), toy).fragmentation == 0


def test_a_full_cluster_has_no_fragmentation(record, toy):
    late = dataclasses.replace(toy, settings=toy.settings.model_copy(update={"num_warmup_jobs": 4}))
    assert ClusterFigures(placed(record, toy, [0, 1, 2, 3], 0.0, 1e9), late).fragmentation is None


def test_a_device_is_free_again_when_its_job_ends_and_not_before(record, toy):
    ends_s = float(record.arrival_s[3])
    free = free_devices(placed(record, toy, [2], 0.0, ends_s), toy)
    assert free[:, 2].tolist() == [True, False, False] + [True] * (len(record.arrival_s) - 3)
    assert free[:, [0, 1, 3]].all()


def test_what_is_free_agrees_with_the_dynamics(record, toy):
    free = free_devices(record, toy)
    for k in np.flatnonzero(record.is_accepted).tolist():
        assert free[k, record.devices_of(k, toy)].all()
