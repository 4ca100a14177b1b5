"""Op splits: the published rule, bad input."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import PlanError
from meshwright.jobs.graph import JobGraph
from meshwright.plans.splitting.op_splits import OpSplits, sip_ml_splits


def test_sip_ml_rule_worked_by_hand(chain):
    # q = 0.5 s: 1 s holds 2 quanta -> 2; 2 s -> 4; 3 s -> 6; 0 s -> 0, raised to 1
    assert sip_ml_splits(chain, 16, 0.5).splits.tolist() == [2, 4, 6, 1]
    # q = 0.7 s: ceil(1 / .7) = 2 -> 2; ceil(2 / .7) = 3, made even 4; ceil(3 / .7) = 5, made even 6, at most 4
    assert sip_ml_splits(chain, 4, 0.7).splits.tolist() == [2, 4, 4, 1]


@given(seconds=st.lists(st.floats(0, 1e6), min_size=1, max_size=8), limit=st.integers(1, 64), quantum=st.floats(1e-300, 1e6))
def test_sip_ml_splits_are_one_or_even_or_the_limit(seconds, limit, quantum):
    splits = sip_ml_splits(_graph(seconds), limit, quantum).splits
    assert all(s == 1 or s % 2 == 0 or s == limit for s in splits.tolist())
    assert splits.max() <= limit


@given(seconds=st.lists(st.floats(0, 1e3), min_size=2, max_size=8), limit=st.integers(1, 64))
def test_a_longer_op_is_never_split_less(seconds, limit):
    splits = sip_ml_splits(_graph(sorted(seconds)), limit, 0.01).splits
    assert (np.diff(splits) >= 0).all()


@pytest.mark.parametrize(("limit", "quantum"), [(0, 0.1), (4, 0.0), (4, -1.0), (4, float("nan"))])
def test_sip_ml_refuses_impossible_limits(chain, limit, quantum):
    with pytest.raises(PlanError, match=r"max_degree|quantum_s"):
        sip_ml_splits(chain, limit, quantum)


def test_op_splits_keep_their_own_frozen_copy():
    given_splits = np.array([1, 2, 8])
    splits = OpSplits(given_splits)
    given_splits[0] = 5
    assert splits.splits.tolist() == [1, 2, 8]
    assert splits.degree == 8
    with pytest.raises(ValueError, match="read-only"):
        splits.splits[0] = 3


@pytest.mark.parametrize(("bad", "message"), [([], "shape"), ([[1]], "shape"), ([1.5], "whole"), ([1, 0], r"splits\.1.*got 0")])
def test_impossible_op_splits_are_refused(bad, message):
    with pytest.raises(PlanError, match=message):
        OpSplits(np.array(bad))


def _graph(seconds: list[float]) -> JobGraph:
    n = len(seconds)
    zeros = np.zeros(n)
    names = tuple(f"op{i}" for i in range(n))
    graph = JobGraph("g", names, names, zeros, zeros, zeros, zeros, zeros, zeros, zeros, np.empty((0, 2), np.int64))
    return replace(graph, forward_s=np.array(seconds))
