"""Traffic of a layout from host to host: worked by hand, and against the flows of the event path."""

import numpy as np
import pytest

from meshwright.costs.network import RankNetwork
from meshwright.costs.settings import CostSettings
from meshwright.costs.training_step.graph_step_time import GraphPricer
from meshwright.costs.work.graph_work import describe_graph
from meshwright.costs.work.work import describe
from meshwright.jobs import load_graph
from meshwright.planners.menu.placement_classes import PlacementClass, PlacementClasses
from meshwright.planners.menu.traffic import Traffic
from meshwright.plans.partition import Layout
from meshwright.simulation.layouts.lowering import lower
from meshwright.simulation.layouts.running import layout_step
from meshwright.simulation.layouts.step_model import GraphStep

from ...draws import cases
from ...simulation.layouts.grid import cluster, layouts, shapes

COSTS = CostSettings().of_layouts
CLOS = cluster("clos-64-4to1")
CASES = [(name, layout) for name, _, layout in layouts(100, seed=3) if layout.world in (8, 16)]


def between(work, devices_per_host, hosts_per_group=1):
    """Traffic on the representative placement, and its devices."""
    classes = PlacementClasses(CLOS, COSTS)
    one = PlacementClass(0, devices_per_host, hosts_per_group)
    devices = classes.devices(one, work.layout.world)
    return Traffic(CLOS, COSTS).between_slots(work, "tp-cp-dp-pp", devices, devices_per_host), devices


def test_gradients_of_four_replicas_on_two_hosts_worked_by_hand():
    shape, length = shapes()["config"]
    work = describe(shape, Layout(dp=4, micro_batch=1, global_batch=4), length)
    sent, _ = between(work, 2)
    # In stages: the two of a host share the sum of their gradients, and each all-reduces its half with its counterpart, to whom
    # it sends 2 x 1/2 of that half.
    gradient_bytes = 4 * work.stages[0].parameters
    assert sent.sent_bytes == pytest.approx(np.array([[0, 1], [1, 0]]) * gradient_bytes)
    assert sent.at_once.tolist() == [[0, 2], [2, 0]]
    assert sent.axes == {"dp_cp"}


def test_two_stages_on_two_hosts_worked_by_hand():
    shape, length = shapes()["config"]
    work = describe(shape, Layout(tp=2, pp=2, micro_batch=2, global_batch=8), length)
    sent, _ = between(work, 2)
    # Four micro-batches of 2 x 1,024 tokens of 2,048 numbers in 16 bits, half of them by each rank of a stage.
    once = 4 * 2 * length * 2048 * 2
    assert sent.sent_bytes.tolist() == [[0, once], [once, 0]]
    assert sent.at_once.tolist() == [[0, 2], [2, 0]]
    assert sent.axes == {"pp"}


def by_events(step, devices, sent):
    """Bytes between each two hosts of four devices by the messages of the event path."""
    messages, slot = lower(step, RankNetwork(CLOS, devices), COSTS).execution.messages, np.arange(len(devices)) // 4
    exact = np.zeros_like(sent.sent_bytes)
    np.add.at(exact, (slot[messages.sender], slot[messages.receiver]), messages.flow_bytes)
    np.fill_diagonal(exact, 0.0)
    return exact


@pytest.mark.every(3)
@pytest.mark.parametrize("number", cases(12))
def test_the_event_path_sends_as_much_between_each_two_hosts(number):
    name, layout = CASES[number % len(CASES)]
    shape, length = shapes()[name]
    num_micro_batches = min(layout.num_micro_batches, layout.pp)
    layout = layout.model_copy(update={"global_batch": num_micro_batches * layout.micro_batch * layout.dp})
    work = describe(shape.model_copy(update={"num_layers": layout.pp * layout.virtual_stages}), layout, length, checks=False)
    sent, devices = between(work, 4)
    exact = by_events(layout_step(work, CLOS, COSTS), devices, sent)
    assert sent.sent_bytes == pytest.approx(exact, rel=1e-9)
    assert ((sent.at_once > 0) == (exact > 0)).all()


@pytest.mark.parametrize(
    "layout", [Layout(dp=4, pp=2, micro_batch=8, global_batch=64), Layout(pp=4, dp=2, micro_batch=8, global_batch=64)]
)
def test_a_pipeline_of_ops_sends_as_much_as_by_the_event_path(layout):
    graph = load_graph("zoo:vgg16", device=CLOS.device_types[0], batch_size=64)
    work = describe_graph(graph, layout, CLOS.device_types[0], COSTS)
    sent, devices = between(work, 4)
    exact = by_events(GraphStep(work, GraphPricer.from_cluster(CLOS, COSTS)), devices, sent)
    assert exact.sum() > 0
    assert sent.sent_bytes == pytest.approx(exact, rel=1e-9)
    assert "pp" in sent.axes
