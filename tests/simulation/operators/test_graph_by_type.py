"""`place` of saved graphs of format_version 2: given times hold on their types, labelled ops share a device, or it is refused."""

import dataclasses
import json

import numpy as np
import pytest

import meshwright
from meshwright.clusters.cluster import Cluster
from meshwright.errors import GraphError, PlanError
from meshwright.jobs.job import Job
from meshwright.planners.operators.place import PLACEMENT_PLANNERS
from meshwright.plans import load_plan, op_placement_plan
from meshwright.simulation.operators.from_job import instance_of_job, placement_of_plan

from ...plans.test_op_placement import TOY, fork

SLOW = TOY["device"] | {"name": "slow", "memory_bandwidth_gbytes_per_s": 1000.0}
FAST = SLOW | {"name": "fast", "peak_tflops_per_s": 4.0}
PAIR = {
    "name": "pair",
    "device": SLOW,
    "device_overrides": {"quick": FAST},
    "host_names": ["plain", "quick"],
    "topology": {"kind": "matrix", "bandwidth_gbytes_per_s": [[1.0, 1.0]] * 2, "latency_us": [[0.0, 0.0]] * 2},
}
"""A slow device and a fast one, 1 GB/s between them, no latency, 10 GB each."""

WHOLE = [1.0, 3.0, 3.0, 1.0]
HALVED = [0.5, 1.5, 1.5, 0.5]
NONE = [0.0] * 4


def forked(fast=HALVED, **changes):
    """The fork, measured on the slow type, with its times on the fast one."""
    times = {"slow": (WHOLE, NONE), "fast": (fast, NONE), "unknown-type": (HALVED, NONE)}
    return dataclasses.replace(fork(), reference_device="slow", times_s=times, **changes)


def run(graph, tmp_path, by="exhaustive", cluster=PAIR, **keywords):
    graph.save(tmp_path / "job.json")
    (tmp_path / "pair.yaml").write_text(json.dumps(cluster))
    keywords = {"forward_only": True, "budget_s": 0.5, **keywords}
    return meshwright.place(str(tmp_path / "job.json"), str(tmp_path / "pair.yaml"), by=by, **keywords)


def where(found):
    return [found.instance.device_types[at] for at in found.placement.device_of[:4]]


def test_unequal_devices_worked_by_hand(tmp_path):
    # Twice as fast: all on the fast device 0.5 + 1.5 + 1.5 + 0.5, which no split beats at 1 GB/s.
    result = run(forked(), tmp_path)
    assert (result.placement.value_s, where(result)) == (4.0, ["fast"] * 4)
    assert any("the times on slow, fast are those that fork gives" in remark for remark in result.remarks)
    # The fast type cannot run c: a on slow ends 1, c 4, b runs on fast 2-3.5 and its output is back 4.5, d on slow ends 5.5.
    # On fast a would end 0.5, but c then 4.5, and d 5.5 on slow as well. One device, the slow one: 8.
    split = run(forked([0.5, 1.5, np.inf, 0.5]), tmp_path)
    assert split.placement.value_s == 5.5
    assert where(split)[1:3] == ["fast", "slow"]
    assert split.placement.is_optimal
    split.plan.save(tmp_path / "plan.json")
    instance, again = placement_of_plan(load_plan(tmp_path / "plan.json"))
    assert instance.digest == split.instance.digest
    assert again.value_s == 5.5


def test_a_type_without_times_goes_by_the_ratio(tmp_path):
    # Four times the peak, and nothing is bound by bytes: a quarter of the seconds on slow, given in times_s or not.
    alone = dataclasses.replace(forked(), times_s={"slow": (WHOLE, NONE)})
    plain = dataclasses.replace(alone, times_s={})
    both = [instance_of_job(graph, Cluster.from_data(PAIR), optimizer=None).times_s for graph in (alone, plain)]
    assert (both[0] == both[1]).all()
    assert both[0][:, 1] == pytest.approx([0.25, 0.75, 0.75, 0.25])
    result = run(alone, tmp_path)
    assert result.placement.value_s == pytest.approx(2.0)
    (remark,) = [remark for remark in result.remarks if "those that fork gives" in remark]
    assert remark.startswith(
        "the times on slow are those that fork gives; the times of fork were measured on slow, and brought to fast"
    )
    other = dataclasses.replace(alone, times_s={"a9000": (WHOLE, NONE)})
    assert any(
        "fork gives times for a9000; this cluster has none of these types" in message for message in run(other, tmp_path).remarks
    )


def test_backward_times_go_with_backward_ops():
    times = {"fast": (HALVED, [4.0, 5.0, 6.0, 7.0])}
    instance = instance_of_job(dataclasses.replace(forked(), times_s=times), Cluster.from_data(PAIR), optimizer="sgd")
    assert instance.times_s[:, 1].tolist() == [*HALVED, 4.0, 5.0, 6.0, 7.0]


ABLE = [(name, objective) for name, each in PLACEMENT_PLANNERS.items() if not each.is_published for objective in each.objectives]


@pytest.mark.parametrize(("name", "objective"), [*ABLE, ("best", "latency"), ("best", "throughput")])
def test_every_planner_keeps_labelled_ops_together(name, objective, tmp_path):
    labels = ({"x"}, set(), {"x", "y"}, {"y"})  # a with c, c with d; b is free
    result = run(forked(colocate=labels), tmp_path, name, objective=objective, forward_only=False, budget_s=0.1)
    device = result.placement.device_of
    assert device[0] == device[2] == device[3]
    assert (device[:4] == device[4:]).all()
    result.plan.save(tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json").partition == result.plan.partition


def test_a_plan_that_parts_them_is_refused(tmp_path):
    graph = forked(colocate=({"x"}, set(), {"x"}, set()))
    op_placement_plan(Job(graph, 1), Cluster.from_data(PAIR), np.array([0, 1, 0, 1]), np.arange(4), "latency").save(
        tmp_path / "plan.json"
    )
    data = json.loads((tmp_path / "plan.json").read_text())
    data["partition"]["device_of"] = [0, 0, 1, 1]
    data["partition"]["groups"] = [{"ops": [0, 1], "ranks": [0]}, {"ops": [2, 3], "ranks": [1]}]
    (tmp_path / "plan.json").write_text(json.dumps(data))
    with pytest.raises(PlanError, match=r"device_of\.c: the job has this op on one device with a \(colocate\) \(got 1\)"):
        load_plan(tmp_path / "plan.json")


def test_labels_that_cannot_be_held_together_are_refused_with_both_ops(tmp_path):
    # b runs on slow alone, c on fast alone.
    times = {"slow": ([1.0, 3.0, np.inf, 1.0], NONE), "fast": ([0.5, np.inf, 1.5, 0.5], NONE)}
    labels = (set(), {"x"}, {"x", "y"}, {"y"})
    apart = dataclasses.replace(forked(colocate=labels), times_s=times)
    with pytest.raises(GraphError, match="times_s: no device can run both b and c, and they go on one device"):
        run(apart, tmp_path)
    # b and c need 6 GB each; a device has 10.
    heavy = forked(colocate=labels, parameter_bytes=[0.0, 5e9, 5e9, 0.0])
    with pytest.raises(GraphError, match="memory_bytes: no device can hold both b and c, and they go on one device"):
        run(heavy, tmp_path)
    # Any two of 3 GB + 1 GB fit, three do not.
    many = forked(colocate=({"x"},) * 4, parameter_bytes=[3e9] * 4)
    with pytest.raises(GraphError, match="no device can hold both a and c, with others of theirs, and they go on one device"):
        run(many, tmp_path)


def test_other_commands_say_what_they_leave_out(tmp_path):
    forked(colocate=({"x"}, set(), {"x"}, set())).save(tmp_path / "job.json")
    (tmp_path / "pair.yaml").write_text(json.dumps({**TOY, "device": SLOW}))
    message = "left out: times_s of fast, slow, unknown-type and colocate of the file, which `meshwright plan --ops` alone reads"
    result = meshwright.plan(str(tmp_path / "job.json"), str(tmp_path / "pair.yaml"))
    assert message in result.plan.why
