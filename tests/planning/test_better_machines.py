"""On the same places no more bandwidth, no shorter latency, no faster device and no more memory makes a step longer."""

import os
import random
from itertools import pairwise, product
from math import prod

import numpy as np
import pytest

from meshwright.clusters.cluster import Cluster
from meshwright.costs.settings import CostSettings
from meshwright.costs.training_step.graph_step_time import GraphPricer
from meshwright.costs.work.model_chunks import is_legal
from meshwright.costs.work.step_work import check_fits
from meshwright.devices import device_type
from meshwright.errors import PlanError
from meshwright.jobs.load import JobSource, load_graph, load_shape
from meshwright.planners.layouts.request import SearchRequest
from meshwright.planning.job_work import TransformerWork
from meshwright.planning.op_graph_work import cut, work_of
from meshwright.plans.partition import Layout

from ..draws import FACTOR

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
PAIRS = {"kind": "matrix", "devices_per_host": 2, "bandwidth_gbytes_per_s": None, "latency_us": None}
NETWORKS += [PAIRS, NETWORKS[0] | {"hosts_per_leaf": 3}, NETWORKS[1] | {"devices_per_host": 2}]
ENDINGS = {"_per_s": 1, "_gbytes": 1, "_efficiency": 1, "_us": -1, "_ns": -1, "oversubscription": -1}
MIXTURE = load_shape("zoo:gpt2-small")[0].model_copy(update={"name": "mixture", "num_experts": 4, "experts_per_token": 2})
SHAPES = {name: load_shape(f"zoo:{name}")[0] for name in ("bert-base", "gpt2-small")} | {"mixture": MIXTURE}
GRAPHS = ("alexnet", "squeezenet", "vgg16")
NUM_CASES = int(os.environ.get("MESHWRIGHT_CASES", "20" if FACTOR <= 1 else "160"))
LENGTH = 256


def figures(data):
    """Part and key of every figure of a machine, and whether more of it is better."""
    return [
        (part, key, sign)
        for part in ("device", "topology")
        for key in sorted(data[part])
        for ending, sign in ENDINGS.items()
        if key.endswith(ending)
    ]


def changed(figure, factor, rng):
    """A figure times a factor; of pairs, some of them."""
    if isinstance(figure, list):
        return [[each * rng.choice([1.0, factor]) for each in row] for row in figure]
    return figure * factor


def drawn_machines(rng):
    """A machine and a better one."""
    device = device_type(rng.choice(["v100", "a100", "h100"])).to_data() | {"memory_gib": rng.choice([4.0, 16.0, 80.0])}
    data = {"name": "drawn", "device": device, "topology": dict(rng.choice(NETWORKS))}
    if data["topology"]["kind"] == "matrix":
        pairs = {"bandwidth_gbytes_per_s": (-1, 2), "latency_us": (0, 3)}
        data["topology"] |= {key: [[10 ** rng.uniform(*ends) for _ in range(8)] for _ in range(8)] for key, ends in pairs.items()}
    for part, key, _ in figures(data):
        data[part][key] = changed(data[part][key], rng.uniform(0.5, 1.0), rng)
    better = {"name": "drawn", "device": dict(data["device"]), "topology": dict(data["topology"])}
    every, factor = figures(data), rng.choice([1.01, 1.5, 4.0])
    for part, key, sign in every if rng.random() < 0.2 else [rng.choice(every)]:
        better[part][key] = changed(better[part][key], factor**sign, rng)
        if key.endswith("_efficiency"):
            better[part][key] = min(1.0, better[part][key])
    return data, better


def drawn_layout(rng, is_graph):
    """A layout of any keys; of a graph those that cut it."""
    tp, cp, dp, pp = rng.choice([degrees for degrees in DEGREES if not is_graph or degrees[:2] == (1, 1)])
    schedule = rng.choice(["1f1b", "gpipe", "interleaved", *([] if is_graph else ["zb-h1", "zb-2p"])]) if pp > 1 else "1f1b"
    micro_batch, zero = rng.choice([1, 2, 4]), rng.choice([0, 1] if is_graph else [0, 1, 2, 3])
    keys = {"tp": tp, "cp": cp, "dp": dp, "pp": pp, "schedule": schedule, "zero": zero, "micro_batch": micro_batch}
    keys |= {key: rng.random() < 0.5 for key in ("overlap_pp", "overlap_dp", "distributed_optimizer")}
    keys |= {"virtual_stages": rng.choice([2, 3]) if schedule == "interleaved" else 1}
    keys |= {"global_batch": micro_batch * dp * rng.choice([1, 3, 8]), "recompute": rng.choice(["none", "full"])}
    if zero or keys["distributed_optimizer"]:
        keys["shard_group"] = rng.choice([None, *(size for size in (1, 2, 4) if dp * cp % size == 0)])
    if not is_graph:
        keys |= {"ep": rng.choice([size for size in (1, 2, 4) if dp * cp % size == 0])}
        keys |= {key: rng.random() < 0.5 for key in ("overlap_tp", "sequence_parallel", "async_gradients", "fused_accumulation")}
        keys |= {"context_parallel": rng.choice(["ring", "all-gather", "ulysses"]), "fp32_gradients": rng.random() < 0.5}
        keys |= {"attention": rng.choice(["fused", "unfused"]), "precision": rng.choice(["bf16", "fp16", "fp32"])}
        keys |= {"recompute": rng.choice(["none", "selective", "full"])}
    return Layout(**keys)


DEGREES = [degrees for degrees in product((1, 2, 4, 8), repeat=4) if 1 < prod(degrees) <= 8]


def drawn(seed):
    """A machine, a better one, what is priced on them, and choices of the cost model."""
    rng = random.Random(seed)
    job = rng.choice([*GRAPHS, *SHAPES])
    data, better = drawn_machines(rng)
    kind = data["topology"]["kind"]
    names = ["calibrated", "auto", "ring", "tree", "hierarchical", "nccl"]
    names += ["joint", "rail"] if kind in ("clos", "trace") else []
    costs = CostSettings(collectives=rng.choice(names), overlap_slowdown=rng.choice([1.0, 1.126, 3.0]))
    while True:
        layout = drawn_layout(rng, job in GRAPHS)
        if job in GRAPHS or is_legal(SHAPES[job], layout, LENGTH):
            return data, better, costs, job, layout


def price_s(data, costs, job, layout, *, searches):
    """Seconds of a step; None where it does not fit."""
    cluster = Cluster.from_data(data)
    try:
        if job in SHAPES:
            maker = TransformerWork(f"zoo:{job}", cluster, costs.of_layouts, None, SHAPES[job], LENGTH)
            keys = ("tp", "cp", "micro_batch", "schedule", "virtual_stages")
            keep = ",".join(f"{key}={getattr(layout, key)}" for key in keys)
            check_fits(maker.work(layout).peak_memory(), maker.capacity_bytes)
        else:
            maker = work_of(JobSource(f"zoo:{job}"), cluster, costs.of_layouts, batch_size=16)
            keep = f"virtual_stages=1|2,overlap_dp={layout.overlap_dp},pp={layout.pp},micro_batch={layout.micro_batch}".lower()
        maker = maker.on(np.arange(cluster.num_devices))  # links of an uneven network decide the places
        if searches:
            result = maker.search(SearchRequest(batch=layout.global_batch, keep=keep, top=1)).run([layout.world])
            return result.ranking[0].step_s
        work = maker.work(layout)
        check_fits(work.peak_memory(), maker.capacity_bytes)
        return maker.pricer.step_s(work)
    except PlanError:
        return None


@pytest.mark.parametrize("first", range(0, NUM_CASES, 20))
def test_a_better_machine_never_makes_a_step_longer(first):
    num_priced = 0
    for seed in range(first, first + 20):
        data, better, costs, job, layout = drawn(seed)
        for searches in (False, True) if seed % 10 == 0 else (False,):
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
            steps.append(
                (
                    micro_batch,
                    factor,
                    GraphPricer.from_cluster(cluster, CostSettings()).step_s(cut(graph, cluster, layout, CostSettings())),
                )
            )
    steps.sort()
    for (size, _, slower), (same, _, faster) in pairwise(steps):
        assert size != same or faster <= slower
