"""Laws of reading: whatever an input holds, it is read or refused in one line, and nothing is read that cannot be.

The long form is ``make fuzz``.
"""

import pytest

from .running import accept, play
from .targets import TARGETS

QUICK = {name: target for name, target in TARGETS.items() if target.is_quick}

SEED, NUM_CASES = 0, 8
"""The same cases in every run, so many of each quick reader; ``make fuzz`` looks for others."""

FEWER = {"studies": 3, "training": 4, "kernels-priced": 4}
"""Of readers whose valid input is long."""


@pytest.mark.parametrize("name", sorted(QUICK))
def test_a_spoilt_input_is_refused_in_one_line_or_is_something_possible(name):
    target = QUICK[name]
    for valid in target.inputs:
        accept(target, valid)
    play(target, FEWER.get(name, NUM_CASES), SEED)
