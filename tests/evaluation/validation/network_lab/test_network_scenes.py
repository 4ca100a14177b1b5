"""What is predicted for gloo over shaped wires, worked by hand."""

import numpy as np
import pytest

from meshwright.costs.formulas import ring_all_reduce_s
from meshwright.costs.network import RankNetwork
from meshwright.evaluation.validation.network_lab.gloo_jobs import Sending
from meshwright.evaluation.validation.network_lab.scenes import (
    CROSSING,
    GOODPUT,
    MIB,
    SHARED,
    TWO_JOBS,
    dumbbell,
    gloo_phases,
    modelled,
    predicted_s,
    row,
    scenes,
    star,
)

# 100 Mbit/s are 12.5e6 bytes of frames a second; of 1514 bytes each, 1448 are payload.
RATE = 12.5e6 * 1448 / 1514
PAIR = ((0, 2), (1, 3))  # a host of each side; both jobs cross the one link between the sides


def reduce(size_mib, times=1, start_s=0.0):
    return Sending("all-reduce", size_mib * MIB, times, start_s)


def test_the_model_gets_the_payload_that_headers_leave_and_the_latency_once_on_each_path():
    assert pytest.approx(0.95641, abs=1e-5) == GOODPUT
    for cluster in (star(4, 100), dumbbell(2, 100)):
        model = modelled(cluster, 250e-6)
        others = np.arange(1, 4)
        assert model.bandwidth_bytes_per_s(0, others) == pytest.approx(np.full(3, RATE))
        assert model.latency_s(0, others) == pytest.approx(np.full(3, 250e-6))
        assert cluster.bandwidth_bytes_per_s(0, others) == pytest.approx(np.full(3, 12.5e6))


def test_four_hosts_worked_by_hand():
    # All-reduce: 6 latencies of 1 ms and 2 * 3/4 of 1 MiB over 11.955 MB/s, 0.006 + 0.13156 s; all-gather: half of it.
    model = modelled(star(4, 100), 1e-3)
    ranks = (tuple(range(4)),)
    assert predicted_s(model, ranks, [reduce(1)]) == pytest.approx([0.1375644], rel=1e-6)
    assert predicted_s(model, ranks, [Sending("all-gather", MIB)]) == pytest.approx([0.0687822], rel=1e-6)
    assert predicted_s(model, ranks, [Sending("send/recv", MIB)]) == pytest.approx([0.001 + MIB / RATE])


@pytest.mark.parametrize("num_hosts", [2, 3, 8])
def test_a_job_alone_takes_the_time_of_the_formula_each_time(num_hosts):
    model = modelled(star(num_hosts, 1000), 3e-4)
    formula_s = ring_all_reduce_s(16 * MIB, num_hosts, 10 * RATE, 3e-4)
    assert predicted_s(model, (tuple(range(num_hosts)),), [reduce(16, times=3)]) == pytest.approx([3 * formula_s])


def test_two_jobs_on_one_link_worked_by_hand():
    model = modelled(dumbbell(2, 100), 0.0)
    # Equal jobs have half of the link each until both have sent 8 MiB, so 16 MiB cross it: 1.4034 s.
    assert predicted_s(model, PAIR, [reduce(8), reduce(8)]) == pytest.approx([1.403354, 1.403354], rel=1e-6)
    # 4 beside 16 MiB: the small one has half until 8 MiB have crossed, 0.7017 s; the other ends with the 20th, 1.7542 s.
    assert predicted_s(model, PAIR, [reduce(4), reduce(16)]) == pytest.approx([0.701677, 1.754192], rel=1e-6)
    # From 0.5 s on beside 12 MiB: the late one has half all its time, 8 MiB / rate; both together 16 MiB without a pause.
    assert predicted_s(model, PAIR, [reduce(12), reduce(4, start_s=0.5)]) == pytest.approx([1.403354, 0.701677], rel=1e-6)


def test_three_jobs_on_one_link_worked_by_hand():
    model, jobs = modelled(dumbbell(3, 100), 0.0), ((0, 3), (1, 4), (2, 5))
    # Thirds of the link until 3 x 2 MiB have crossed, halves until 2 x 2 more, then the last 4 alone.
    wanted_s = [6 * MIB / RATE, 10 * MIB / RATE, 14 * MIB / RATE]
    assert predicted_s(model, jobs, [reduce(2), reduce(4), reduce(8)]) == pytest.approx(wanted_s)


def test_jobs_on_crossing_paths_meet_at_the_switch_in_the_middle_alone():
    model, jobs = modelled(row(3, 2, 100), 0.0), ((0, 2), (3, 4))
    assert predicted_s(model, jobs, [reduce(4), reduce(12)]) == pytest.approx([8 * MIB / RATE, 16 * MIB / RATE])
    apart = ((0, 1), (3, 4))
    assert predicted_s(model, apart, [reduce(4), reduce(12)]) == pytest.approx([4 * MIB / RATE, 12 * MIB / RATE])


def test_a_job_that_rests_takes_nothing_from_the_other():
    model = modelled(dumbbell(2, 100), 0.0)
    assert predicted_s(model, PAIR, [None, reduce(8)]) == pytest.approx([0.0, 8 * MIB / RATE])


def test_a_message_one_way_leaves_the_way_back_free():
    model = modelled(dumbbell(2, 100), 0.0)
    swapped = ((0, 2), (3, 1))
    one_way = Sending("send/recv", 4 * MIB)
    assert predicted_s(model, swapped, [one_way, one_way]) == pytest.approx([4 * MIB / RATE] * 2)
    assert predicted_s(model, PAIR, [one_way, one_way]) == pytest.approx([8 * MIB / RATE] * 2)


def test_an_all_reduce_goes_to_the_rank_before_and_an_all_gather_to_the_one_behind():
    network = RankNetwork(modelled(star(4, 100), 0.0), np.arange(4))
    (reducing,), (gathering,) = (gloo_phases(network, Sending(kind, MIB)) for kind in ("all-reduce", "all-gather"))
    assert {(flow.sender, flow.receiver) for flow in reducing.flows} == {(i, (i - 1) % 4) for i in range(4)}
    assert {(flow.sender, flow.receiver) for flow in gathering.flows} == {(i, (i + 1) % 4) for i in range(4)}


@pytest.mark.parametrize("quick", [True, False])
def test_every_scene_can_be_sent_and_no_two_rows_have_one_name(quick):
    named = set()
    for scene in scenes(quick=quick):
        used = [host for job in scene.jobs for host in job]
        assert len(set(used)) == len(used)
        assert set(used) <= set(range(scene.cluster.num_hosts))
        assert len(used) == scene.cluster.num_hosts or scene.cases[0].family == CROSSING
        for case in scene.cases:
            assert len(case.sendings) == len(scene.jobs)
            assert (scene.name, case) not in named
            named.add((scene.name, case))
            for job, sending in zip(scene.jobs, case.sendings, strict=True):
                assert sending.payload_bytes % (4 * len(job)) == 0
                assert MIB <= sending.payload_bytes <= 64 * MIB
    met = {TWO_JOBS} if quick else set(SHARED)
    assert {case.family for _, case in named} == {"send/recv", "all-reduce", "all-gather", *met}
