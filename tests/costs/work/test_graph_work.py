"""Pipelines of any job graph: the ops of each stage, and step times worked by hand."""

import pytest

from meshwright.costs.settings import CostSettings
from meshwright.costs.training_step.graph_step_time import GraphPricer
from meshwright.costs.work.graph_work import describe_graph
from meshwright.devices import device_type
from meshwright.errors import PlanError
from meshwright.jobs import load_graph
from meshwright.plans.document import Stage
from meshwright.plans.partition import Layout

from ..graphs import CHAIN, Line

A100 = device_type("a100")


def test_a_micro_batch_is_a_share_of_every_op_and_what_is_wanted_later_is_passed_on():
    # one of four samples: 1 s forward, 2 s backward for each op; 2, 1, 0.5 and 0.25 bytes
    work = describe_graph(CHAIN, Layout(pp=4, micro_batch=1, global_batch=4), A100)
    assert work.forward_s.tolist() == [1.0] * 4
    assert work.backward_s.tolist() == [2.0] * 4
    # from a: 2; from b: 1 and a's 2; from c: 0.5 and a's 2; d is the last
    assert work.boundary_bytes.tolist() == [2.0, 3.0, 2.5, 0.0]


def test_a_step_worked_by_hand():
    # two stages of two ops, one micro-batch: F 2 s, 3 s on the way, F 2 + B 4, 3 s back, B 4 s
    layout = Layout(pp=2, micro_batch=1, global_batch=1)
    assert GraphPricer(A100, Line()).step_s(describe_graph(CHAIN, layout, A100)) == pytest.approx(2 + 3 + 2 + 4 + 3 + 4)
    # with recomputation F again on both
    again = Layout(pp=2, micro_batch=1, global_batch=1, recompute="full")
    assert GraphPricer(A100, Line()).step_s(describe_graph(CHAIN, again, A100)) == pytest.approx(18 + 4)


def test_gradients_beside_the_backward_pass_worked_by_hand():
    # no pipeline: F 4 s, B of d 4-6 s, then its 6 bytes until 12 s, beside the other three ops until 12 s
    beside, alone = (Layout(dp=2, micro_batch=1, global_batch=2, overlap_dp=overlap) for overlap in (True, False))
    assert GraphPricer(A100, Line()).step_s(describe_graph(CHAIN, beside, A100)) == pytest.approx(12.0)
    assert GraphPricer(A100, Line()).step_s(describe_graph(CHAIN, alone, A100)) == pytest.approx(18.0)


def test_one_device_takes_what_the_graph_says():
    graph = load_graph("zoo:resnet50")
    layout = Layout(micro_batch=graph.samples_per_step, global_batch=graph.samples_per_step)
    assert GraphPricer(A100, Line()).step_s(describe_graph(graph, layout, A100)) == pytest.approx(graph.step_s, rel=1e-12)


def test_the_stages_of_a_plan_are_taken_as_they_are():
    stages = (
        Stage(stage=0, ranks=(0,), num_ops=1, ops=("op0",)),
        Stage(stage=1, ranks=(1,), num_ops=3, ops=("op1", "op2", "op3")),
    )
    layout = Layout(pp=2, micro_batch=1, global_batch=2)
    assert [chunk.tolist() for chunk in describe_graph(CHAIN, layout, A100, stages=stages).chunks] == [[0], [1, 2, 3]]
    with pytest.raises(PlanError, match=r"stages: do not hold each op of the job once"):
        describe_graph(CHAIN, layout, A100, stages=stages[:1])
    swapped = (stages[0].model_copy(update={"ops": ("op1",)}), stages[1].model_copy(update={"ops": ("op0", "op2", "op3")}))
    with pytest.raises(PlanError, match=r"op1 is in an earlier chunk than op0, whose output it needs"):
        describe_graph(CHAIN, layout, A100, stages=swapped)


def test_gradients_of_another_precision_are_as_much_larger():
    work = describe_graph(
        CHAIN, Layout(dp=2, micro_batch=1, global_batch=2), A100, CostSettings(gradient_bytes_per_parameter_byte=2)
    )
    assert work.sync(0)[0].payload_bytes == 12.0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tp": 2}, "layout.tp: cuts layers"),
        ({"cp": 2}, "layout.cp: cuts layers"),
        ({"zero": 2, "dp": 2}, "layout.zero: gathers and scatters layer by layer"),
        ({"recompute": "selective"}, "layout.recompute: is about attention"),
        ({"pp": 2, "schedule": "zb-h1"}, "layout.schedule: parts the gradients"),
        ({"pp": 2, "schedule": "dualpipe", "overlap_pp": True, "global_batch": 4}, "layout.schedule: parts the gradients"),
        ({"micro_batch": 3}, r"layout.micro_batch: does not divide the 4 samples of a step of g \(got 3\)"),
    ],
)
def test_what_a_graph_of_ops_cannot_do_is_refused(changed, message):
    choice = {"micro_batch": 1} | changed
    layout = Layout(**{"global_batch": choice["micro_batch"] * choice.get("dp", 1)} | choice)
    with pytest.raises(PlanError, match=message):
        describe_graph(CHAIN, layout, A100)
