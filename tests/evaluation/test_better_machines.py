"""No more bandwidth, no shorter latency, no faster device and no more memory makes an estimate or a search worse."""

import random
from itertools import pairwise

import pytest

from meshwright.clusters.cluster import Cluster
from meshwright.costs.layouts.graph_memory import check_graph_fits
from meshwright.costs.layouts.graph_step_time import graph_step_s
from meshwright.costs.layouts.memory import check_fits
from meshwright.costs.layouts.wires import wiring
from meshwright.costs.layouts.work import describe, is_legal
from meshwright.costs.model import CostSettings
from meshwright.devices import device_type
from meshwright.errors import PlanError
from meshwright.evaluation.estimating import pricer
from meshwright.evaluation.estimating_graphs import cut
from meshwright.jobs.load import load_graph, load_shape
from meshwright.planners.layout_graphs import GraphSearch
from meshwright.plans.partition import Layout

HOSTS = {
    "devices_per_host": 4,
    "intra_host_bandwidth_gbytes_per_s": 200.0,
    "intra_host_latency_us": 2.0,
    "nics_per_host": 2,
    "nic_bandwidth_gbytes_per_s": 12.5,
    "nic_latency_us": 5.0,
}
CLOS = {"num_hosts": 4, "hosts_per_leaf": 2, "wiring": "rail", "num_spines": 2, "oversubscription": 2.0, "spine_latency_us": 2.0}
TRACE = {
    "hosts_at": [[f"h{i}", "core", f"p{i // 3}", f"a{i // 2}"] for i in range(4)],
    "leaf_uplink_gbytes_per_s": 20.0,
    "leaf_uplink_latency_us": 2.0,
    "pod_uplink_gbytes_per_s": 20.0,
    "pod_uplink_latency_us": 2.0,
}
NETWORKS = [
    {"kind": "clos"} | HOSTS | CLOS,
    {"kind": "trace"} | HOSTS | TRACE,
    {"kind": "single-host", "num_devices": 8, "fabric": "switch", "bandwidth_gbytes_per_s": 50.0, "latency_us": 2.0},
    {"kind": "single-host", "num_devices": 8, "fabric": "bus", "bandwidth_gbytes_per_s": 50.0, "latency_us": 2.0},
    {"kind": "torus", "shape": [2, 4], "devices_per_host": 2, "link_bandwidth_gbytes_per_s": 20.0, "link_latency_us": 2.0},
    {
        "kind": "ramp",
        "num_groups": 2,
        "num_racks": 2,
        "servers_per_rack": 2,
        "node_bandwidth_gbytes_per_s": 160.0,
        "propagation_ns": 50.0,
        "io_ns": 1000.0,
    },
]
ENDINGS = {"_per_s": 1, "_gbytes": 1, "_efficiency": 1, "_us": -1, "_ns": -1, "oversubscription": -1}


def figures(data):
    """Part and key of every figure of a machine, and whether more of it is better."""
    return [
        (part, key, sign)
        for part in ("device", "topology")
        for key in sorted(data[part])
        for ending, sign in ENDINGS.items()
        if key.endswith(ending)
    ]


def drawn(seed):
    """A machine, a better one, what is priced on them, and choices of the cost model."""
    rng = random.Random(seed)
    device = device_type(rng.choice(["v100", "a100", "h100"])).to_data() | {"memory_gbytes": rng.choice([4.0, 16.0, 80.0])}
    data = {"name": "drawn", "device": device, "topology": dict(rng.choice(NETWORKS))}
    for part, key, _ in figures(data):
        data[part][key] *= rng.uniform(0.5, 1.0)
    better = {"name": "drawn", "device": dict(data["device"]), "topology": dict(data["topology"])}
    every, factor = figures(data), rng.choice([1.01, 1.5, 4.0])
    for part, key, sign in every if rng.random() < 0.2 else [rng.choice(every)]:
        better[part][key] *= factor**sign
        if key.endswith("_efficiency"):
            better[part][key] = min(1.0, better[part][key])
    kind = data["topology"]["kind"]
    names = ["auto", "ring", "tree", "hierarchical", "nccl"] + (["joint", "rail"] if kind in ("clos", "trace") else [])
    costs = CostSettings(collectives=rng.choice(names), overlap_slowdown=rng.choice([1.0, 1.126, 3.0]))
    job = rng.choice(["alexnet", "squeezenet", "vgg16", "bert-base", "gpt2-small"])
    is_graph = not job.startswith(("bert", "gpt2"))
    pp, dp = rng.choice([2, 4] if is_graph else [1, 2, 4]), rng.choice([1, 2])
    tp = 1 if is_graph else rng.choice([1, 2])
    tp = 1 if tp * pp * dp > 8 else tp
    schedule = rng.choice(["1f1b", "gpipe", "interleaved", *([] if is_graph else ["zb-h1", "zb-2p"])]) if pp > 1 else "1f1b"
    micro_batch = rng.choice([1, 2, 4])
    layout = Layout(
        tp=tp,
        pp=pp,
        dp=dp,
        schedule=schedule,
        virtual_stages=rng.choice([2, 3]) if schedule == "interleaved" else 1,
        micro_batch=micro_batch,
        global_batch=micro_batch * dp * rng.choice([1, 3, 8]),
        recompute=rng.choice(["none", "full"]),
        zero=rng.choice([0, 1]),
        overlap_pp=rng.random() < 0.5,
        overlap_dp=rng.random() < 0.5,
    )
    return data, better, costs, job, layout


def price_s(data, costs, job, layout, *, searches):
    """Seconds of a step; None where it does not fit."""
    cluster = Cluster.from_data(data)
    device, capacity, wires = cluster.device_types[0], float(cluster.memory_bytes.min()), wiring(cluster, costs)
    try:
        if job.startswith(("bert", "gpt2")):
            work = describe(load_shape(f"zoo:{job}")[0], layout)
            check_fits(work, capacity)
            return pricer(cluster, costs).step_s(work)
        graph = load_graph(f"zoo:{job}", device=device, batch_size=16)
        if searches:
            per_host = cluster.num_devices // cluster.num_hosts
            keep = {"virtual_stages": (1, 2), "pp": (layout.pp,), "micro_batch": (layout.micro_batch,)}
            search = GraphSearch(graph, 16, device, capacity, per_host, wires, costs, keep, top=1)
            return search.run([8]).ranking[0].step_s
        work = cut(graph, cluster, layout, costs)
        check_graph_fits(work, capacity)
        return graph_step_s(work, wires, costs.overlap_slowdown)
    except PlanError:
        return None


@pytest.mark.parametrize("first", [0, 20])
def test_a_better_machine_never_makes_a_step_longer(first):
    num_priced = 0
    for seed in range(first, first + 20):
        data, better, costs, job, layout = drawn(seed)
        is_graph = not job.startswith(("bert", "gpt2"))
        if not is_graph and not is_legal(load_shape(f"zoo:{job}")[0], layout, 512):
            continue
        for searches in (False, True) if is_graph and seed % 10 == 0 else (False,):
            before = price_s(data, costs, job, layout, searches=searches)
            if before is not None:
                num_priced += 1
                after = price_s(better, costs, job, layout, searches=searches)
                assert after is not None, seed
                assert after <= before * (1 + 1e-9), seed
    assert num_priced > 10


def test_a_faster_network_makes_no_graph_slower():
    # ResNet-50 on four H100, 256 micro-batches: the cut that was least busy took 57 % longer on twice the bandwidth
    steps = []
    for factor in (1, 2, 4):
        topology = {"kind": "clos"} | HOSTS | CLOS | {"devices_per_host": 1, "nics_per_host": 1}
        topology["nic_bandwidth_gbytes_per_s"] = 12.5 * factor
        data = {"name": "drawn", "device": device_type("h100").to_data(), "topology": topology}
        for micro_batch in (1, 16, 64, 256):
            layout = Layout(pp=4, micro_batch=micro_batch, global_batch=256)
            cluster = Cluster.from_data(data)
            graph = load_graph("zoo:resnet50", device=cluster.device_types[0], batch_size=256)
            wires = wiring(cluster, CostSettings())
            steps.append((micro_batch, factor, graph_step_s(cut(graph, cluster, layout, CostSettings()), wires)))
    steps.sort()
    for (size, _, slower), (same, _, faster) in pairwise(steps):
        assert size != same or faster <= slower
