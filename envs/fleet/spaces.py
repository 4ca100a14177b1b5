"""The observation of a fleet as a Gymnasium space."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from .fleet import Fleet
from .observation import new_observations


def observation_space(fleet: Fleet) -> spaces.Dict:
    """A `Dict` of boxes: features in [0, 1], types below their number, the mask 0 or 1."""
    found: dict[str, spaces.Space[object]] = {}
    for name, values in new_observations(fleet, 1)._asdict().items():
        shape = values.shape[1:]
        if name.endswith("_type"):
            found[name] = spaces.Box(0, max(1, fleet.num_types - 1), shape, np.int64)
        elif name == "action_mask":
            found[name] = spaces.Box(0, 1, shape, np.int8)
        else:
            found[name] = spaces.Box(0.0, 1.0, shape, np.float32)
    return spaces.Dict(found)
