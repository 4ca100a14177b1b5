"""Orders of placed ops: topological, never worse than those by upward rank, each the schedule that its name says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from meshwright.simulation.operators import schedules
from meshwright.simulation.operators.generators import DeviceDraw, GraphDraw, draw_instance
from meshwright.simulation.operators.instance import OperatorInstance
from meshwright.simulation.operators.schedules import (
    append_in_order,
    arrays,
    best_order,
    best_order_end_s,
    insert_in_order,
    upward_order,
)

KINDS = st.sampled_from(["layered", "series-parallel", "transformer"])


def order_of_starts(instance, start_s, end_s):
    """Ops as a schedule starts them: a topological order in which `append_in_order` is never slower, ``(n,)``."""
    position = np.empty(instance.num_ops, np.int64)
    position[instance.topological] = np.arange(instance.num_ops)
    return np.lexsort((position, end_s, start_s)).astype(np.int64)


def drawn(seed: int, num_ops: int, kind: str = "layered", num_devices: int = 3) -> tuple[OperatorInstance, NDArray[np.int64]]:
    graph = GraphDraw(kind=kind, num_ops=(num_ops,), width=3)
    instance = draw_instance(graph, DeviceDraw(num_devices=(num_devices,), memory_slack=None), "training", seed)
    devices = np.random.default_rng(seed).integers(num_devices, size=instance.num_groups)
    return instance, devices[instance.group]


def end_s(instance: OperatorInstance, device_of: NDArray[np.int64], order: NDArray[np.int64]) -> float:
    return float(append_in_order(arrays(instance), device_of, order)[1].max())


def transfer_s(instance: OperatorInstance, edge: int, device_of: NDArray[np.int64]) -> float:
    source, target = device_of[instance.edges[edge]]
    if source == target:
        return 0.0
    return float(instance.latency_s[source, target] + instance.edge_bytes[edge] / instance.bandwidth_bytes_per_s[source, target])


def plain_list_order(instance: OperatorInstance, device_of: NDArray[np.int64], is_active: bool) -> list[int]:
    """Giffler and Thompson's rule, written apart: scan all ready ops, take the most urgent of the conflict set."""
    tail: dict[int, float] = {}
    for op in reversed(instance.topological.tolist()):
        after = [transfer_s(instance, e, device_of) + tail[int(b)] for e, (a, b) in enumerate(instance.edges) if a == op]
        tail[op] = instance.times_s[op, device_of[op]] + max(after, default=0.0)
    position = {int(op): at for at, op in enumerate(instance.topological)}
    ends: dict[int, float] = {}
    free = [0.0] * instance.num_devices
    while len(ends) < instance.num_ops:
        starts = {}
        for op in range(instance.num_ops):
            inputs = [e for e, (_, b) in enumerate(instance.edges) if b == op]
            if op not in ends and all(int(instance.edges[e, 0]) in ends for e in inputs):
                there = [ends[int(instance.edges[e, 0])] + transfer_s(instance, e, device_of) for e in inputs]
                starts[op] = max([free[device_of[op]], *there])
        stops = {op: start + instance.times_s[op, device_of[op]] for op, start in starts.items()}
        first = min(starts, key=lambda op: (stops[op] if is_active else starts[op], position[op]))
        if is_active:
            conflict = [op for op in starts if device_of[op] == device_of[first] and (op == first or starts[op] < stops[first])]
        else:
            conflict = [op for op in starts if starts[op] <= starts[first]]
        op = max(conflict, key=lambda each: (tail[each], -position[each]))
        ends[op], free[device_of[op]] = stops[op], stops[op]
    return list(ends)


@given(seed=st.integers(0, 10_000), kind=KINDS)
def test_the_order_is_topological_and_no_worse_than_those_by_upward_rank(seed: int, kind: str) -> None:
    instance, device_of = drawn(seed, 14, kind)
    order = best_order(instance, device_of)
    assert sorted(order.tolist()) == list(range(instance.num_ops))
    place = np.argsort(order)
    assert (place[instance.edges[:, 0]] < place[instance.edges[:, 1]]).all()
    result = end_s(instance, device_of, order)
    assert result == best_order_end_s(instance, device_of)
    by_rank = upward_order(instance)
    inserted = order_of_starts(instance, *insert_in_order(arrays(instance), device_of, by_rank))
    assert result <= min(end_s(instance, device_of, by_rank), end_s(instance, device_of, inserted))


@given(seed=st.integers(0, 10_000), kind=KINDS, is_active=st.booleans())
def test_list_orders_equal_their_rule_written_plainly(seed: int, kind: str, is_active: bool) -> None:
    instance, device_of = drawn(seed, 14, kind)
    prepared, readers, topological, _ = schedules._instance_arrays(instance)
    tail = schedules._tails_s(prepared, readers, topological, device_of)
    made = schedules._list_order(prepared, readers, topological, device_of, tail, is_active)
    assert made.tolist() == plain_list_order(instance, device_of, is_active)


def test_the_devices_that_ops_have_decide_what_is_urgent() -> None:
    """Device 0 runs "short" (1 s) and "lone" (9 s). Device 1 runs "long" (9 s; 1 s on device 0), which needs "short".

    By mean times the ways to the end are 1 + 5 = 6 s and 9 s. So "lone" goes first: 9, 10, 19 s. Known devices
    give 1 + 9 = 10 s and 9 s. So "short" goes first, and all ends after 10 s.
    """
    times = np.array([[1.0, 1.0], [1.0, 9.0], [9.0, 9.0]])
    instance = OperatorInstance.of_outputs("urgent", times, [(0, 1)], [0.0, 0.0, 0.0])
    device_of = np.array([0, 1, 0])
    assert end_s(instance, device_of, upward_order(instance)) == pytest.approx(19.0)
    assert best_order_end_s(instance, device_of) == pytest.approx(10.0)
