"""The noise of one draw of a placement after another: each on its own, or near the best so far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Drawing:
    """How a policy's placements are drawn.

    Attributes:
        softness: what Gumbel's noise is multiplied by, so that draws are from the probabilities to the power of one over it.
        num_fresh: draws on their own, before others begin; None: all are.
        redrawn: share of the decisions of a later draw whose noise is drawn anew; all others keep that of the best so far.
    """

    softness: float = 1.0
    num_fresh: int | None = None
    redrawn: float = 1.0


class Draws:
    """The noise of draw after draw; the greedy placement, without noise, counts as drawn before the first.

    Decisions that keep their noise are made as before as long as what was placed before them is the same. So a draw with most of
    the best one's noise is a neighbour of it, in which the policy answers to what has changed.

    Args:
        drawing: how they are drawn.
        size: decisions and devices, ``(g, m)``.
        seed: of the noise.
    """

    def __init__(self, drawing: Drawing, size: tuple[int, int], seed: int) -> None:
        self._drawing, self._rng = drawing, np.random.default_rng(seed)
        self._latest = np.zeros(size, np.float32)
        self._best, self._best_value, self._drawn = self._latest, np.inf, 0

    def tell(self, value: float) -> None:
        """What came of the latest draw, the less the better."""
        if value <= self._best_value:
            self._best, self._best_value = self._latest, value

    def next(self) -> NDArray[np.float32]:
        """The noise of the next draw, ``(g, m)``."""
        size, drawing = self._latest.shape, self._drawing
        self._latest = (drawing.softness * self._rng.gumbel(size=size)).astype(np.float32)
        if drawing.num_fresh is not None and self._drawn >= drawing.num_fresh:
            is_kept = self._rng.random(size[0]) >= drawing.redrawn
            self._latest[is_kept] = self._best[is_kept]
        self._drawn += 1
        return self._latest
