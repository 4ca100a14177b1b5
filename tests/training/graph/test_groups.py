"""The baseline of a group: by hand, and what it takes away; steps until an episode ends, against a plain count."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from meshwright.training.graph.train import steps_left
from meshwright.training.ppo import beyond_group

from ...draws import draws


def test_the_baseline_of_a_group_worked_by_hand() -> None:
    """Two groups of two; in the second the episodes are at other points but for one."""
    advantages = np.array([[1.0, 3.0, 5.0, 7.0], [2.0, 4.0, 6.0, 8.0]], np.float32)
    at = np.array([[0, 0, 0, 1], [1, 1, 1, 2]])
    # (1 - 3, 3 - 1), (2 - 4, 4 - 2); 5 alone, 7 meets 6, 6 meets 7, 8 alone
    assert beyond_group(advantages, at, 2).tolist() == [[-2.0, 2.0, 5.0, 1.0], [-2.0, 2.0, -1.0, 8.0]]


def test_of_others_the_first_decision_at_or_after_the_time_counts_within_the_same_episode() -> None:
    """Ten is an episode's length. At 1 the other's next is 2, at 5 it is 12 of the next episode: no baseline there."""
    advantages = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    at = np.array([[1, 0], [5, 2], [11, 12]])
    assert beyond_group(advantages, at, 2, within=10).tolist() == [
        [1.0 - 20.0, 10.0 - 1.0],
        [2.0, 20.0 - 2.0],
        [3.0 - 30.0, 30.0],
    ]


def test_what_all_of_a_group_share_is_taken_away() -> None:
    rng = np.random.default_rng(0)
    own, at = rng.normal(size=(20, 6)), np.tile(np.arange(20)[:, None], (1, 6))
    shared = np.repeat(rng.normal(size=(20, 2)), 3, axis=1)
    np.testing.assert_allclose(beyond_group(own + shared, at, 3), beyond_group(own, at, 3), atol=1e-12)


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
