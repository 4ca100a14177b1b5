"""Laws of plans that put ops on devices: legal or refused with the op, the rank or the device, and read back as they were."""

import json

import numpy as np
import pytest

from meshwright.clusters.cluster import Cluster
from meshwright.errors import PlanError
from meshwright.jobs.job import Job
from meshwright.plans import load_plan, op_placement_plan
from meshwright.plans.op_placement import pipeline_order

from ..samples.sample_graphs import profile

TOY = {
    "name": "pair",
    "device": {
        "name": "toy",
        "peak_tflops_per_s": 1.0,
        "memory_gib": 10e9 / 2**30,
        "memory_bandwidth_gbytes_per_s": 1.0,
        "compute_efficiency": 1.0,
        "memory_efficiency": 1.0,
        "kernel_launch_us": 0.0,
    },
    "topology": {"kind": "single-host", "num_devices": 3, "fabric": "switch", "bandwidth_gbytes_per_s": 1.0, "latency_us": 0.0},
}


def fork(parameters=0.0):
    """a feeds b and c, both feed d; a and d take 1 s, b and c 3 s, forward alone; outputs of 1 GB."""
    sizes = {"activation_bytes": [1e9] * 4, "parameter_bytes": [parameters] * 4}
    named = {"op_names": ("a", "b", "c", "d"), "op_kinds": ("op",) * 4, "samples_per_step": 8}
    return profile("fork", [1.0, 3.0, 3.0, 1.0], [0.0] * 4, [[0, 1], [0, 2], [1, 3], [2, 3]], **named, **sizes)


def made(device_of, order=(0, 1, 2, 3), graph=None, **keywords):
    keywords = {"objective": "latency", **keywords}
    return op_placement_plan(Job(graph or fork(), 10), Cluster.from_data(TOY), np.array(device_of), np.array(order), **keywords)


def spoiled(tmp_path, change, device_of=(0, 0, 2, 2), **keywords):
    """The refusal of a plan that is changed as data."""
    data = made(device_of, **keywords).model_dump(mode="json", exclude_none=True)
    change(data["partition"], data)
    (tmp_path / "plan.json").write_text(json.dumps(data))
    with pytest.raises(PlanError) as refused:
        load_plan(tmp_path / "plan.json")
    return str(refused.value).removeprefix(f"{tmp_path / 'plan.json'}: ")


def test_a_pipeline_has_its_groups_as_stages_in_its_order(tmp_path):
    plan = made([2, 2, 0, 0])
    assert plan.partition.pipeline
    assert [rank.device for rank in plan.ranks] == [2, 0]
    assert [stage.ops for stage in plan.stages] == [("a", "b"), ("c", "d")]
    plan.save(tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == plan


def test_devices_that_wait_for_each_other_are_no_pipeline(tmp_path):
    plan = made([0, 0, 2, 0])
    assert not plan.partition.pipeline
    assert plan.stages == ()
    assert [rank.device for rank in plan.ranks] == [0, 2]
    reported = spoiled(tmp_path, lambda part, _: part.update(pipeline=True), device_of=(0, 0, 2, 0))
    assert reported == ("partition.groups.0: gets something from group 1, a later stage of the pipeline, with op c (got 'd')")


def test_an_order_of_devices_puts_none_before_one_that_feeds_it():
    assert pipeline_order(fork(), np.array([1, 2, 0, 3])) == [1, 2, 0, 3]
    assert pipeline_order(fork(), np.array([5, 5, 5, 5])) == [5]
    assert pipeline_order(fork(), np.array([0, 1, 1, 0])) is None


def test_memory_is_state_outputs_in_flight_and_the_largest_workspace():
    # Two ops of 0.5 GB of parameters: forward alone 2 * (0.5 + 1) = 3 GB; adam, two in flight: 2 * (4 * 0.5 + 2 * 1) = 8 GB.
    graph = fork(0.5e9)
    assert made([0, 0, 2, 2], graph=graph).partition.optimizer is None
    trained = {"graph": graph, "optimizer": "adam", "order": (0, 1, 2, 3, 7, 6, 5, 4)}
    assert made([0, 0, 2, 2], in_flight=2, **trained).partition.in_flight == 2
    # Three in flight: 2 * (2 + 3) = 10 GB just fit; a fourth does not.
    made([0, 0, 2, 2], in_flight=3, **trained)
    with pytest.raises(PlanError, match=r"rank 0: needs 12.000 GB, device host-0/0 has 10.000 GB"):
        made([0, 0, 2, 2], in_flight=4, **trained)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda part, _: part["groups"][0].update(ops=[0]), "partition.groups: no group holds this op (got 'b')"),
        (
            lambda part, _: part["groups"][0].update(ops=[0, 1, 2]),
            "partition.device_of.c: rank 0 runs the op, and has device 0 (got 2)",
        ),
        (
            lambda part, _: part["groups"][0].update(ops=[0, 1, 1]),
            "partition.groups.0.ops: this op is in partition.groups.0 already",
        ),
        (lambda part, _: part["groups"][0].update(ops=[0, 9]), "partition.groups.0.ops: ops count from 0 to 3 (got 9)"),
        (
            lambda part, _: part["groups"][0].update(ranks=[7]),
            "partition.groups.0.ranks: there is no rank 7; ranks count from 0 to 1",
        ),
        (
            lambda part, _: part["groups"][0].update(ranks=[0, 1]),
            "partition.groups.0.replicas: 2 ranks are as many replicas (got 1)",
        ),
        (
            lambda part, _: part["groups"][1].update(ranks=[0]),
            "partition.groups.1.ranks: rank 0 is in partition.groups.0 already",
        ),
        (lambda part, _: part["device_of"].pop(), "partition.device_of: names a device for each of 4 ops (got 3)"),
        (
            lambda part, _: part["device_of"].__setitem__(0, 2),
            "partition.device_of.a: rank 0 runs the op, and has device 0 (got 2)",
        ),
        (lambda part, _: part.update(order=[0, 1, 2]), "partition.order: names each of 4 tasks once: 4 ops forward (got 3)"),
        (lambda part, _: part.update(order=[0, 3, 1, 2]), "partition.order: a task comes before one that it waits for (got 'd')"),
        (
            lambda part, _: part.update(optimizer="sgd"),
            "partition.order: names each of 8 tasks once: 4 ops forward, then backward",
        ),
        (lambda part, _: part.update(optimizer="lion"), "partition.optimizer: not a valid choice (got 'lion'); valid: adam, sgd"),
        (lambda part, _: part.update(among=[0, 2, 5]), "partition.among.2: cluster pair has devices 0..2 (got 5)"),
        (lambda part, _: part.update(in_flight=11), "rank 0: needs 22.000 GB, device host-0/0 has 10.000 GB"),
        (lambda _, data: data["stages"][0].update(ops=["a", "c"]), "stages.0: is not partition.groups.0"),
        (lambda _, data: data["stages"].pop(), "stages: 2 groups are as many stages (got 1)"),
        (lambda _, data: data["stages"].reverse(), "stages.0: is not partition.groups.0"),
        (
            lambda _, data: data["ranks"][0].update(coordinates=dict.fromkeys(("pp", "dp", "cp", "ep", "tp"), 0)),
            "rank 0: ranks of ops on devices have no coordinates",
        ),
    ],
)
def test_a_plan_that_contradicts_itself_is_refused_in_one_line(tmp_path, change, message):
    assert message.lower() in spoiled(tmp_path, change).lower()


def test_a_rank_without_ops_is_refused(tmp_path):
    def idle(part, data):
        data["ranks"].append({"rank": 2, "host": "host-0", "local_rank": 1, "device": 1})

    assert spoiled(tmp_path, idle) == "rank 2: no group names this rank, so it would run nothing"


def test_without_job_and_cluster_the_groups_are_still_held_against_the_ranks(tmp_path):
    def alone(part, data):
        del data["job"]["graph"], data["cluster"]
        part["groups"][0]["ops"] = [0]

    assert spoiled(tmp_path, alone) == "partition.groups: no group holds this op (got '1')"
