"""Kinds of tasks of a schedule's table, see `schedules`."""

import numpy as np
from numpy.typing import NDArray

FORWARD, BACKWARD, WEIGHT = 0, 1, 2
"""A forward pass, a backward pass or that of inputs alone, the gradients of weights."""

INPUT, AHEAD, BACK, NONE = 3, 4, 5, -1
"""Kinds of bidirectional schedules: an input gradient where other backward passes are whole, then the forward and the backward
part of a pair. Last no task, at the end of shorter rows. In a table of seconds the place of ``AHEAD`` has the time of the
whole pair: a chunk's forward pass with the backward pass of the other chunk.
"""

KINDS = 5
"""Kinds of tasks of bidirectional schedules that have seconds."""

Tasks = NDArray[np.int32]
