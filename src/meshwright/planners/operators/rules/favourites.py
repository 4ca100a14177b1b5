"""Favourite children by a linear program: which successor of an op should run where the op ran, without a transfer.

Hanen and Munier, "An approximation algorithm for scheduling dependent tasks on m processors with small communication delays",
1995, as Jeon et al. use it in Baechi (2020).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....errors import PlanError
from ....simulation.operators.instance import OperatorInstance
from ....simulation.operators.schedules import mean_times_s, mean_transfer_s

THRESHOLD = 0.1
"""An edge is a favourite one where the relaxed program pays less of its transfer than this (Baechi)."""


def favourite_children(instance: OperatorInstance) -> NDArray[np.int64]:
    """The favourite child of each op, -1 where it has none; an op is the favourite of at most one, ``(n,)``.

    Start times s and x of each edge, 0 <= x <= 1, minimise the end of the last op under ``s_j >= s_i + p_i + c_ij x_ij``. The
    sum of x over an op's children is at least their number less one, and likewise over its parents. Times are means over
    devices, transfers means over pairs of devices. Of several edges below the threshold the lowest counts, ties by number.

    Raises:
        PlanError: the solver did not solve the program.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    n, e = instance.num_ops, len(instance.edges)
    if e == 0:
        return np.full(n, -1, np.int64)
    times_s, transfer_s = mean_times_s(instance), mean_transfer_s(instance)
    scale = float(times_s.sum() + transfer_s.sum()) / (n + e)
    times, transfer = times_s / (scale or 1.0), transfer_s / (scale or 1.0)
    source, target = instance.edges.T
    edge, op = np.arange(e), np.arange(n)
    # Columns: x of each edge, s of each op, the end. Rows: edges, ends of ops, children of ops, parents of ops; all "<=".
    entries = [
        (edge, e + source, np.ones(e)),
        (edge, e + target, -np.ones(e)),
        (edge, edge, transfer),
        (e + op, e + op, np.ones(n)),
        (e + op, np.full(n, e + n), -np.ones(n)),
        (e + n + source, edge, -np.ones(e)),
        (e + 2 * n + target, edge, -np.ones(e)),
    ]
    row, column, number = (np.concatenate(each) for each in zip(*entries, strict=True))
    # The stubs of linprog know dense matrices only.
    matrix: Any = coo_array((number, (row, column)), shape=(e + 3 * n, e + n + 1)).tocsr()
    most = np.concatenate(
        [
            -times[source],
            -times,
            1.0 - np.maximum(1, np.bincount(source, minlength=n)),
            1.0 - np.maximum(1, np.bincount(target, minlength=n)),
        ]
    )
    cost = np.zeros(e + n + 1)
    cost[-1] = 1.0
    bounds: list[tuple[float, float | None]] = [(0.0, 1.0)] * e + [(0.0, None)] * (n + 1)
    found = linprog(cost, A_ub=matrix, b_ub=most, bounds=bounds, method="highs")
    if found.x is None:
        raise PlanError("the linear program of favourite children was not solved", field="m-sct", value=found.message)
    favourite, has_parent = np.full(n, -1, np.int64), np.zeros(n, np.bool_)
    for each in np.lexsort((edge, found.x[:e])):
        parent, child = instance.edges[each]
        if found.x[each] < THRESHOLD and favourite[parent] < 0 and not has_parent[child]:
            favourite[parent] = child
            has_parent[child] = True
    return favourite
