"""Cuts are those of brute force: the shortest step among those that fit."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from meshwright.costs.pipelines.kept import first_rounds
from meshwright.costs.pipelines.schedules import FORWARD, orders, play_schedule, turns_of
from meshwright.costs.settings import CostSettings
from meshwright.costs.stage_cuts import cut_family
from meshwright.costs.stage_cuts.cut_labels import CutPipeline
from meshwright.costs.stage_cuts.cut_memory import StageMemoryUse, most_flying
from meshwright.costs.stage_cuts.cut_prices import span_s
from meshwright.costs.stage_cuts.graph_cuts import find_cuts, least_of
from meshwright.costs.stage_cuts.tight_cuts import tight_cuts
from meshwright.costs.stage_cuts.unit_chain import NOTHING, Chain
from meshwright.costs.training_step.graph_step_time import GraphPricer
from meshwright.costs.work.graph_work import describe_graph
from meshwright.costs.work.memory import FRAGMENTATION, RUNTIME_BYTES
from meshwright.devices import device_type
from meshwright.errors import PlanError
from meshwright.jobs import load_graph
from meshwright.plans.partition import Layout
from meshwright.plans.stages import layout_stages

from ...draws import draws
from ..graphs import Hosts, Line, all_cuts, drawn_graphs, graph_of, sizes

A100 = device_type("a100")


layouts = st.builds(
    lambda pp, dp, m, recompute, schedule, overlap, zero, after: Layout(
        pp=pp,
        dp=dp,
        micro_batch=1,
        global_batch=dp * m,
        recompute=recompute,
        schedule=schedule[0],
        virtual_stages=schedule[1] if pp > 1 else 1,
        overlap_pp=overlap,
        overlap_dp=after,
        zero=zero if dp > 1 else 0,
    ),
    st.integers(1, 4),
    st.integers(1, 2),
    st.integers(1, 9),
    st.sampled_from(["none", "full"]),
    st.sampled_from([("1f1b", 1), ("1f1b", 1), ("gpipe", 1), ("interleaved", 2), ("interleaved", 3)]),
    st.booleans(),
    st.integers(0, 1),
    st.booleans(),
)


def halfway(peaks, tightness):
    """A capacity halfway between two cuts' peaks, so that no rounding decides what fits, and the least peak."""
    levels = sorted(set(peaks))
    at = round(tightness * (len(levels) - 1))
    return levels[at] + (levels[at + 1] - levels[at]) / 2 if at + 1 < len(levels) else levels[at] + 1.0, levels[0]


FIVE = graph_of([4, 1, 1, 1, 1], [(i, i + 1) for i in range(4)], [8, 8, 8, 1, 1], [0, 8, 8, 8, 0], samples=8)
WAITING = Layout(dp=2, pp=2, virtual_stages=2, schedule="interleaved", micro_batch=1, global_batch=8, overlap_dp=True)
"""Messages of gradients hide behind transfers for which passes wait."""


@example(FIVE, WAITING, Line(), 1.0, 1.0)
@draws(20, suppress_health_check=[HealthCheck.too_slow])
@given(drawn_graphs(most=8), layouts, st.sampled_from([Line(), Hosts()]), st.floats(0, 1), st.sampled_from([1.0, 1.5]))
def test_no_cut_that_fits_makes_a_shorter_step(graph, layout, wires, tightness, slowdown):
    num_chunks, costs = layout.pp * layout.virtual_stages, CostSettings(overlap_slowdown=slowdown)
    if graph.num_ops < num_chunks:
        with pytest.raises(PlanError, match="stages are more than the job's ops"):
            find_cuts(graph, layout, A100, wires, costs)
        return
    every = {cuts: describe_graph(graph, layout, A100, costs, cuts=cuts) for cuts in all_cuts(graph, num_chunks)}
    peaks = {cuts: work.peak_memory()[1].total for cuts, work in every.items()}
    capacity, least = halfway(peaks.values(), tightness)
    places = find_cuts(graph, layout, A100, wires, costs, capacity_bytes=capacity).places
    steps = {cuts: GraphPricer(A100, wires, slowdown).step_s(every[cuts]) for cuts in every if peaks[cuts] <= capacity}
    if layout.pp > 1:
        assert peaks[places] <= capacity
        assert steps[places] == pytest.approx(min(steps.values()), rel=1e-9)
        below = find_cuts(graph, layout, A100, wires, costs, capacity_bytes=capacity, below_s=min(steps.values()) * (1 - 1e-6))
        assert below.places is None or layout.schedule != "interleaved"
        assert find_cuts(graph, layout, A100, wires, costs, capacity_bytes=least - 1.0).places is None


def test_of_many_cuts_a_plain_pipeline_takes_the_best_one():
    # 14 ops of uneven seconds, messages and parameters on four stages and two replicas: all 286 cuts by plain counting
    rng = np.random.default_rng(5)
    ops = 14
    graph = graph_of(
        rng.lognormal(0, 1, ops).tolist(),
        [(a, a + 1) for a in range(ops - 1)],
        rng.lognormal(0, 1, ops).tolist(),
        rng.choice([0.0, 1.0, 9.0], ops).tolist(),
        samples=1,
    )
    for schedule, m in (("1f1b", 1), ("1f1b", 3), ("1f1b", 12), ("gpipe", 3), ("gpipe", 12)):
        layout = Layout(pp=4, dp=2, schedule=schedule, micro_batch=1, global_batch=2 * m, overlap_dp=m > 3)
        steps = {
            cuts: GraphPricer(A100, Line()).step_s(describe_graph(graph, layout, A100, cuts=cuts)) for cuts in all_cuts(graph, 4)
        }
        assert steps[find_cuts(graph, layout, A100, Line()).places] == pytest.approx(min(steps.values()), rel=1e-9)


def test_no_figure_of_a_machine_changes_the_family_of_cuts():
    families = []
    for name, recompute, micro_batch in (("a100", "none", 1), ("h100", "none", 1), ("v100", "full", 4)):
        device = device_type(name)
        graph = load_graph("zoo:squeezenet", device=device)
        layout = Layout(
            pp=4, virtual_stages=2, schedule="interleaved", micro_batch=micro_batch, global_batch=8, recompute=recompute
        )
        families.append(Chain.from_graph(graph, layout, device, CostSettings()).family.cuts(8))
    assert len(families[0]) > 20
    for family in families[1:]:
        assert family.tolist() == families[0].tolist()


@pytest.mark.parametrize(("pp", "v"), [(2, 2), (3, 2), (4, 3)])
def test_behind_its_first_rounds_an_interleaved_schedule_keeps_what_it_kept_before(pp, v):
    for m in (*range(1, 24), 40, 64):
        layout = Layout(pp=pp, virtual_stages=v, schedule="interleaved", micro_batch=1, global_batch=m)
        for stage, tasks in enumerate(orders("interleaved", pp, v, m)):
            change = np.zeros((len(tasks), v))
            change[np.arange(len(tasks)), tasks[:, 1]] = np.where(tasks[:, 0] == FORWARD, 1.0, -1.0)
            flying, known = np.cumsum(change, axis=0), most_flying(layout)[stage]
            assert all((known >= tick).all(axis=1).any() for tick in flying)
            assert all((flying == tick).all(axis=1).any() for tick in known if tick.any())


@pytest.mark.parametrize(("pp", "v", "zero"), [(2, 1, 0), (4, 1, 1), (2, 2, 1), (3, 2, 0)])
def test_what_any_cut_has_at_least_is_no_more_than_what_the_best_one_has(pp, v, zero):
    graph = load_graph("zoo:alexnet", device=A100, batch_size=64)
    keys = {"schedule": "interleaved" if v > 1 else "1f1b", "virtual_stages": v, "zero": zero}
    layout = Layout(pp=pp, dp=2, micro_batch=4, global_batch=64, **keys)
    chain = Chain.from_graph(graph, layout, A100, CostSettings())
    least_s, held_bytes = least_of(layout, chain, 80e9)
    work = describe_graph(graph, layout, A100, CostSettings(), cuts=find_cuts(graph, layout, A100, Line()).places)
    busiest_s = max((work.forward_s + work.backward_s)[work.ops_of(stage)].sum() for stage in range(pp))
    assert 0 < least_s <= busiest_s * (1 + 1e-9)
    assert 0 < held_bytes <= work.peak_memory()[1].total * (1 + 1e-9)
    assert least_of(layout, chain, held_bytes * 0.99) is None


def test_a_stage_that_must_overfill_is_told_without_trying_every_cut():
    # 96 alike ops on four stages of eight chunks: some 1e24 cuts. Their state fills 3.5 devices, then 4.5.
    ops, layout = 96, Layout(pp=4, virtual_stages=8, schedule="interleaved", micro_batch=1, global_batch=8)
    chain = [(a, a + 1) for a in range(ops - 1)]
    for devices, can in ((3.5, True), (4.5, False)):
        graph = graph_of([1] * ops, chain, [0.0] * ops, [devices * 10e9 / ops] * ops, samples=1)
        result = find_cuts(graph, layout, A100, Line(), capacity_bytes=80e9 + RUNTIME_BYTES)
        assert (result.places is not None) is can
        assert result.is_proven


def test_a_search_for_a_cut_that_is_given_up_says_so(monkeypatch):
    monkeypatch.setattr(cut_family, "MOST_CUTS", 0)
    monkeypatch.setattr(cut_family.CutFamily, "_measures", lambda self: [np.ones(self.graph.num_ops)])
    graph = graph_of([1] * 5, [(0, 1), (1, 2), (2, 3), (3, 4)], [0.0] * 5, [10e9, 0.0, 0.0, 10e9, 0.0], samples=1)
    layout = Layout(pp=2, virtual_stages=2, schedule="interleaved", micro_batch=1, global_batch=2)
    room = 80e9 + RUNTIME_BYTES + 1
    assert find_cuts(graph, layout, A100, Line(), capacity_bytes=room)[:2] == ((0, 1, 2, 3, 5), True)
    given_up = find_cuts(graph, layout, A100, Line(), capacity_bytes=room, most_steps=0)
    if given_up.places is None:
        assert not given_up.is_proven
        assert RUNTIME_BYTES < given_up.least_bytes <= room  # a cut needs all but a byte
    # without a limit on memory there is nothing to look for, and what fits nowhere has no runs
    assert find_cuts(graph, layout, A100, Line()).is_proven
    assert find_cuts(graph, layout, A100, Line(), capacity_bytes=RUNTIME_BYTES - 1) == (None, True, 0.0)


def drawn_pipeline(seed, ops, pp, v):
    """A pipeline of uneven units between which the capacity is to be set."""
    rng = np.random.default_rng(seed)

    def before(values):
        return np.append(0.0, np.cumsum(values))

    layout = Layout(
        pp=pp,
        virtual_stages=v,
        schedule="interleaved",
        micro_batch=1,
        global_batch=int(rng.integers(1, 3 * pp)),
        overlap_pp=bool(rng.integers(2)),
        recompute=str(rng.choice(["none", "full"])),
    )
    activations = rng.lognormal(0.0, 1.0, ops) * 1e9
    crossing = np.append(0.0, np.append(rng.uniform(0.2, 1.0, ops - 1) * activations[:-1], 0.0))
    states = before(rng.lognormal(0.0, 1.0, ops) * 8e9)
    stored = before(activations), rng.lognormal(0.0, 1.0, ops) * 3e8, crossing, NOTHING, NOTHING, most_flying(layout)
    held = StageMemoryUse(states, *stored, layout.recompute == "full")
    transfer_s = crossing / rng.choice([50e9, 500e9], (pp, 1))[np.arange(pp * v) % pp]
    transfer_s[-1] = 0.0
    busy_s = before(rng.choice([0.1, 0.2, 0.5], ops))
    (num, round_of), no_skips = first_rounds(layout), (np.zeros((2, 0, 0, 0)), np.zeros(pp, np.int64))
    passes = busy_s / 3, busy_s * 2 / 3, transfer_s, *no_skips, layout.overlap_pp
    pipe = CutPipeline(False, layout.num_micro_batches, *passes, held, np.inf)
    return pipe, turns_of("interleaved", pp, v, num, round_of), num


def of_every_cut(pipe):
    """Cuts with the bytes of their fullest device, by plain counting."""
    units, held, (pp, _, v) = len(pipe.forward_s) - 1, pipe.held, pipe.held.flying.shape
    cuts = np.array([(0, *inner, units) for inner in combinations(range(1, units), pp * v - 1)])
    first, last = cuts[:, :-1], cuts[:, 1:]
    own = held.activation_bytes[last] - held.activation_bytes[first]
    state = held.state_bytes[last] - held.state_bytes[first]
    workspace = np.array([np.maximum.reduceat(held.workspace_bytes, cut[:-1]) for cut in cuts])
    given, sent = held.crossing_bytes[first], held.crossing_bytes[last]
    fullest = np.zeros(len(cuts))
    for stage in range(pp):
        mine = slice(stage, None, pp)
        stored = ((given if held.recomputes else own)[:, mine] @ held.flying[stage].T).max(1)
        changing = stored + workspace[:, mine].max(1) + given[:, mine].max(1) + sent[:, mine].max(1)
        changing += own[:, mine].max(1) if held.recomputes else 0.0
        fullest = np.maximum(fullest, state[:, mine].sum(1) + (1.0 + FRAGMENTATION) * changing + RUNTIME_BYTES)
    return cuts, fullest


@pytest.mark.every(3)
@pytest.mark.parametrize(("ops", "pp", "v"), [(12, 2, 2), (13, 2, 3), (12, 3, 2), (13, 4, 2), (12, 2, 4), (13, 3, 3)])
def test_a_cut_that_chunks_share_memory_for_fits_and_no_move_betters_it(ops, pp, v):
    num_found = 0
    for seed in range(6):
        pipe, *rounds = drawn_pipeline(seed, ops, pp, v)
        cuts, fullest = of_every_cut(pipe)
        levels = np.unique(np.round(fullest))
        bytes_of = dict(zip(map(tuple, cuts.tolist()), fullest, strict=True))
        # cuts to begin with of which none may fit: those that hold most
        begin = cuts[np.argsort(fullest)[-5:]]
        for at in (0, 1, 3, 10, 30, 100):
            bounded = pipe._replace(capacity_bytes=levels[at] + 1.0)
            result, least_bytes = tight_cuts(bounded, *rounds, begin, None)
            assert least_bytes <= levels[0] + 1.0
            num_found += bool(result)
            for one in result:
                assert bytes_of[tuple(one.tolist())] <= bounded.capacity_bytes
                least_s = span_s(bounded, *rounds, one)
                for place in range(1, pp * v):
                    for by in (-1, 1):
                        moved = one.copy()
                        moved[place] += by
                        if bytes_of.get(tuple(moved.tolist()), np.inf) <= bounded.capacity_bytes:
                            assert least_s <= span_s(bounded, *rounds, moved) * (1 + 1e-8)
            # a search that is cut short says no more than it knows
            short, least_bytes = tight_cuts(bounded, *rounds, begin, 0.0)
            assert least_bytes <= levels[0] + 1.0
            assert all(bytes_of[tuple(one.tolist())] <= bounded.capacity_bytes for one in short)
        assert tight_cuts(pipe._replace(capacity_bytes=levels[0] - 2.0), *rounds, begin, None)[0] == []
    assert num_found > 24


def test_the_span_of_a_cut_is_that_of_its_pipeline_as_played():
    pipe, *rounds = drawn_pipeline(1, 12, 2, 2)
    cuts = np.array([0, 3, 5, 9, 12])
    task_s = np.zeros((2, 2, 3))
    for chunk, (first, last) in enumerate(pairwise(cuts)):
        task_s[chunk % 2, chunk // 2, :2] = [times[last] - times[first] for times in (pipe.forward_s, pipe.backward_s)]
    sends_s, m = pipe.transfer_s[np.arange(4), cuts[1:]], pipe.num_micro_batches
    played = play_schedule("interleaved", 2, m, task_s, sends_s, overlaps_sends=pipe.hides)
    assert span_s(pipe, *rounds, cuts) == pytest.approx(played.span_s[0], rel=1e-9)


def test_many_stages_are_not_cut_for_balance_where_sending_costs_more():
    # Three ops of 9, 9 and 18 s a micro-batch; behind the first crosses 1 byte, behind the second 9 bytes, in 1 s a byte. One
    # micro-batch takes 36 s and the way there and back: 2 s or 18 s. Two equal stages would be those behind the second op.
    graph = graph_of([3, 3, 6], [(0, 1), (1, 2)], [1.0, 9.0, 0.0], [0.0] * 3, samples=1)
    layout = Layout(pp=2, micro_batch=1, global_batch=1)
    assert find_cuts(graph, layout, A100, Line()).places == (0, 1, 3)


@pytest.mark.parametrize("pp", [2, 3, 5, 8])
def test_without_transfers_it_is_the_bisection_of_plans(pp):
    class Free(Line):
        def group_s(self, operation, payload_bytes, group):
            return 0.0

    graph = load_graph("zoo:resnet50", device=A100)
    # so many micro-batches that nothing but the busiest stage counts
    layout = Layout(pp=pp, micro_batch=graph.samples_per_step, global_batch=graph.samples_per_step * 10**6)
    ours = describe_graph(graph, layout, A100, cuts=find_cuts(graph, layout, A100, Free()).places)
    theirs = describe_graph(graph, layout, A100, stages=layout_stages(graph, layout))
    busiest = [max(float((w.forward_s + w.backward_s)[ops].sum()) for ops in w.chunks) for w in (ours, theirs)]
    assert busiest[0] == pytest.approx(busiest[1], rel=1e-5)


def test_layers_of_a_transformer_stay_whole():
    graph = load_graph("zoo:gpt2-small", device=A100)
    layout = Layout(pp=4, micro_batch=1, global_batch=graph.samples_per_step)
    cuts = find_cuts(graph, layout, A100, Line()).places
    for place in cuts[1:-1]:
        before, after = (graph.op_names[graph.order[at]].split(".")[0] for at in (place - 1, place))
        assert before != after
    with pytest.raises(PlanError, match=r"layout\.pp: 32 stages are more than the job's layers"):
        find_cuts(graph, Layout(pp=32, micro_batch=1, global_batch=16), A100, Line())


@draws(15)
@given(drawn_graphs())
def test_what_crosses_a_place_is_what_a_pipeline_cut_there_sends(graph):
    layout = Layout(pp=graph.num_ops, micro_batch=1, global_batch=4)
    chain = Chain.from_graph(graph, layout, A100, CostSettings())
    work = describe_graph(graph, layout, A100, cuts=range(graph.num_ops + 1))
    assert chain.crossing_bytes[1:] == pytest.approx(work.boundary_bytes, abs=1e-12)
    assert chain.crossing_bytes[0] == 0.0
    assert [work.memory(stage).parameters for stage in range(layout.pp)] == np.diff(chain.weight_bytes).tolist()
    assert sizes(chain.starts) == [1] * graph.num_ops
