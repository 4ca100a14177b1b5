"""Groups of a fleet's episodes: equal arrivals, and one state to continue from."""

import numpy as np
import pytest

from meshwright.errors import ConfigError
from meshwright.training.fleet.vec_env import FleetVecEnv

from ..runs import fleet_config


def test_episodes_of_a_group_meet_the_same_arrivals_and_continue_from_one_state(fleet):
    env, rng = FleetVecEnv(fleet, 6, 0, group=3), np.random.default_rng(0)
    env.reset()
    state = env.batch.state
    assert (state.arrival_s[0] == state.arrival_s[2]).all()
    assert (state.arrival_s[0] != state.arrival_s[3]).any()
    for _ in range(400):  # episodes end at times of their own, and others begin
        masks = env.action_masks()
        env.step_async(np.where(masks, rng.random(masks.shape), -1.0).argmax(axis=1))
        env.step_wait()
    assert env.episode.min() > 0
    assert any((values[0] != values[1]).any() for values in (state.now_s, state.status))
    env.regroup()
    for values in state:
        assert np.array_equal(values[0], values[1], equal_nan=values.dtype.kind == "f")
        assert np.array_equal(values[3], values[5], equal_nan=values.dtype.kind == "f")
    first, *others = (env._rngs[e].integers(2**62) for e in (0, 1, 2))
    assert others == [first, first]


def test_a_group_divides_the_episodes():
    with pytest.raises(ConfigError, match=r"group must divide ppo.num_envs, which is 4"):
        fleet_config(group=3)
