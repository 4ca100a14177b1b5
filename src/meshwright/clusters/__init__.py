"""Clusters: devices in hosts, links, topologies, presets."""

from .cluster import Cluster, load_cluster, preset_names
from .topologies.topology import Links, Topology

__all__ = ["Cluster", "Links", "Topology", "load_cluster", "preset_names"]
