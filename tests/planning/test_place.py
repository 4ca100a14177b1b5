"""Laws of `place`: the best of the planners that end in the budget, with figures that follow from the plan itself."""

import re

import pytest

import meshwright
from meshwright.errors import GraphError, PlanError, PolicyError
from meshwright.planners.operators import place as registry
from meshwright.planners.operators.place import PLACEMENT_PLANNERS, PlacementPlanner
from meshwright.planners.operators.request import PlacementRequest
from meshwright.plans import load_plan
from meshwright.simulation.operators.from_job import instance_of_job, placement_of_plan
from meshwright.simulation.operators.placement import placed, value

from ..tree import built

JOB, TOY = "zoo:alexnet", "preset:toy"
ALL_ON = {0: "all-on-first", 1: "all-on-second"}


def constant(column, seconds=0.0):
    """A planner that puts every op on one device."""
    import time

    import numpy as np

    def place(instance, request):
        time.sleep(seconds)
        return placed(instance, np.full(instance.num_ops, column), request.objective, ALL_ON[column])

    return PlacementPlanner(place, ("latency", "throughput"), "one device")


@pytest.fixture
def planners(monkeypatch):
    """``planners(a=..., b=...)``: the only ones there are."""

    def only(**given):
        monkeypatch.setattr(registry, "PLACEMENT_PLANNERS", given)
        monkeypatch.setattr("meshwright.planning.place.PLACEMENT_PLANNERS", given)

    return only


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_the_best_planner_is_taken_and_told(objective, tmp_path):
    result = meshwright.place(JOB, TOY, objective=objective, num_devices=2, budget_s=0.1, in_flight=1, batch_size=8)
    values = {run.planner: run.value_s for run in result.runs if run.value_s is not None}
    taken = [run.planner for run in result.runs if run.is_taken]
    assert values[taken[0]] == min(values.values()) == result.placement.value_s
    assert len(taken) == 1
    assert result.plan.why.startswith(f"{result.placement.planner} was the best of {len(values)} planner")
    able = {name for name, each in PLACEMENT_PLANNERS.items() if objective in each.objectives and not each.is_published}
    assert {run.planner for run in result.runs} == able
    # The figures are those of the plan as it is read back.
    result.plan.save(tmp_path / "plan.json")
    read = load_plan(tmp_path / "plan.json")
    instance, placement = placement_of_plan(read)
    assert read.figure("step_s").value == placement.value_s == result.placement.value_s
    assert read.figure("makespan_s").value == value(instance, placement.device_of, "latency", placement.order)
    taken = read.figure("simulated_step_s").value if placement.objective == "throughput" else placement.value_s
    assert read.figure("samples_per_s").value == pytest.approx(8 / taken, rel=1e-12)
    assert read.figure("memory_bytes").value == max(row["memory_bytes"] for row in result.device_rows())
    assert read.figure("cut_bytes").value == sum(row["sent_bytes"] for row in result.device_rows())
    assert read.figure("lower_bound_s").value <= placement.value_s * (1 + 1e-12)
    assert (read.figure("simulated_step_s") is None) == (objective == "latency")
    assert read.figure("optimality_gap").value == result.placement.optimality_gap
    assert result.timeline().step_s == pytest.approx(read.figure("makespan_s").value, rel=1e-9)
    assert sum(row["num_ops"] for row in result.device_rows()) == result.graph.num_ops


def test_no_planner_starts_when_the_budget_is_over(planners):
    planners(slow=constant(0, seconds=0.05), never=constant(1))
    result = meshwright.place(JOB, TOY, budget_s=0.01, in_flight=1)
    assert [(run.planner, run.value_s is None, run.is_taken) for run in result.runs] == [
        ("slow", False, True),
        ("never", True, False),
    ]
    assert result.runs[1].problem == "not started: the budget was over"
    assert result.runs[1].planning_s is None
    assert result.plan.why.startswith("all-on-first was the best of 1 planner that ended within the budget")


def test_a_planner_that_finds_nothing_is_told_and_the_others_go_on(planners):
    def nothing(instance, request):
        raise PlanError("nothing fits")

    planners(bad=PlacementPlanner(nothing, ("latency",), "none"), good=constant(1))
    result = meshwright.place(JOB, TOY)
    assert [(run.planner, run.problem) for run in result.runs] == [("bad", "nothing fits"), ("good", "")]
    planners(bad=PlacementPlanner(nothing, ("latency",), "none"))
    with pytest.raises(PlanError, match="--policy: no planner found a legal placement; bad: nothing fits"):
        meshwright.place(JOB, TOY)


def test_memory_decides_and_is_told():
    """resnet50 needs more than one toy device of 5 GB has; without training it does not."""
    request = {"job": "zoo:resnet50", "cluster": TOY, "by": "heft", "batch_size": 64}
    trained = meshwright.place(**request, optimizer="adam")
    assert len(trained.plan.ranks) > 1
    assert all(row["memory_bytes"] <= row["capacity_bytes"] for row in trained.device_rows())
    assert meshwright.place(**request, num_devices=4).plan == trained.plan.model_copy(
        update={"partition": trained.plan.partition.model_copy(update={"among": (0, 1, 2, 3)})}
    )


def test_in_flight_follows_the_objective():
    def held(**keywords):
        return meshwright.place(JOB, TOY, by="heft", batch_size=4, **keywords).plan.partition.in_flight

    assert held(objective="latency") == 1
    assert held(objective="throughput") == 4
    assert held(objective="throughput", num_devices=3) == 3
    assert held(objective="throughput", forward_only=True) == 1
    assert held(objective="throughput", in_flight=2) == 2


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ({"by": "hefd"}, PolicyError, "--policy: no such solver, file or shipped policy (got 'hefd'); did you mean 'heft'?"),
        ({"objective": "speed"}, PlanError, "--objective: no such objective (got 'speed'); valid: latency, throughput"),
        ({"objective": "tasklets"}, PlanError, "--objective: meshwright plan --stages puts tasklets"),
        ({"optimizer": "lion"}, PlanError, "--set optimizer: no such optimizer (got 'lion'); valid: adam, sgd"),
        ({"budget_s": 0.0}, PlanError, "--budget-s: must be finite and positive (got '0')"),
        ({"budget_s": float("nan")}, PlanError, "--budget-s: must be finite and positive (got 'nan')"),
        ({"in_flight": 0}, PlanError, "--set in_flight: must be at least 1 (got 0)"),
        ({"num_devices": 5}, PlanError, "--devices: cluster toy has 1 to 4 to use (got 5)"),
        ({"num_devices": 0}, PlanError, "--devices: cluster toy has 1 to 4 to use (got 0)"),
        ({"num_steps": 0}, PlanError, "steps: must be 1 to"),
        ({"job": "zoo:gpt2-xl"}, PlanError, "memory_bytes: no legal placement was found"),
        ({"job": "zoo:vgg16", "in_flight": 1000}, GraphError, "no device can run this op and hold it in memory"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(given, kind, message):
    with pytest.raises(kind) as refused:
        meshwright.place(**{"job": JOB, "cluster": TOY, "by": "heft", **given})
    assert message in str(refused.value)


def test_the_page_names_every_planner():
    page = built("operators.md")
    table = page.split("| planner | rule | objective |")[1].split("\n\n")[0]
    named = {name for line in table.splitlines()[2:] for name in re.findall(r"`([\w-]+)`", line.split("|")[1])}
    assert named == set(PLACEMENT_PLANNERS)


def test_the_same_request_gives_the_same_plan():
    assert PlacementRequest().seed == 0
    one, other = (meshwright.place(JOB, TOY, by="m-etf", batch_size=8) for _ in range(2))
    assert one.plan == other.plan
    assert one.instance.digest == instance_of_job(one.graph, one.cluster).digest
