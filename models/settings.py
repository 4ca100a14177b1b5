"""Widths of the policy network, apart from it so that a config is read without torch."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

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
        messages: whether ops receive messages along the job graph's edges; false: a job is described by the means of its ops.
    """

    graph_hidden: int = Field(default=32, ge=1, le=1024)
    graph_embedding: int = Field(default=16, ge=1, le=1024)
    graph_rounds: int = Field(default=2, ge=0, le=16)
    slot_hidden: int = Field(default=24, ge=1, le=1024)
    device_hidden: int = Field(default=16, ge=1, le=1024)
    hidden: int = Field(default=64, ge=1, le=4096)
    messages: bool = True


class FleetNetworkSettings(settings.Settings):
    """Widths of the network that plays a fleet.

    Attributes:
        width: of every node and hidden layer.
        rounds: of messages.
        messages: whether nodes receive messages of their neighbours, or only their own features and the pooled whole.
        prices: whether starts are scored by a price of a device-second, set by the network (see `fleet.prices`), in addition to
            its own scores.
        relative: whether prices read work and numbers of jobs relative to the usual values of the fleet. The same weights then
            serve several clusters and sets of job types.
        linear: the same of scores that are linear in a few figures (see `fleet.linear_head`).
        logs: whether features are read together with their logarithms. Features ``x / (1 + x)`` hardly differ where ``x`` is
            large (0.941 for 16 running jobs, 0.944 for 17), and times are compared by their ratio.
        room: whether trunks also know how they suit the job whose hosts are picked (see `fleet.network.room`).
    """

    width: int = Field(default=48, ge=4, le=512)
    rounds: int = Field(default=2, ge=1, le=8)
    messages: bool = True
    prices: bool = False
    relative: bool = Field(default=False, exclude_if=lambda value: not value)
    linear: bool = False
    logs: bool = False
    room: bool = Field(default=False, exclude_if=lambda value: not value)

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.prices and self.linear:
            raise ValueError("linear: prices score starts already; leave one of the two out")
        if self.relative and not self.prices:
            raise ValueError("relative: is about prices; give network.prices: true")
        return self

    @property
    def reads_logs(self) -> bool:
        """Whether features are read together with their logarithms; where prices are set they always are."""
        return self.logs or self.prices
