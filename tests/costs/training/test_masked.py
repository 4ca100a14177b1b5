"""Partially masked training in closed form: cores of jobs, cycles, a model that goes from the places of one plan to another's."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.resharding.model_state import ModelPlace, moved_s, state_tasks
from meshwright.costs.training.masked import core_memory, core_work, cycle_bytes, cycle_s, joint_saving, parameter_share
from meshwright.costs.work.memory import StageMemory
from meshwright.costs.work.operations import Product
from meshwright.costs.work.work import describe
from meshwright.errors import GraphError, PlanError
from meshwright.jobs.load import load_graph
from meshwright.jobs.masked import Core, core_graph, core_shape, core_shares
from meshwright.jobs.zoo.catalogue import zoo_shape
from meshwright.plans.partition import Layout
from meshwright.plans.rank_order import coordinates
from meshwright.plans.training import Masked

SHAPE = zoo_shape("gpt2-small")[0]


def test_a_cycle_worked_by_hand():
    # 9 steps of 1 s and one of 3 s, and 0.5 s each way: 13 s, of which 12 are steps
    training = Masked(core=Core(width=0.5), core_steps=9, full_steps=1)
    assert cycle_s(1.0, 3.0, training, 0.5) == 13.0
    assert cycle_bytes(0.25e9, 1e9, training) == 3.25e9
    # ten steps of each model by itself take 10 + 30 s
    assert joint_saving(1.0, 3.0, training) == pytest.approx(1 - 12 / 40)


@pytest.mark.parametrize("name", ["vgg16", "resnet50", "bert-base"])
def test_a_core_of_all_is_the_job_and_a_narrow_one_keeps_ends_and_squares_the_middle(name):
    graph = load_graph(f"zoo:{name}")
    for core in (Core(width=1.0), Core(rank=10**9)):
        whole = core_graph(graph, core)
        for figures in ("forward_flops", "parameter_bytes", "activation_bytes"):
            assert np.array_equal(getattr(whole, figures), getattr(graph, figures))
    shares = core_shares(graph, Core(width=0.5))
    matrices = np.flatnonzero((graph.parameter_bytes > 0) & np.array(["norm" not in kind for kind in graph.op_kinds]))
    assert shares.weights[matrices[0]] == 0.5  # reads the input, which is whole
    assert shares.weights[matrices[-1]] == 0.5  # puts out the output
    assert set(shares.weights[matrices[1:-1]]) == {0.25}
    assert shares.activations[matrices[-1]] == 1.0


def test_matrices_of_a_rank_have_their_own_weights():
    # one matrix of 1000 x 1000 numbers of 4 bytes: 64 (1000 + 1000) of 1e6 weights
    graph = load_graph("zoo:vgg16")
    square = np.sqrt(graph.parameter_bytes / 4)
    shares = core_shares(graph, Core(rank=64)).weights
    has = graph.parameter_bytes > 0
    assert shares[has] == pytest.approx(np.minimum(1.0, 128 / square[has]))


@given(width=st.sampled_from([0.25, 0.5, 0.75]), other=st.sampled_from([0.25, 0.5, 0.75]))
def test_a_wider_core_has_no_less_of_anything(width, other):
    graph = load_graph("zoo:vgg16")
    less, more = (core_shares(graph, Core(width=one)) for one in sorted((width, other)))
    for first, last in zip(less, more, strict=True):
        assert (first <= last).all()


def test_a_launch_is_the_least_that_a_masked_op_takes():
    graph = load_graph("zoo:vgg16")
    timed = core_graph(replace(graph, forward_s=np.full(graph.num_ops, 2e-6)), Core(width=0.25), 1e-6)
    assert timed.forward_s.min() == 1e-6


def test_a_transformer_of_a_width_is_a_transformer_and_one_that_would_be_cut_in_a_head_is_refused():
    narrow = core_shape(SHAPE, 0.5)
    assert (narrow.hidden, narrow.num_heads, narrow.head_dim, narrow.feed_forward) == (384, 6, 64, 1536)
    with pytest.raises(GraphError, match=r"4\.5 of num_heads=12"):
        core_shape(SHAPE, 0.375)


def test_thin_matrices_of_a_layer_by_hand():
    layout = Layout(micro_batch=1, global_batch=1)
    work = describe(SHAPE, layout)
    core = core_work(work, Core(rank=8), 0.0)
    # qkv 768 x 2304, output 768 x 768, up 768 x 3072, down 3072 x 768, in each of 12 layers
    gone = sum(a * b - 8 * (a + b) for a, b in ((768, 2304), (768, 768), (768, 3072), (3072, 768)))
    assert work.layer.dense_parameters - core.layer.dense_parameters == gone
    assert work.stages[0].parameters - core.stages[0].parameters == 12 * gone
    assert parameter_share(work, core) == pytest.approx(core.stages[0].parameters / work.stages[0].parameters)
    inner, outer = (item for item in core.layer.forward if isinstance(item, Product) and item.name.startswith("qkv"))
    assert (inner.n, outer.k) == (8, 8)
    assert (inner.k, outer.n) == (768, 2304)


def test_thin_matrices_do_not_go_with_weights_that_travel():
    with pytest.raises(PlanError) as error:
        core_work(describe(SHAPE, Layout(dp=2, zero=3, micro_batch=1, global_batch=2)), Core(rank=8), 0.0)
    assert error.value.field == "layout.zero"


def test_a_step_of_the_core_holds_the_whole_model_and_its_own_activations():
    whole, core = StageMemory(8, 8, 48, 100, 10, 2), StageMemory(2, 2, 12, 50, 5, 1)
    assert core_memory(whole, core) == StageMemory(8, 2, 48, 50, 5, 1)


def _place(layout, hosts, units=(6.0,) * 8):
    chunks = layout.pp * layout.virtual_stages
    each = len(units) // chunks
    ends = [(each * k, each * (k + 1)) for k in range(chunks)]
    return ModelPlace(layout, units, tuple(ends), coordinates(layout), hosts, 2.0, 12.0)


def test_nothing_moves_between_equal_places():
    place = _place(Layout(dp=2, tp=2, pp=2, micro_batch=1, global_batch=4), (0,) * 4 + (1,) * 4)
    assert state_tasks(place, place) == ()
    assert moved_s((), lambda size: size, lambda size: size) == 0.0


def test_what_moves_worked_by_hand():
    # Eight units of 6 parameters, 14 bytes each: 672 bytes. Two replicas, a host each, become two stages, and back.
    replicas = _place(Layout(dp=2, micro_batch=1, global_batch=2), (0, 1))
    stages = _place(Layout(pp=2, micro_batch=1, global_batch=2), (0, 1))
    assert state_tasks(replicas, stages) == ()  # each has its half already
    back = state_tasks(stages, replicas)
    assert sum(task.task_bytes for task in back) == 672  # each lacks the other half, at the same time
    assert moved_s(back, lambda size: size, lambda size: size / 10) == 336.0
    inside = state_tasks(_place(stages.layout, (0, 0)), _place(replicas.layout, (0, 0)))
    assert moved_s(inside, lambda size: size, lambda size: size / 10) == pytest.approx(33.6)


LAYOUTS = st.sampled_from(
    [
        Layout(dp=8, micro_batch=1, global_batch=8),
        Layout(dp=4, tp=2, micro_batch=1, global_batch=8),
        Layout(dp=2, tp=2, pp=2, micro_batch=1, global_batch=8),
        Layout(pp=4, dp=2, micro_batch=1, global_batch=8, zero=1),
        Layout(pp=2, virtual_stages=2, schedule="interleaved", dp=4, micro_batch=1, global_batch=8),
        Layout(tp=8, micro_batch=1, global_batch=8),
        Layout(dp=8, micro_batch=1, global_batch=8, zero=3),
    ]
)


@given(source=LAYOUTS, target=LAYOUTS)
def test_each_device_gets_just_what_it_lacks(source, target):
    hosts = (0,) * 4 + (1,) * 4
    start, end = (_place(one, hosts, tuple(8.0 * k for k in range(1, 9))) for one in (source, target))
    got = dict.fromkeys(range(8), 0.0)
    for task in state_tasks(start, end):
        assert not set(task.senders) & set(task.receivers)
        for device in task.receivers:
            got[device.place] += task.task_bytes
    whole = 14 * sum(8.0 * k for k in range(1, 9))
    assert max(got.values()) <= whole * (1 + 1e-9)
    if source.model_dump() == target.model_dump():
        assert not any(got.values())


def test_experts_and_unequal_numbers_of_ranks_are_refused():
    two, one = (_place(Layout(dp=n, micro_batch=1, global_batch=4), (0,) * n) for n in (2, 1))
    with pytest.raises(PlanError, match="same devices"):
        state_tasks(two, one)
    with pytest.raises(PlanError) as error:
        state_tasks(_place(Layout(dp=2, ep=2, micro_batch=1, global_batch=4), (0, 0)), two)
    assert error.value.field == "layout.ep"


def test_branches_count_weights_on_any_way():
    graph = load_graph("zoo:gnmt")
    shares = core_shares(graph, Core(width=0.5))
    first = graph.op_names.index("encoder.embedding")
    assert shares.weights[first] == 0.5
    assert shares.weights[graph.op_names.index("encoder.lstm2")] == 0.25
