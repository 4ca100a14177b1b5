"""The flow layer: how long one message takes from rank to rank when it has its path for itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .network import RankNetwork
from .phases import Flow, Phase, Phases

FlowModel = Callable[[RankNetwork, int, int, float], float]
"""Seconds of one message from rank to rank, of so many bytes; zero within a rank or for no bytes."""


def cut_through_s(network: RankNetwork, source: int, target: int, payload_bytes: float) -> float:
    """Return ``latency + bytes / narrowest bandwidth``: switches forward a message while it arrives.

    Source:
        Hockney, "The communication challenge for MPP: Intel Paragon and Meiko CS-2", 1994 (the alpha-beta model).
    """
    if source == target or payload_bytes <= 0:
        return 0.0
    return float(network.latency_s[source, target] + payload_bytes / network.bandwidth_bytes_per_s[source, target])


def store_and_forward_s(network: RankNetwork, source: int, target: int, payload_bytes: float) -> float:
    """Return the sum over the path's links of ``latency + bytes / bandwidth``: each passes the whole message on."""
    if source == target or payload_bytes <= 0:
        return 0.0
    links, path = network.cluster.links, [link for link, _ in network.carried(source, target)]
    return float(np.sum(links.latency_s[path] + payload_bytes / links.bandwidth_bytes_per_s[path]))


def transfer(network: RankNetwork, source: int, target: int, payload_bytes: float) -> Phases:
    """Return one message as traffic: one flow, and the latencies of its path; none within a rank or for no bytes."""
    if source == target or payload_bytes <= 0:
        return ()
    return (Phase(float(network.latency_s[source, target]), (Flow(source, target, payload_bytes),)),)


MODELS: dict[str, FlowModel] = {"cut-through": cut_through_s, "store-and-forward": store_and_forward_s}
