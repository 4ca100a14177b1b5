"""Two vector environments played alike, everything that they show compared bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode


def play_both(ours: Any, theirs: Any, num_steps: int, seed: int = 3) -> int:
    """Random offered actions, now and then one that is not; how many episodes ended."""
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    rng, ended = np.random.default_rng(seed), 0
    seen, told = ours.reset(seed=seed)
    assert_same_shown([seen, told], list(theirs.reset(seed=seed)))
    for _ in range(num_steps):
        assert ours.observation_space.contains(seen)
        scores = rng.random(seen["action_mask"].shape)
        actions = (scores * seen["action_mask"] + 0.5 * scores * (rng.random(len(scores)) < 0.05)[:, None]).argmax(axis=1)
        shown = ours.step(actions)
        assert_same_shown(list(shown), list(theirs.step(actions)))
        seen = shown[0]
        over = shown[2] | shown[3]
        ended += int(over.sum())
        if over.any() and ours.metadata["autoreset_mode"] is AutoresetMode.DISABLED:
            again = ours.reset(options={"reset_mask": over})
            assert_same_shown(list(again), list(theirs.reset(options={"reset_mask": over})))
            seen = again[0]
    return ended


def assert_same_shown(one: Any, other: Any) -> None:
    """Fails unless both are equal to the last bit, types too."""
    if isinstance(one, dict):
        assert set(one) == set(other)
        for key in one:
            assert_same_shown(one[key], other[key])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for mine, its in zip(one, other, strict=True):
            assert_same_shown(mine, its)
    elif isinstance(one, np.ndarray) and one.dtype == object:
        assert other.dtype == object
        assert_same_shown(list(one), list(other))
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    else:
        assert one == other
