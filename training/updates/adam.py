"""Adam without torch's compiler, whose import takes a process more than a second of a core."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Adam, Optimizer

# What `torch._compile._disable_dynamo` calls in place of a method that has it (torch 2.13).
_INSTEAD = "__dynamo_disable"


class EagerAdam(Adam):
    """`torch.optim.Adam`, with the same arguments, state and steps.

    PyTorch hides an optimizer's methods from `torch.compile`, and imports the compiler to do so. Nothing is compiled here, so
    the methods are called as they are. With another torch, which hides them otherwise, only the second is lost again.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "torch._dynamo" not in sys.modules:
            for method in vars(Optimizer).values():
                hidden = getattr(method, "__wrapped__", None)
                if hidden is not None and not hasattr(hidden, _INSTEAD):
                    setattr(hidden, _INSTEAD, hidden)
        super().__init__(*args, **kwargs)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Do a step of `torch.optim.Adam`."""
        return inspect.unwrap(Adam.step)(self, closure)
