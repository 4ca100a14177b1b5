"""When blocks of each shape become free, against sets of devices; and that nothing changes where it is switched off."""

import numpy as np
import pytest

from meshwright.envs.batch import EpisodeBatch
from meshwright.envs.foresight import KEYS
from meshwright.envs.job_partitioning import JobPartitioningEnv

SLOTS = 20


@pytest.fixture(scope="module")
def foreseeing(small_benchmark):
    chosen = small_benchmark.scenario.model_copy(update={"shape_slots": SLOTS})
    return small_benchmark.model_copy(update={"scenario": chosen})


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
        (1,),
    ]
    plain, _ = JobPartitioningEnv(small_benchmark, scenario=small).reset(seed=0)
    assert set(observation) - set(plain) == set(KEYS)
    assert all(np.array_equal(observation[key], plain[key]) for key in plain)


@pytest.mark.parametrize("seed", range(3))
def test_shares_are_those_that_sets_of_devices_give(foreseeing, seed):
    scenario = foreseeing.build()
    space, mean_s = scenario.space, scenario.workload.mean_interarrival_s
    batch, rng = EpisodeBatch(scenario, 1), np.random.default_rng(seed)
    batch.begin(0, rng)
    by_shape = [[set(space.block(b).tolist()) for b in np.flatnonzero(space.shape == s)] for s in range(space.shape[-1] + 1)]
    by_degree = [[set(space.block(b).tolist()) for b in np.flatnonzero(space.degree == d)] for d in range(len(space.degrees))]
    ends = mean_s * np.arange(1, SLOTS + 1)

    def free_by(left_s, blocks):
        wait = np.array([max(left_s[device] for device in block) for block in blocks])
        return (wait[:, None] <= ends).mean(axis=0)

    for k in range(scenario.settings.num_jobs):
        episodes, seen = batch.episodes, batch.observations
        left_s = np.maximum(0.0, episodes.free_at_s[0] - episodes.now_s[0])
        left = scenario.settings.num_jobs - k
        assert seen.episode[0, 0] == pytest.approx(left / (left + SLOTS))
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
        batch.step(rng.choice(np.flatnonzero(seen.action_mask[0]), 1))
