"""Elastic applications and workloads of the cost model: laws of their step times and of their progress."""

import numpy as np
import pytest

from meshwright.simulation.elastic.simulation import ElasticCluster, ElasticSimulation
from meshwright.worlds.elastic.modelled import (
    APPLICATIONS,
    CARD_BYTES_PER_S,
    LAUNCH_S,
    SYNC_S,
    ModelledDraws,
    modelled_applications,
)


@pytest.fixture(scope="module")
def applications():
    return modelled_applications(2)


def test_a_step_of_two_hosts_worked_by_hand(applications):
    # AlexNet's 122.2 MB of gradients over a ring of two: each rank sends half of them twice, 10 us a message; at 32 samples the
    # backward pass hides less than a millisecond of it.
    placed = applications[0].placed
    (row,) = np.flatnonzero((placed.placement == 11) & (placed.local_batch == 32))
    (alone,) = np.flatnonzero((placed.placement == 1) & (placed.local_batch == 32))
    hidden_s = 122_201_680 / CARD_BYTES_PER_S + 2e-5 + SYNC_S - placed.sync_s[row]
    assert 0 < hidden_s < 1e-3
    assert placed.step_s[row] - placed.sync_s[row] == pytest.approx(placed.step_s[alone]), "one rank sends nothing"
    assert placed.step_s[alone] > LAUNCH_S
    assert placed.sync_s[alone] == 0


def test_larger_batches_take_fewer_steps_and_more_samples(applications):
    for one, known in zip(APPLICATIONS, applications, strict=True):
        assert one.job == known.name
        steps = known.iteration[:, -1]
        assert (np.diff(steps) < 0).all()
        assert (np.diff(steps * known.batch) > 0).all()
        assert steps[0] == pytest.approx(known.progress[0, -1])
        assert (known.placed.step_s > known.placed.sync_s).all()


def test_the_same_seed_draws_the_same_workload_of_jobs_that_fit(applications):
    draws = ModelledDraws(ElasticSimulation(applications, ElasticCluster(num_nodes=3, devices_per_node=2)))
    one, same, other = draws.draw(1, 30), draws.draw(1, 30), draws.draw(2, 30)
    assert all(np.array_equal(*pair) for pair in zip(vars(one).values(), vars(same).values(), strict=True))
    assert not np.array_equal(one.submission_s, other.submission_s)
    assert (np.diff(one.submission_s) >= 0).all()
    assert (one.batch >= one.num_ranks).all()
