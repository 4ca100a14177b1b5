"""Steps until an episode ends, against a plain count."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from meshwright.training.graph.train import steps_left

from ...draws import draws


def counted(starts: NDArray[np.float32], is_done: bool, step: int) -> int:
    """Steps of one environment up to the next start, or to the end of the rollout if an episode ends there."""
    later = [each for each in range(step + 1, len(starts)) if starts[each]]
    return (later[0] if later else len(starts)) - step if later or is_done else 0


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 4), st.sampled_from([0.1, 0.5, 1.0]))
@draws(50)
def test_steps_left_are_those_up_to_the_next_start(seed: int, steps: int, envs: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    starts, dones = (rng.random((steps, envs)) < share).astype(np.float32), rng.random(envs) < 0.5
    result = steps_left(starts, dones)
    for step in range(steps):
        assert result[step].tolist() == [counted(starts[:, e], bool(dones[e]), step) for e in range(envs)]
