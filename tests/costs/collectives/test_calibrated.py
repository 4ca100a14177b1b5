"""Lines fitted to measurements, worked by hand; and the devices whose figures a cluster of other devices takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters.cluster import Cluster, load_cluster
from meshwright.costs import collectives, nccl
from meshwright.costs.collectives.groups import Group
from meshwright.costs.collectives.libraries.calibrated import HOST_ALL_REDUCE, HostLine, host_line
from meshwright.costs.network import RankNetwork
from meshwright.costs.phases import fullest_s
from meshwright.costs.process_groups.group_network import HostNetwork, group_network, payloads_s
from meshwright.costs.settings import CostSettings
from meshwright.costs.training_step.foreign_figures import foreign_figures

from ...draws import draws
from ...samples.sample_clusters import clos, cluster_of

A100 = HostLine(300e9)
HOSTS = HostNetwork(8, 300e9, 200e9)


@pytest.mark.parametrize(
    ("operation", "size", "per_host", "expected_s"),
    [
        # Inside a host, 8 ranks: 78.6 us at 227.3 GB/s; 1.75 of the payload cross each link.
        ("all_reduce", 8, 8, 78.6e-6 + 1.75 * 1e9 / 227.3e9),
        # The others: 0.6 of the latency, 0.9 of the bandwidth, half as many bytes.
        ("all_gather", 8, 8, 0.6 * 78.6e-6 + 0.875 * 1e9 / (0.9 * 227.3e9)),
        # Three ranks lie halfway between two and four: 50 us at 205.65 GB/s.
        ("all_reduce", 3, 3, 50e-6 + 4 / 3 * 1e9 / 205.65e9),
        # Two hosts of 8: two hops of 14 us, and 0.9 of the 200 GB/s of all cards, which is less than inside.
        ("all_reduce", 16, 8, 78.6e-6 + 28e-6 + 1.875 * 1e9 / 180e9),
        # Eight hosts of one rank: a tree's 2 x 3 + 2 hops and not a ring's 14, by its cards alone.
        ("all_reduce", 8, 1, 8 * 14e-6 + 1.75 * 1e9 / 180e9),
        # Of nine hosts a tree is one deeper: 2 x 4 + 2 hops.
        ("all_reduce", 9, 1, 10 * 14e-6 + 16 / 9 * 1e9 / 180e9),
        ("reduce_scatter", 8, 1, 7 * 14e-6 + 0.875 * 1e9 / 180e9),
        # A transfer: half the latency of two ranks, or one hop.
        ("send_recv", 2, 2, 23e-6 + 1e9 / 192.9e9),
        ("send_recv", 2, 1, 14e-6 + 1e9 / 180e9),
    ],
)
def test_a_gigabyte_worked_by_hand(operation, size, per_host, expected_s):
    assert HOSTS.group_s(operation, 1e9, Group(size, per_host)) == pytest.approx(expected_s, rel=1e-12)
    assert HOSTS.group_s(operation, 0.0, Group(size, per_host)) == 0.0
    assert HOSTS.group_s(operation, 1e9, Group(1, 1)) == 0.0


def test_between_hosts_a_ring_is_no_faster_than_inside_and_other_links_scale():
    wide_s = HostNetwork(8, 300e9, 1e15).group_s("all_reduce", 1e9, Group(16, 8))
    assert wide_s == pytest.approx(78.6e-6 + 28e-6 + 1.875 * 1e9 / 227.3e9)
    assert HostLine(450e9).inside(8) == (A100.inside(8)[0], 1.5 * A100.inside(8)[1])


def test_numbers_of_ranks_that_were_measured_have_their_own_line_and_others_lie_between_or_beyond():
    mesh = HostLine(150e9, "cube mesh")
    for line in (A100, mesh):
        for ranks, known in HOST_ALL_REDUCE[line.links].items():
            assert line.inside(ranks) == pytest.approx(known, rel=1e-12)
    # six of V100 lie halfway between four and eight; beyond eight, and alone, nothing else is known
    assert mesh.inside(6) == (pytest.approx(60.45e-6), pytest.approx(110.95e9))
    assert (mesh.inside(16), mesh.inside(1)) == (mesh.inside(8), mesh.inside(2))
    assert HostLine(75e9, "cube mesh").inside(2) == (23.8e-6, 11.3e9)


CARDS = clos(2, 4, inside=(90.0, 1.0), cards=4, card=(10.0, 1.0), spine_latency_us=0.1, wiring="rail")


def test_lines_are_known_of_hosts_with_switched_links_and_of_v100_as_a_cube_mesh(ramp):
    assert host_line(cluster_of(CARDS, "v100")) == (90e9, "cube mesh")
    assert host_line(cluster_of(CARDS, "a100")) == host_line(cluster_of(CARDS, "h100")) == (90e9, "nvswitch")
    assert host_line(load_cluster("preset:host-8")) == (300e9, "nvswitch")
    assert host_line(ramp) is None
    # whatever the cluster says, PCIe 4.0 and 5.0 carry no more than theirs
    assert host_line(cluster_of(CARDS, "l40s")) == (31.5e9, "pcie")
    assert host_line(cluster_of(CARDS, "rtx-pro-6000")) == (63e9, "pcie")
    assert host_line(of_devices("l40s-mine")) == (31.5e9, "pcie")
    assert host_line(of_devices("v100")) == (300e9, "cube mesh")


def test_eight_devices_on_pcie_sum_a_gigabyte_worked_by_hand():
    # 78.6 us and 2 (7 / 8) of 1e9 bytes at 14 GB/s: 125 ms, where an A100's switch takes 7.8 ms
    wires, switched = (group_network(of_devices(name)) for name in ("l40s", "a100"))
    assert wires.group_s("all_reduce", 1e9, Group(8, 8, 1, 1)) == pytest.approx(78.6e-6 + 1.75 / 14)
    assert switched.group_s("all_reduce", 1e9, Group(8, 8, 1, 1)) == pytest.approx(78.6e-6 + 1.75 / 227.3)


@pytest.mark.parametrize(
    ("devices", "operation", "seconds"),
    [
        # as of lines above: the eight cards of a host carry 200 GB/s, two of them 50, of which 0.9 is reached
        (range(16), "all_reduce", 78.6e-6 + 28e-6 + 1.875 * 1e9 / 180e9),
        ([0, 1, 8, 9], "all_reduce", 46e-6 + 28e-6 + 1.5 * 1e9 / 45e9),
        ([0, 1, 8, 9], "all_to_all", 0.6 * 46e-6 + 14e-6 + 0.75 * 1e9 / 45e9),
        (range(8), "all_gather", 0.6 * 78.6e-6 + 0.875 * 1e9 / (0.9 * 227.3e9)),
        ([0, 8], "send_recv", 14e-6 + 1e9 / 22.5e9),
    ],
)
def test_flows_are_those_of_the_fastest_formula_and_last_as_long_as_the_line_says(dgx, devices, operation, seconds):
    network, ranks = RankNetwork(dgx, np.array(devices)), np.arange(len(devices))
    line, fastest = (collectives.algorithm_named(name) for name in ("calibrated", "auto"))
    assert line.time_s(network, ranks, 1e9, operation) == pytest.approx(seconds)
    result, formula = (one.phases(network, ranks, 1e9, operation) for one in (line, fastest))
    assert [phase.flows for phase in result] == [phase.flows for phase in formula]
    assert len({phase.latency_s for phase in result}) == 1
    lasts_s = sum(phase.latency_s + fullest_s(network, phase) for phase in result)
    assert lasts_s == pytest.approx(max(seconds, sum(fullest_s(network, phase) for phase in formula)))
    assert line.phases(network, ranks, 1e9) == line.phases(network, ranks, 1e9, "all_reduce")
    assert line.phases(network, ranks, 0.0, operation) == ()


def test_only_what_was_measured_is_called_interpolated():
    assert A100.provenance("all_reduce", 2**20, 8, 8) == A100.provenance("all_gather", 2**30, 2, 4) == "interpolated"
    others = [(A100, "all_reduce", 2**30 + 1, 8, 8), (A100, "all_reduce", 2**20 - 1, 8, 8), (A100, "all_reduce", 2**20, 16, 8)]
    others += [(A100, "send_recv", 2**20, 2, 2), (HostLine(450e9), "all_reduce", 2**20, 8, 8)]
    assert {line.provenance(*request) for line, *request in others} == {"estimated"}


@draws(20)
@given(
    st.sampled_from(collectives.OPERATIONS),
    st.sampled_from([Group(1, 1, 1, 1), Group(8, 8, 1, 1), Group(8, 1, 8, 8), Group(16, 4, 2, 2)]),
    st.lists(st.floats(1, 1e11), min_size=1, max_size=5),
)
def test_many_payloads_take_what_each_of_them_takes(operation, group, payloads):
    wires = HostNetwork(8, 300e9, 200e9)
    assert payloads_s(wires, operation, np.array(payloads), group).tolist() == [
        wires.group_s(operation, payload, group) for payload in payloads
    ]


def test_groups_of_unequal_parts_and_clusters_without_switched_hosts_take_the_fastest_formula(dgx, ramp):
    for cluster, devices in ((dgx, [0, 1, 8]), (ramp, [0, 1, 2, 3])):
        network, ranks = RankNetwork(cluster, np.array(devices)), np.arange(len(devices))
        line, formula = (collectives.price("all_gather", network, ranks, 1e8, name) for name in ("calibrated", "auto"))
        assert line.seconds == formula.seconds
        both = [collectives.algorithm_named(name).phases(network, ranks, 1e8, "all_gather") for name in ("calibrated", "auto")]
        assert both[0] == both[1]


def of_devices(name, count=8):
    data = load_cluster("preset:host-8").to_data() | {"name": name}
    peaks = {"peak_tflops_per_s": 300, "memory_gbytes": 80, "memory_bandwidth_gbytes_per_s": 2000}
    data["device"] = {"name": name, "compute_efficiency": 0.5, "memory_efficiency": 0.8, "kernel_launch_us": 5} | peaks
    return Cluster.from_data(data)


TAKEN = {
    ("a100-80gb", "calibrated", None): [],
    ("h100", "calibrated", None): [
        "collectives inside hosts: measured on a100, scaled to the links of h100 "
        "(--set collectives=measured takes tables of h100, by which no published step was predicted)"
    ],
    ("h100", "measured", None): [],
    ("h100", "measured", "a100"): ["collectives: tables measured on a100 are taken for h100 as they are"],
    ("l40s", "calibrated", None): [
        "collectives inside hosts: l40s reach each other over PCIe, 31.5 GB/s one way in place of 300; "
        "measured on two l40s, and on four and eight RTX 5090"
    ],
    ("l40s", "nccl", None): [],  # compute capability 8.9, which NCCL itself tunes as Ampere
    ("l40s", "measured", None): ["collectives: there are no tables of l40s; what NCCL's tuner expects is taken"],
    ("tpu", "nccl", None): ["collectives: NCCL's tuner has no constants of tpu; those of Ampere are taken"],
    ("tpu", "ring", None): [],
}


def test_figures_of_other_devices_are_told_and_a_device_s_own_are_not():
    figures = {}
    for name, algorithm, table in TAKEN:
        costs = CostSettings(collectives=algorithm, collectives_table=table)
        figures[name, algorithm, table] = list(foreign_figures(of_devices(name), costs, has_layers=False))
    assert figures == TAKEN
    two = foreign_figures(load_cluster("preset:mixed-256"), CostSettings(collectives="measured"), has_layers=True)
    assert two == ("collectives: there are no tables for h100 and a100 together; what NCCL's tuner expects is taken",)
    kernels = ("kernels: there are no constants of tpu; the shares of its peaks that an a100 reaches are taken",)
    assert foreign_figures(of_devices("tpu"), CostSettings(), has_layers=True) == kernels
    assert foreign_figures(of_devices("tpu"), CostSettings(kernels="any"), has_layers=True) == ()


def test_a_product_s_name_tells_its_generation_and_no_other_does():
    known = ["NVIDIA A100-SXM4-80GB", "H100 80GB HBM3", "v100", "NVIDIA L4", "RTX 4090", "b200", "gb200"]
    assert nccl.foreign_constants(known) == ()
    assert not [name for name in ("mi300x", "tpu-v4", "gaudi2", "xl40") if nccl.is_tuned(name)]
