"""The device on which a network is trained: a CPU, or a GPU that adds numbers up in a fixed order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..errors import ConfigError

# How cuBLAS sets memory aside: one of the two settings with which it adds up in a fixed order (NVIDIA, "cuBLAS library",
# section "Results reproducibility").
CUBLAS_WORKSPACE = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def pick_device(name: str) -> str:
    """Return ``cpu`` or ``cuda``; ``auto`` takes a GPU where there is one.

    Raises:
        ConfigError: a GPU is asked for and there is none.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("torch sees no CUDA device here", field="device", value=name, choices=["cpu", "auto"])
    return name


@contextmanager
def in_fixed_order(device: torch.device) -> Iterator[None]:
    """Sum numbers in the same order each time within the context; a CPU does so anyway.

    An operation that a GPU can only sum in no fixed order raises RuntimeError. cuBLAS reads its setting when a process first
    multiplies on a GPU, so it stays set. A setting of the user is left alone. After products of the user's own ours has no
    effect.
    """
    if device.type != "cuda":
        yield
        return
    os.environ.setdefault(*CUBLAS_WORKSPACE)
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("error")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)
