"""When blocks of each shape become free, against sets of devices; and that nothing changes where it is switched off."""

import dataclasses

import numpy as np
import pytest

from meshwright.envs.availability import KEYS
from meshwright.envs.batch import EpisodeBatch
from meshwright.envs.benchmark import load_benchmark
from meshwright.envs.job_partitioning import JobPartitioningEnv
from meshwright.errors import ConfigError
from meshwright.jobs.arrivals import Arrivals

SLOTS = 20


@pytest.fixture(scope="module")
def foreseeing(small_benchmark):
    choice = small_benchmark.scenario.model_copy(update={"shape_slots": SLOTS})
    return small_benchmark.model_copy(update={"scenario": choice})


def test_the_keys_stand_in_the_space_only_where_they_are_switched_on(foreseeing, small_benchmark, small):
    env = JobPartitioningEnv(foreseeing)
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    shapes = len(set(zip(env.scenario.space.degree.tolist(), env.scenario.space.shape_names, strict=True)))
    degrees, candidates = len(env.scenario.space.degrees), env.scenario.problem.num_candidates
    assert [observation[key].shape for key in KEYS] == [
        (shapes, SLOTS),
        (degrees, SLOTS),
        (candidates, shapes, SLOTS),
        (candidates, degrees, SLOTS),
        (candidates, 1),
        (1,),
    ]
    plain, _ = JobPartitioningEnv(small_benchmark, scenario=small).reset(seed=0)
    assert set(observation) - set(plain) == set(KEYS)
    assert all(np.array_equal(observation[key], plain[key]) for key in plain)


@pytest.mark.parametrize(("seed", "growth"), [(0, 1.0), (1, 1.0), (2, 1.0), (0, 1.25), (1, 2.0)])
def test_shares_are_those_that_sets_of_devices_give(foreseeing, seed, growth):
    choice = foreseeing.scenario.model_copy(update={"slot_growth": growth})
    scenario = foreseeing.model_copy(update={"scenario": choice}).build()
    space, mean_s = scenario.space, scenario.workload.mean_interarrival_s
    batch, rng = EpisodeBatch(scenario, 1), np.random.default_rng(seed)
    batch.reset(0, rng)
    by_shape = [[set(space.block(b).tolist()) for b in np.flatnonzero(space.shape == s)] for s in range(space.shape[-1] + 1)]
    by_degree = [[set(space.block(b).tolist()) for b in np.flatnonzero(space.degree == d)] for d in range(len(space.degrees))]
    ends = mean_s * np.array([sum(growth**j for j in range(i + 1)) for i in range(SLOTS)])

    def free_by(left_s, blocks):
        wait = np.array([max(left_s[device] for device in block) for block in blocks])
        return (wait[:, None] <= ends).mean(axis=0)

    for k in range(scenario.settings.num_jobs):
        episodes, seen = batch.episodes, batch.observations
        left_s = np.maximum(0.0, episodes.free_at_s[0] - episodes.now_s[0])
        left = scenario.settings.num_jobs - k
        assert seen.episode[0, 0] == pytest.approx(left / (left + ends[-1] / mean_s))
        states = [(seen.cluster_shapes[0], seen.cluster_any[0], left_s)]
        for a in range(scenario.problem.num_candidates):
            shapes, degrees = seen.candidate_shapes[0, a], seen.candidate_any[0, a]
            if not episodes.can_place[0, a]:
                assert not shapes.any()
                assert not degrees.any()
                continue
            after = left_s.copy()
            if a:
                after[space.block(int(episodes.candidate_block[0, a]))] = episodes.candidate_s[0, a]
            states.append((shapes, degrees, after))
        for shapes, degrees, state in states:
            np.testing.assert_allclose(shapes, [free_by(state, blocks) for blocks in by_shape], rtol=1e-6)
            np.testing.assert_array_equal(degrees, [free_by(state, blocks) > 0 for blocks in by_degree])
        end_s = float(episodes.arrival_s[0, -1])
        would_end = episodes.can_place[0] & (episodes.now_s[0] + episodes.candidate_s[0] <= end_s)
        assert seen.candidate_ends[0, :, 0].tolist() == would_end.tolist()
        batch.step(rng.choice(np.flatnonzero(seen.action_mask[0]), 1))


def of_the_toy(toy, arrival_s, steps=100_000, deadline=np.inf, **windows):
    """An episode of squeezenets on the toy, one at each arrival time; the last one ends it."""
    jobs = len(arrival_s)
    changes = {"num_jobs": jobs - 1, "num_warmup_jobs": 0, "shape_slots": 4, **windows}
    batch = EpisodeBatch(dataclasses.replace(toy, settings=toy.settings.model_copy(update=changes)), 1)
    columns = (np.broadcast_to(column, jobs).copy() for column in (0, steps, deadline))
    batch.begin_with(0, Arrivals(np.array(arrival_s), *columns))
    return batch


def test_which_jobs_would_end_within_the_episode_by_hand(toy):
    # 1394 s on two devices, 732 s on four; too big for one. Arrivals at 0 and 1100 s, and at 2200 s the end.
    batch = of_the_toy(toy, [0.0, 1100.0, 2200.0])
    assert toy.candidate_degree == (0, 1, 2, 4)
    # Both end in time. To turn the job away is no job that ends, and one device is not offered.
    assert batch.observations.candidate_ends[0, :, 0].tolist() == [0.0, 0.0, 1.0, 1.0]
    batch.step(np.array([0]))
    # 1100 + 1394 = 2494 is beyond 2200, 1100 + 732 = 1832 is not.
    assert batch.observations.candidate_ends[0, :, 0].tolist() == [0.0, 0.0, 0.0, 1.0]


def test_arrivals_in_windows_by_hand(toy):
    at = np.array([0.0, 1.0, 1.25, 3.0, 6.0, 7.0]) * toy.workload.mean_interarrival_s
    batch = of_the_toy(toy, at, load_windows=(0.5, 2.0, 5.0))
    # Arrivals within each window before now, a moment as long ago as the window is long left out; and the window's length,
    # where the episode began later cut to one gap before it.
    expected = [
        [(1, 0.5), (1, 1.0), (1, 1.0)],  # at 0: the first alone
        [(1, 0.5), (2, 2.0), (2, 2.0)],  # at 1
        [(2, 0.5), (3, 2.0), (3, 2.25)],  # at 1.25: since 0.75; since -0.75; the episode since -1
        [(1, 0.5), (2, 2.0), (4, 4.0)],  # at 3: since 2.5; since 1, the second left out
        [(1, 0.5), (1, 2.0), (3, 5.0)],  # at 6: since 5.5; since 4; since 1
    ]
    for row in expected:
        reported = batch.observations.episode[0]
        assert reported[1:] == pytest.approx([came / (came + window) for came, window in row])
        batch.step(np.array([0]))


def test_jobs_that_come_as_often_as_on_average_tell_one_half(toy):
    batch = of_the_toy(toy, np.arange(31) * toy.workload.mean_interarrival_s, load_windows=(1.0, 8.0, 64.0))
    for _ in range(30):
        np.testing.assert_allclose(batch.observations.episode[0, 1:], 0.5)
        batch.step(np.array([0]))


def test_latest_deadlines_by_hand(toy):
    # Of the time on one device: a third, all of it, any; as t / (t + s): a quarter, a half, one.
    batch = of_the_toy(toy, np.arange(4) * 100.0, deadline=[1 / 3, 1.0, np.inf, 0.5], deadline_windows=(1, 2, 8))
    for latest in ([0.25], [0.25, 0.5], [0.25, 0.5, 1.0]):
        expected = [figure for n in (1, 2, 8) for figure in (np.mean(latest[-n:]), np.std(latest[-n:]))]
        assert batch.observations.episode[0, 1:] == pytest.approx(expected, abs=1e-6)
        batch.step(np.array([0]))


def test_offered_load_by_hand(toy):
    gap_s, devices = toy.workload.mean_interarrival_s, toy.cluster.num_devices
    at = np.array([0.0, 1.0, 3.0, 9.0]) * gap_s
    batch = of_the_toy(toy, at, [1000, 3000, 4000, 1], work_windows=(1.0, 2.5, 100.0))
    expected = [
        [(1000, 1.0), (1000, 1.0), (1000, 1.0)],  # at 0: the windows are cut to one inter-arrival time before the first arrival
        [(3000, 1.0), (4000, 2.0), (4000, 2.0)],  # at 1: the first job came just before the shortest window
        [(4000, 1.0), (7000, 2.5), (8000, 4.0)],  # at 3
    ]
    step_s = toy.problem.sequential_step_s[0]
    for row in expected:
        loads = [step_s * done / (devices * window * gap_s) for done, window in row]
        assert batch.observations.episode[0, 1:] == pytest.approx([load / (load + 1.0) for load in loads])
        batch.step(np.array([0]))


@pytest.mark.parametrize("name", ["load_windows", "deadline_windows", "work_windows"])
def test_windows_without_slots_are_refused(name):
    with pytest.raises(ConfigError, match=rf"{name}.*set shape_slots too"):
        load_benchmark("preset:toy", changes=[f"scenario.{name}=[4]"])


def test_a_job_that_ends_with_the_episode_ends_within_it(toy):
    time_s = float(of_the_toy(toy, [0.0, 1e6]).episodes.candidate_s[0, 2])
    for end_s, ends in ((time_s, 1.0), (np.nextafter(time_s, 0.0), 0.0)):
        assert of_the_toy(toy, [0.0, end_s]).observations.candidate_ends[0, 2, 0] == ends


@pytest.mark.parametrize("num_slots", [1, 4])
def test_what_is_seen_hangs_on_the_state_alone_and_not_on_what_was_seen_before(toy, num_slots):
    # With one slot, nothing is free by its end once all devices are taken: there is nothing to tell that more was seen.
    changes = {"shape_slots": num_slots, "num_jobs": 40}
    scenario = dataclasses.replace(toy, settings=toy.settings.model_copy(update=changes))
    batch, rng, full = EpisodeBatch(scenario, 1), np.random.default_rng(0), 0
    batch.reset(0, rng)
    for _ in range(40):
        fresh = EpisodeBatch(scenario, 1)
        fresh.restore(batch.state())
        for key, seen in batch.observations.current().items():
            np.testing.assert_array_equal(seen, fresh.observations.current()[key], err_msg=key)
        full += not batch.observations.cluster_any[0, :, 0].any()
        batch.step(np.flatnonzero(batch.observations.action_mask[0])[-1:])
    assert full > 0 or num_slots > 1
