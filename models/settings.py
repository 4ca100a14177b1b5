"""Widths of the policy network, apart from it so that a config is read without torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from .. import settings

# What a network may be made to do without, to see what that is good for: the job graphs' structure (a job is then described by
# its totals), what the look-ahead says about candidates, when devices and blocks become free, and turning jobs away that
# could be placed.
Part = Literal["graph", "look-ahead", "time-to-free", "reject"]


class NetworkSettings(settings.Settings):
    """Widths of the network.

    Attributes:
        graph_hidden: state of an op in the graph encoder.
        graph_embedding: embedding of a job graph.
        graph_rounds: rounds of message passing.
        slot_hidden: state of a degree in the encoders of when blocks become free.
        device_hidden: state of a device.
        hidden: the layers that score candidates and estimate the value.
        after: the layers that estimate the value of the state after a candidate, from when blocks of each shape become free.
            They need ``shape_slots``; empty: there is no such estimate.
        kind_hidden: width of the network that makes that estimate's weights of a shape or degree from its features, so that it
            serves any cluster. null: shapes and degrees of the training cluster have weights of their own, which is better
            there, and it serves no other cluster.
        standardised: whether that estimate reads figures of the latest arrivals in standard deviations from their mean in the
            first training episodes. That makes small differences between benchmarks plain; with short windows, chance too.
        prior: whether scores include those of a linear scorer, times a sharpness of their own (see `models.linear_prior`).
        without: parts that the network does without.
    """

    graph_hidden: int = Field(default=32, ge=1, le=1024)
    graph_embedding: int = Field(default=16, ge=1, le=1024)
    graph_rounds: int = Field(default=2, ge=0, le=16)
    slot_hidden: int = Field(default=24, ge=1, le=1024)
    device_hidden: int = Field(default=16, ge=1, le=1024)
    hidden: int = Field(default=64, ge=1, le=4096)
    after: tuple[int, ...] = ()
    kind_hidden: int | None = Field(default=16, ge=1, le=1024)
    standardised: bool = False
    prior: bool = False
    without: tuple[Part, ...] = ()

    @field_validator("after")
    @classmethod
    def _two_widths(cls, after: tuple[int, ...]) -> tuple[int, ...]:
        if after and (len(after) != 2 or not all(1 <= width <= 1024 for width in after)):
            raise ValueError("must be empty or two widths from 1 to 1024")
        return after


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
