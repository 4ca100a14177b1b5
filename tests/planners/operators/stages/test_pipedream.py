"""PipeDream's recurrence: worked by hand, against all pipelines, and its limits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import PlanError, PolicyError
from meshwright.jobs.graph import JobGraph
from meshwright.planners.operators.stages import pipedream as pipedream_module
from meshwright.planners.operators.stages.pipedream import MachineLevel, ReplicatedStage, _handed_on_bytes, pipedream

from ....draws import draws
from ....oracles.operators.values import pipedream_s


def stages_value_s(graph, stages, bandwidth_bytes_per_s):
    """Seconds between two minibatches of a pipeline on one level of machines, from the definition."""
    has_op = np.array([stage.has_op for stage in stages])
    assert (has_op.sum(axis=0) == 1).all()
    stage_of = has_op.argmax(axis=0)
    assert (stage_of[graph.edges[:, 0]] <= stage_of[graph.edges[:, 1]]).all()
    value_s = 0.0
    done = np.zeros(graph.num_ops, np.bool_)
    for number, stage in enumerate(stages):
        m, ops = stage.num_replicas, stage.has_op
        time_s = float((graph.forward_s + graph.backward_s)[ops].sum())
        parameters = float(graph.parameter_bytes[ops].sum())
        value_s = max(value_s, (time_s + 4 * (m - 1) * parameters / (bandwidth_bytes_per_s * m)) / m)
        if number:
            value_s = max(value_s, 2 * float(_handed_on_bytes(graph, done[None])[0]) / (bandwidth_bytes_per_s * m))
        done |= ops
        if 0 < number < len(stages) - 1:
            value_s = max(value_s, 2 * float(_handed_on_bytes(graph, done[None])[0]) / (bandwidth_bytes_per_s * m))
    return value_s


def profile(times_s, edges, outputs=0.0, parameters=0.0):
    n = len(times_s)
    zeros = np.zeros(n)
    return JobGraph(
        name="profile",
        op_names=tuple(f"op{op}" for op in range(n)),
        op_kinds=("Op",) * n,
        forward_s=np.asarray(times_s, float),
        backward_s=zeros,
        forward_flops=zeros,
        backward_flops=zeros,
        activation_bytes=np.broadcast_to(np.asarray(outputs, float), (n,)),
        parameter_bytes=np.broadcast_to(np.asarray(parameters, float), (n,)),
        workspace_bytes=zeros,
        edges=np.array(edges, np.int64).reshape(-1, 2),
        source="measured",
    )


def test_two_ops_of_three_seconds_and_one_take_three_machines_and_one():
    # 3 s on three machines and 1 s on one: a minibatch a second, as on four for both; uniform 2 x 2 takes 1.5 s.
    graph = profile([3.0, 1.0], [(0, 1)])
    assert pipedream(graph, [MachineLevel(4, 1e9)]).value_s == 1.0
    stages = [ReplicatedStage(np.array([True, False]), 3), ReplicatedStage(np.array([False, True]), 1)]
    assert stages_value_s(graph, stages, 1e9) == 1.0
    uniform = [ReplicatedStage(stage.has_op, 2) for stage in stages]
    assert stages_value_s(graph, uniform, 1e9) == 1.5


def test_parameters_keep_an_op_from_being_replicated():
    # 3 s and 1 GB at 1 GB/s: on two machines (3 + 4 / 2) / 2 = 2.5 s; with 3 GB 4.5 s, so one machine for each op.
    assert pipedream(profile([3.0], [], parameters=1e9), [MachineLevel(2, 1e9)]).value_s == 2.5
    result = pipedream(profile([3.0, 1.0], [(0, 1)], parameters=3e9), [MachineLevel(2, 1e9)])
    assert result.value_s == 3.0
    assert result.replicas == (1, 1)


def test_a_transfer_counts_both_ways_and_by_the_replicas_of_its_reader():
    # An output of 2 GB at 1 GB/s, there and its gradient back: 4 s, more than both ops on one stage of two machines.
    result = pipedream(profile([3.0, 3.0], [(0, 1)], outputs=2e9), [MachineLevel(2, 1e9)], is_straight=True)
    assert result.value_s == 4.0


@draws(30)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 10**6))
def test_no_pipeline_is_better(num_ops, machines, seed):
    rng = np.random.default_rng(seed)
    share = rng.choice([0.0, 0.5])  # with none the graph is a chain
    edges = [(a, b) for a in range(num_ops) for b in range(a + 1, num_ops) if rng.random() < share or (share == 0 and b == a + 1)]
    graph = profile(rng.integers(1, 9, num_ops), edges, rng.integers(0, 5, num_ops) * 1e8, rng.integers(0, 5, num_ops) * 1e8)
    result, best_s = pipedream(graph, [MachineLevel(machines, 1e9)]), pipedream_s(graph, machines, 1e9)
    assert result.value_s >= best_s * (1 - 1e-12)
    if all(b - a == 1 for a, b in edges) and len(edges) == num_ops - 1:  # a chain hands on no output that nobody needs
        assert result.value_s == pytest.approx(best_s)
    assert stages_value_s(graph, result.stages, 1e9) == pytest.approx(result.value_s)
    assert sum(result.replicas) == machines
    assert pipedream(graph, [MachineLevel(machines, 2e9)]).value_s <= result.value_s * (1 + 1e-12)


@draws(10)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 10**6))
def test_a_level_of_one_machine_changes_nothing(num_ops, machines, seed):
    rng = np.random.default_rng(seed)
    edges = [(a, a + 1) for a in range(num_ops - 1)]
    graph = profile(rng.uniform(1, 2, num_ops), edges, rng.uniform(0, 1e9, num_ops), rng.uniform(0, 1e9, num_ops))
    one = pipedream(graph, [MachineLevel(machines, 1e9)])
    two = pipedream(graph, [MachineLevel(1, 5e9), MachineLevel(machines, 1e9)])
    assert two.value_s == pytest.approx(one.value_s)
    assert sum(two.replicas) == machines


def test_impossible_machines_and_too_many_states_are_refused(monkeypatch):
    graph = profile(np.ones(13), [(0, op) for op in range(1, 13)])
    monkeypatch.setattr(pipedream_module, "MOST_STATES", 1_000)
    with pytest.raises(PolicyError, match="each level has a machine or more"):
        pipedream(graph, [MachineLevel(0, 1e9)])
    with pytest.raises(PlanError, match="the graph has 4,096 antichains, and at most 1,000 are looked at"):
        pipedream(graph, [MachineLevel(2, 1e9)])
    with pytest.raises(PlanError, match="no pipeline has a stage on every machine"):
        pipedream(profile([1.0], []), [MachineLevel(2, 1e9)], is_straight=True)
