"""The look-ahead: by hand, against its plain reference, and its laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import GraphError
from meshwright.simulation.pacml.lookahead import LookaheadInput, lookahead, ties
from meshwright.simulation.pacml.semantics import Defects

from ...draws import draws
from ...oracles.plain_lookahead import plain_lookahead


def given_problem(compute, worker, deps, **settings):
    """``deps``: source, target, run time, channel (-1: stays), and optionally "sync"."""
    deps = sorted(deps, key=lambda dep: dep[0])
    source = np.array([dep[0] for dep in deps], np.int64)
    target = np.array([dep[1] for dep in deps], np.int64)
    releases = np.array([len(dep) < 5 for dep in deps], bool)
    channel = np.array([dep[3] for dep in deps], np.int64)
    n = len(compute)
    order = np.lexsort((-np.arange(n), np.array(compute)))
    priority = np.empty(n, np.int64)
    priority[order] = np.arange(n)
    return LookaheadInput(
        compute_s=np.array(compute, float),
        worker=np.array(worker, np.int64),
        priority=priority,
        num_parents=np.bincount(target[releases], minlength=n).astype(np.int64),
        target=target,
        run_s=np.array([dep[2] if dep[3] >= 0 else 0.0 for dep in deps], float),
        is_flow=channel >= 0,
        releases=releases | settings.pop("sync_counts", False),
        channel=np.maximum(channel, 0),
        lane=np.array(settings.pop("lane", range(len(deps))), np.int64),
        tie=np.arange(len(deps), dtype=np.uint64),
        out_start=np.searchsorted(source, np.arange(n + 1)).astype(np.int64),
        outs=np.arange(len(deps), dtype=np.int64),
        **settings,
    )


def test_a_chain_over_two_workers_by_hand():
    # 3 s on worker 0, 2 s on the way, 4 s on worker 1
    step = lookahead(given_problem([3, 4], [0, 1], [(0, 1, 2.0, 0)]))
    assert (step.step_s, step.communication_s, step.computation_s, step.busy_worker_s, step.num_ticks) == (9, 2, 7, 7, 3)


def test_overlap_counts_for_both_by_hand():
    # Worker 0 runs 1 s, then 5 s while 3 s pass on the channel; then worker 1 runs 1 s: ticks of 1, 3, 1, 1.
    step = lookahead(given_problem([1, 5, 1], [0, 0, 1], [(0, 2, 3.0, 0)]))
    assert (step.step_s, step.communication_s, step.computation_s, step.busy_worker_s, step.num_ticks) == (6, 3, 6, 7, 4)


def test_a_dependency_that_stays_costs_a_tick_of_nothing():
    step = lookahead(given_problem([1, 1], [0, 0], [(0, 1, 0.0, -1)]))
    assert (step.step_s, step.num_ticks) == (2, 3)


def test_the_shorter_op_goes_first_and_of_equal_ones_the_later():
    # Op 2 (2 s) before op 0 (3 s); its flow of 4 s hides behind op 0, then op 3 runs: 2 + 4 + 1.
    assert lookahead(given_problem([3, 9, 2, 1], [0, 2, 0, 1], [(2, 3, 4.0, 0)])).step_s == 9
    assert lookahead(given_problem([2, 2, 5], [0, 0, 1], [(1, 2, 0.5, 0)])).step_s == 7.5
    assert lookahead(given_problem([2, 2, 5], [0, 0, 1], [(0, 2, 0.5, 0)])).step_s == 9.5


def test_a_flow_that_ends_earlier_waits_for_the_tick_unless_the_defect_is_off():
    # Flow a of 4 s begins at 0. Flow b of 3 s begins on the same channel at 2 s and sets the tick (shortest run time):
    # a, with 2 s left, is done at 5 s and not at 4 s; op 3 (1 s) then ends at 6 s, not at 5 s.
    ops, workers = [0, 2, 0, 1], [0, 1, 2, 3]
    deps = [(0, 3, 4.0, 0), (1, 2, 3.0, 0)]
    assert lookahead(given_problem(ops, workers, deps)).step_s == 6
    assert lookahead(given_problem(ops, workers, deps, flows_end_at_ticks=False)).step_s == 5


def test_of_tied_flows_the_first_in_their_order_sets_the_tick_by_hand():
    # Two flows of 4 s on one channel, begun at 0 and at 3 s. If the first sets the tick, all goes on at 4 s and op 3 (1 s)
    # ends at 5 s; if the second does, nothing ends before 7 s, and op 3 ends at 8 s. The second ends at 7 s anyway.
    tied = given_problem([0, 3, 0, 1], [0, 1, 2, 3], [(0, 3, 4.0, 0), (1, 2, 4.0, 0)])
    for run in (lookahead, plain_lookahead):
        assert run(tied._replace(tie=np.array([0, 1], np.uint64))).step_s == 7
        assert run(tied._replace(tie=np.array([1, 0], np.uint64))).step_s == 8
        # Without the defect the flow that ends first sets it, whatever the order.
        assert run(tied._replace(tie=np.array([1, 0], np.uint64), ties_by_hash=False)).step_s == 7


def test_two_flows_share_a_channel_by_hand():
    # 2 s and 4 s of work on one channel: both at half rate until 4 s, the rest of the second alone until 6 s.
    deps = [(0, 1, 2.0, 0), (0, 2, 4.0, 0)]
    assert lookahead(given_problem([0, 0, 0], [0, 1, 2], deps)).step_s == 4
    fair = given_problem([0, 0, 0], [0, 1, 2], deps, links_never_contend=False, flows_end_at_ticks=False)
    assert lookahead(fair).step_s == 6
    # Two parts of one collective are one claim on the channel.
    assert lookahead(fair._replace(lane=np.array([0, 0]))).step_s == 4


def test_a_finished_sync_may_release_a_sub_op_early_by_hand():
    # Op 2 waits for op 1 (5 s). A sync of 1 s from op 0 counts as that parent, so op 2 starts at 1 s.
    deps = [(0, 2, 1.0, 0, "sync"), (1, 2, 0.0, -1)]
    assert lookahead(given_problem([0, 5, 3], [0, 1, 2], deps)).step_s == 8
    assert lookahead(given_problem([0, 5, 3], [0, 1, 2], deps, sync_counts=True)).step_s == 5


def test_ops_that_wait_for_each_other_are_refused():
    stuck = given_problem([1, 1], [0, 1], [(0, 1, 1.0, 0), (1, 0, 1.0, 1)])
    for run in (lookahead, plain_lookahead):
        with pytest.raises(GraphError, match="wait for each other"):
            run(stuck)


@st.composite
def problems(draw):
    n = draw(st.integers(1, 12))
    seconds = st.sampled_from([0.0, 0.1, 0.3, 1.0, 1.0, 2.5])
    worker = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    deps = []
    for j in range(n):
        for i in range(j):
            if draw(st.integers(0, 3)) == 0:
                channel = -1 if worker[i] == worker[j] else worker[i] * 4 + worker[j]
                deps.append((i, j, draw(seconds), channel, *(["sync"] if draw(st.integers(0, 5)) == 0 else [])))
    drawn = given_problem(
        draw(st.lists(seconds, min_size=n, max_size=n)),
        worker,
        deps,
        lane=[16 * draw(st.integers(0, 2)) + max(dep[3], 0) for dep in sorted(deps, key=lambda dep: dep[0])],
        **{key: draw(st.booleans()) for key in ("flows_end_at_ticks", "ties_by_hash", "links_never_contend", "sync_counts")},
    )
    return drawn._replace(tie=np.array(draw(st.permutations(range(len(deps)))), np.uint64))


@draws(40)
@given(problems())
def test_the_kernel_is_the_plain_reference(drawn):
    assert lookahead(drawn) == plain_lookahead(drawn)


@given(problems())
def test_laws_of_a_step(drawn):
    step = lookahead(drawn)
    work = np.bincount(drawn.worker, drawn.compute_s)
    assert step.busy_worker_s == pytest.approx(drawn.compute_s.sum())
    assert step.computation_s >= work.max() * (1 - 1e-12)
    assert max(step.communication_s, step.computation_s) <= step.step_s * (1 + 1e-12)
    assert step.step_s <= (step.communication_s + step.computation_s) * (1 + 1e-12)


def test_ties_fall_to_what_is_made_last(simulator_of, branching):
    # Ops are cut in the profile's order, forward before backward, and sync is made after everything else.
    cut = simulator_of(branching).split("toy", 2)
    order = np.argsort(ties(cut))
    assert sorted(order) == list(range(cut.num_deps))
    is_sync = cut.edge[order] < 0
    assert is_sync[: cut.num_sync].all()
    assert not is_sync[cut.num_sync :].any()
    for part in (order[: cut.num_sync], order[cut.num_sync :]):
        made = cut.job.split_rank[cut.op[cut.source[part]]]
        assert (np.diff(made) <= 0).all()


def test_a_tie_seed_shuffles_every_dependency_on_its_own(simulator_of, branching):
    cut = simulator_of(branching).split("toy", 8)
    orders = [ties(cut, seed) for seed in range(5)]
    assert all(len(set(order.tolist())) == cut.num_deps for order in orders)
    assert (ties(cut, 3) == orders[3]).all()
    # Of the pieces of one edge about half change places with those of another, not all or none.
    edge = cut.edge.max()
    one, other = np.flatnonzero(cut.edge == edge), np.flatnonzero(cut.edge == edge - 1)
    for order in orders[1:]:
        share = (order[one][:, None] < order[other]).mean()
        assert 0.1 < share < 0.9
    assert (orders[0][one][:, None] < orders[0][other]).mean() in (0, 1)


def test_uncontended_links_are_never_slower(simulator_of, branching):
    for degree in (2, 4, 8, 16):
        shared, alone = (
            simulator_of(branching, defects=Defects(milliseconds_as_seconds=False, links_never_contend=never))
            for never in (False, True)
        )
        steps = [s.step(s.place("toy", degree, np.ones(32, bool))).step_s for s in (alone, shared)]
        assert steps[0] <= steps[1] * (1 + 1e-12)
