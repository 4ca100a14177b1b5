"""Compute time of split ops."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs import compute
from meshwright.devices import device_type
from meshwright.errors import GraphError
from meshwright.jobs import zoo_graph

A100 = device_type("a100")  # 312 TFLOP/s at 0.5, 2039 GB/s at 0.8, 5 us
H100 = device_type("h100")


def splits(*degrees):
    return np.array(degrees, np.int64)


def test_a_profile_is_divided(one_op):
    forward_s, backward_s = compute.MODELS["profiled"].share_s(one_op, splits(4), A100)
    assert (forward_s.tolist(), backward_s.tolist()) == ([2.0], [4.0])


def test_a_profile_is_refused_on_another_device(one_op):
    with pytest.raises(GraphError, match=r"timed on a100 and cannot be divided on h100; use the roofline \(got 'one-op'\)"):
        compute.MODELS["profiled"].share_s(one_op, splits(1), H100)


def test_a_profile_without_a_device_holds_anywhere(one_op):
    anonymous = dataclasses.replace(one_op, reference_device=None)
    assert compute.MODELS["profiled"].share_s(anonymous, splits(2), H100)[0].tolist() == [4.0]


def test_the_roofline_of_a_share_that_computes_worked_by_hand(one_op):
    # forward: 3.12e12 / 2 / 156e12 = 10 ms against (2 GB / 2 + 1 GB) / 1631.2 GB/s = 1.23 ms; backward 20 ms; + 5 us
    forward_s, backward_s = compute.MODELS["roofline"].share_s(one_op, splits(2), A100)
    assert forward_s == pytest.approx([10.005e-3], rel=1e-12)
    assert backward_s == pytest.approx([20.005e-3], rel=1e-12)


def test_the_roofline_of_a_share_that_moves_worked_by_hand(one_op):
    # a thousandth computes for 20 us forward but reads all parameters: (2 MB + 1 GB) / 1631.2 GB/s; backward twice that
    forward_s, backward_s = compute.MODELS["roofline"].share_s(one_op, splits(1000), A100)
    moving_s = 1.002e9 / 1631.2e9
    assert forward_s == pytest.approx([moving_s + 5e-6], rel=1e-12)
    assert backward_s == pytest.approx([2 * moving_s + 5e-6], rel=1e-12)


def test_the_roofline_needs_flops(one_op):
    unknown = dataclasses.replace(one_op, forward_flops=np.zeros(1))
    with pytest.raises(GraphError, match=r"carries no FLOPs.*\(got 'one-op'\)"):
        compute.MODELS["roofline"].share_s(unknown, splits(1), A100)


@pytest.mark.parametrize("device", [A100, H100], ids=lambda device: device.name)
@pytest.mark.parametrize("name", ["alexnet", "gpt2-small", "gnmt"])
def test_an_op_in_one_piece_takes_what_the_graph_says(name, device):
    graph = zoo_graph(name, device)
    forward_s, backward_s = compute.MODELS["roofline"].share_s(graph, np.ones(graph.num_ops, np.int64), device)
    assert forward_s.tolist() == graph.forward_s.tolist()
    assert backward_s.tolist() == graph.backward_s.tolist()


@pytest.mark.parametrize("name", sorted(compute.MODELS))
@given(degree=st.integers(1, 512))
def test_a_smaller_share_never_takes_longer_nor_all_shares_less(one_op, name, degree):
    model = compute.MODELS[name]
    whole, share, smaller = (model.share_s(one_op, splits(d), A100)[0][0] for d in (1, degree, degree + 1))
    assert smaller <= share
    assert degree * share >= whole * (1 - 1e-12)


def test_auto_takes_the_profile_where_there_is_one(one_op):
    assert compute.model_named("auto", one_op).name == "profiled"
    assert compute.model_named("auto", dataclasses.replace(one_op, source="estimated")).name == "roofline"
    no_flops = dataclasses.replace(one_op, source="estimated", forward_flops=np.zeros(1))
    assert compute.model_named("auto", no_flops).name == "profiled"
