"""The tuner's constants against bus bandwidths that others measured across hosts; nothing is fitted to them."""

import numpy as np
import pytest

from meshwright.clusters.cluster import load_cluster
from meshwright.costs import collectives
from meshwright.costs.network import RankNetwork

from ...samples.sample_clusters import clos, cluster_of

GIB = 2**30


def hosts(num_hosts, device, inside_gbytes_per_s, num_cards, card_gbytes_per_s):
    links = {"inside": (inside_gbytes_per_s, 0.6), "cards": num_cards, "card": (card_gbytes_per_s, 1.35)}
    return cluster_of(clos(num_hosts, 8, num_hosts, **links, wiring="rail", spine_latency_us=0.5), device)


@pytest.mark.parametrize(
    ("cluster", "operation", "payload", "published_gbytes_per_s", "allowed"),
    [
        # Voltage Park, 8 x H100 SXM with 8 x 400 Gb/s InfiniBand
        (hosts(1, "h100", 450, 8, 50), "all_reduce", 8 * GIB, 479.72, 0.10),
        (hosts(4, "h100", 450, 8, 50), "all_reduce", 8 * GIB, 330.93, 0.15),
        (hosts(4, "h100", 450, 8, 50), "all_gather", 8 * GIB, 323.53, 0.15),
        # nccl-tests issues 175, 100 and 119: 8 x A100 with 4 x 200 Gb/s
        (hosts(1, "a100", 300, 4, 25), "all_reduce", 4 * GIB, 232.5, 0.05),
        (hosts(2, "a100", 300, 4, 25), "all_reduce", 4 * GIB, 86.0, 0.10),
        (hosts(2, "a100", 300, 4, 25), "all_reduce", 4 * GIB, 91.0, 0.05),
        (hosts(3, "a100", 300, 4, 25), "all_reduce", GIB // 8, 84.8, 0.05),
    ],
)
def test_bus_bandwidths_that_others_measured(cluster, operation, payload, published_gbytes_per_s, allowed):
    n = cluster.num_devices
    seconds = collectives.price(operation, RankNetwork(cluster, np.arange(n)), np.arange(n), payload, "nccl").seconds
    bus_gbytes_per_s = collectives.wire_factor(operation, n) * payload / seconds / 1e9
    assert bus_gbytes_per_s == pytest.approx(published_gbytes_per_s, rel=allowed)


@pytest.mark.parametrize("name", ["nccl", "measured", "rail"])
@pytest.mark.parametrize("cluster", ["toy", "ramp-4x4x4", "clos-256-4to1", "host-8"])
def test_every_kind_of_cluster_gets_a_price(cluster, name):
    network = RankNetwork(load_cluster(f"preset:{cluster}"), np.arange(4))
    for operation in collectives.OPERATIONS:
        assert 0 < collectives.price(operation, network, np.arange(4), 1e6, name).seconds < 1, operation
