"""Vector environments: bit for bit what Gymnasium's own vectorisation of single environments shows, in each mode."""

import numpy as np
import pytest

from meshwright.envs.job_partitioning import JobPartitioningEnv, JobPartitioningVectorEnv
from meshwright.errors import ConfigError, PolicyError


def test_the_seeds_of_environments_are_their_own(small_benchmark, small):
    vector = JobPartitioningVectorEnv(3, small_benchmark, scenario=small)
    seen, _ = vector.reset(seed=[5, None, 9])
    for e, seed in ((0, 5), (2, 9)):
        alone, _ = JobPartitioningEnv(small_benchmark, scenario=small).reset(seed=seed)
        assert seen["job"][e].tobytes() == alone["job"].tobytes()
    numbered, _ = vector.reset(seed=5)
    assert numbered["job"][0].tobytes() == seen["job"][0].tobytes()
    assert numbered["job"][1].tobytes() != seen["job"][1].tobytes()


def test_what_it_cannot_take_is_told(toy_benchmark, toy):
    def made(num_envs=2, **options):
        return JobPartitioningVectorEnv(num_envs, toy_benchmark, scenario=toy, **options)

    with pytest.raises(ConfigError, match="at least 1"):
        made(0)
    with pytest.raises(ConfigError, match="did you mean 'SameStep'"):
        made(autoreset_mode="samestep")
    with pytest.raises(ConfigError, match="did you mean 'ansi'"):
        made(render_mode="ansii")
    vector = made(autoreset_mode="Disabled")
    with pytest.raises(PolicyError, match="reset it first"):
        vector.step(np.zeros(2, np.int64))
    with pytest.raises(ConfigError, match="one for each of 2 environments"):
        vector.reset(seed=[1])
    with pytest.raises(ConfigError, match=r"unknown reset option.*reset_mask"):
        vector.reset(options={"reset": 1})
    for mask in (np.zeros(2, np.bool_), np.ones(3, np.bool_), np.ones(2)):
        with pytest.raises(ConfigError, match=r"options\.reset_mask"):
            vector.reset(options={"reset_mask": mask})
    vector.reset(seed=0)
    for actions in (np.zeros(3, np.int64), np.zeros(2), np.array([0, 4]), np.array([-1, 0])):
        with pytest.raises(PolicyError):
            vector.step(actions)
    over = np.zeros(2, np.bool_)
    while not over.any():
        *_, over, _ = vector.step(np.zeros(2, np.int64))
    with pytest.raises(PolicyError, match="reset it first"):
        vector.step(np.zeros(2, np.int64))
