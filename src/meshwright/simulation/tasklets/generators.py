"""Networks of distant devices, drawn: regions of unequal size, and mixed fleets of spot devices."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from ... import settings
from .instance import MOST_STAGES, TaskletInstance

NetworkKind = Literal["uneven", "spot"]
"""Regions of unequal size with links of any speed; the same, where each device has a port of its own speed."""

_SIZES = 7
"""Stream of random numbers for the sizes of a network, which its links do not share."""


class NetworkDraw(settings.Settings):
    """How networks are drawn.

    Attributes:
        kinds: in turns by the seed; see `NetworkKind`.
        num_devices: one of these numbers.
        num_stages: one of these numbers; each divides each number of devices.
        gradient_bytes: gradients of one stage, reduced among its replicas once a step.
        activation_bytes: what one replica hands to the next stage in a step.
    """

    kinds: tuple[NetworkKind, ...] = Field(default=("uneven", "spot"), min_length=1)
    num_devices: tuple[Annotated[int, Field(ge=2, le=1024)], ...] = Field(default=(64,), min_length=1)
    num_stages: tuple[Annotated[int, Field(ge=1, le=MOST_STAGES)], ...] = Field(default=(8,), min_length=1)
    gradient_bytes: float = Field(default=0.4e9, ge=0, le=1e15)
    activation_bytes: float = Field(default=0.05e9, ge=0, le=1e15)

    @field_validator("kinds")
    @classmethod
    def _each_once(cls, kinds: tuple[NetworkKind, ...]) -> tuple[NetworkKind, ...]:
        if len(set(kinds)) < len(kinds):
            raise ValueError("must name each kind once")
        return kinds

    @model_validator(mode="after")
    def _fit(self) -> NetworkDraw:
        for devices in self.num_devices:
            for stages in self.num_stages:
                if devices % stages:
                    raise ValueError(f"{stages} stages do not divide {devices} devices")
        return self

    @property
    def most_devices(self) -> int:
        """The largest number of devices of a network."""
        return max(self.num_devices)

    def draw(self, seed: int) -> TaskletInstance:
        """Return the network of a seed; the same seed gives the same one."""
        sizes = np.random.default_rng([seed, _SIZES])
        devices, stages = (each[int(sizes.integers(len(each)))] for each in (self.num_devices, self.num_stages))
        kind = self.kinds[seed % len(self.kinds)]
        sent = (self.gradient_bytes, self.activation_bytes)
        return draw_network(seed, kind, num_devices=devices, num_stages=stages, sent_bytes=sent)


def draw_network(
    seed: int,
    kind: NetworkKind,
    *,
    num_devices: int = 64,
    num_stages: int = 8,
    sent_bytes: tuple[float, float] = (0.4e9, 0.05e9),
) -> TaskletInstance:
    """Return three to eight regions of unequal size with links of any speed; in a spot fleet each device has its own port.

    Args:
        seed: of what is drawn.
        kind: see `NetworkKind`.
        num_devices: of the network.
        num_stages: of the model.
        sent_bytes: gradients of a stage and activations of a replica.
    """
    rng = np.random.default_rng(seed)
    num_regions = int(rng.integers(3, 9))
    region = np.sort(rng.choice(num_regions, size=num_devices, p=rng.dirichlet(np.full(num_regions, 1.5))))
    place = rng.uniform(0.0, 1.0, (num_regions, 2))
    latency_s = 0.005 + 0.15 * np.linalg.norm(place[:, None] - place[None], axis=2)
    gbps = np.exp(rng.normal(np.log(0.6), 0.6, (num_regions, num_regions)))
    gbps_inside = np.exp(rng.normal(np.log(3.0), 0.7, num_regions))
    is_near = region[:, None] == region[None]
    between_s = np.where(is_near, 0.002, latency_s[region][:, region])
    between_gbps = np.where(is_near, gbps_inside[region][:, None], ((gbps + gbps.T) / 2)[region][:, region])
    if kind == "spot":
        port = np.exp(rng.normal(np.log(2.0), 0.8, num_devices))
        between_gbps = np.minimum(between_gbps, np.minimum(port[:, None], port[None]))
    names = tuple(f"region-{one}" for one in region)
    return TaskletInstance(f"{kind}-{seed}", names, between_s, between_gbps * 1e9 / 8, num_stages, *sent_bytes)
