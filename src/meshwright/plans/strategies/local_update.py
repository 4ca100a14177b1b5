"""Local updates: blocks of a model that are trained by targets of their own, in turn or all at once."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from ...settings import Count, Index, Switch
from .declared_steps import DeclaredSteps

_OF_SCHEDULES = ("left_epochs", "right_epochs", "num_samples", "num_classes")


class LocalUpdate(DeclaredSteps):
    """Blocks of a model on devices of their own are updated by local targets, so that no gradient of activations goes back.

    Under ``streaming`` all blocks train on each micro-batch. Otherwise the parts in front of and behind each cut train for epochs
    of their own: one after another on outputs of the part before (``sequential``), or at once on the synthetic labels
    (``parallel``).

    Source:
        Synthetic intermediate labels: 2024, arXiv 2403.11204. Recursive local representation alignment: Ororbia et al.,
        "Large-scale gradient-free deep learning with recursive local representation alignment", 2020, arXiv 2002.03911. Auxiliary
        networks: Belilovsky, Eickenberg and Oyallon, "Decoupled greedy learning of CNNs", 2020.
    """

    kind: Literal["local-update"] = "local-update"
    preset: Literal["sil", "rec-lra", "dfa", "greedy"] = Field(description="where the local targets come from")
    feedback_depth: Count | None = Field(default=None, description="blocks that an error goes through, by default the preset's")
    stride: Count = Field(default=2, description="blocks that a recursive error skips at once (rec-lra)")
    target_share: float = Field(default=0.1, ge=0, le=1, description="time of a target over that of a backward pass")
    extra_parameters: Index = Field(default=0, description="feedback weights of a block")
    aux_share: float = Field(default=0.0, ge=0, description="time and weights of an auxiliary network over its block's (greedy)")
    schedule: Literal["streaming", "sequential", "parallel"] = Field(
        default="streaming", description="blocks at once on each micro-batch, or parts for epochs of their own (sil)"
    )
    cuts: tuple[Count, ...] | None = Field(
        default=None, min_length=1, description="stages in front of each cut between parts, by default one more behind each"
    )
    left_epochs: Count | None = Field(default=None, description="epochs of each part that synthetic labels train")
    right_epochs: Count | None = Field(default=None, description="epochs of the last part")
    recovery_epochs: Index = Field(default=0, description="epochs of the whole model behind those of its parts")
    num_samples: Count | None = Field(default=None, description="samples of an epoch")
    num_classes: Count | None = Field(default=None, description="classes, with a synthetic label each at each cut")
    force: Switch = Field(default=False, description="price it for jobs for which it was never shown")

    @field_validator("cuts", mode="before")
    @classmethod
    def _of_text(cls, cuts: Any) -> Any:
        """Parse ``2`` and ``2/4``, as a command line spells them."""
        if isinstance(cuts, bool | float):
            raise ValueError("must read STAGES, or STAGES/STAGES/...")
        if isinstance(cuts, int):
            return (cuts,)
        if not isinstance(cuts, str):
            return cuts
        try:
            return tuple(int(one) for one in cuts.split("/"))
        except ValueError:
            raise ValueError("must read STAGES, or STAGES/STAGES/...") from None

    @model_validator(mode="after")
    def _goes_together(self) -> LocalUpdate:
        if self.aux_share and self.preset != "greedy":
            raise ValueError(f"aux_share is of preset=greedy; preset={self.preset} has no auxiliary networks")
        set_keys = [key for key in (*_OF_SCHEDULES, "cuts") if getattr(self, key) is not None]
        set_keys += ["recovery_epochs"] * (self.recovery_epochs > 0)
        if not self.has_epochs:
            if set_keys:
                raise ValueError(f"{set_keys[0]} wants schedule=sequential or schedule=parallel")
            return self
        if self.preset != "sil":
            raise ValueError(f"schedule={self.schedule} is of preset=sil, whose parts have labels; preset={self.preset} streams")
        lacking = [key for key in _OF_SCHEDULES if getattr(self, key) is None]
        if lacking:
            raise ValueError(f"schedule={self.schedule} wants {', '.join(lacking)}")
        if self.cuts is not None and any(later <= earlier for earlier, later in pairwise(self.cuts)):
            raise ValueError(f"cuts={'/'.join(map(str, self.cuts))} must rise")
        return self

    @property
    def has_epochs(self) -> bool:
        """Whether parts are trained for epochs of their own."""
        return self.schedule != "streaming"

    @property
    def num_epochs(self) -> int:
        """Epochs that the whole training is counted as: those of the part that has most, and those of recovery."""
        assert self.left_epochs is not None
        assert self.right_epochs is not None
        return max(self.left_epochs, self.right_epochs) + self.recovery_epochs

    def part_bounds(self, num_stages: int) -> tuple[tuple[int, int], ...]:
        """Return the first stage of each part and the one behind its last."""
        cuts = range(1, num_stages) if self.cuts is None else self.cuts
        return tuple(pairwise((0, *cuts, num_stages)))

    def depth(self, num_blocks: int) -> int:
        """Return the blocks that an error goes through, ``D``: all of a chain, one in ``stride`` of them, or one."""
        if self.feedback_depth is not None:
            return self.feedback_depth
        return {"sil": 1, "dfa": 1, "greedy": 1, "rec-lra": -(-num_blocks // self.stride)}[self.preset]

    def error_stride(self, num_blocks: int) -> int:
        """Return how many blocks behind a block the one is whose error it gets, see `depth`."""
        return -(-num_blocks // self.depth(num_blocks))

    def extra_bytes(self, gradient_bytes: float, num_replicas: int) -> float:
        """Return the feedback weights in 4 bytes each."""
        return 4.0 * self.extra_parameters
