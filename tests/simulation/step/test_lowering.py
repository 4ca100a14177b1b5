"""Lowering of op splits: which samples pass from rank to rank, and step times worked by hand."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs import compute
from meshwright.costs.network import RankNetwork
from meshwright.costs.settings import CostSettings
from meshwright.devices import device_type
from meshwright.errors import ConfigError, PlanError
from meshwright.jobs import load_graph
from meshwright.plans.splitting.op_splits import OpSplits, uniform_splits
from meshwright.simulation.step.execution import TaskKind
from meshwright.simulation.step.lowering import lower, overlaps
from meshwright.simulation.step.timeline import simulate

from ...draws import draws
from ...samples.sample_clusters import cluster_of, matrix
from ...samples.sample_graphs import profile

INDEPENDENT = CostSettings(contention="independent")
degrees = st.integers(1, 24)


@st.composite
def job_graphs(draw, max_ops=7, with_parameters=True):
    """DAGs with times in whole seconds and bytes in whole GB."""
    n = draw(st.integers(1, max_ops))
    numbers = st.lists(st.integers(0, 9), min_size=n, max_size=n)
    pairs = [(i, j) for j in range(n) for i in range(j)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return profile(
        "drawn",
        [float(x) for x in draw(numbers)],
        [float(x) for x in draw(numbers)],
        edges,
        activation_bytes=[x * 1e9 for x in draw(numbers)],
        parameter_bytes=[x * 1e9 for x in draw(numbers)] if with_parameters else [0.0] * n,
    )


def splits_of(graph, data, most=8):
    return OpSplits(np.array(data.draw(st.lists(st.integers(1, most), min_size=graph.num_ops, max_size=graph.num_ops))))


def test_two_ranks_pass_their_samples_to_three_worked_by_hand():
    # halves [0, 1/2], [1/2, 1] to thirds [0, 1/3], [1/3, 2/3], [2/3, 1]
    expected = [(0, 0, 1 / 3), (0, 1, 1 / 6), (1, 1, 1 / 6), (1, 2, 1 / 3)]
    assert [(i, j) for i, j, _ in overlaps(2, 3)] == [(i, j) for i, j, _ in expected]
    assert [share for *_, share in overlaps(2, 3)] == pytest.approx([share for *_, share in expected], rel=1e-15)


@given(source=degrees, target=degrees)
def test_every_sample_passes_from_the_rank_that_has_it_to_the_rank_that_needs_it(source, target):
    result = {(i, j): share for i, j, share in overlaps(source, target)}
    for i in range(source):
        for j in range(target):
            low, high = max(Fraction(i, source), Fraction(j, target)), min(Fraction(i + 1, source), Fraction(j + 1, target))
            assert result.get((i, j), 0.0) == pytest.approx(float(max(high - low, 0)), rel=1e-15)
    assert sum(result.values()) == pytest.approx(1.0, rel=1e-12)


@given(source=degrees, target=degrees)
def test_what_passes_backward_is_what_passed_forward(source, target):
    there = {(i, j): share for i, j, share in overlaps(source, target)}
    back = {(i, j): share for j, i, share in overlaps(target, source)}
    assert there == back


@draws(13)
@given(graph=job_graphs())
def test_one_rank_takes_the_sum_of_all_ops(host, graph):
    # equal but for rounding: the kernel adds op by op, the graph adds pairs
    assert simulate(graph, host, uniform_splits(graph, 1), [0]).step_s == pytest.approx(graph.step_s, rel=1e-12)


@pytest.mark.parametrize("name", ["zoo:resnet50", "zoo:gnmt"])
def test_one_rank_on_the_device_of_the_roofline_takes_the_graphs_own_step(host, name):
    graph = load_graph(name)
    assert simulate(graph, host, uniform_splits(graph, 1), [3]).step_s == pytest.approx(graph.step_s, rel=1e-12)


@draws(13)
@given(graph=job_graphs(with_parameters=False), degree=st.integers(1, 8))
def test_an_even_split_without_parameters_divides_the_step(host, graph, degree):
    # no op is split otherwise than its neighbours, nothing is reduced: only computing is left, 1 / degree of it on each rank
    timeline = simulate(graph, host, uniform_splits(graph, degree), range(degree))
    assert timeline.step_s == pytest.approx(graph.step_s / degree, rel=1e-12)
    assert (timeline.execution.kind == TaskKind.COMPUTE).all()


@pytest.mark.parametrize(
    ("costs", "step_s"),
    [
        # Two ranks: a 0-1, b 1-3, b back 3-7, a back 7-9 s. The gradients of b (600 GB) are reduced from 7 on, in a ring of
        # two: 2 x 0.6 us + 600 GB / 300 GB/s = 2.0000012 s, of which 2 s beside a's backward pass. Those of a (300 GB,
        # 1.0000012 s) wait for it: the step ends at 7 + 2.0000012 + 1.0000012 s.
        (CostSettings(), 10.0000024),
        # as above, but a's gradients are reduced from 9 s on, beside the last 1.2 us of b's
        (INDEPENDENT, 10.0000012),
        # half a byte for each byte of parameters: b's 300 GB take 1.0000012 s from 7 on, a's 150 GB 0.5000012 s from 9 on
        (CostSettings(gradient_bytes_per_parameter_byte=0.5), 9.5000012),
    ],
    ids=["partly overlapped", "independent", "another precision"],
)
def test_an_all_reduce_worked_by_hand(host, two_ops, costs, step_s):
    timeline = simulate(two_ops, host, uniform_splits(two_ops, 2), [0, 1], costs)
    assert timeline.step_s == pytest.approx(step_s, rel=1e-12)


def test_an_uneven_split_moves_what_is_not_there_worked_by_hand(host, two_ops):
    # a on rank 0 (2 s), b on ranks 0 and 1 (2 s each). Rank 1 fetches half of a's 60 GB: 0.6 us + 0.1 s, then b there
    # 2.1000006-4.1000006, back (4 s) to 8.1000006; its half of the gradient returns by 8.2000012, meanwhile rank 0 was done
    # at 8; a back takes 4 s, to 12.2000012. b's gradients (2.0000012 s) are reduced from 8.2000012 on, after the transfer.
    timeline = simulate(two_ops, host, OpSplits(np.array([1, 2])), [0, 1])
    assert timeline.step_s == pytest.approx(12.2000012, rel=1e-12)
    is_transfer = timeline.execution.kind == TaskKind.TRANSFER
    assert timeline.start_s[is_transfer] == pytest.approx([2.0, 8.1000006], rel=1e-12)
    assert timeline.execution.payload_bytes[is_transfer].tolist() == [30e9, 30e9]
    assert timeline.execution.rank[is_transfer].tolist() == [0, 1]


def test_shortest_first_lets_a_short_op_overtake_worked_by_hand(host):
    # Three ops without edges between them, forward 3, 1, 2 s, backward none. In order of definition the backward pass of the
    # last op is ready at 6; shortest first runs 1, 2, 3 (and what takes no time as soon as it is ready).
    graph = profile("loose", [3.0, 1.0, 2.0], [0.0, 0.0, 0.0], [])
    starts = {}
    for priority in ("fifo", "shortest-first"):
        timeline = simulate(graph, host, uniform_splits(graph, 1), [0], CostSettings(priority=priority))
        starts[priority] = timeline.start_s[~timeline.execution.is_backward].tolist()
    assert starts == {"fifo": [0.0, 3.0, 4.0], "shortest-first": [3.0, 0.0, 1.0]}


@draws(13)
@given(graph=job_graphs(), degree=st.integers(2, 8))
def test_messages_that_wait_for_each_other_never_shorten_an_evenly_split_step(host, graph, degree):
    # what is computed does not depend on the all-reduces, so each of them starts no earlier than with a network of its own
    serialised, independent = (
        simulate(graph, host, uniform_splits(graph, degree), range(degree), costs).step_s
        for costs in (CostSettings(), INDEPENDENT)
    )
    assert serialised >= independent


@draws(20)
@given(graph=job_graphs(), data=st.data())
def test_exactly_the_bytes_that_are_elsewhere_move_in_both_directions(host, graph, data):
    splits = splits_of(graph, data)
    execution = lower(graph, splits, RankNetwork(host, np.arange(8)), CostSettings())
    is_transfer = execution.kind == TaskKind.TRANSFER
    for backward in (False, True):
        moved = execution.payload_bytes[is_transfer & (execution.is_backward == backward)].sum()
        missing = Fraction(0)
        for source, target in graph.edges.tolist():
            a, b = int(splits.splits[source]), int(splits.splits[target])
            for rank in range(b):
                held = min(Fraction(rank + 1, a), Fraction(rank + 1, b)) - max(Fraction(rank, a), Fraction(rank, b))
                here = max(held, Fraction(0)) if rank < a else Fraction(0)
                missing += int(graph.activation_bytes[source]) * (Fraction(1, b) - here)
        assert moved == pytest.approx(float(missing), rel=1e-12)


@draws(20)
@given(graph=job_graphs(), data=st.data())
def test_gradients_are_reduced_once_over_the_ranks_of_each_op_that_is_split(host, graph, data):
    splits = splits_of(graph, data)
    execution = lower(graph, splits, RankNetwork(host, np.arange(8)), CostSettings())
    is_collective = execution.kind == TaskKind.COLLECTIVE
    reduced = {
        int(op): float(size) for op, size in zip(execution.op[is_collective], execution.payload_bytes[is_collective], strict=True)
    }
    assert reduced == {
        i: float(graph.parameter_bytes[i]) for i in range(graph.num_ops) if splits.splits[i] > 1 and graph.parameter_bytes[i]
    }
    for task in np.flatnonzero(is_collective).tolist():
        uses = execution.streams[execution.stream_start[task] : execution.stream_start[task + 1]] - execution.num_ranks
        assert uses.tolist() == list(range(splits.splits[execution.op[task]]))


@draws(20)
@given(graph=job_graphs(), data=st.data())
def test_every_rank_computes_its_share_of_every_op_forward_before_backward(host, graph, data):
    splits = splits_of(graph, data)
    timeline = simulate(graph, host, splits, range(8))
    execution = timeline.execution
    for op in range(graph.num_ops):
        for backward, whole_s in ((False, graph.forward_s[op]), (True, graph.backward_s[op])):
            mine = (execution.op == op) & (execution.kind == TaskKind.COMPUTE) & (execution.is_backward == backward)
            assert sorted(execution.rank[mine].tolist()) == list(range(splits.splits[op]))
            assert execution.duration_s[mine] == pytest.approx(whole_s / splits.splits[op], rel=1e-12)
    for rank in range(splits.degree):
        mine = (execution.rank == rank) & (execution.kind == TaskKind.COMPUTE)
        for op in range(graph.num_ops):
            here = mine & (execution.op == op)
            if here.any():
                assert timeline.finish_s[here & ~execution.is_backward] <= timeline.start_s[here & execution.is_backward]


def test_each_rank_computes_as_fast_as_its_own_device():
    mixed = cluster_of(matrix(np.ones((2, 2))), name="mixed", device_overrides={"host-1": "v100"})
    graph = load_graph("zoo:alexnet")
    execution = simulate(graph, mixed, uniform_splits(graph, 2), [0, 1]).execution
    halves = np.full(graph.num_ops, 2)
    for rank, name in enumerate(["a100", "v100"]):
        is_mine = (execution.kind == TaskKind.COMPUTE) & (execution.rank == rank)
        expected = [s.sum() for s in compute.MODELS["roofline"].share_s(graph, halves, device_type(name))]
        for backward in (False, True):
            seconds = execution.duration_s[is_mine & (execution.is_backward == backward)].sum()
            assert seconds == pytest.approx(expected[backward], rel=1e-12)


@pytest.mark.parametrize(
    ("splits", "devices", "message"),
    [
        ([1, 3], [0, 1], r"devices: 3 ranks for 2 devices"),
        ([1, 2, 1], [0, 1], r"splits: 3 split degrees for a graph of 2 ops \(got 'two-ops'\)"),
        ([2, 2], [0, 8], r"devices: host-8 has devices 0\.\.7 \(got 8\)"),
        ([2, 2], [-1, 0], r"devices: host-8 has devices 0\.\.7 \(got -1\)"),
        ([2, 2], [5, 5], r"devices: a device is named twice \(got \[5, 5\]\)"),
    ],
)
def test_an_impossible_placement_is_refused(host, two_ops, splits, devices, message):
    with pytest.raises(PlanError, match=message):
        simulate(two_ops, host, OpSplits(np.array(splits)), devices)


def test_an_all_reduce_that_the_network_cannot_run_is_refused(host, two_ops):
    with pytest.raises(ConfigError, match=r"collectives: .*RAMP"):
        simulate(two_ops, host, uniform_splits(two_ops, 2), [0, 1], CostSettings(collectives="ramp"))


GB = 1e9
CHAIN = profile(
    "chain",
    [0.0] * 3,
    [1.0, 1.0, 1.0],
    [[0, 1], [1, 2]],
    activation_bytes=[0.0, 0.0, 0.0],
    parameter_bytes=[300 * GB, 300 * GB, 300 * GB],
)


def reduced_at(graph, host, **changes):
    """Start and finish of each all-reduce on two ranks in the order of the ops that close them."""
    timeline = simulate(graph, host, uniform_splits(graph, 2), [0, 1], CostSettings(**changes))
    tasks = np.flatnonzero(timeline.execution.kind == TaskKind.COLLECTIVE)
    tasks = tasks[np.argsort(timeline.start_s[tasks], kind="stable")]
    rows = zip(timeline.execution.op[tasks], timeline.start_s[tasks], timeline.finish_s[tasks], strict=True)
    return [(int(op), round(float(start), 3), round(float(finish), 3)) for op, start, finish in rows]


def test_gradients_are_merged_into_buckets_worked_by_hand(host):
    # Two ranks, 0.5 s backward each: op 2 is done at 0.5, 1 at 1.0, 0 at 1.5 s. 300 GB over 300 GB/s take 1 s.
    assert reduced_at(CHAIN, host) == [(2, 0.5, 1.5), (1, 1.5, 2.5), (0, 2.5, 3.5)]
    # A bucket closes once it holds 400 GB: with op 1, at 1.0 s, 600 GB take 2 s. What is left goes by itself.
    assert reduced_at(CHAIN, host, gradient_bucket_bytes=400 * GB) == [(1, 1.0, 3.0), (0, 3.0, 4.0)]
    assert reduced_at(CHAIN, host, gradient_bucket_bytes=1e15) == [(0, 1.5, 4.5)]
    # While those of op 2 go until 1.5 s, those of op 1 (at 1.0) and of op 0 (at 1.5) are made; op 0 runs first in the next step.
    assert reduced_at(CHAIN, host, priority="first-consumer") == [(2, 0.5, 1.5), (0, 1.5, 2.5), (1, 2.5, 3.5)]


def test_chunks_of_a_long_message_let_an_urgent_one_go_between_worked_by_hand(host):
    # In chunks of 100 GB: op 2's three take 1/3 s each from 0.5 s on. Behind the first two (until 1.167) op 1's first one is
    # there (1.0 s) and is wanted earlier: 1.167-1.5; then op 0's, made at 1.5 s, until 2.5; op 1's other two and op 2's last.
    result = reduced_at(CHAIN, host, priority="first-consumer", message_chunk_bytes=100 * GB)
    assert [op for op, _, _ in result] == [2, 2, 1, 0, 0, 0, 1, 1, 2]
    assert result[-1][2] == pytest.approx(3.5, abs=1e-3)
    assert result[5] == (0, 2.167, 2.5)


def test_a_transfer_in_chunks_moves_the_same_bytes_one_after_the_other(host):
    graph = profile("pair", [1.0, 2.0], [1.0, 2.0], [[0, 1]], activation_bytes=[600e9, 0.0])
    # op 0 on one rank, op 1 on two: half of the activation (300 GB, 1 s) goes to rank 1 and half of the gradient back
    whole, cut = (
        simulate(graph, host, OpSplits(np.array([1, 2])), [0, 1], CostSettings(message_chunk_bytes=size)) for size in (None, 1e11)
    )
    assert (whole.execution.kind == TaskKind.TRANSFER).sum() == 2
    assert (cut.execution.kind == TaskKind.TRANSFER).sum() == 6
    assert cut.execution.payload_bytes.sum() == pytest.approx(whole.execution.payload_bytes.sum(), rel=1e-12)
    assert cut.step_s == pytest.approx(whole.step_s, abs=1e-5)


@draws(8)
@given(
    graph=job_graphs(), data=st.data(), bucket=st.sampled_from([None, 1e9, 4e9, 1e12]), chunk=st.sampled_from([None, 5e8, 3e9])
)
def test_merging_and_cutting_move_the_same_bytes_and_never_lose_a_dependency(host, graph, data, bucket, chunk):
    splits = splits_of(graph, data)
    plain = simulate(graph, host, splits, range(splits.degree)).execution
    costs = CostSettings(gradient_bucket_bytes=bucket, message_chunk_bytes=chunk, priority="first-consumer")
    result = simulate(graph, host, splits, range(splits.degree), costs)
    for kind in (TaskKind.TRANSFER, TaskKind.COLLECTIVE):
        moved = [e.payload_bytes[e.kind == kind].sum() for e in (result.execution, plain)]
        assert moved[0] == pytest.approx(moved[1], rel=1e-9)
    before, after = result.execution.edges.T
    assert (result.finish_s[before] <= result.start_s[after]).all()
    for task in np.flatnonzero(result.execution.kind == TaskKind.COLLECTIVE).tolist():
        degree = len(result.execution.messages.ranks(task))
        # every rank that reduces gave its gradients before
        ops = np.flatnonzero((splits.splits == degree) & (graph.parameter_bytes > 0))
        assert int(result.execution.op[task]) in ops
