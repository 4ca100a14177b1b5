"""Clusters with devices of several types: prices, memory and search of layouts whose stages run on their own devices."""

import csv
from functools import cache, partial
from itertools import product
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters import load_cluster
from meshwright.clusters.cluster import Cluster
from meshwright.costs.settings import CostSettings
from meshwright.costs.training_step.step_time import Pricer
from meshwright.costs.work.memory import stage_memory
from meshwright.costs.work.step_work import check_fits
from meshwright.costs.work.work import describe
from meshwright.errors import ExportError, PlanError
from meshwright.export import export
from meshwright.jobs.load import JobSource
from meshwright.planners.layouts.stage_choices import stage_choices
from meshwright.planners.layouts.stage_devices import best_load
from meshwright.planning.estimate import estimate, read_layout
from meshwright.planning.op_graph_work import work_of
from meshwright.planning.search import search_layouts
from meshwright.plans import Layout

from ..draws import draws
from ..oracles.layout_views import simulated_step_s

SLOW = {
    "peak_tflops_per_s": 100.0,
    "memory_gbytes": 40.0,
    "memory_bandwidth_gbytes_per_s": 700.0,
    "compute_efficiency": 0.7,
    "memory_efficiency": 0.8,
    "kernel_launch_us": 3.0,
}
TYPES = {
    "slow": SLOW | {"name": "slow"},
    "alike": SLOW | {"name": "alike"},
    "fast": SLOW | {"name": "fast", "peak_tflops_per_s": 300.0, "memory_bandwidth_gbytes_per_s": 2000.0},
    "small": SLOW | {"name": "small", "memory_gbytes": 4.0},
}
SHAPE = JobSource("zoo:gpt2-small").shape()[0]
COSTS = CostSettings(contention="independent", overlap_slowdown=1.0)


@cache
def cluster(hosts, width=2):
    """Hosts of a few devices of one type each."""
    data = load_cluster("preset:dgx-a100-8x8").to_data()
    topology = data["topology"] | {"num_hosts": len(hosts), "devices_per_host": width, "nics_per_host": width}
    names = [f"h{number}" for number in range(len(hosts))]
    overrides = {name: TYPES[kind] for name, kind in zip(names, hosts, strict=True)}
    return Cluster.from_data(
        data
        | {"name": "mixed", "topology": topology, "host_names": names, "device": TYPES["slow"], "device_overrides": overrides}
    )


def step_s(hosts, text, job="zoo:gpt2-small"):
    """The step of ranks on the hosts in the order given."""
    maker = work_of(JobSource(job), cluster(hosts), COSTS.of_layouts)
    maker = maker.on(np.arange(maker.cluster.num_devices))
    work = maker.work(read_layout(text, maker.samples)[0])
    stage, held, room_bytes = maker.tightest(work)
    check_fits((stage, held), room_bytes)
    return maker.pricer.step_s(work)


LAYOUTS = [
    "pp=2,dp=4,micro_batch=2,global_batch=64",
    "pp=4,dp=2,micro_batch=2,global_batch=32",
    "tp=2,pp=2,dp=2,micro_batch=2,global_batch=16",
    "dp=8,micro_batch=2,global_batch=32,zero=2",
    "tp=2,cp=2,dp=2,micro_batch=2,global_batch=32,zero=1",
    "pp=4,dp=2,micro_batch=1,global_batch=16,schedule=zb-h1,overlap_pp=true,overlap_dp=true",
    "pp=2,dp=4,micro_batch=2,global_batch=64,schedule=interleaved,virtual_stages=2",
    "pp=2,dp=4,micro_batch=2,global_batch=64,stage_layers=7/5",
    "pp=4,dp=2,micro_batch=1,global_batch=16,schedule=dualpipe",
    "tp=2,pp=2,dp=2,micro_batch=1,global_batch=16,schedule=dualpipev",
    "pp=2,dp=4,micro_batch=1,global_batch=32,zero=1,schedule=dualpipe,stage_layers=7/5",
]
PLACES = [
    ("fast", "fast", "slow", "slow"),
    ("slow", "slow", "fast", "fast"),
    ("fast", "slow", "slow", "fast"),
    ("slow", "fast", "fast", "fast"),
]


@pytest.mark.parametrize("text", LAYOUTS)
def test_two_names_of_one_device_are_one_type_to_the_digit(text):
    assert step_s(("slow", "alike", "alike", "slow"), text) == step_s(("slow",) * 4, text)


def test_a_search_on_two_names_of_one_device_finds_what_it_finds_on_one():
    one, two = (
        search_layouts("zoo:gpt2-small", cluster(hosts), batch=16, keep="cp=1,recompute=none,schedule=1f1b", costs=COSTS)
        for hosts in (("slow",) * 4, ("alike", "slow", "slow", "alike"))
    )
    assert one.searched.ranking == two.searched.ranking
    assert one.searched.front == two.searched.front


@pytest.mark.every(3)
@pytest.mark.parametrize("text", LAYOUTS)
def test_faster_devices_are_never_slower(text):
    taken_s = {hosts: step_s(hosts, text) for hosts in product(("slow", "fast"), repeat=4)}
    for hosts, slower_s in taken_s.items():
        for place in [place for place, kind in enumerate(hosts) if kind == "slow"]:
            assert taken_s[*hosts[:place], "fast", *hosts[place + 1 :]] <= slower_s * (1 + 1e-9)


@pytest.mark.every(3)
@pytest.mark.parametrize("text", LAYOUTS)
@pytest.mark.parametrize("hosts", PLACES)
def test_both_paths_agree_within_three_percent(text, hosts):
    result = estimate("zoo:gpt2-small", cluster(hosts), text, costs=COSTS)
    assert result.simulated_s(COSTS) == pytest.approx(result.step.step_s, rel=0.03)


def test_a_stage_is_as_slow_as_its_slowest_replica():
    """One replica on slow devices makes every stage slow; stages on devices of their own leave the fast one fast."""
    text = "pp=2,dp=4,micro_batch=1,global_batch=256"
    slow, fast, stages = (step_s(hosts, text) for hosts in (("slow",) * 4, ("fast",) * 4, ("fast", "fast", "slow", "slow")))
    mixed = step_s(("fast", "slow", "fast", "slow"), text)
    assert fast < stages < slow
    assert mixed == pytest.approx(slow, rel=0.02)


def test_fewer_layers_on_the_slow_stage_shorten_the_step():
    text = "pp=2,dp=4,micro_batch=1,global_batch=256"
    hosts = ("fast", "fast", "slow", "slow")
    assert step_s(hosts, f"{text},stage_layers=9/3") < step_s(hosts, text) < step_s(hosts, f"{text},stage_layers=3/9")
    assert step_s(hosts, f"{text},stage_layers=6/6") == step_s(hosts, text)


@given(data=st.data(), num_stages=st.integers(1, 4), num_layers=st.integers(1, 9), count=st.integers(1, 6))
@draws(40)
def test_no_spread_of_layers_fills_and_drains_a_pipeline_faster(data, num_stages, num_layers, count):
    seconds = st.floats(0.1, 10.0)
    each, other = (data.draw(st.lists(seconds, min_size=num_stages, max_size=num_stages)) for _ in range(2))
    most = data.draw(st.lists(st.integers(0, 9), min_size=num_stages, max_size=num_stages))
    spreads = [one for one in product(*(range(1, room + 1) for room in most)) if sum(one) == num_layers]

    def taken_s(layers):
        busy_s = [n * layer_s + other_s for n, layer_s, other_s in zip(layers, each, other, strict=True)]
        return sum(busy_s) + (count - 1) * max(busy_s)

    result = best_load(num_layers, each, other, most, count)
    assert (result is None) == (not spreads)
    if result is not None:
        assert result in spreads
        assert taken_s(result) == pytest.approx(min(map(taken_s, spreads)))


def every_stage_layers(layout):
    cuts = [one for one in product(range(1, 13), repeat=layout.pp) if sum(one) == 12] if layout.virtual_stages == 1 else []
    return [None] if layout.pp == 1 else [None, *cuts]


def test_the_search_finds_what_brute_force_does():
    hosts, keep = ("slow", "fast"), "cp=1,pp=1|2,schedule=1f1b,recompute=none,zero=0,sequence_parallel=false"
    result = search_layouts("zoo:gpt2-small", cluster(hosts), batch=16, keep=keep, top=None, costs=COSTS)
    best: dict[tuple[int, ...], float] = {}
    for tp, pp, dp, size in product((1, 2, 4), (1, 2), (1, 2, 4), (1, 4, 8, 16)):
        if tp * pp * dp != 4 or 16 % (dp * size):
            continue
        base = Layout(tp=tp, pp=pp, dp=dp, micro_batch=size, global_batch=16, overlap_dp=True)
        for layers, order, place in product(every_stage_layers(base), ("tp-cp-dp-pp", "tp-cp-pp-dp"), ("slow", "fast")):
            work = describe(SHAPE, base.model_copy(update={"stage_layers": layers}))
            devices = np.arange(4) if place == "slow" else np.array([2, 3, 0, 1])
            pricer = Pricer.from_cluster(cluster(hosts), COSTS.of_layouts, devices=devices).in_order(order)
            key = tp, pp, dp, size
            best[key] = min(best.get(key, inf), pricer.step_s(work))
    figures = {
        (one.layout.tp, one.layout.pp, one.layout.dp, one.layout.micro_batch): one.step_s for one in result.searched.ranking
    }
    assert result.best.step_s == pytest.approx(min(best.values()), rel=1e-9)
    assert set(figures) >= set(best)
    assert all(figures[key] <= step_s * 1.02 for key, step_s in best.items())  # not all cuts are tried, see `best_load`


@pytest.mark.every(3)
@pytest.mark.parametrize("hosts", PLACES)
def test_bounds_hold_for_every_spread_of_layers_and_every_order(hosts):
    search = search_layouts("zoo:gpt2-small", cluster(hosts), batch=16, keep="pp=2,dp=4,schedule=1f1b", costs=COSTS).search
    for text, layers in product(LAYOUTS[:4], (None, (6, 6), (10, 2), (2, 10))):
        layout = Layout.parse(text, hides_unasked=True)
        if layers is not None and layout.pp != 2:
            continue
        optimist, work = search.optimist(8), search.work(layout.model_copy(update={"stage_layers": layers}))
        for order in ("tp-cp-dp-pp", "tp-cp-pp-dp", "dp-tp-cp-pp", "pp-tp-cp-dp"):
            pricer = search.pricer(order)
            assert optimist.bound_s(search.work(layout)) <= pricer.bound_s(work) * (1 + 1e-9)
            assert pricer.bound_s(work) <= pricer.step_s(work)


def test_of_two_ranks_with_the_same_stages_the_slower_one_decides_under_dualpipe():
    text = "pp=4,dp=2,micro_batch=1,global_batch=32,schedule=dualpipe"
    slow_s, fast_s = (step_s((kind,) * 4, text) for kind in ("slow", "fast"))
    # The halves of a pipeline hold the same: where one of them is slow, both are. Two slow ranks in the middle hold a half alone.
    assert step_s(("fast", "fast", "slow", "slow"), text) == pytest.approx(slow_s, rel=1e-9)
    assert step_s(("slow", "fast", "slow", "fast"), text) == pytest.approx(slow_s, rel=1e-9)
    assert fast_s < step_s(("fast", "slow", "slow", "fast"), text) < slow_s


@pytest.mark.parametrize("hosts", PLACES[:3])
def test_schedules_that_go_both_ways_are_searched_exactly_on_devices_of_several_types(hosts):
    keep = "tp=1,cp=1,pp=2|4,schedule=dualpipe|dualpipev,recompute=none,zero=0|1,micro_batch=1"
    result = search_layouts("zoo:gpt2-small", cluster(hosts), batch=32, keep=keep, top=None, costs=COSTS)
    search, layouts = result.search, list(result.search.space.layouts(8))
    assert {layout.schedule for layout in layouts} == {"dualpipe", "dualpipev"}
    for layout in layouts:
        work, optimist = search.work(layout), search.optimist(8)
        for order in search.space.rank_orders(layout, search.wires):
            pricer = search.pricer(order)
            assert optimist.bound_s(work) <= pricer.bound_s(work) * (1 + 1e-9)
            assert pricer.bound_s(work) <= pricer.step_s(work)
    priced = [
        min(search.pricer(order).step_s(search.work(one)) for order in search.space.rank_orders(one, search.wires))
        for one in layouts
    ]
    assert result.best.step_s <= min(priced) * (1 + 1e-12)


def test_each_stage_has_the_memory_of_its_own_devices():
    """Half of BERT large fits 40 GB and not 4 GB; few of its layers do."""
    text = "pp=2,dp=4,micro_batch=1,global_batch=16,recompute=full"
    places = [("slow", "slow", "small", "small"), ("slow", "slow", "slow", "slow")]
    with pytest.raises(PlanError, match=r"a rank of stage 1 needs .* GB .*, a device has 4\.0 GB"):
        step_s(places[0], text, "zoo:bert-large")
    assert step_s(places[0], f"{text},stage_layers=22/2", "zoo:bert-large") > step_s(places[1], text, "zoo:bert-large")
    result = search_layouts(
        "zoo:bert-large", cluster(places[0]), batch=16, keep="tp=1,pp=2,dp=4,schedule=1f1b,recompute=full,zero=0"
    )
    layers = result.best.layout.stage_layers
    assert layers is not None
    for one in result.searched.ranking:
        work, order = result.search.work(one.layout), one.order
        room = result.maker.stage_devices.room_bytes(one.layout, order)
        assert all(stage_memory(work, stage).total <= room[stage] for stage in range(2))


def test_the_plan_says_each_stages_layers_and_goes_where_they_can_be_said():
    search = partial(search_layouts, "zoo:bert-large", cluster(("slow", "fast")), batch=16)
    keep = "tp=1,pp=2,dp=2,schedule=1f1b,micro_batch=1,zero=0"
    result = search(keep=keep)
    plan, layers = result.plan, result.best.layout.stage_layers
    priced = estimate("zoo:bert-large", cluster(("slow", "fast")), result.best.layout)
    assert priced.step.step_s == result.best.step_s  # on hosts in the search's order
    assert layers is not None
    assert layers[0] != layers[1]
    text = "".join(export(plan, "megatron").values())
    assert f"Et*{layers[0]}|t*{layers[1]}L" in text
    with pytest.raises(ExportError, match="stage_layers"):
        export(plan, "deepspeed")
    assert export(search(keep=keep, launcher="deepspeed").plan, "deepspeed")
    head, *rows = csv.reader(result.to_csv().splitlines())
    assert {row[head.index("stage_layers")] for row in rows} == {f"{layers[0]}/{layers[1]}"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("pp=2,dp=4,micro_batch=1,global_batch=16,stage_layers=7/4", "are 11 layers, gpt2-small has 12"),
        ("pp=2,dp=4,micro_batch=1,global_batch=16,stage_layers=4/4/4", "names 3 stages, pp is 2"),
        ("pp=2,dp=4,micro_batch=1,global_batch=16,stage_layers=6-6", "with / between, as 14/10"),
        (
            "pp=2,dp=4,micro_batch=1,global_batch=16,stage_layers=7/5,first_stage_less_layers=1",
            "leave out first_stage_less_layers",
        ),
    ],
)
def test_layers_of_stages_that_do_not_fit_are_refused(text, problem):
    with pytest.raises(PlanError, match=problem):
        step_s(("slow", "fast", "slow", "fast"), text)


def test_what_devices_of_several_types_are_not_priced_for_is_refused_by_name():
    mixed = cluster(("slow", "fast"))
    layout = "dp=4,micro_batch=1,global_batch=16"
    with pytest.raises(PlanError, match="kind=masked is priced on devices of one type"):
        estimate("zoo:gpt2-small", mixed, layout, training="kind=masked,core=width:0.5,core_steps=9,full_steps=1")
    with pytest.raises(PlanError, match=r"stage_layers: is found by the search"):
        search_layouts("zoo:gpt2-small", mixed, batch=16, keep="stage_layers=7/5")


MESHED = [
    "tp=4,dp=1,pp=2,stage_meshes=4x1/2x2,micro_batch=2,global_batch=16",
    "tp=2,dp=2,pp=2,stage_meshes=2x2/1x4,micro_batch=2,global_batch=16,zero=1,stage_layers=7/5",
    "tp=2,dp=2,pp=3,stage_meshes=2x2/2x1/1x2,micro_batch=2,global_batch=16,overlap_dp=true,overlap_pp=true",
]
UNTIED = SHAPE.model_copy(update={"is_head_tied": False, "num_heads": 16, "hidden": 1024})


@pytest.mark.every(3)
@pytest.mark.parametrize("text", MESHED)
@pytest.mark.parametrize("hosts", PLACES)
def test_both_paths_agree_on_stages_of_their_own_meshes(text, hosts):
    mixed = cluster(hosts)
    work = describe(UNTIED, Layout.parse(text), 512)
    analytic_s, simulated_s = Pricer.from_cluster(mixed, COSTS).step_s(work), simulated_step_s(work, mixed, COSTS)
    # All ranks of a stage on devices of two types are taken for the slowest in a whole pass: replicas need not meet, and ranks
    # of tp wait for each other kernel by kernel.
    is_alike = all(len({hosts[rank // 2] for rank in range(*ends)}) == 1 for ends in pairs(work.layout))
    assert simulated_s == pytest.approx(analytic_s, rel=0.03 if is_alike else 0.05)


def pairs(layout):
    return [(layout.first_rank(stage), layout.first_rank(stage + 1)) for stage in range(layout.pp)]


@pytest.mark.parametrize("text", MESHED)
def test_one_faster_device_never_slows_stages_of_their_own_meshes(text):
    work = describe(UNTIED, Layout.parse(text), 512)
    for hosts in PLACES:
        for place in [place for place, kind in enumerate(hosts) if kind == "slow"]:
            faster = (*hosts[:place], "fast", *hosts[place + 1 :])
            pricers = [Pricer.from_cluster(cluster(one), COSTS) for one in (faster, hosts)]
            assert pricers[0].step_s(work) <= pricers[1].step_s(work) * (1 + 1e-9)


@pytest.mark.parametrize("hosts", PLACES[:2])
def test_bounds_of_meshes_hold_on_devices_of_several_types(hosts):
    base = Layout.parse("tp=2,dp=2,pp=2,micro_batch=1,global_batch=16")
    pricer, priced = Pricer.from_cluster(cluster(hosts), COSTS), 0
    for choice in stage_choices(base, lambda layout: describe(UNTIED, layout, 512), pricer).layouts:
        (tp, dp), keys = choice.meshes[0], {"stage_meshes": choice.meshes, "stage_layers": choice.layers}
        try:
            other = Layout(**(base.model_dump() | keys | {"tp": tp, "dp": dp, "micro_batch": 2 // dp}))
            assert choice.bound_s <= pricer.step_s(describe(UNTIED, other, 512)) * (1 + 1e-9)
        except PlanError:  # a stage would begin within a host
            continue
        priced += 1
    assert priced > 3
