"""Cutting: how far, and what the pieces send each other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.simulation.pacml.mirror import mirror
from meshwright.simulation.pacml.semantics import Defects
from meshwright.simulation.pacml.splitting import split, splits

from .conftest import make_graph

# Op 1 is never cut (no forward time), ops 2 and 3 are; memory 10, 20 and 40 bytes.
GRAPH = make_graph([0.0, 1.0, 1.0], [7.0, 1.0, 1.0], [6.0, 12.0, 40.0], [4.0, 8.0, 0.0], [(0, 1), (1, 2), (0, 2)])


def sizes(cut, source, target):
    """Distinct sizes of the dependencies between two ops (numbered from 1)."""
    result = (cut.op[cut.source] == source - 1) & (cut.op[cut.target] == target - 1)
    return sorted(set(cut.size_bytes[result].tolist())), int(result.sum())


def test_short_ops_are_cut_less_by_hand():
    # c / 0.01 = 0, 0.5, 1, 2.1, 4, 100: ceil to 0, 1, 1, 3, 4, 100, made even 0, 2, 2, 4, 4, 100, at least 1, at most 8
    graph = make_graph([0.0, 0.005, 0.01, 0.021, 0.04, 1.0], [9.0] * 6, [1] * 6, [1] * 6, [(i, i + 1) for i in range(5)])
    expected = [1, 2, 2, 4, 4, 8]
    assert splits(mirror(graph, Defects()), 8, Defects()).tolist() == expected + expected[::-1]


def test_the_rule_means_the_same_in_seconds():
    in_seconds = Defects(milliseconds_as_seconds=False)
    graph = make_graph([0.0, 0.005, 0.021, 1.0], [9.0] * 4, [1] * 4, [1] * 4, [(0, 1), (1, 2), (2, 3)])
    assert splits(mirror(graph, in_seconds), 8, in_seconds).tolist()[:4] == [1, 2, 4, 8]


def test_sizes_of_edges_by_hand():
    cut = split(mirror(GRAPH, Defects()), 2, Defects())
    assert cut.splits.tolist() == [1, 2, 2, 2, 2, 1]
    assert sizes(cut, 1, 2) == ([10 / 2], 2)  # only the target is cut: the source's memory over 2
    assert sizes(cut, 2, 3) == ([20 / 4], 4)  # both are cut, the source first
    assert sizes(cut, 4, 5) == ([20 / 4], 4)  # backward: the destination, op 2's backward op, was cut first
    assert sizes(cut, 5, 6) == ([10 / 2], 2)  # only the source is cut: the memory of the child
    assert sizes(cut, 3, 4) == ([40 / 4], 4)  # the join
    assert sizes(cut, 4, 4) == ([40 / 2], 2)  # sync, among backward pieces only
    assert sizes(cut, 5, 5) == ([20 / 2], 2)
    assert cut.num_sync == 4


def test_sizes_of_edges_without_the_defects_by_hand():
    defects = Defects(edges_carry_memory=False, sync_carries_memory=False)
    cut = split(mirror(GRAPH, defects), 2, defects)
    assert sizes(cut, 1, 2) == ([6 / 2], 2)
    assert sizes(cut, 2, 3) == ([12 / 4], 4)
    assert sizes(cut, 5, 6) == ([12 / 2], 2)  # the source's activation
    assert sizes(cut, 4, 4) == ([], 0)  # no parameters, no sync
    assert sizes(cut, 5, 5) == ([8 / 2], 2)


@given(
    degree=st.integers(1, 16),
    times=st.lists(st.sampled_from([0.0, 0.005, 0.03, 0.09, 2.0]), min_size=2, max_size=6),
    seed=st.integers(0, 2**32 - 1),
)
def test_laws_of_cutting(degree, times, seed):
    rng = np.random.default_rng(seed)
    n = len(times)
    edges = [(i, j) for j in range(n) for i in range(j) if rng.random() < 0.5]
    graph = make_graph(times, times, rng.integers(1, 100, n), rng.integers(0, 100, n), edges)
    job = mirror(graph, Defects())
    cut = split(job, degree, Defects())
    s = cut.splits
    assert s.max() <= degree
    assert ((s == 1) | (s % 2 == 0) | (s == degree)).all()
    assert cut.num_sub_ops == s.sum()
    assert cut.num_deps - cut.num_sync == (s[job.edges[:, 0]] * s[job.edges[:, 1]]).sum()
    assert cut.num_sync == (s[n:] * (s[n:] - 1)).sum()
    np.testing.assert_allclose(np.bincount(cut.op, cut.compute_s), job.compute_s, rtol=1e-12)
    assert (cut.source != cut.target).all()
    pairs = cut.source * cut.num_sub_ops + cut.target
    assert len(np.unique(pairs)) == cut.num_deps
    # What an edge carries in all is the memory of one of its ends, however it is cut.
    carried = np.bincount(cut.edge[cut.edge >= 0], cut.size_bytes[cut.edge >= 0], minlength=len(job.edges))
    for edge, (source, target) in enumerate(job.edges.tolist()):
        assert carried[edge] == pytest.approx(job.memory_bytes[source]) or carried[edge] == pytest.approx(
            job.memory_bytes[target]
        )
