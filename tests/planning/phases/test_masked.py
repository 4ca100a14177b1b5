"""Masked jobs: neutral masks on both paths, phases in turn, and plans of both phases that are chosen together."""

import json

import numpy as np
import pytest

from meshwright.costs.settings import CostSettings
from meshwright.costs.training.masked import core_work
from meshwright.costs.training.replicas import Replicas
from meshwright.errors import ExportError, PlanError
from meshwright.export.training import STRATEGY
from meshwright.export.writer import export
from meshwright.jobs.masked import Core
from meshwright.planning.estimate import estimate
from meshwright.planning.phases.joint import JointSearch, joint_plan
from meshwright.planning.search import search_layouts
from meshwright.planning.training import price_training
from meshwright.plans.making import load_plan
from meshwright.plans.training import Masked, Synchronous, parse_training
from meshwright.simulation.training.phases import run_cycles
from meshwright.simulation.training.strategy_step import simulated_training_s

COSTS = CostSettings(contention="independent", overlap_slowdown=1.0, collectives="ring")
CASES = [
    ("zoo:resnet50", "dp=4,pp=4,micro_batch=16,global_batch=256"),
    ("zoo:gpt2-small", "dp=4,tp=2,pp=2,micro_batch=2,global_batch=32,zero=1"),
]
DECLARED = "multiplier=1,multiplier_source=a test"


@pytest.fixture(scope="module", params=CASES, ids=[job for job, _ in CASES])
def found(request):
    job, layout = request.param
    return estimate(job, "preset:dgx-a100-8x8", layout, costs=COSTS)


def test_a_mask_of_ones_is_the_job_on_both_paths(found):
    exact_s = price_training(found.maker, found.work, Synchronous()).step_s
    event_s = simulated_training_s(found.maker, found.work, Synchronous())
    for training in parse_training("kind=masked,core=width:1|rank:1000000,core_steps=2,full_steps=1"):
        assert price_training(found.maker, found.work, training).step_s == pytest.approx(exact_s, rel=1e-9)
        assert simulated_training_s(found.maker, found.work, training) == pytest.approx(event_s, rel=1e-9)


def test_both_paths_agree_on_a_narrow_core(found):
    for training in parse_training("kind=masked,core=width:0.5|rank:16,core_steps=5,full_steps=1"):
        closed_s = price_training(found.maker, found.work, training).step_s
        assert simulated_training_s(found.maker, found.work, training) == pytest.approx(closed_s, rel=0.03)


def test_phases_alternate_and_each_sums_its_own_bytes(found):
    training = Masked(core=Core(width=0.5), core_steps=2, full_steps=1)
    maker, layout = found.maker, found.layout
    narrow = core_work(found.work, training.core, 0.0)
    steps = [maker.simulated(work) for work in (found.work, narrow)]
    run = run_cycles(*steps, training, maker.cluster, maker.devices(layout.world), COSTS)
    ends = np.diff(run.timeline.finish_s[run.lowered.optimizers].max(axis=1))
    core_s, full_s = ends[3], ends[4]
    assert core_s < full_s
    assert ends[[0, 2, 3]] == pytest.approx(core_s, rel=0.01)  # steps of one kind; stages change phase one by one
    # what a rank of the first stage sums in each step, told by the names of the messages
    execution, names = run.lowered.execution, run.lowered.op_names
    operations = [run.lowered.operations[int(op)] for op in execution.op]
    summed = [i for i, name in enumerate(names) if name.startswith("gradients")]
    of_rank = np.isin(execution.op, summed) & (execution.rank == 0) & np.array([operation != "" for operation in operations])
    in_order = np.flatnonzero(of_rank)[np.argsort(run.timeline.start_s[of_rank])]
    payload = execution.payload_bytes[in_order].reshape(6, -1).sum(axis=1)
    core_bytes, full_bytes = (sum(m.payload_bytes for m in step.sync(0) if m.axis != "ends") for step in steps[::-1])
    assert payload.tolist() == [core_bytes, core_bytes, full_bytes] * 2


def test_bytes_of_a_cycle_are_those_of_its_steps(found):
    training = Masked(core=Core(width=0.5), core_steps=9, full_steps=1)
    narrow = core_work(found.work, training.core, 0.0)
    whole, core = (Replicas(work, found.maker.pricer).gradient_bytes for work in (found.work, narrow))
    assert price_training(found.maker, found.work, training).sent_bytes * 10 == pytest.approx(9 * core + whole, rel=1e-12)


@pytest.fixture(scope="module")
def searched():
    """Only a pipeline fits the whole of a model of 1.5 billion weights, and copies of its core do."""
    training = f"kind=masked,core=width:0.2,core_steps=900,full_steps=100,{DECLARED}"
    keep = "tp=1,cp=1,zero=0|2|3,recompute=none,schedule=1f1b"
    return search_layouts(
        "zoo:gpt2-xl", "preset:clos-64-25g", batch=64, devices="16", training=training, keep=keep, arrange="none"
    )


def test_phases_of_their_own_plans_pay_for_what_goes_between_them(searched):
    (row,) = searched.strategies.rows
    core, full = row.joint.core, row.joint.full
    assert core.ranked.layout.pp < full.ranked.layout.pp
    assert row.price.resharding_s > 0
    steps_s = 900 * row.price.phases[0].step_s + 100 * row.price.phases[1].step_s
    assert row.price.step_s == pytest.approx((steps_s + 2 * row.price.resharding_s) / 1000)
    assert row.price.step_s < row.joint.single_s


def test_plans_of_both_phases_are_in_the_plan_and_in_exports(searched, tmp_path):
    plan = searched.plan
    assert [phase.name for phase in plan.phases] == ["core", "full"]
    assert plan.phases[1].ranks == plan.ranks
    plan.save(tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json").phases == plan.phases
    data = json.loads(export(plan, "torchrun")[STRATEGY])
    assert "the script does it" in data["not_guaranteed"][0]
    assert [len(phase["ranks"]) for phase in data["phases"]] == [16, 16]
    for target in ("megatron", "deepspeed"):
        with pytest.raises(ExportError, match="nearest plan"):
            export(plan, target)


def test_phases_of_other_steps_devices_or_strategies_are_refused(searched, tmp_path):
    data = searched.plan.model_dump(mode="json", exclude_none=True)
    for change, field in (
        (lambda one: one["phases"][0].update(steps=3), "phases.0.steps"),
        (lambda one: one["phases"].reverse(), "phases"),
        (lambda one: one.pop("training"), "phases"),
        (lambda one: one["phases"][1]["ranks"].pop(), "phases.1.rank 15"),
    ):
        spoiled = json.loads(json.dumps(data))
        change(spoiled)
        (tmp_path / "plan.json").write_text(json.dumps(spoiled))
        with pytest.raises(PlanError) as error:
            load_plan(tmp_path / "plan.json")
        assert error.value.field == field


def test_traces_hold_a_step_of_each_phase():
    training = f"kind=masked,core=width:0.5,core_steps=9,full_steps=1,{DECLARED}"
    keep = "zero=0,pp=1,tp=1,cp=1"
    plan = search_layouts("zoo:gpt2-small", "preset:host-8", batch=8, keep=keep, devices="2", training=training).plan
    files = export(plan, "chakra")
    assert {name.split(".")[0] for name in files} == {"core", "full", "export"}
    assert len(files["core.trace.0.et"]) > 0
    assert files["core.trace.0.et"] != files["full.trace.0.et"]


@pytest.mark.parametrize(
    ("job", "core", "keep"),
    [
        ("zoo:alexnet", "width:0.25", "schedule=1f1b,virtual_stages=1,recompute=none,dp=1|2|4"),
        pytest.param("zoo:gpt2-small", "rank:32", "cp=1,recompute=none,schedule=1f1b,zero=0|2", marks=pytest.mark.slow),
    ],
)
def test_phases_planned_together_are_never_worse_than_one_plan_for_both(job, core, keep):
    result = search_layouts(job, "preset:clos-64-25g", arrange="none", batch=64, devices="8", keep=keep)
    search = JointSearch(result.maker, result.request, result.device_counts)
    for training in parse_training(f"kind=masked,core={core},core_steps=1|500,full_steps=1|500"):
        made = joint_plan(search, training)
        assert made.price.step_s <= made.single_s * (1 + 1e-12)
