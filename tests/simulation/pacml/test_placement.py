"""First fit: the compiled search against the plain one, and what it must never do."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.simulation.pacml.mirror import mirror
from meshwright.simulation.pacml.semantics import Defects
from meshwright.simulation.pacml.simulator import ServerBlocks, first_fit, placement_problem
from meshwright.simulation.pacml.splitting import split

from ...draws import draws
from .conftest import make_graph


def plain_first_fit(job, found, is_free, memory_bytes):
    """The plain reference of `first_fit`."""
    mirrored = job.job
    left = np.where(is_free, memory_bytes, 0.0)
    server = np.empty(job.num_sub_ops, np.int64)
    options = {}
    for op in mirrored.forward_order.tolist():
        pieces, needed = int(job.splits[op]), float(mirrored.memory_bytes[op])
        alike = [options[parent] for parent in mirrored.parents[op] if len(options[parent]) == pieces]
        roomy = [servers for servers in alike if sum(left[servers].tolist()) >= needed]
        fits = [servers for servers in found.of_size(pieces) if (is_free & (left >= needed / pieces))[servers].all()]
        if not roomy and not fits:
            return None
        options[op] = (roomy or fits)[0]
        for each in (op, mirrored.num_ops - 1 - op):
            server[job.first[each] : job.first[each + 1]] = options[op]
            left[options[op]] -= needed / pieces
    return server


def place(job, cluster, is_free, memory_bytes=None, fit=None):
    result = ServerBlocks(cluster)
    memory_bytes = cluster.memory_bytes if memory_bytes is None else memory_bytes
    if fit is plain_first_fit:
        return plain_first_fit(job, result, is_free, memory_bytes)
    return first_fit(job, placement_problem(job, result), is_free, memory_bytes)


def names(cluster, servers):
    return ["".join(map(str, cluster.topology.coordinates[i])) for i in servers]


def cut(graph, degree):
    return split(mirror(graph, Defects()), degree, Defects())


@pytest.mark.parametrize(
    ("degree", "block"),
    [
        (1, ["000"]),
        (2, ["000", "100"]),
        (4, ["000", "010", "100", "110"]),
        (6, ["000", "001", "100", "101", "200", "201"]),
        (8, ["000", "001", "010", "011", "100", "101", "110", "111"]),
        (16, [f"{c}{r}0" for c in range(4) for r in range(4)]),
    ],
)
def test_the_first_blocks_of_an_empty_cluster(cluster, degree, block):
    job = cut(make_graph([1.0], [1.0], [1], [1], []), degree)
    server = place(job, cluster, np.ones(32, bool))
    assert names(cluster, server[:degree]) == block
    assert server.tolist() == server[:degree].tolist() * 2  # backward pieces sit with forward ones


@pytest.mark.parametrize("degree", [10, 12, 14])
def test_degrees_without_a_shape_are_never_placed(cluster, degree):
    assert place(cut(make_graph([1.0], [1.0], [1], [1], []), degree), cluster, np.ones(32, bool)) is None


def test_an_op_takes_the_servers_of_its_parent_even_where_an_earlier_block_is_free(cluster):
    # Op 1 (uncut) takes server 000, ops 2 and 3 a pair of their own; server 000 belongs to the job, so it serves again.
    graph = make_graph([0.0, 1.0, 1.0], [1.0] * 3, [1] * 3, [1] * 3, [(0, 1), (1, 2)])
    job = cut(graph, 2)
    is_free = np.ones(32, bool)
    is_free[16] = False  # 200: pairs now begin elsewhere, not the first one
    server = place(job, cluster, is_free)
    assert names(cluster, server[:5]) == ["000", "000", "100", "000", "100"]


def test_memory_drives_an_op_from_its_parents_servers(cluster):
    # 60 GB forward and as much backward leave 80 - 120 < 0 on a server, so the second op goes to the next one.
    graph = make_graph([0.0, 0.0], [0.0, 0.0], [39e9, 39e9], [0, 0], [(0, 1)])
    server = place(cut(graph, 1), cluster, np.ones(32, bool))
    assert names(cluster, server[:2]) == ["000", "001"]
    assert place(cut(graph, 1), cluster, np.arange(32) < 1) is None


@st.composite
def situations(draw):
    n = draw(st.integers(1, 6))
    times = draw(st.lists(st.sampled_from([0.0, 0.015, 0.035, 5.0]), min_size=n, max_size=n))
    memory = draw(st.lists(st.sampled_from([1.0, 2e10, 9e10]), min_size=n, max_size=n))
    edges = [(i, j) for j in range(n) for i in range(j) if draw(st.booleans())]
    is_free = np.array(draw(st.lists(st.integers(0, 7).map(bool), min_size=32, max_size=32)))
    return make_graph(times, times, memory, [0.0] * n, edges), draw(st.sampled_from([1, 2, 4, 6, 8, 16])), is_free


@draws(20)
@given(situations())
def test_the_compiled_search_is_the_plain_one_and_breaks_no_rule(cluster, situation):
    graph, degree, is_free = situation
    job = cut(graph, degree)
    server, plain = place(job, cluster, is_free), place(job, cluster, is_free, fit=plain_first_fit)
    assert (server is None) == (plain is None)
    if server is None:
        return
    assert server.tolist() == plain.tolist()
    assert is_free[server].all()
    for op in range(job.job.num_ops):
        here = server[job.first[op] : job.first[op + 1]]
        assert len(set(here.tolist())) == job.splits[op]
        mirrored = job.job.num_ops - 1 - op
        assert here.tolist() == server[job.first[mirrored] : job.first[mirrored + 1]].tolist()
