"""Laws of reading: whatever an input holds, it is read or refused in one line, and nothing is read that cannot be.

The long form is ``make fuzz``.
"""

import os
import random

import pytest

from .running import attempt
from .targets import TARGETS

QUICK = {name: target for name, target in TARGETS.items() if target.is_quick}

NUM_CASES = 8
"""Of each quick reader."""


@pytest.mark.parametrize("name", sorted(QUICK))
def test_a_spoilt_input_is_refused_in_one_line_or_is_something_possible(name, tmp_path):
    seed = 0 if os.environ.get("CI") else random.randrange(10**6)
    target = QUICK[name]
    for valid in target.inputs:
        assert target.rejection(valid, tmp_path) is None
    for number in range(NUM_CASES):
        failure = attempt(target, target.case(seed, number), tmp_path)
        assert failure is None, f"python -m tests.fuzz {name} --seed {seed} --case {number}: {failure}"
