"""Widths of the policy network, apart from it so that a config is read without torch."""

from __future__ import annotations

from pydantic import Field

from .. import settings


class NetworkSettings(settings.Settings):
    """Widths of the network.

    Attributes:
        graph_hidden: state of an op in the graph encoder.
        graph_embedding: embedding of a job graph.
        graph_rounds: rounds of message passing.
        slot_hidden: state of a degree in the encoders of when blocks become free.
        device_hidden: state of a device.
        hidden: the layers that score candidates and estimate the value.
    """

    graph_hidden: int = Field(default=32, ge=1, le=1024)
    graph_embedding: int = Field(default=16, ge=1, le=1024)
    graph_rounds: int = Field(default=2, ge=0, le=16)
    slot_hidden: int = Field(default=24, ge=1, le=1024)
    device_hidden: int = Field(default=16, ge=1, le=1024)
    hidden: int = Field(default=64, ge=1, le=4096)
