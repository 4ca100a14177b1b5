"""Observations with parts blanked out, for networks that are to do without them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..envs.observation import CANDIDATE_FEATURES, CLUSTER_FEATURES, DEVICE_FEATURES, JOB_FEATURES
from .settings import Part

# Features that follow from the simulated step times of a candidate.
_LOOK_AHEAD = ("completion against deadline", "completion", "device-seconds", "communication share", "efficiency")


def ablated(observation: dict[str, Tensor], parts: Sequence[Part]) -> dict[str, Tensor]:
    """Return a copy of a batch of observations, or of some of their keys, without some parts (see `models.settings.Part`).

    Blank features are zero. Where time is blank, every slot shows what is free by the first one. The state after a candidate
    then shows which blocks it takes, not for how long. Without ``reject``, the rejection is offered only where nothing else is.
    ``graph`` concerns the encoder, not the observation.
    """
    if not parts or tuple(parts) == ("graph",):
        return observation
    shown = dict(observation)
    present = shown.keys()
    if "reject" in parts and "action_mask" in present:
        mask = shown["action_mask"]
        shown["action_mask"] = torch.cat([mask[:, :1] * (mask[:, 1:] == 0).all(dim=1, keepdim=True), mask[:, 1:]], dim=1)
    if "look-ahead" in parts:
        _blank(shown, "candidates", CANDIDATE_FEATURES, _LOOK_AHEAD)
        _blank(shown, "job", JOB_FEATURES, ("fastest against deadline",))
        if "candidate_ends" in present:
            shown["candidate_ends"] = torch.zeros_like(shown["candidate_ends"])
    if "time-to-free" in parts:
        _blank(shown, "cluster", CLUSTER_FEATURES, ("mean time left",))
        _blank(shown, "devices", DEVICE_FEATURES, ("time left",))
        for key in present & {"cluster_slots", "candidate_slots"}:
            half = shown[key].shape[-1] // 2  # shares, then whether any
            shown[key] = shown[key][..., [0] * half + [half] * half]
        for key in present & {"cluster_shapes", "cluster_any", "candidate_shapes", "candidate_any"}:
            shown[key] = shown[key][..., :1].expand_as(shown[key])
    return shown


def _blank(shown: dict[str, Tensor], key: str, features: Sequence[str], names: Sequence[str]) -> None:
    if key not in shown:
        return
    shown[key] = shown[key].clone()
    shown[key][..., [features.index(name) for name in names]] = 0.0
