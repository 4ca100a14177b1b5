"""What the ranks of a cut pipeline hold, without describing each cut.

Legend: ``u`` units that stay whole, ``p`` stages, ``v`` chunks of a stage, ``k = p v`` chunks, ``f`` cuts.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...plans.partition import Layout
from ..work.graph_memory import flights, state_factor
from ..work.memory import FRAGMENTATION, RUNTIME_BYTES
from .cut_labels import PlainPipeline, leanest_cut
from .interleaved_cuts import StageMemoryUse, most_flying
from .unit_chain import Chain


class CutMemory:
    """Memory of the cuts of one layout.

    Args:
        layout: the pipeline.
        chain: what is cut.
    """

    def __init__(self, layout: Layout, chain: Chain) -> None:
        self.layout, self.chain = layout, chain
        state_bytes = chain.weight_bytes * state_factor(layout)
        self.held = StageMemoryUse(state_bytes, chain.activation_bytes, chain.workspace_bytes, chain.crossing_bytes)

    @cached_property
    def compared(self) -> NDArray[np.int64]:
        """The family, and of one chunk a stage the cut whose fullest rank holds least, ``(f, k + 1)``."""
        found = self.chain.family.cuts(self.layout.pp * self.layout.virtual_stages)
        return found if self.layout.virtual_stages > 1 else np.concatenate([found, self.leanest[None]])

    @cached_property
    def compared_bytes(self) -> NDArray[np.float64]:
        """Bytes of the fullest rank of each of them, ``(f,)``."""
        return self.peaks_bytes(self.compared)

    @cached_property
    def least_bytes(self) -> float:
        """Bytes of the fullest rank of the leanest cut; of an interleaved pipeline of the leanest one of the family."""
        if self.layout.virtual_stages > 1:
            return float(self.compared_bytes.min())
        return float(self.peaks_bytes(self.leanest[None])[0])

    def peaks_bytes(self, cuts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Bytes of the fullest rank, counted as `graph_memory.graph_stage_memory` counts them, ``(f,)``."""
        found: NDArray[np.float64] = _peaks_bytes(cuts, self.held, self._flying, self.layout.recompute == "full")
        return found

    @cached_property
    def _flying(self) -> NDArray[np.float64]:
        """Micro-batches of each chunk that a stage keeps at ticks which may be its worst, ``(p, t, v)``."""
        if self.layout.virtual_stages > 1:
            return most_flying(self.layout)
        return np.array([[[flights(self.layout, stage)]] for stage in range(self.layout.pp)])

    @cached_property
    def leanest(self) -> NDArray[np.int64]:
        """The cut of one chunk a stage whose fullest rank holds least."""
        cuts, layout, none = np.zeros(self.layout.pp + 1, np.int64), self.layout, np.zeros((1, 1))
        chain, kept = self.chain, self._flying[:, 0, 0].copy()
        passes = chain.forward_s, chain.backward_s, np.zeros((layout.pp, 1))
        pipe = PlainPipeline(False, 1, *passes, False, none, False, *self.held, kept, layout.recompute == "full", np.inf)
        leanest_cut(pipe, cuts)
        return cuts


@njit()
def _peaks_bytes(cuts, held, flying, recomputes):  # type: ignore[no-untyped-def]
    """Of the stages of each cut, the one that holds most at its worst moment."""
    p, num_ticks, v = flying.shape
    found = np.zeros(len(cuts))
    for one in range(len(cuts)):
        for stage in range(p):
            kept, state = np.zeros(num_ticks), 0.0
            own_most = given_most = sent_most = workspace_most = 0.0
            for place in range(v):
                first, last = cuts[one, place * p + stage], cuts[one, place * p + stage + 1]
                own = held.activation_bytes[last] - held.activation_bytes[first]
                given = held.crossing_bytes[first]
                state += held.state_bytes[last] - held.state_bytes[first]
                own_most, given_most = max(own_most, own), max(given_most, given)
                sent_most = max(sent_most, held.crossing_bytes[last])
                workspace_most = max(workspace_most, held.workspace_bytes[first:last].max())
                for tick in range(num_ticks):
                    kept[tick] += flying[stage, tick, place] * (given if recomputes else own)
            changing = kept.max() + workspace_most + given_most + sent_most + (own_most if recomputes else 0.0)
            found[one] = max(found[one], state + (1.0 + FRAGMENTATION) * changing + RUNTIME_BYTES)
    return found
