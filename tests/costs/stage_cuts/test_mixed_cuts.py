"""Graphs of ops and training strategies on clusters with devices of several types."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.stage_cuts.cut_family import lightest_cut
from meshwright.errors import PlanError
from meshwright.jobs.load import JobSource
from meshwright.planning.estimate import estimate, read_layout
from meshwright.planning.op_graph_work import work_of
from meshwright.planning.search import search_layouts
from meshwright.simulation.training.strategy_step import simulated_training_s

from ...draws import draws
from ...planning.test_mixed_devices import COSTS, cluster

JOB = "zoo:vgg16"
DATA = "dp=8,micro_batch=2,global_batch=64"
PIPELINE = "pp=4,dp=2,micro_batch=2,global_batch=64"
SLOW, FAST, MIXED = ("slow",) * 4, ("fast",) * 4, ("fast", "fast", "slow", "slow")


def found_of(hosts, text, **more):
    return estimate(JOB, cluster(hosts), text, costs=COSTS, **more)


def step_s(hosts, text):
    return found_of(hosts, text).step.step_s


@pytest.mark.parametrize("hosts", [MIXED, MIXED[::-1], ("slow", "fast", "fast", "fast")])
def test_a_synchronous_stage_is_as_slow_as_its_slowest_replica(hosts):
    assert step_s(hosts, DATA) == pytest.approx(step_s(SLOW, DATA), rel=1e-9)


def test_types_that_differ_in_name_alone_are_one():
    assert step_s(("slow", "alike", "slow", "alike"), PIPELINE) == step_s(SLOW, PIPELINE)


HALVES = "pp=2,dp=4,micro_batch=2,global_batch=64"


@pytest.mark.every(3)
@pytest.mark.parametrize("text", [PIPELINE, HALVES, DATA, f"{PIPELINE},schedule=gpipe", f"{HALVES},schedule=gpipe"])
@pytest.mark.parametrize("hosts", [SLOW, MIXED, ("slow", "fast", "fast", "fast"), ("slow", "fast", "slow", "fast")])
def test_the_event_path_says_the_same(hosts, text):
    result = found_of(hosts, text)
    assert result.simulated_s(COSTS) == pytest.approx(result.step.step_s, rel=0.03)


def test_stages_on_fast_devices_get_more_of_the_work():
    result = found_of(MIXED, PIPELINE)
    flops = [float(result.work.graph.forward_flops[ops].sum()) for ops in result.work.chunks]
    assert min(flops[:2]) > max(flops[2:])
    assert step_s(FAST, PIPELINE) < result.step.step_s < step_s(SLOW, PIPELINE)


def test_peak_operations_are_those_of_the_devices():
    result = found_of(MIXED, DATA)
    assert result.step.peak_flops_per_s == pytest.approx((4 * 300 + 4 * 100) * 1e12)


def test_a_stage_that_does_not_fit_its_small_devices_is_refused_and_the_search_puts_less_there():
    job = "zoo:vgg16"
    small = cluster(("fast", "fast", "small", "small"))
    with pytest.raises(PlanError, match="GB"):
        estimate(job, small, "dp=8,micro_batch=32,global_batch=256", costs=COSTS)
    request = {"batch": 256, "keep": "schedule=1f1b,micro_batch=16|32,recompute=none", "costs": COSTS}
    best = search_layouts(job, small, **request).best
    assert best.step_s < search_layouts(job, cluster(("small",) * 4), **request).best.step_s


def test_the_search_ranks_what_estimate_says():
    result = search_layouts(JOB, cluster(MIXED), batch=64, keep="micro_batch=16,recompute=none,schedule=1f1b", costs=COSTS)
    again = estimate(JOB, cluster(MIXED), result.best.layout, costs=COSTS)
    assert result.best.step_s <= again.step.step_s * (1 + 1e-9)  # hosts may stand in another order
    assert result.best.step_s < step_s(SLOW, PIPELINE)


@draws(100)
@given(data=st.data(), units=st.integers(1, 7), stages=st.integers(1, 4))
def test_the_busiest_stage_takes_least(data, units, stages):
    stages = min(stages, units)
    seconds = np.array(
        data.draw(st.lists(st.lists(st.integers(1, 9), min_size=units, max_size=units), min_size=stages, max_size=stages))
    )
    busy_s = np.array([[0, *np.cumsum(row)] for row in seconds], float)
    cuts = np.zeros(stages + 1, np.int64)

    def busiest(cuts):
        return max(row[b] - row[a] for row, a, b in zip(busy_s, cuts, cuts[1:], strict=False))

    lightest_cut(busy_s, np.zeros(units + 1), np.inf, cuts)
    assert all(a < b for a, b in pairwise(cuts))
    assert busiest(cuts) == min(busiest((0, *inner, units)) for inner in combinations(range(1, units), stages - 1))


def test_stages_before_may_take_less_where_they_have_more_units():
    # Two stages up to the second unit take 3, for the second stage must have that unit; up to the third they take 2.
    busy_s, cuts = np.cumsum([[0, 1, 1, 1, 1], [0, 1, 3, 1, 1], [0, 1, 1, 1, 1]], axis=1, dtype=float), np.zeros(4, np.int64)
    assert lightest_cut(busy_s, np.zeros(5), np.inf, cuts) == 2.0
    assert cuts.tolist() == [0, 2, 3, 4]


TRAININGS = [
    "kind=local-sgd,every=4",
    "kind=diloco,every=8",
    "kind=gossip,topology=ring",
    "kind=asp,servers=4",
    "kind=ssp,staleness=2,servers=4",
]


@pytest.mark.parametrize("training", TRAININGS)
def test_strategies_on_mixed_devices_by_both_paths(training):
    (price,) = found_of(MIXED, DATA, training=training).trained
    result = found_of(MIXED, DATA)
    assert simulated_training_s(result.maker, result.work, price.training, costs=COSTS) == pytest.approx(price.step_s, rel=0.03)
    (slow,) = found_of(SLOW, DATA, training=training).trained
    assert price.step_s <= slow.step_s * (1 + 1e-9)


def test_who_waits_for_nobody_makes_as_many_steps_as_all_devices_can():
    replicas = found_of(MIXED, DATA).maker.replicas(found_of(MIXED, DATA).work)
    fast_s, slow_s = (found_of(hosts, DATA).maker.replicas(found_of(hosts, DATA).work).local_s for hosts in (FAST, SLOW))
    assert replicas.workers_s == pytest.approx([fast_s] * 4 + [slow_s] * 4)
    assert replicas.local_s == pytest.approx(slow_s)


CODES = "kind=quantise,bits=8|kind=top-k,fraction=0.01|kind=low-rank,rank=4"


@pytest.mark.every(2)
@pytest.mark.parametrize("layout", ["dp=8", "dp=4,tp=2", "dp=4,pp=2"])
def test_strategies_of_a_transformer_on_mixed_devices_by_both_paths(layout):
    for request in ({"training": "|".join(TRAININGS)}, {"compression": CODES}):
        result = estimate("zoo:gpt2-small", cluster(MIXED), f"{layout},micro_batch=1,global_batch=64", costs=COSTS, **request)
        for price in result.trained:
            simulated_s = simulated_training_s(result.maker, result.work, price.training, price.compression, costs=COSTS)
            assert simulated_s == pytest.approx(price.step_s, rel=0.03), price.text


def test_replicas_of_a_transformer_by_themselves_take_what_clusters_of_their_devices_take():
    layout = "dp=4,pp=2,micro_batch=1,global_batch=64"

    def workers_s(hosts):
        maker = work_of(JobSource("zoo:gpt2-small"), cluster(hosts), COSTS.of_layouts)
        maker = maker.on(np.arange(maker.cluster.num_devices))  # hosts in the order given
        return maker.replicas(maker.work(read_layout(layout, maker.samples)[0])).workers_s.tolist()

    # stages of four ranks on two hosts each: replicas 0 and 1 begin on host 0 and go on on host 2
    assert workers_s(("slow", "fast", "slow", "fast")) == pytest.approx([workers_s(SLOW)[0]] * 2 + [workers_s(FAST)[0]] * 2)


def test_averages_of_a_transformer_on_mixed_devices_cost_as_on_slow_ones():
    layout = "dp=8,micro_batch=1,global_batch=64"
    steps = [
        estimate("zoo:gpt2-small", cluster(hosts), layout, costs=COSTS, training="kind=local-sgd,every=8").trained[0].step_s
        for hosts in (MIXED, SLOW)
    ]
    assert steps[0] == pytest.approx(steps[1], rel=0.01)


def test_codes_of_a_transformer_take_what_the_slowest_device_takes():
    layout, code = "dp=8,micro_batch=1,global_batch=64", "kind=sign"
    steps = [
        estimate("zoo:gpt2-small", cluster(hosts), layout, costs=COSTS, compression=code).trained[0].step_s
        for hosts in (MIXED, SLOW)
    ]
    assert steps[0] == pytest.approx(steps[1], rel=1e-9)


def test_a_masked_job_is_priced_on_devices_of_one_type():
    with pytest.raises(PlanError, match="kind=masked is priced on devices of one type"):
        found_of(MIXED, DATA, training="kind=masked,core=width:0.5,core_steps=9,full_steps=1")
