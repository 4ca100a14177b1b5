"""Memory of the ranks of a cut pipeline, without describing each cut.

Legend: ``u`` units that stay whole, ``p`` stages, ``v`` chunks of a stage, ``k = p v`` chunks, ``f`` cuts.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...plans.partition import Layout
from ..pipelines.kept import kept_together
from ..work.activations.stage_activations import kept_at_once
from ..work.graph_work import state_factor
from ..work.memory import FRAGMENTATION, RUNTIME_BYTES
from .cut_family import go_back
from .unit_chain import Chain


class StageMemoryUse(NamedTuple):
    """Memory of units, see `unit_chain.Chain`, and how often it is held.

    Attributes:
        state_bytes: of all units before each one: weights, gradients, optimizer, ``(u + 1,)``.
        activation_bytes, workspace_bytes, crossing_bytes: of the chain.
        sent_bytes, given_bytes: of runs of units that send directly; see `unit_chain.Chain.skips`.
        flying: micro-batches of each chunk that a stage keeps at ticks which may be its worst, ``(p, t, v)``.
        recomputes: whether chunks keep what they are given and compute their activations again.
    """

    state_bytes: NDArray[np.float64]
    activation_bytes: NDArray[np.float64]
    workspace_bytes: NDArray[np.float64]
    crossing_bytes: NDArray[np.float64]
    sent_bytes: NDArray[np.float64]
    given_bytes: NDArray[np.float64]
    flying: NDArray[np.float64]
    recomputes: bool


class CutMemory:
    """Memory of the cuts of one layout.

    Args:
        layout: the pipeline.
        chain: what is cut.
    """

    def __init__(self, layout: Layout, chain: Chain) -> None:
        self.layout, self.chain = layout, chain
        if layout.virtual_stages > 1:
            flying = most_flying(layout)
        else:
            flying = np.array([[[kept_at_once(layout, stage)]] for stage in range(layout.pp)])
        units = chain.activation_bytes, chain.workspace_bytes, chain.crossing_bytes, *chain.skips
        self.held = StageMemoryUse(chain.weight_bytes * state_factor(layout), *units, flying, layout.recompute == "full")

    @classmethod
    def from_chain(cls, layout: Layout, chain: Chain) -> CutMemory:
        """Return the memory of a layout's cuts, kept by the chain: rank orders and layouts that hold the same share it."""
        shape = layout.schedule, layout.pp, layout.virtual_stages, layout.num_micro_batches
        key = *shape, layout.recompute, state_factor(layout)
        if key not in chain.known:
            chain.known[key] = cls(layout, chain)
        memory: CutMemory = chain.known[key]
        return memory

    @cached_property
    def compared(self) -> NDArray[np.int64]:
        """The family, and of one chunk a stage the cut whose fullest rank holds least, ``(f, k + 1)``."""
        result = self.chain.family.cuts(self.layout.pp * self.layout.virtual_stages)
        return result if self.layout.virtual_stages > 1 else np.concatenate([result, self.leanest[None]])

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
        """Return the bytes of the fullest rank, counted as `graph_work.GraphWork.memory` counts them, ``(f,)``."""
        result: NDArray[np.float64] = _peaks_bytes(self.held, cuts)
        return result

    @cached_property
    def leanest(self) -> NDArray[np.int64]:
        """The cut of one chunk a stage whose fullest rank holds least."""
        cuts = np.zeros(self.layout.pp + 1, np.int64)
        _leanest_cut(self.held, cuts)
        return cuts


@njit(inline="always")
def chunk_bytes(held, stage, first, last, workspace):  # type: ignore[no-untyped-def]
    """Return bytes on a rank of a stage of one chunk, counted as `graph_work.GraphWork.memory` counts them."""
    own = held.activation_bytes[last] - held.activation_bytes[first]
    is_direct = held.given_bytes.size > 0
    received_bytes = held.given_bytes[first, last] if is_direct else held.crossing_bytes[first]
    sent = held.sent_bytes[first, last] if is_direct else held.crossing_bytes[last]
    stored_bytes = held.flying[stage, 0, 0]
    activations = stored_bytes * received_bytes + own if held.recomputes else stored_bytes * own
    changing = activations + workspace + received_bytes + sent
    return held.state_bytes[last] - held.state_bytes[first] + (1.0 + FRAGMENTATION) * changing + RUNTIME_BYTES


@njit()
def stage_bytes(held, cuts, stage):  # type: ignore[no-untyped-def]
    """Return bytes on a rank of a stage at each tick, counted as `graph_work.GraphWork.memory` counts them, ``(t,)``."""
    p, num_ticks, v = held.flying.shape
    stored_bytes, state = np.zeros(num_ticks), 0.0
    own_most = given_most = sent_most = workspace_most = 0.0
    is_direct = held.given_bytes.size > 0
    for place in range(v):
        first, last = cuts[place * p + stage], cuts[place * p + stage + 1]
        own = held.activation_bytes[last] - held.activation_bytes[first]
        received_bytes = held.given_bytes[first, last] if is_direct else held.crossing_bytes[first]
        sent = held.sent_bytes[first, last] if is_direct else held.crossing_bytes[last]
        state += held.state_bytes[last] - held.state_bytes[first]
        own_most, given_most, sent_most = max(own_most, own), max(given_most, received_bytes), max(sent_most, sent)
        workspace_most = max(workspace_most, held.workspace_bytes[first:last].max())
        for tick in range(num_ticks):
            stored_bytes[tick] += held.flying[stage, tick, place] * (received_bytes if held.recomputes else own)
    largest = workspace_most + given_most + sent_most + (own_most if held.recomputes else 0.0)
    return state + (1.0 + FRAGMENTATION) * (stored_bytes + largest) + RUNTIME_BYTES


@njit()
def _peaks_bytes(held, cuts):  # type: ignore[no-untyped-def]
    """Return, of the stages of each cut, the one that holds most at its worst moment."""
    result = np.zeros(len(cuts))
    for one in range(len(cuts)):
        for stage in range(len(held.flying)):
            result[one] = max(result[one], stage_bytes(held, cuts[one], stage).max())
    return result


@njit()
def _leanest_cut(held, cuts):  # type: ignore[no-untyped-def]
    """Write the cut of one chunk a stage whose fullest stage holds least."""
    p, u = len(cuts) - 1, len(held.state_bytes) - 1
    least, came = np.full((p + 1, u + 1), np.inf), np.zeros((p + 1, u + 1), np.int64)
    least[0, 0] = 0.0
    for stage in range(p):
        for last in range(stage + 1, u - (p - stage - 1) + 1):
            workspace = 0.0
            for first in range(last - 1, stage - 1, -1):
                workspace = max(workspace, held.workspace_bytes[first])
                most = max(least[stage, first], chunk_bytes(held, stage, first, last, workspace))
                if most < least[stage + 1, last]:
                    least[stage + 1, last] = most
                    came[stage + 1, last] = first
    go_back(came, cuts)


def most_flying(layout: Layout) -> NDArray[np.float64]:
    """Return the micro-batches of each chunk that a stage keeps at the ticks which may be its worst, ``(p, t, v)``."""
    results = [np.array(kept_together(layout, stage))[:, ::2] for stage in range(layout.pp)]
    most = np.zeros((layout.pp, max(map(len, results)), layout.virtual_stages))
    for stage, ticks in enumerate(results):
        most[stage, : len(ticks)] = ticks
    return most
