"""Job graphs made to measure."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meshwright.jobs.graph import JobGraph

ZERO_UNLESS_GIVEN = ("forward_flops", "backward_flops", "activation_bytes", "parameter_bytes", "workspace_bytes")


def profile(
    name: str, forward_s: Sequence[float], backward_s: Sequence[float], edges: ArrayLike | None = None, **fields: Any
) -> JobGraph:
    """A graph as of a profile: missing costs are zero, and without ``edges`` the ops form a chain."""
    n = len(forward_s)
    costs = {cost: np.array(fields.pop(cost, np.zeros(n)), float) for cost in ZERO_UNLESS_GIVEN}
    if edges is None:
        edges = [(op, op + 1) for op in range(n - 1)]
    plain = {"op_names": tuple(f"op{op}" for op in range(n)), "op_kinds": ("Linear",) * n, "source": "measured"}
    return JobGraph(
        name=name,
        forward_s=np.array(forward_s, float),
        backward_s=np.array(backward_s, float),
        edges=np.array(edges, np.int64).reshape(-1, 2),
        **costs,
        **{**plain, **fields},
    )


def dense_layers(num_layers: int, activation_bytes: float, parameter_bytes: float, samples_per_step: int) -> JobGraph:
    """A chain of dense layers of one size, forward 1 ms and backward 2 ms each."""
    return profile(
        "dense",
        [1e-3] * num_layers,
        [2e-3] * num_layers,
        op_names=tuple(f"fc{layer}" for layer in range(num_layers)),
        activation_bytes=[activation_bytes] * num_layers,
        parameter_bytes=[parameter_bytes] * num_layers,
        samples_per_step=samples_per_step,
        source="estimated",
    )
