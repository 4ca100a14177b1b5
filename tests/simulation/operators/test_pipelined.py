"""Laws of full pipelines of placed ops: one worked by hand, and bounds that no schedule of micro-batches passes."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from meshwright.clusters.cluster import Cluster
from meshwright.errors import PlanError
from meshwright.jobs.job import Job
from meshwright.plans import op_placement_plan
from meshwright.simulation.operators import forms
from meshwright.simulation.operators.forms import followed, full_pipeline_s
from meshwright.simulation.operators.from_job import instance_of_job
from meshwright.simulation.operators.lowering import run_plan
from meshwright.simulation.step import kernel

from ...draws import draws
from ...plans.test_op_placement import TOY
from ...samples.sample_graphs import profile
from .test_from_job import MIXED, SOME, random_job


def chain_plan(device_of, **keywords):
    """Four ops of 1 s forward in a chain, outputs of 1 GB, links of 1 GB/s."""
    graph = profile("chain", [1.0] * 4, [0.0] * 4, activation_bytes=[1e9] * 4)
    return op_placement_plan(Job(graph, 1), Cluster.from_data(TOY), np.array(device_of), np.arange(4), "throughput", **keywords)


def test_a_chain_worked_by_hand():
    assert full_pipeline_s(chain_plan([0, 0, 0, 0])) == pytest.approx(4.0)
    # Cut in the middle one takes 2 + 1 + 2 s. Two under way: one every 2.5 s; four: every 2 s, for messages go beside computing.
    assert full_pipeline_s(chain_plan([0, 0, 1, 1])) == pytest.approx(2.5)
    assert full_pipeline_s(chain_plan([0, 0, 1, 1], in_flight=2)) == pytest.approx(2.0)


@draws(15)
@given(seed=st.integers(0, 10_000), optimizer=st.sampled_from([None, "sgd"]), in_flight=st.integers(1, 4))
@example(seed=292, optimizer="sgd", in_flight=2)  # a window that is no whole number of periods
def test_no_device_is_overworked_and_one_at_a_time_takes_the_makespan(seed, optimizer, in_flight):
    graph, rng = random_job(seed), np.random.default_rng(seed)
    instance = instance_of_job(graph, MIXED, optimizer=optimizer, among=SOME)
    choice = rng.integers(0, len(SOME), graph.num_ops)
    columns = np.concatenate([choice, choice]) if optimizer else choice
    plan = op_placement_plan(
        Job(graph, 1),
        MIXED,
        np.array(SOME)[choice],
        instance.topological,
        "throughput",
        optimizer=optimizer,
        in_flight=in_flight,
        among=SOME,
    )
    busy = np.zeros(len(SOME))
    np.add.at(busy, columns, instance.times_s[np.arange(instance.num_ops), columns])
    makespan_s = run_plan(plan, contention="serialised").step_s
    step_s = full_pipeline_s(plan)
    assert step_s >= busy.max() * (1 - 1e-9)
    if optimizer and in_flight == 1:
        assert step_s == pytest.approx(makespan_s)
    once = run_plan(plan).execution
    one_by_one = kernel.schedule(followed(once, 3, 1))[1].max()
    assert one_by_one == pytest.approx(3 * kernel.schedule(once)[1].max())


def test_too_many_tasks_are_refused(monkeypatch):
    monkeypatch.setattr(forms, "MOST_TASKS", 10)
    with pytest.raises(PlanError, match=r"partition: 20 micro-batches of 5 tasks are more than 10 tasks \(got 100\)"):
        full_pipeline_s(chain_plan([0, 0, 1, 1]))
