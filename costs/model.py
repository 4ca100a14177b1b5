"""The cost model: one choice per layer, from YAML, with a digest that keys everything computed from it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from .. import files, settings


class CostSettings(settings.Settings):
    """One choice per layer.

    Attributes:
        compute: ``auto``, ``profiled`` or ``roofline`` (see `costs.compute`).
        collectives: ``auto`` (fastest per size and group), ``ring``, ``tree``, ``halving-doubling``,
            ``hierarchical`` or ``ramp`` (see `costs.collectives`).
        flows: ``cut-through`` or ``store-and-forward`` (see `costs.flows`).
        contention: ``independent`` (no two messages disturb each other), ``serialised`` (one message at a time
            on each rank's communication stream) or ``fair`` (all messages at once, and every link is shared max-min
            fairly by the flows that cross it, see `simulation.together`).
        overlap_slowdown: factor by which computing and sending both take longer while a rank does both at once; 1 is no
            slowdown, 1.126 is what the profiles in Galvatron's repository say of two hosts of eight GPUs.
        priority: order of ready tasks that want the same stream: ``fifo`` (as the model defines them) or
            ``shortest-first``.
        gradient_bytes_per_parameter_byte: size of what is reduced for each byte of parameters.
    """

    compute: Literal["auto", "profiled", "roofline"] = "auto"
    collectives: Literal["auto", "ring", "tree", "halving-doubling", "hierarchical", "ramp"] = "auto"
    flows: Literal["cut-through", "store-and-forward"] = "cut-through"
    contention: Literal["independent", "serialised", "fair"] = "serialised"
    overlap_slowdown: float = Field(default=1.0, ge=1, le=1000)
    priority: Literal["fifo", "shortest-first"] = "fifo"
    gradient_bytes_per_parameter_byte: float = Field(default=1.0, gt=0)

    @model_validator(mode="after")
    def _fluids_cut_through(self) -> CostSettings:
        if self.contention == "fair" and self.flows == "store-and-forward":
            raise ValueError("flows that share links fairly do not store and forward: contention fair wants flows cut-through")
        return self

    @property
    def digest(self) -> str:
        """A hash of every choice."""
        return files.digest(self.model_dump())
