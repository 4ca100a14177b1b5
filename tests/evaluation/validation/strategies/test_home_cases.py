"""Each switch of the five layers gains in the case that it is made for, and is named by `estimate --explain`."""

import numpy as np
import pytest

from meshwright.clusters.cluster import Cluster
from meshwright.evaluation.validation.strategies import five_layers
from meshwright.evaluation.validation.strategies.uneven_networks import matrix_cluster
from meshwright.planning.estimate import estimate
from meshwright.planning.explain import explain

A100 = "preset:dgx-a100-8x8"
REPLICAS = "dp=16,micro_batch=1,global_batch=16,overlap_dp=true"
STAGES = "pp=16,micro_batch=32,global_batch=128"

EXPLAINED = {
    "gradients of two hosts, each reduced inside first": ("collectives=hierarchical", A100, REPLICAS),
    "gradients of two hosts, each ring on its rail": ("collectives=rail", A100, REPLICAS),
    "gradients of two hosts, NVLink and cards at once": ("collectives=joint", A100, REPLICAS),
    "stages whose boundary leaves a host by one of eight cards": ("collectives=joint-split", A100, STAGES),
    "gradients of two hosts, reduced by switches": ("collectives=in-network", A100, REPLICAS),
    "replicas on a cube mesh": ("collectives=synthesised", "cube mesh", "dp=8,micro_batch=1,global_batch=8"),
    "gradients of 64 hosts whose ports turn fast": ("circuits=per-phase", "optical", "dp=64,micro_batch=1,global_batch=64"),
    "two jobs that meet on all cards": ("jobs interleaved", A100, REPLICAS),
    "stages that send while they compute": ("overlap_pp=true", A100, STAGES),
    "gradients after the last pass": ("overlap_dp=true", A100, "dp=16,micro_batch=1,global_batch=16,overlap_dp=false"),
}
"""By the name of the case: the switch, cluster and layout."""

SIMULATED = {
    "an expert all-to-all that a pass wants, and gradients before it on one stream": "step by deadline over step by fifo",
    "an expert all-to-all that a pass wants, and gradients on the same link": "step by edf over step by fair",
    "an all-reduce on a cube mesh": "rate of trees over a ring's",
    "a message between two hosts of eight cards": "seconds over the own card's",
    "experts over hosts joined by circuits": "all-to-all by shifts over one along a ring",
    "the same where a turn takes as long as a phase": "all-to-all by halves of the ports over one along a ring",
    "two jobs that send half of the time, in turns": "in turns, by flows, of the speed alone",
}
"""Cases that no layout of one model makes: by name, the figure of `five_layers`."""


def _optical():
    ports = {"ports_per_host": 4, "port_bandwidth_gbytes_per_s": 12.5, "circuit_latency_us": 20.0, "reconfiguration_us": 1.0}
    inside = {"devices_per_host": 1, "intra_host_bandwidth_gbytes_per_s": 300.0, "intra_host_latency_us": 0.0}
    topology = {"kind": "optical", "num_hosts": 64} | ports | inside
    return Cluster.from_data({"name": "optical", "device": "a100", "topology": topology})


PLACES = {"cube mesh": lambda: matrix_cluster(five_layers.cube_mesh(), 8, "v100"), "optical": _optical}


@pytest.fixture(scope="module")
def told():
    """Lines of `explain`, computed once for each cluster and layout."""
    result = {}
    for _, place, layout in EXPLAINED.values():
        if (place, layout) not in result:
            cluster = PLACES[place]() if place in PLACES else place
            priced = estimate("zoo:bert-large", cluster, layout)
            result[place, layout] = {one.name: one for one in explain(priced)}
    return result


@pytest.mark.parametrize("case", EXPLAINED)
def test_a_switch_gains_in_its_home_case_and_explain_says_so(case, told):
    name, place, layout = EXPLAINED[case]
    switch = told[place, layout][name]
    assert switch.change is not None, switch.remark
    assert switch.change < -1e-4


@pytest.fixture(scope="module")
def figures():
    return {one.figure: one for one in five_layers.figures()}


@pytest.mark.parametrize("case", SIMULATED)
def test_a_switch_gains_in_a_home_case_of_its_own(case, figures):
    result = figures[SIMULATED[case]]
    assert result.agrees
    if result.is_floor:
        assert result.ours >= 0.95
    else:
        assert result.ours < 0.9


@pytest.mark.parametrize("name", ["priority=deadline", "flows_priority=priority", "flows_priority=edf"])
def test_orders_of_messages_and_flows_never_lose_where_nothing_meets(name, told):
    # one pipeline of single messages: no order can change anything
    assert told[A100, STAGES][name].change == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("apart", [0.0, 0.125, 0.25, 0.375, 0.5])
def test_two_jobs_that_send_half_of_the_time_worked_by_hand(apart):
    # One begins to send as much after the other. Alone it sends for that long; then each has half of the link until the first
    # has sent the rest of its 0.5 s, twice 0.5 - apart; the second has as much left as the first sent alone. So both send for
    # 1 - apart, begin as far apart again, and steps take 1.5 - apart: 1.25 s in the mean over all that chance may make it.
    link = {"kind": "single-host", "num_devices": 4, "fabric": "bus", **five_layers._LINK}
    cluster, steps = five_layers._cluster(link), five_layers.STEPS
    jobs = [
        five_layers.PlacedJob(five_layers._half_sending(), np.array(devices), at)
        for devices, at in (([0, 1], 0.0), ([2, 3], apart))
    ]
    (_, first_s), _ = five_layers.schedule(jobs, cluster)
    assert first_s.max() == pytest.approx(steps * (1.5 - apart), rel=1e-9)


def test_a_fleet_is_within_a_fifth_of_a_percent_of_the_mean_of_chance(figures):
    ours = figures["bursts meet, in a fleet, of the speed alone"].ours
    assert ours == pytest.approx(1 / 1.25, rel=2e-3)
    assert ours > 0.80  # the fitted constants sum to 1.01, and 1.25 s would want (1 + 0.4 h) / 1.2 = 1.017
