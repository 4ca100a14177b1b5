"""Placement keeps its order and refuses what no cluster has; memory worked by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import PlanError
from meshwright.plans.memory import check_memory, op_split_memory_bytes
from meshwright.plans.placement import Placement, place
from meshwright.plans.splitting.op_splits import OpSplits


@given(st.permutations(range(8)))
def test_a_placement_keeps_the_order_it_is_given(two_hosts, devices):
    assert place(two_hosts, devices).devices.tolist() == list(devices)


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ([0, 8], r"rank 1: cluster two-hosts has devices 0\.\.7 \(got 8\)"),
        ([3, 1, 3], r"rank 2: rank 0 has this device already \(got 3\)"),
        ([0, -1], "rank 1: there is no such device"),
        ([], "shape"),
        ([0.5], "whole"),
    ],
)
def test_an_impossible_placement_names_the_rank(two_hosts, devices, message):
    with pytest.raises(PlanError, match=message):
        place(two_hosts, devices)


def test_a_placement_cannot_be_changed():
    placement = Placement(np.array([2, 1]))
    with pytest.raises(ValueError, match="read-only"):
        placement.devices[0] = 0


def test_memory_worked_by_hand(chain):
    # model states 8 x (10, 20, 30, 0) = 80, 160, 240, 0
    # rank 0 holds all: states 480 + activations 100 / 1 + 200 / 2 + 400 / 4 + 40 / 1 = 340, workspace max(0, 500, 100, 8) = 500
    # rank 1 holds b, c: 400 + 100 + 100 + max(500, 100) = 1100; ranks 2, 3 hold c: 240 + 100 + 100 = 440
    memory = op_split_memory_bytes(chain, OpSplits(np.array([1, 2, 4, 1])))
    assert memory.tolist() == [1320.0, 1100.0, 440.0, 440.0]


@given(st.lists(st.integers(1, 8), min_size=4, max_size=4))
def test_later_ranks_never_hold_more(chain, splits):
    memory = op_split_memory_bytes(chain, OpSplits(np.array(splits)))
    assert memory.shape == (max(splits),)
    assert (np.diff(memory) <= 0).all()


@given(st.lists(st.integers(1, 8), min_size=4, max_size=4))
def test_activations_and_model_states_are_conserved(chain, splits):
    quiet = _without_workspace(chain)
    memory = op_split_memory_bytes(quiet, OpSplits(np.array(splits)))
    # every rank of an op holds its states; its activations add up to the whole
    assert memory.sum() == pytest.approx((8 * chain.parameter_bytes * splits).sum() + chain.activation_bytes.sum())


def test_splits_of_another_graph_are_refused(chain):
    with pytest.raises(PlanError, match="2 split degrees for a graph of 4 ops"):
        op_split_memory_bytes(chain, OpSplits(np.array([1, 2])))


def test_too_much_memory_names_the_first_rank_its_device_and_both_numbers(two_hosts):
    memory = np.array([79e9, 86e9, 90e9])
    with pytest.raises(PlanError, match=r"rank 1: needs 86\.000 GB, device gpu-03/0 has 85\.201 GB"):
        check_memory(memory, place(two_hosts, [0, 4, 1]), two_hosts)
    check_memory(np.array([80e9]), place(two_hosts, [0]), two_hosts)


def _without_workspace(graph):
    from dataclasses import replace

    return replace(graph, workspace_bytes=np.zeros(graph.num_ops))
