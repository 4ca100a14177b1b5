"""Networks of unequal hosts: drawn, described by regions, and renumbered."""

import numpy as np

from ..samples.sample_clusters import cluster_of, matrix


def matrix_of(bandwidth_gbytes_per_s, latency_us, devices_per_host=1, device="a100"):
    bandwidth = np.where(np.isfinite(bandwidth_gbytes_per_s), bandwidth_gbytes_per_s, 1.0)
    return cluster_of(matrix(bandwidth, latency_us, devices_per_host), device, name="matrix")


def drawn_matrix(seed, num_devices=8, devices_per_host=1):
    """A bandwidth of 0.1 to 100 GB/s and a latency of 1 us to 1 ms for each pair, the same in both directions."""
    rng = np.random.default_rng(seed)
    bandwidth = 10 ** rng.uniform(-1, 2, (num_devices, num_devices))
    latency = 10 ** rng.uniform(0, 3, (num_devices, num_devices))
    return matrix_of(np.minimum(bandwidth, bandwidth.T), np.maximum(latency, latency.T), devices_per_host)


def regions(num_regions, inside_gbits_per_s, across_gbits_per_s, num_devices=64):
    """Equal regions of neighbouring devices; between regions ``r`` and ``s`` every further step costs as much again."""
    region = np.arange(num_devices) * num_regions // num_devices
    apart = np.abs(region[:, None] - region[None, :])
    bandwidth = np.where(apart == 0, inside_gbits_per_s, across_gbits_per_s / np.maximum(apart, 1)) / 8
    return matrix_of(bandwidth, np.where(apart == 0, 5e3, 2e4 * apart))


def renumbered(cluster, host_of):
    """The same network whose host ``h`` is called ``host_of[h]``, and the new number of each device."""
    topology = cluster.topology
    size = topology.devices_per_host
    device_of = (np.asarray(host_of)[:, None] * size + np.arange(size)).reshape(-1)
    old = np.argsort(device_of)
    bandwidth = topology.pair_bandwidth_bytes_per_s[np.ix_(old, old)] / 1e9
    latency = topology.pair_latency_s[np.ix_(old, old)] * 1e6
    return matrix_of(bandwidth, latency, size, cluster.device_types[0].name), device_of
