"""Laws of instances made of a job and a cluster, and of plans that are made of their placements and read back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters.cluster import Cluster, load_cluster
from meshwright.devices import device_type
from meshwright.errors import GraphError, PlanError
from meshwright.jobs.graph import JobGraph
from meshwright.jobs.job import Job
from meshwright.jobs.load import load_graph
from meshwright.plans import PlacementPlan, load_plan, op_placement_plan
from meshwright.simulation.operators.from_job import instance_of_job, placement_of_plan, scaled_s, times_s
from meshwright.simulation.operators.lowering import run_plan
from meshwright.simulation.operators.placement import placed, value

from ...draws import draws
from ...plans.test_op_placement import TOY, fork
from ...samples.sample_graphs import profile

MIXED = load_cluster("preset:mixed-256")
SOME = [0, 1, 8, 128, 129, 255]
"""Devices of two types: the first three are H100, the others A100, on four hosts."""


def random_job(seed, num_ops=9):
    rng = np.random.default_rng(seed)
    edges = [[a, b] for a in range(num_ops) for b in range(a + 1, num_ops) if rng.random() < 0.3]
    figures = rng.uniform(0.0, 1.0, (7, num_ops))
    return profile(
        "random",
        1e-3 * figures[0],
        2e-3 * figures[1],
        edges,
        op_kinds=("op",) * num_ops,
        activation_bytes=np.round(1e8 * figures[4]) * (figures[4] > 0.2),
        parameter_bytes=np.round(1e8 * figures[5]),
        workspace_bytes=np.round(1e8 * figures[6]),
        reference_device="a100",
        samples_per_step=4,
    )


def test_the_fork_worked_by_hand():
    # a, b, d on one device, c on another, 1 GB at 1 GB/s: a ends 1, c starts 2 and ends 5, its output is there at 6, d ends 7.
    instance = instance_of_job(fork(), Cluster.from_data(TOY), optimizer=None)
    assert value(instance, np.array([0, 0, 1, 0]), "latency") == 7
    # One device: 1 + 3 + 3 + 1.
    assert value(instance, np.zeros(4, np.int64), "latency") == 8
    # Loads: 1 + 3 + 1 of the ops, a out, c in; and 3, a in, c out.
    assert value(instance, np.array([0, 0, 1, 0]), "throughput") == 7


def test_training_worked_by_hand():
    """A chain of two ops, 1 s forward and 2 s backward each. The first op's output is 1 GB, and so is its gradient."""
    zeros = [0.0, 0.0]
    graph = JobGraph("chain", ("a", "b"), ("op",) * 2, [1, 1], [2, 2], zeros, zeros, [1e9, 5e9], [1e8, 2e8], zeros, [[0, 1]])
    instance = instance_of_job(graph, Cluster.from_data(TOY), optimizer="adam")
    assert instance.op_names == ("a", "b", "a backward", "b backward")
    assert instance.group.tolist() == [0, 1, 0, 1]
    # 1 + 1 (transfer) + 1 + 2 + 1 (gradient) + 2; the output of b is read by nobody.
    assert value(instance, np.array([0, 1, 0, 1]), "latency") == 8
    assert instance.resident_bytes.tolist() == [4e8 + 1e9, 8e8 + 5e9, 0, 0]
    # What is forward goes once, what is backward once: 3 s of ops and two tensors of 1 s on both sides.
    assert value(instance, np.array([0, 1, 0, 1]), "throughput") == 5


def test_a_producer_gets_a_gradient_from_each_reader():
    instance = instance_of_job(fork(), Cluster.from_data(TOY), optimizer="sgd")
    n = 4
    from_readers = [instance.edge_tensor[i] for i, (a, b) in enumerate(instance.edges.tolist()) if b == n]
    assert len(from_readers) == len(set(from_readers)) == 3  # its own forward op without bytes, b and c with one each
    assert sorted(instance.tensor_bytes[from_readers].tolist()) == [0, 1e9, 1e9]
    outputs = {int(instance.edge_tensor[i]) for i, (a, b) in enumerate(instance.edges.tolist()) if a == 0 and b < n}
    assert len(outputs) == 1  # forward one tensor for both


def test_measured_times_stay_on_their_type_and_an_analytic_graph_is_timed_on_each():
    measured = random_job(3)
    forward_s, backward_s = times_s(measured, MIXED, np.array(SOME))
    for column, kind in enumerate(["h100", "h100", "h100", "a100", "a100", "a100"]):
        if kind == "a100":
            assert (forward_s[:, column] == measured.forward_s).all()
            assert (backward_s[:, column] == measured.backward_s).all()
        else:
            assert (forward_s[:, column] <= measured.forward_s).all()
    graph = load_graph("zoo:alexnet")
    forward_s, _ = times_s(graph, MIXED, np.array(SOME))
    for column, kind in ((0, "h100"), (4, "a100")):
        assert (forward_s[:, column] == graph.timed_on(device_type(kind)).forward_s).all()


def test_a_measured_op_is_scaled_by_what_bounds_it():
    # On the reference 1 s: more than its bytes need, so arithmetic, and twice the peak halves it; 0.1 s is what the bytes need.
    zeros = [0.0, 0.0]
    graph = JobGraph("two", ("a", "b"), ("op",) * 2, [1.0, 0.1], [1.0, 0.1], zeros, zeros, [1e8, 1e8], zeros, zeros, [])
    one = Cluster.from_data(TOY).device_types[0]
    two = Cluster.from_data({**TOY, "device": {**TOY["device"], "name": "double", "peak_tflops_per_s": 2.0}}).device_types[0]
    assert scaled_s(graph, one, two)[0].tolist() == [0.5, 0.1]
    assert scaled_s(graph, two, one)[0].tolist() == pytest.approx([2.0, 0.2])


def test_an_unknown_reference_device_is_refused():
    graph = JobGraph.from_data({**random_job(1).to_data(), "reference_device": "a10000"})
    with pytest.raises(GraphError, match="reference_device: the times hold on a device type that is neither the cluster's nor"):
        instance_of_job(graph, MIXED, among=SOME)


@pytest.mark.parametrize(("among", "message"), [([0, 0], "once"), ([], "once"), ([256], r"devices 0\.\.255 \(got 256\)")])
def test_devices_that_are_not_there_or_twice_are_refused(among, message):
    with pytest.raises(PlanError, match=message):
        instance_of_job(random_job(1), MIXED, among=among)


def test_an_op_that_fits_no_device_is_named():
    with pytest.raises(
        GraphError, match=r"no device can run this op and hold it in memory, with those that share its device \(got 'a'\)"
    ):
        instance_of_job(fork(4e9), Cluster.from_data(TOY), optimizer="adam")


cases = st.tuples(st.integers(0, 10_000), st.sampled_from([None, "sgd", "adam"]), st.sampled_from(["latency", "throughput"]))


@draws(25)
@given(case=cases)
def test_a_plan_read_from_json_has_the_same_value_to_the_last_bit_and_its_simulated_step(case, tmp_path_factory):
    seed, optimizer, objective = case
    graph, rng = random_job(seed), np.random.default_rng(seed)
    instance = instance_of_job(graph, MIXED, optimizer=optimizer, among=SOME)
    choice = rng.integers(0, len(SOME), graph.num_ops)
    result = placed(instance, np.concatenate([choice, choice]) if optimizer else choice, objective, "drawn")
    plan = op_placement_plan(
        Job(graph, 1), MIXED, np.array(SOME)[choice], result.order, objective, optimizer=optimizer, among=SOME
    )
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    plan.save(path)
    read = load_plan(path)
    again, placement = placement_of_plan(read)
    assert placement.value_s == result.value_s
    assert again.digest == instance.digest
    step = run_plan(read)
    assert step.step_s == pytest.approx(value(instance, result.device_of, "latency", result.order), rel=1e-9)
    for contention in ("serialised", "fair"):  # a message in another's way makes nothing earlier; paths of equal cost are shared
        assert run_plan(read, contention=contention).step_s >= step.step_s * (1 - 1e-9)
    # What crosses goes once to each other device that reads it; every transfer has its flow.
    sent = step.execution.payload_bytes.sum()
    assert step.execution.messages.flow_bytes.sum() == pytest.approx(sent)
    memory = step.memory(graph).peak_bytes
    held = np.array([instance.resident_bytes[result.device_of == SOME.index(rank.device)].sum() for rank in read.ranks])
    workspace = [instance.workspace_bytes[result.device_of == SOME.index(rank.device)].max() for rank in read.ranks]
    assert (memory <= (held + workspace) * (1 + 1e-12)).all()


def test_other_plans_and_replicas_are_refused():
    with pytest.raises(PlanError, match="partition: does not put ops on devices"):
        placement_of_plan(
            PlacementPlan.model_validate(
                {"job": {"name": "x"}, "ranks": [{"rank": 0, "host": "a", "local_rank": 0, "device": 0}]}
            )
        )
    plan = op_placement_plan(Job(fork(), 1), Cluster.from_data(TOY), np.array([0, 0, 1, 1]), np.arange(4), "latency")
    groups = (plan.partition.groups[0].model_copy(update={"replicas": 2}), plan.partition.groups[1])
    doubled = plan.model_copy(update={"partition": plan.partition.model_copy(update={"groups": groups})})
    with pytest.raises(PlanError, match=r"partition.groups.0.replicas: replicas take turns"):
        placement_of_plan(doubled)
    apart = plan.model_copy(update={"partition": plan.partition.model_copy(update={"among": (0, 2)})})
    with pytest.raises(PlanError, match=r"partition\.among: has an op and is not among"):
        placement_of_plan(apart)
