"""How a saved policy is asked for a whole instance."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch

from ...errors import PolicyError


@dataclass(frozen=True)
class PlayMode:
    """How a policy decides.

    Attributes:
        kind: ``greedy``: the likeliest action each time. ``sample``: the best of ``samples`` draws and the greedy result.
            ``search``: the world's own search from the greedy result and from draws within a quarter of the budget.
            ``shuffled``: greedily, on a graph with shuffled edges, each node with as many as before; an ablation. No rule's
            placement is taken there where it is better.
        samples: for ``sample``.
        budget_s: for ``search``, the policy's own time included.
    """

    kind: Literal["greedy", "sample", "search", "shuffled"] = "greedy"
    samples: int = 64
    budget_s: float = 0.1

    @classmethod
    def from_text(cls, text: str, field: str = "policy") -> PlayMode:
        """``greedy``, ``sample-K``, ``search-SECONDS`` or ``shuffled``.

        Raises:
            PolicyError: none of these.
        """
        kind, _, number = text.partition("-")
        try:
            if text in ("greedy", "shuffled"):
                return cls("shuffled" if text == "shuffled" else "greedy")
            if kind == "sample" and 1 <= int(number) <= 4096:
                return cls("sample", samples=int(number))
            if kind == "search" and 0 < float(number) <= 3600:
                return cls("search", budget_s=float(number))
        except ValueError:
            pass
        raise PolicyError(
            "is no way to ask a policy", field=field, value=text, choices=["greedy", "sample-64", "search-0.1", "shuffled"]
        )


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch in one thread, for the tensors of one instance are small; then in as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
