"""Which layouts get an entry."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from meshwright.planners.menu.choice import worthwhile

SECONDS = st.sampled_from([0.5, 0.99, 1.0, 1.2, 2.0, np.inf])


@st.composite
def layouts(draw):
    """Seconds of some layouts in some places, and their memory."""
    shape = draw(st.tuples(st.integers(1, 8), st.integers(1, 5)))
    return draw(arrays(np.float64, shape, elements=SECONDS)), draw(
        arrays(np.float64, shape[:1], elements=st.sampled_from([1.0, 2.0]))
    )


def test_the_fastest_alone_and_who_is_faster_somewhere():
    step_s = np.array([[1.0, 2.0], [1.1, 1.2], [1.2, 2.1], [0.995, 9.0]])
    # 1 is best in the mean, 0 and 3 gain on it in the first place, 3 more over both; then 0 brings half a percent less than 3
    assert worthwhile(step_s, np.ones(4), 4, 0.01) == [1, 3]
    assert worthwhile(step_s, np.ones(4), 1, 0.01) == [1]


@given(layouts(), st.integers(1, 4), st.sampled_from([0.0, 0.01, 0.3]))
def test_no_entry_is_beaten_and_what_is_left_out_gains_too_little(drawn, most, least_gain):
    step_s, memory_bytes = drawn
    taken = worthwhile(step_s, memory_bytes, most, least_gain)
    assert len(set(taken)) == len(taken) <= most
    assert bool(taken) == bool(np.isfinite(step_s).any())
    for one in taken:
        for other in set(taken) - {one}:
            is_no_worse = (step_s[other] <= step_s[one]).all() and memory_bytes[other] <= memory_bytes[one]
            is_less = (step_s[other] < step_s[one]).any() or memory_bytes[other] < memory_bytes[one]
            assert not (is_no_worse and is_less)
    if taken and len(taken) < most:
        best = step_s[taken].min(axis=0)
        assert (step_s >= best * (1 - least_gain) * (1 - 1e-9)).all()
