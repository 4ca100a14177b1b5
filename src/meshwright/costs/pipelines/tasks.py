"""What a table of tasks consists of, see `schedules`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FORWARD, BACKWARD, WEIGHT = 0, 1, 2
"""A forward pass, a backward pass or that of inputs alone, the gradients of weights."""

INPUT, AHEAD, BACK, NONE = 3, 4, 5, -1
"""Of bidirectional schedules: an input gradient where other backward passes are whole; the forward and the backward part of a
pair, in this order; no task, at the end of rows that are shorter than others. In a table of seconds the place of ``AHEAD`` is
that of the whole pair: of the forward pass of a chunk beside the backward pass of the other one."""

KINDS = 5
"""Kinds of tasks of bidirectional schedules that have seconds."""

Tasks = NDArray[np.int32]
