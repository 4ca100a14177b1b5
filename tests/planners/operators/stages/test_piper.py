"""Piper's plan against all plans of small instances, and its knapsack by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import PlanError
from meshwright.planners.operators.stages.piper import least_cost_s, piper, stage_seconds
from meshwright.simulation.operators.piper_files import PiperInstance

from ....draws import draws, num_cases
from ....oracles.operators.values import piper_s
from ..instances import short_and_long


def drawn(num_ops, num_devices, seed):
    rng = np.random.default_rng(seed)
    edges = np.array([(a, b) for a in range(num_ops) for b in range(a + 1, num_ops) if rng.random() < 0.5], np.int64)
    edges = edges.reshape(-1, 2)
    shape = (num_ops, 2, 2)
    fast = rng.integers(1, 9, shape).astype(float)
    fast[:, 1] = np.maximum(1, fast[:, 0] - 2)
    fast[:, :, 1] = fast[:, :, 0] * 1.5
    each = rng.integers(0, 5, shape).astype(float)
    each[:, :, 1] = np.floor(each[:, :, 0] / 3)
    return PiperInstance(
        name="drawn",
        op_names=tuple(f"op{op}" for op in range(num_ops)),
        edges=edges,
        edge_bytes=rng.integers(0, 4, len(edges)).astype(float),
        degrees=np.array([1, 2]),
        option_ids=("vanilla", "activation recomp"),
        times_s=fast,
        parameter_bytes=rng.integers(0, 9, shape).astype(float),
        bytes_each=each,
        bytes_once=rng.integers(0, 3, shape).astype(float),
        head_sync_bytes=rng.integers(0, 2, (len(edges), 2, 2)).astype(float),
        tail_sync_bytes=rng.integers(0, 2, (len(edges), 2, 2)).astype(float),
        num_devices=num_devices,
        memory_bytes=float(rng.integers(6, 30)),
        bandwidth_bytes_per_s=2.0,
        num_micro_batches=int(rng.choice([2, 6, 12])),
    )


def instances(most_ops):
    return st.builds(drawn, st.integers(1, most_ops), st.integers(1, 4), st.integers(0, 10**6))


@short_and_long(25, instances(3), instances(4), num_cases(200))
def test_no_plan_is_better(instance):
    least = piper_s(instance)
    if least == np.inf:
        with pytest.raises(PlanError, match="no plan fits the memory of a device"):
            piper(instance)
        return
    result = piper(instance)
    assert result.value_s == pytest.approx(least)
    given_stages = [(stage.has_op, stage.num_replicas, stage.tensor_degree) for stage in result.stages]
    assert max(stage_seconds(instance, given_stages)) == result.value_s
    assert piper(replace(instance, bandwidth_bytes_per_s=4.0)).value_s <= result.value_s * (1 + 1e-12)
    assert piper(replace(instance, num_devices=instance.num_devices + 1)).value_s <= result.value_s * (1 + 1e-12)
    try:
        stored = piper(instance, recomputes=False)
    except PlanError:
        return
    assert stored.value_s >= result.value_s * (1 - 1e-12)


def test_a_knapsack_worked_by_hand():
    # Kept: 1 + 1 + 1 s and 10 + 6 + 5 bytes. 8 bytes must go: the first op alone saves 9 for 4 s, the others 5 + 4 for 3 s.
    cost_s = np.array([[1.0, 5.0], [1.0, 2.5], [1.0, 2.5]])
    held = np.array([[10.0, 1.0], [6.0, 1.0], [5.0, 1.0]])
    assert least_cost_s(cost_s, held, 21.0) == 3.0
    assert least_cost_s(cost_s, held, 13.0) == 6.0
    assert least_cost_s(cost_s, held, 2.9) == np.inf


@draws(30)
@given(st.integers(1, 9), st.integers(0, 10**6))
def test_no_choice_of_options_is_cheaper(num_ops, seed):
    rng = np.random.default_rng(seed)
    cost_s = rng.integers(0, 6, (num_ops, 2)).astype(float)
    held = rng.integers(0, 6, (num_ops, 2)).astype(float)
    memory = float(rng.integers(0, 3 * num_ops))
    best = np.inf
    for bits in range(2**num_ops):
        choice = [(bits >> op) & 1 for op in range(num_ops)]
        if held[np.arange(num_ops), choice].sum() <= memory:
            best = min(best, cost_s[np.arange(num_ops), choice].sum())
    assert least_cost_s(cost_s, held, memory) == pytest.approx(best)


def test_what_is_no_pipeline_is_refused():
    instance = replace(drawn(2, 3, 1), edges=np.array([[0, 1]]), edge_bytes=np.ones(1))
    instance = replace(instance, head_sync_bytes=np.zeros((1, 2, 2)), tail_sync_bytes=np.zeros((1, 2, 2)), memory_bytes=1e9)
    one, two = np.array([True, False]), np.array([False, True])
    with pytest.raises(PlanError, match="is in an earlier stage than"):
        stage_seconds(instance, [(two, 1, 1), (one, 1, 1)])
    with pytest.raises(PlanError, match=r"uses more devices than there are \(got 4\)"):
        stage_seconds(instance, [(one, 1, 2), (two, 1, 2)])
    with pytest.raises(PlanError, match="each op is in one stage"):
        stage_seconds(instance, [(one, 1, 1)])
    with pytest.raises(PlanError, match=r"stages\[0\].tensor_degree: the instance has no such tensor degree \(got 3\)"):
        stage_seconds(instance, [(one | two, 1, 3)])
    with pytest.raises(PlanError, match="suffixes, and at most 2 are looked at"):
        piper(instance, max_ideals=2)
