"""Pictures of the occupancy."""

import numpy as np
import pytest

from meshwright.envs import viewer
from meshwright.envs.job_partitioning import JobPartitioningEnv
from meshwright.jobs.arrivals import Arrivals


@pytest.fixture
def env(toy_benchmark, toy):
    """The toy with a resnet18 (1571 s on two devices) and then squeezenets."""
    env = JobPartitioningEnv(toy_benchmark, scenario=toy)
    env.reset(seed=0)
    graphs = [1] + 60 * [0]
    env._batch.begin_with(0, Arrivals(1100.0 * np.arange(61), np.array(graphs), np.full(61, 100_000), np.full(61, np.inf)))
    return env


def test_the_image_changes_when_a_job_is_placed(env):
    env.render_mode = "rgb_array"
    before = env.render()
    assert before.dtype == np.uint8
    assert before.ndim == 3
    assert before.shape[2] == 3
    env.step(2)
    after = env.render()
    assert after.shape == before.shape
    # Two cells take the colour of the second graph.
    colour = viewer.PALETTE[1]
    painted = (after == colour).all(axis=2).sum() - (before == colour).all(axis=2).sum()
    cell = (viewer.CELL + 1) ** 2
    # The number of the job covers a little of each.
    assert 0.9 * 2 * cell < painted <= 2 * cell


def test_the_text_names_jobs_and_free_devices(env):
    env.render_mode = "ansi"
    assert env.render() == "toy at 0 s: 4 of 4 devices free\n. . . .\njob 0 waits: resnet18, no deadline\n"
    env.step(2)
    assert env.render() == (
        "toy at 1,100 s: 2 of 4 devices free\n"
        "A A . .\n"
        "A: job 0 resnet18 on 2 devices, 471 s left\n"
        "job 1 waits: squeezenet, no deadline\n"
    )


def test_without_a_mode_nothing_is_drawn(env):
    assert env.render() is None


@pytest.mark.parametrize(("number", "letters"), [(0, "A"), (25, "Z"), (26, "AA"), (27, "AB"), (701, "ZZ"), (702, "AAA")])
def test_no_two_jobs_share_letters(number, letters):
    assert viewer._letters(number) == letters


def test_a_deadline_is_told(small_benchmark, small):
    env = JobPartitioningEnv(small_benchmark, scenario=small, render_mode="ansi")
    env.reset(seed=0)
    assert f"allowed {env.decision().allowed_s:,.0f} s" in env.render()


def test_whole_hosts_stay_in_one_row(small, toy):
    # 8 devices in hosts of 2: 4 in a row; 4 devices of one host: one row
    assert viewer._grid(small) == (2, 4)
    assert viewer._grid(toy) == (1, 4)
