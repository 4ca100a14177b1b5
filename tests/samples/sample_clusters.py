"""Clusters made to measure: a topology by its figures, and a cluster on it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meshwright.clusters.cluster import Cluster

Link = tuple[float, float]
"""Bandwidth in GB/s and latency in us."""


def hosts(devices_per_host: int, inside: Link = (100, 1), cards: int = 1, card: Link = (10, 1)) -> dict[str, Any]:
    """Keys of hosts with ``cards`` network cards each."""
    return {
        "devices_per_host": devices_per_host,
        "intra_host_bandwidth_gbytes_per_s": inside[0],
        "intra_host_latency_us": inside[1],
        "nics_per_host": cards,
        "nic_bandwidth_gbytes_per_s": card[0],
        "nic_latency_us": card[1],
    }


def clos(
    num_hosts: int, devices_per_host: int, hosts_per_leaf: int = 2, *, spine_latency_us: float = 1, **keys: Any
) -> dict[str, Any]:
    """``topology:`` of a Clos network of one spine that keeps up; keys are those of `hosts` and of YAML."""
    figures = {key: keys.pop(key) for key in ("inside", "cards", "card") if key in keys}
    return {
        "kind": "clos",
        "num_hosts": num_hosts,
        **hosts(devices_per_host, **figures),
        "hosts_per_leaf": hosts_per_leaf,
        "num_spines": 1,
        "oversubscription": 1,
        "spine_latency_us": spine_latency_us,
        **keys,
    }


def trace(hosts_at: Sequence[Sequence[str]], leaf_uplink: Link, pod_uplink: Link, **keys: Any) -> dict[str, Any]:
    """``topology:`` of a recorded network: host, core, pod and leaf of each row; other keys are those of `hosts`."""
    return {
        "kind": "trace",
        "hosts_at": hosts_at,
        "leaf_uplink_gbytes_per_s": leaf_uplink[0],
        "leaf_uplink_latency_us": leaf_uplink[1],
        "pod_uplink_gbytes_per_s": pod_uplink[0],
        "pod_uplink_latency_us": pod_uplink[1],
        **hosts(**keys),
    }


def torus(*shape: int, link: Link = (10, 1), **keys: Any) -> dict[str, Any]:
    """``topology:`` of a torus."""
    figures = {"link_bandwidth_gbytes_per_s": link[0], "link_latency_us": link[1]}
    return {"kind": "torus", "shape": list(shape), **figures, **keys}


def matrix(bandwidth_gbytes_per_s: ArrayLike, latency_us: ArrayLike = 0.0, devices_per_host: int = 1) -> dict[str, Any]:
    """``topology:`` of measured pairs, ``(n, n)``; one latency holds for all pairs."""
    bandwidth = np.asarray(bandwidth_gbytes_per_s, float)
    return {
        "kind": "matrix",
        "devices_per_host": devices_per_host,
        "bandwidth_gbytes_per_s": bandwidth.tolist(),
        "latency_us": np.broadcast_to(np.asarray(latency_us, float), bandwidth.shape).tolist(),
    }


def cluster_of(topology: dict[str, Any], device: Any = "a100", **keys: Any) -> Cluster:
    """A cluster with a topology in YAML's words."""
    return Cluster.from_data({"name": "sample", "device": device, "topology": topology, **keys})


TWO_HOSTS = {
    "name": "two-hosts",
    "device": "a100",
    "host_names": ["gpu-07", "gpu-03"],
    "topology": clos(2, 4, 1, inside=(300, 2), cards=4, card=(25, 1)),
}
"""Two hosts of four devices, 80 GB each; the names are not in alphabetical order."""
