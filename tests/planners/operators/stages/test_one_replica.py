"""PipeDream's pipelines of one device a stage: against all of them, and against the recurrence with replicas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import PlanError
from meshwright.jobs.graph import JobGraph
from meshwright.planners.operators.place import place
from meshwright.planners.operators.request import PlacementRequest
from meshwright.planners.operators.stages.pipedream import MachineLevel, pipedream
from meshwright.simulation.operators.forms import pipedream_stages_s
from meshwright.simulation.operators.instance import OperatorInstance

from ....draws import draws
from ....oracles.operators.values import legal_placements, max_load_s, pipedream_placed_s
from ..instances import chain, fork, short_and_long, small_instances


def alike(instance: OperatorInstance) -> OperatorInstance:
    """The same ops on devices that are all as the first one, without hosts."""
    m = instance.num_devices
    bandwidth = np.full((m, m), 1.0)
    np.fill_diagonal(bandwidth, np.inf)
    return replace(
        instance,
        times_s=np.repeat(np.where(np.isfinite(instance.times_s[:, :1]), instance.times_s[:, :1], 3.0), m, axis=1),
        memory_bytes=np.full(m, instance.memory_bytes.max()),
        bandwidth_bytes_per_s=bandwidth,
        is_host=np.zeros(m, np.bool_),
    )


@short_and_long(25, small_instances(most_ops=6).map(alike), small_instances(most_ops=8).map(alike))
def test_no_stages_of_one_device_are_better(instance: OperatorInstance) -> None:
    best = min((pipedream_placed_s(instance, each, 1.0) for each in legal_placements(instance)), default=np.inf)
    try:
        result = place(instance, "pipedream", PlacementRequest("throughput"))
    except PlanError:
        assert best == np.inf
        return
    assert pipedream_placed_s(instance, result.device_of.tolist(), 1.0) == pytest.approx(best)
    assert result.value_s == pytest.approx(max_load_s(instance, result.device_of.tolist()))


@draws(15)
@given(st.integers(1, 6), st.integers(1, 3), st.integers(0, 10**6))
def test_it_is_the_recurrence_in_line_on_its_best_number_of_machines(num_ops, machines, seed):
    rng = np.random.default_rng(seed)
    edges = [(op, op + 1) for op in range(num_ops - 1)]  # a chain: the published form hands on no more than is needed
    times_s, outputs = rng.integers(1, 9, num_ops).astype(float), rng.integers(0, 5, num_ops) * 1e9
    zeros = np.zeros(num_ops)
    graph = JobGraph(
        name="drawn",
        op_names=tuple(f"op{op}" for op in range(num_ops)),
        op_kinds=("Op",) * num_ops,
        forward_s=times_s,
        backward_s=zeros,
        forward_flops=zeros,
        backward_flops=zeros,
        activation_bytes=outputs,
        parameter_bytes=zeros,
        workspace_bytes=zeros,
        edges=np.array(edges, np.int64).reshape(-1, 2),
        source="measured",
    )
    times = np.repeat(times_s[:, None], machines, axis=1)
    instance = OperatorInstance.of_outputs("drawn", times, edges, outputs, bandwidth_bytes_per_s=1e9)
    result = place(instance, "pipedream", PlacementRequest("throughput"))
    in_line = []
    for number in range(1, machines + 1):
        try:
            plan = pipedream(graph, [MachineLevel(number, 1e9)], is_straight=True)
        except PlanError:  # fewer ops than machines
            continue
        in_line.append(plan.value_s)
        stages = [(stage.has_op, stage.num_replicas) for stage in plan.stages]
        assert pipedream_stages_s(graph, stages, 1e9) == pytest.approx(plan.value_s)
    assert pipedream_placed_s(instance, result.device_of.tolist(), 1e9) == pytest.approx(min(in_line))


def test_a_chain_worked_by_hand():
    # Cut in the middle: 2 s of ops on both sides beside 1 GB there and back; once out it is a load of 3 s.
    assert place(chain(), "pipedream", PlacementRequest("throughput")).value_s == 3.0


def test_what_the_form_does_not_have_is_refused_with_the_reason():
    request = PlacementRequest("throughput")
    faster = chain(memory_bytes=[1e9, 2e9])
    with pytest.raises(PlanError, match="PipeDream's recurrence is of equal devices, and device0 and device1 differ; ideals"):
        place(faster, "pipedream", request)
    three = fork(bandwidth_bytes_per_s=1e9)
    bandwidth = np.full((3, 3), 1e9)
    bandwidth[0, 1] = bandwidth[2, 1] = 0.5e9
    np.fill_diagonal(bandwidth, np.inf)
    uneven = OperatorInstance.of_outputs("three", np.ones((4, 3)), three.edges, 1e9, bandwidth_bytes_per_s=bandwidth)
    with pytest.raises(PlanError, match="one bandwidth between all devices"):
        place(uneven, "pipedream", request)
    host = chain(is_host=np.array([False, True]))
    assert set(place(host, "pipedream", request).device_of.tolist()) == {0}
    with pytest.raises(PlanError, match="the graph has 6 downsets, and at most 5 are looked at"):
        place(fork(), "pipedream", PlacementRequest("throughput", max_ideals=5))
