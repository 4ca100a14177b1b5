"""The search against brute force, and the laws on which its pruning rests."""

from functools import cache
from itertools import pairwise
from operator import le

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshwright.costs.process_groups.group_network import HostNetwork, group_network
from meshwright.costs.training_step.step_time import Pricer
from meshwright.costs.work.memory import RUNTIME_BYTES, peak_memory
from meshwright.costs.work.work import describe
from meshwright.errors import PlanError
from meshwright.jobs.readers.huggingface import shape_of
from meshwright.planners.layouts.leanest import again_of, group_sizes, grouped
from meshwright.planners.layouts.request import SearchRequest
from meshwright.planners.layouts.results import Front, RankedLayout, layout_text
from meshwright.planners.layouts.search import LayoutSearch
from meshwright.planners.layouts.space import LayoutSpace
from meshwright.plans import Layout
from meshwright.plans.pipelines.layers import layers_of_chunks
from meshwright.plans.rank_order import ORDERS

from ...costs.uneven import drawn_matrix
from ...draws import FACTOR, draws
from .small_layouts import A100, GPT, LENGTH, MIXED, MIXTURE, PAIRS, brute_force, canonical, every_layout
from .test_search_bounds import FABRICS, layouts_on

ROOMY, TIGHT = 80e9, 1.568e9
"""In the second some layouts of `GPT` fit and some do not; those of `MIXED` are parted by less."""

WIDE = shape_of(
    {"model_type": "gpt2", "n_embd": 2048, "n_layer": 4, "n_head": 16, "n_positions": 1024, "vocab_size": 1024}, name="wide"
)

CASES = [
    (GPT, 4, 2, TIGHT),
    (MIXTURE, 2, 2, ROOMY),
    (MIXED, 2, 2, 1.571e9),
    pytest.param(GPT, 4, 4, ROOMY, marks=pytest.mark.slow),
    pytest.param(MIXTURE, 4, 2, ROOMY, marks=pytest.mark.slow),
    pytest.param(MIXED, 4, 2, ROOMY, marks=pytest.mark.slow),
    pytest.param(MIXED, 4, 2, 1.546e9, marks=pytest.mark.slow),
]


def search(shape, worlds, batch, capacity_bytes, top=10, wires=PAIRS, keep="", **more):
    space = LayoutSpace(shape, LENGTH, batch, wires.devices_per_host, SearchRequest(keep=keep, top=top, **more))
    return LayoutSearch(space, A100, capacity_bytes, wires).run(worlds)


def unbeaten(figures):
    """Those tuples of figures than which no other one is less or equal in all of them."""
    every = set(figures)
    return {one for one in every if not any(o != one and all(map(le, o, one)) for o in every)}


@pytest.mark.every(2)
@pytest.mark.parametrize(("shape", "world", "batch", "capacity"), CASES)
def test_the_whole_ranking_is_that_of_brute_force(shape, world, batch, capacity):
    expected = brute_force(shape, world, batch, PAIRS, capacity)
    result = search(shape, [world], batch, capacity, top=None)
    assert {one.layout: (one.step_s, one.memory_bytes) for one in result.ranking} == expected
    assert [one.step_s for one in result.ranking] == sorted(step_s for step_s, _ in expected.values())


@pytest.mark.every(2)
@pytest.mark.parametrize(("shape", "world", "batch", "capacity"), CASES)
@pytest.mark.parametrize("top", [1, 10])
def test_pruning_loses_neither_one_of_the_best_nor_one_of_the_front(shape, world, batch, capacity, top):
    expected = brute_force(shape, world, batch, PAIRS, capacity)
    result = search(shape, [world], batch, capacity, top=top)
    assert [one.step_s for one in result.ranking] == sorted(step_s for step_s, _ in expected.values())[:top]
    assert {(one.step_s, one.memory_bytes) for one in result.front} == unbeaten(expected.values())
    assert result.counts.pruned > 0
    assert result.counts.examined + result.counts.pruned + result.counts.infeasible == result.counts.legal


def test_the_front_over_several_numbers_of_devices_is_that_of_brute_force():
    every = {(*figures, world) for world in (1, 2, 4) for figures in brute_force(GPT, world, 2, PAIRS, ROOMY).values()}
    result = search(GPT, [1, 2, 4], 2, ROOMY, top=1)
    assert {one[:3] for one in result.front} == unbeaten(every)


def test_equal_layouts_are_listed_once_and_are_equal():
    pricer = Pricer(A100, PAIRS)
    twins = [layout for layout in every_layout(GPT, 4, 2) if canonical(layout) != layout]
    assert len(twins) > 100
    for layout in twins[:: max(1, round(4 / FACTOR))]:
        works = [describe(GPT, one, LENGTH) for one in (layout, canonical(layout))]
        assert pricer.step_s(works[0]) == pytest.approx(pricer.step_s(works[1]), rel=1e-12)
        if layout.zero == canonical(layout).zero or layout.zero < 3:
            assert peak_memory(works[0])[1].total == pytest.approx(peak_memory(works[1])[1].total, rel=1e-12)


@pytest.mark.parametrize("shape", [pytest.param(GPT, marks=pytest.mark.slow), MIXTURE])
def test_the_space_is_every_legal_layout_and_nothing_else(shape):
    space = LayoutSpace(shape, LENGTH, 4, 2)
    listed = list(space.layouts(4))
    assert len(set(listed)) == len(listed)
    assert set(listed) == {canonical(layout) for layout in every_layout(shape, 4, 4)}


def test_the_search_examines_shards_in_pipelines_recomputed_zero_bubble_and_uneven_rounds():
    listed = list(LayoutSpace(GPT, LENGTH, 12, 2, SearchRequest(keep=(keep := "tp=1,cp=1"))).layouts(4))
    result = {one.layout for one in search(GPT, [4], 12, ROOMY, top=None, keep=keep).ranking}
    kinds = {
        "ZeRO-3 in a pipeline": lambda one: one.pp > 1 and one.zero == 3,
        "recomputed zero bubble": lambda one: one.pp > 1 and one.schedule == "zb-h1" and one.recompute == "full",
        "uneven rounds": lambda one: one.virtual_stages > 1 and one.num_micro_batches % one.pp and one.num_micro_batches > one.pp,
        "less than a round": lambda one: one.virtual_stages > 1 and one.num_micro_batches < one.pp,
    }
    for name, is_such in kinds.items():
        assert [one for one in listed if is_such(one)], name
        assert [one for one in result if is_such(one)], name
    stored = LayoutSpace(GPT, LENGTH, 4, 2, SearchRequest(keep="zero=3,shard_group=2,pp=2")).layouts(4)
    assert {(one.pp, one.zero, one.shard_group) for one in stored} == {(2, 3, 2)}


DEEP = GPT.model_copy(update={"num_layers": 12})


@cache
def levels_of(shape, batch, launcher):
    """A space, and its nodes of eight devices, level by level."""
    space = LayoutSpace(shape, LENGTH, batch, 4, SearchRequest(launcher=launcher))
    return space, [level.nodes for level in space.levels(8) if level.nodes]


@draws(200)
@given(
    data=st.data(),
    shape=st.sampled_from([GPT, MIXTURE, MIXED]),
    batch=st.sampled_from([8, 12, 18, 32]),
    launcher=st.sampled_from([None, "fsdp2", "torchtitan", "deepspeed"]),
)
def test_no_layout_holds_less_than_its_node_does_at_least_by_the_first_of_the_level(data, shape, batch, launcher):
    space, levels = levels_of(shape, batch, launcher)
    assume(levels)
    nodes = data.draw(st.sampled_from(levels))
    node = data.draw(st.sampled_from(nodes))
    leaf = data.draw(st.sampled_from(node.leaves))
    work = describe(shape, space.layout(node, leaf), LENGTH)
    room = data.draw(st.floats(0.2, 1.1)) * (peak_memory(work)[1].total - RUNTIME_BYTES)
    memory = LayoutSearch(space, A100, RUNTIME_BYTES + room, PAIRS).memory
    fits = memory.held(work) <= memory.capacity_bytes
    fitted = memory.held(work if fits else memory.with_less(work, memory.held(work)))
    of_first = [describe(shape, layout, LENGTH) for layout in memory.by_zero(nodes[0])]
    key = leaf.zero if leaf in node.one_way else leaf
    if set(node.leaves) <= set(nodes[0].leaves):
        assert memory.growth(nodes[0], of_first)(node)[key] <= fitted
    own = [describe(shape, layout, LENGTH) for layout in memory.by_zero(node)]
    if launcher is not None or shape is not MIXED:  # layers of several kinds hold less with some computed again than with all
        assert memory.exact(node, own)[key] <= fitted * (1 + 1e-12)
    if not fits and fitted <= memory.capacity_bytes:
        assert memory.least_fitted(work) <= fitted


@draws(100)
@given(data=st.data(), shape=st.sampled_from([DEEP, MIXTURE, MIXED]))
def test_as_few_layers_are_computed_again_as_it_takes_to_fit(data, shape):
    space, levels = levels_of(shape, 8, None)
    nodes = [node for level in levels for node in level if node.keys["recompute"] == "none"]
    leaves = [(node, leaf) for node in nodes for leaf in node.leaves]
    deep = [one for one in leaves if shape.num_layers > one[0].keys["pp"] * one[1].virtual_stages]
    layout = space.layout(*data.draw(st.sampled_from(deep)))
    work = describe(shape, layout, LENGTH)
    number = data.draw(st.integers(1, max(chunk.num_layers for chunk in work.chunks) - 1))
    fits = describe(shape, again_of(layout, number), LENGTH)
    memory = LayoutSearch(space, A100, peak_memory(fits)[1].total, PAIRS).memory
    assume(memory.held(work) > memory.capacity_bytes)  # a schedule that puts weight gradients off may save nothing
    fitted = memory.with_less(work, memory.held(work))
    assert not memory.never_fits(work, memory.held(work))
    assert memory.held(fitted) <= memory.capacity_bytes
    assert fitted.layout.recompute_num_layers <= number


@draws(40)
@given(data=st.data(), shape=st.sampled_from([GPT, MIXTURE, MIXED]))
def test_the_more_layers_are_computed_again_the_longer_a_step_takes_and_the_less_it_holds(data, shape):
    layout = data.draw(st.sampled_from([one for one in layouts_on(shape, "hosts of four") if one.recompute == "none"]))
    work = describe(shape, layout, LENGTH)
    pricer, most = Pricer(A100, FABRICS["hosts of four"][0]), max(chunk.num_layers for chunk in work.chunks)
    works = [work, *(describe(shape, again_of(layout, number), LENGTH) for number in range(1, most + 1))]
    steps = [pricer.step_s(one) for one in works]
    held = [peak_memory(one)[1].total for one in works]
    assert all(after >= before * (1 - 1e-12) for before, after in pairwise(steps))
    assert all(after <= before * (1 + 1e-12) for before, after in pairwise(held[1:]))
    whole = describe(shape, layout.model_copy(update={"recompute": "full"}), LENGTH)
    assert steps[-1] == pytest.approx(pricer.step_s(whole), rel=1e-9)


def test_the_fewest_layers_are_computed_again_that_make_room():
    # Of GPT's four layers on one device two make room, or three: one alone would be held while it is computed again.
    keep, sizes = "dp=1,tp=1,cp=1,pp=1,micro_batch=8,zero=0", []
    layout = next(iter(LayoutSpace(GPT, LENGTH, 8, 2, SearchRequest(keep=keep)).layouts(1)))
    for number in (0, 1, 2, 3):
        one = again_of(layout, number) if number else layout
        sizes.append(peak_memory(describe(GPT, one, LENGTH))[1].total)
    assert sizes[3] < sizes[2] < sizes[0] < sizes[1]
    for number in (2, 3):
        (first, *_) = search(GPT, [1], 8, sizes[number] * 1.0001, keep=keep).ranking
        assert (first.layout.recompute_method, first.layout.recompute_num_layers) == ("block", number)
        assert "recompute=full" in layout_text(first.layout)
        assert "recompute_method=block" in layout_text(first.layout)
    # Whoever says what is computed again is asked nothing more, and torchtitan cannot be told so.
    tight = sizes[2] * 1.0001
    ranking = search(GPT, [1], 8, tight, keep=f"{keep},recompute=none|full").ranking
    assert {one.layout.recompute_method for one in ranking} == {"uniform"}
    titan = search(GPT, [1], 8, tight, keep=keep, launcher="torchtitan").ranking
    assert {one.layout.recompute_method for one in titan} == {"uniform"}


DEEP = GPT.model_copy(update={"num_layers": 12, "vocabulary": 64})


@draws(20)
@given(data=st.data())
def test_groups_of_layers_take_the_same_time_and_hold_a_convex_amount(data):
    layout = data.draw(st.sampled_from([one for one in every_layout(DEEP, 2, 4) if one.recompute == "full" and one.zero == 0]))
    work = describe(DEEP, layout, LENGTH)
    pricer, sizes = Pricer(A100, PAIRS), [1, *group_sizes(work)]
    works = [describe(DEEP, grouped(layout, size), LENGTH) for size in sizes]
    assert {pricer.step_s(one) for one in works} == {pricer.step_s(work)}
    held = [peak_memory(one)[1].total for one in works]
    slopes = [(after - before) / (far - near) for (near, before), (far, after) in pairwise(zip(sizes, held, strict=True))]
    assert all(after >= before - 1e-6 * held[0] for before, after in pairwise(slopes))


def test_layers_are_grouped_where_each_by_itself_makes_no_room():
    # Twelve layers on each of two stages' one chunk keep 6 inputs of every micro-batch; in twos 3, in threes 2 and three layers.
    keep = "dp=1,tp=1,cp=1,pp=2,micro_batch=1,zero=0,schedule=gpipe"
    layouts = LayoutSpace(DEEP, LENGTH, 16, 2, SearchRequest(keep=keep)).layouts(2)
    layout = next(one for one in layouts if one.recompute == "full")
    held = {size: peak_memory(describe(DEEP, grouped(layout, size), LENGTH))[1].total for size in (1, 2, 3, 6)}
    least = min(held, key=held.__getitem__)
    assert least in (2, 3)
    tight = held[least] * 1.0001
    result = search(DEEP, [2], 16, tight, keep=keep)
    assert [(one.layout.recompute, one.layout.recompute_num_layers) for one in result.ranking] == [("full", least)]
    assert result.front == result.ranking
    assert "recompute_num_layers" in layout_text(result.ranking[0].layout)
    # Whoever says what is computed again is asked nothing more; each size can be kept.
    with pytest.raises(PlanError, match="no layout of gpt fits"):
        search(DEEP, [2], 16, tight, keep=f"{keep},recompute=full")
    ranking = search(DEEP, [2], 16, ROOMY, keep=f"{keep},recompute_num_layers=2|6").ranking
    assert {(one.layout.recompute, one.layout.recompute_num_layers) for one in ranking} == {("full", 2), ("full", 6)}
    blocks = search(DEEP, [2], 16, ROOMY, keep=f"{keep},recompute_method=block,recompute_num_layers=1").ranking
    assert {(block.layout.recompute, block.layout.recompute_method) for block in blocks} == {("full", "block")}


@pytest.mark.parametrize("capacity", [1.02, *(pytest.param(capacity, marks=pytest.mark.slow) for capacity in (1.2, 2.0))])
def test_grouped_layers_are_found_exactly(capacity):
    least = min(figures[1] for layout, figures in brute_force(DEEP, 2, 4, PAIRS, ROOMY).items() if layout.recompute == "full")
    expected = brute_force(DEEP, 2, 4, PAIRS, capacity * least)
    result = search(DEEP, [2], 4, capacity * least, top=None)
    assert {one.layout: (one.step_s, one.memory_bytes) for one in result.ranking} == expected
    front = search(DEEP, [2], 4, capacity * least, top=1).front
    assert {(one.step_s, one.memory_bytes) for one in front} == unbeaten(expected.values())


def test_where_hosts_are_not_alike_the_search_is_exact_over_all_orders_that_number_ranks_otherwise():
    wires = group_network(drawn_matrix(0, num_devices=4))
    space = LayoutSpace(GPT, LENGTH, 2, 1, SearchRequest(keep=(keep := "cp=1")))
    pricers = {order: Pricer(A100, wires, order=order) for order in ORDERS}
    expected = []
    for layout in space.layouts(4):
        work = describe(GPT, layout, LENGTH)
        expected.append(min(pricers[order].step_s(work) for order in space.rank_orders(layout, wires)))
    three = Layout(tp=2, cp=2, dp=2, micro_batch=1, global_batch=2)
    assert len(space.rank_orders(three, wires)) == 6
    result = search(GPT, [4], 2, ROOMY, top=5, wires=wires, keep=keep)
    assert [one.step_s for one in result.ranking] == sorted(expected)[:5]
    assert result.counts.pruned > 0


def test_bidirectional_schedules_are_searched_exactly_and_win_where_experts_are_far_apart():
    # One device a host behind a slow card: all-to-alls are a large part of every pass, and hide behind the other direction's.
    slow, keep = HostNetwork(1, 300e9, 25e9), "pp=2,ep=2,dp=2,tp=1,cp=1,micro_batch=1,recompute=none|full,zero=0|1"
    space = LayoutSpace(MIXED, LENGTH, 16, 1, SearchRequest(keep=keep))
    works = {layout: describe(MIXED, layout, LENGTH) for layout in space.layouts(4)}
    assert {"dualpipe", "dualpipev", "1f1b", "zb-2p"} <= {layout.schedule for layout in works}
    pricers = [Pricer(A100, slow, order=order) for order in ORDERS]
    steps = [(min(pricer.step_s(work) for pricer in pricers), peak_memory(work)[1].total) for work in works.values()]
    for capacity in (ROOMY, 1.59e9):
        priced = sorted(step_s for step_s, held in steps if held <= capacity)
        result = search(MIXED, [4], 16, capacity, top=5, wires=slow, keep=keep)
        assert [one.step_s for one in result.ranking] == priced[:5]
    assert search(MIXED, [4], 16, ROOMY, top=1, wires=slow, keep=keep).ranking[0].layout.schedule == "dualpipe"
    # Where nothing of that is to be hidden they are tried when they are asked for.
    requests = SearchRequest(keep="pp=4"), SearchRequest(keep="pp=4,schedule=dualpipe")
    dense = [{layout.schedule for layout in LayoutSpace(GPT, LENGTH, 16, 2, request).layouts(4)} for request in requests]
    assert ({"dualpipe", "dualpipev"} & dense[0], dense[1]) == (set(), {"dualpipe"})
    # Micro-batches of two sequences are nine, an odd number, which no bidirectional schedule takes; those of three are six.
    uneven = search(GPT, [2], 18, ROOMY, keep="pp=2,schedule=1f1b|dualpipe,micro_batch=2|3").ranking
    assert {(one.layout.schedule, one.layout.micro_batch) for one in uneven} >= {("1f1b", 2), ("dualpipe", 3)}


def test_ranks_that_share_a_host_are_those_of_the_axis_that_gains_most():
    slow = HostNetwork(2, 300e9, 1e9)

    def order(keep, batch):
        space = LayoutSpace(WIDE, 1024, batch, 2, SearchRequest(keep=keep, top=1))
        result = LayoutSearch(space, A100, ROOMY, slow).run([4]).ranking[0]
        priced = {order: Pricer(A100, slow, order=order).step_s(describe(WIDE, result.layout, 1024)) for order in ORDERS}
        assert result.step_s == min(priced.values())
        return result.order

    # Two devices a host behind a slow card: two ranks of tp send for every layer, two of dp once a step.
    assert order("tp=2,dp=2,zero=0", 16) == "tp-cp-dp-pp"
    # A stage hands on 4 MB a micro-batch, two copies sum 0.4 GB of gradients a step: 8 micro-batches are too few for the
    # pipeline to want the host, 256 are enough.
    assert order("dp=2,pp=2,zero=0,micro_batch=1,schedule=1f1b", 16) == "tp-cp-dp-pp"
    assert order("dp=2,pp=2,zero=0,micro_batch=1,schedule=1f1b", 512) == "tp-cp-pp-dp"


def test_orders_that_put_a_group_unevenly_on_hosts_are_not_tried():
    space = LayoutSpace(GPT, LENGTH, 12, 4)
    three = Layout(dp=3, pp=4, micro_batch=1, global_batch=12)
    # Stages of three ranks on hosts of four would straddle them; four stages side by side fill a host.
    assert all(order.index("pp") < order.index("dp") for order in space.rank_orders(three, HostNetwork(4, 300e9, 100e9)))


def test_a_search_tells_the_closest_layout_where_none_fits():
    with pytest.raises(PlanError, match=r"no layout of gpt fits 4 devices; closest is .*, which needs .* GB .* GB short"):
        search(GPT, [4], 4, 1.5e9)


def test_a_batch_that_no_layout_divides_is_refused():
    with pytest.raises(PlanError, match="no layout is legal on 4 devices"):
        search(GPT, [4], 3, ROOMY, keep="dp=4")


def test_what_is_told_early_gets_better_and_ends_with_the_best_and_progress_goes_on_to_all_legal_layouts():
    messages, said = [], []
    result = search(
        GPT, [4], 4, ROOMY, on_best=lambda one, _: messages.append(one.step_s), progress=lambda *one: said.append(one)
    )
    assert (messages[-1], len(messages) >= 2) == (result.ranking[0].step_s, True)
    assert {total for what, _, total in said if what == "layouts decided"} == {result.counts.legal}


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 3)), min_size=1, max_size=30))
def test_the_front_is_what_nothing_beats(figures):
    front = Front()
    for number, (step_s, memory_bytes, devices) in enumerate(figures):
        front.add(RankedLayout(step_s, memory_bytes, devices, str(number), Layout(micro_batch=1, global_batch=1), "tp-cp-dp-pp"))
    assert {one[:3] for one in front.members()} == unbeaten(figures)


def test_a_layout_is_spelled_in_short():
    layout = Layout(tp=8, pp=4, dp=2, virtual_stages=3, schedule="interleaved", micro_batch=2, global_batch=16, zero=1)
    assert layout_text(layout) == "tp=8 pp=4 dp=2 interleaved:3 mb=2 zero=1 overlap_pp=false overlap_dp=false"


@pytest.mark.slow
def test_all_layouts_of_a_175b_model_on_1024_devices_are_decided_by_pricing_few_and_the_first_one_is_told():
    config = {"model_type": "gpt2", "n_embd": 12288, "n_layer": 96, "n_head": 96, "n_positions": 2048, "vocab_size": 51200}
    examined = []
    request = SearchRequest(on_best=lambda one, counts: examined.append(counts.examined))
    space = LayoutSpace(shape_of(config, name="gpt3-175b"), 2048, 1536, 8, request)
    wires = HostNetwork(8, 300e9, 200e9)
    result = LayoutSearch(space, A100, ROOMY, wires).run([1024])
    assert examined[0] <= 1
    assert result.counts.legal > 100_000
    assert result.counts.examined < result.counts.legal / 100
    assert len(result.ranking) == 10
    assert result.front[0] == result.ranking[0]
    for one in result.ranking:
        work = describe(space.shape, one.layout, 2048)
        assert one.step_s == pytest.approx(Pricer(A100, wires, order=one.order).step_s(work), rel=1e-12)
        assert one.memory_bytes == peak_memory(work)[1].total <= ROOMY


SEVEN = shape_of(
    {"model_type": "gpt2", "n_embd": 256, "n_layer": 7, "n_head": 4, "n_positions": 256, "vocab_size": 1024}, name="seven"
)


def test_layers_that_no_chunks_divide_are_cut_with_less_in_the_last_one():
    """Seven layers in two stages of two chunks: two in each chunk but the last, which the head joins."""
    space = LayoutSpace(SEVEN, LENGTH, 4, 2, SearchRequest(keep="schedule=interleaved"))
    cut = {one for one in space.layouts(2) if one.pp == 2}
    assert {(one.virtual_stages, one.first_stage_less_layers, one.last_stage_less_layers) for one in cut} == {(2, 0, 1)}
    assert {layers_of_chunks(7, one) for one in cut} == {(2, 2, 2, 1)}
    result = search(SEVEN, [2], 4, ROOMY, top=None, keep="schedule=interleaved")
    assert cut <= {one.layout for one in result.ranking}
    best = search(SEVEN, [2], 4, ROOMY, top=1, keep="schedule=interleaved,pp=2")
    pricer = Pricer(A100, PAIRS)
    assert best.ranking[0].step_s == min(pricer.step_s(describe(SEVEN, one, LENGTH)) for one in cut)
    stored = LayoutSpace(SEVEN, LENGTH, 4, 2, SearchRequest(keep="last_stage_less_layers=1,schedule=interleaved,pp=2"))
    assert set(stored.layouts(2)) == cut
