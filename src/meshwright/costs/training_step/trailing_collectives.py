"""Messages behind the last pass of a stage of any job graph: gradients that are synchronised, parameters that are gathered.

With ``overlap_dp`` the gradient of an op goes as soon as the last micro-batch's backward pass has made it. An op waits for its
parameters in the first forward pass. The exposed part follows `gradient_overlap`, which does this for blocks. Here it is
compiled for ops, so that every stage that a cut may make can be priced. Several chunks of a stage each have messages that
follow and precede them, since other passes run between them. The schedule knows the times of those
(`steady_steps.ChunkTails`).

Legend: ``n`` ops, ``u`` units that stay whole, ``p`` stages, ``v`` chunks of a stage.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...plans.partition import Layout
from ..collectives.prices import Operation
from ..pipelines.steady_steps import ChunkTails
from ..process_groups.group_network import GroupNetwork, payloads_s, slowest_group
from ..process_groups.lanes import ProcessGroup
from ..work.stage_work import Parts, gather_parts, messages_of, sync_parts
from .gradient_overlap import Spans, after_s, before_s, op_spans

Pieces = Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]]
"""Seconds and bytes of the ops of each chunk of a stage, in the topological order."""


def stage_tail_s(
    layout: Layout, wires: GroupNetwork, order: str, slowdown: float, backward: Pieces, forward: Pieces
) -> tuple[float, float]:
    """Return the exposed seconds of gradients and of gathered parameters; not of chunks that hide them between each other."""
    results = []
    for has_ended, parts, pieces in ((True, sync_parts, backward), (False, gather_parts, forward)):
        whole_s = _whole_s(parts, layout, wires, order, pieces)
        whole = float(whole_s.sum())
        if layout.overlap_dp and whole > 0:
            shown = float(_shown_s(spans_of(pieces), whole_s, has_ended))
            whole = shown + (slowdown - 1) * max(0.0, whole - shown)
        results.append(whole)
    return results[0], results[1]


def hide_between_chunks(layout: Layout) -> bool:
    """Return whether chunks of a stage hide gradients and parameters between each other."""
    return layout.overlap_dp and layout.copies > 1 and layout.virtual_stages > 1


def chunk_tails(
    layout: Layout, wires: GroupNetwork, order: str, slowdown: float, stages: Sequence[tuple[Pieces, Pieces]]
) -> ChunkTails:
    """Return the messages that follow and precede the chunks of each stage, from their backward and forward passes."""
    whole_s, gaps_s = np.zeros((2, layout.pp)), np.zeros((2, layout.pp, layout.virtual_stages))
    for stage, passes in enumerate(stages):
        for kind, parts in enumerate((sync_parts, gather_parts)):
            messages = _whole_s(parts, layout, wires, order, passes[kind])
            whole_s[kind, stage] = messages.sum()
            gaps_s[kind, stage] = chunk_gaps_s(passes[kind], messages, has_ended=kind == 0)
    return ChunkTails(gaps_s[0], gaps_s[1], whole_s[0], whole_s[1], slowdown)


def chunk_gaps_s(pieces: Pieces, whole_s: NDArray[np.float64], *, has_ended: bool) -> NDArray[np.float64]:
    """Return the lag or the wait of each chunk of a stage, as `ChunkTails` means them, ``(v,)``.

    Args:
        pieces: the ops of the passes.
        whole_s: seconds of each message.
        has_ended: whether they follow the last backward passes, else the first forward ones wait for them.
    """
    if not len(whole_s):
        return np.zeros(len(pieces))
    own, size = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    places = np.cumsum([0, *(len(seconds) for seconds, _ in pieces)])
    gaps_s: NDArray[np.float64] = _chunk_gaps_s(own, size, places, whole_s, has_ended)
    return gaps_s


@njit()
def _shown_s(spans, whole_s, has_ended):  # type: ignore[no-untyped-def]
    """Return the seconds of messages that ops, in the topological order, do not hide backward, or forward."""
    columns = np.full(len(whole_s), 2)
    return after_s(spans[::-1].copy(), columns, whole_s) if has_ended else before_s(spans, columns, whole_s)


@njit()
def _chunk_gaps_s(seconds, sizes, places, whole_s, has_ended):  # type: ignore[no-untyped-def]
    result, total = np.zeros(len(places) - 1), sizes.sum()
    if total == 0.0 or len(whole_s) == 0:
        return result
    for chunk in range(len(result)):
        first, last = places[chunk], places[chunk + 1]
        own = np.zeros(len(seconds))
        own[first:last] = seconds[first:last]
        spans = op_spans(own[:last], sizes[:last], total)  # the chunks before it go backward later
        result[chunk] = _shown_s(spans, whole_s, has_ended)
    return result


def _whole_s(parts: Parts, layout: Layout, wires: GroupNetwork, order: str, pieces: Pieces) -> NDArray[np.float64]:
    """Return the seconds of each message of a stage by itself, on unequal hosts over the slowest group of any stage."""
    made = messages_of(parts, layout, float(sum(sizes.sum() for _, sizes in pieces)))
    return np.array([wires.group_s(m.operation, m.payload_bytes, slowest_group(wires, layout, m.axis, order)) for m in made])


def spans_of(pieces: Pieces) -> Spans:
    """Return the ops of a stage in the topological order, see `gradient_overlap`."""
    own, size = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    spans: Spans = op_spans(own, size, float(size.sum()))
    return spans


@njit()
def _add_tails(tails_s, starts, seconds, sizes, before, whole_s, has_ended, overlaps, slowdown, busy_s, most_s):  # type: ignore[no-untyped-def]
    """Add what is exposed of messages to the tail of every run of units that is not too busy."""
    for first in range(len(starts) - 1):
        for last in range(first + 1, len(starts)):
            if busy_s[last] - busy_s[first] >= most_s:
                break
            messages = whole_s[:, first, last].copy()
            whole = messages.sum()
            if overlaps and whole > 0.0:
                begin, end, total = starts[first], starts[last], before[last] - before[first]
                own, size = seconds[begin:end], sizes[begin:end]
                shown = _shown_s(op_spans(own, size, total), messages, has_ended)
                whole = shown + (slowdown - 1.0) * max(0.0, whole - shown)
            tails_s[first, last] += whole


def run_tails_s(
    layout: Layout,
    wires: GroupNetwork,
    order: str,
    slowdown: float,
    starts: NDArray[np.int64],
    passes: tuple[tuple[NDArray[np.float64], NDArray[np.float64]], tuple[NDArray[np.float64], NDArray[np.float64]]],
    prices: dict[object, NDArray[np.float64]],
    busy_s: NDArray[np.float64],
    most_s: float,
) -> NDArray[np.float64]:
    """Return exposed seconds behind the last pass of a stage that holds the units from one up to another, ``(u + 1, u + 1)``.

    Args:
        layout: replicas, ZeRO and whether messages overlap with passes.
        wires: prices messages.
        order: how ranks are numbered.
        slowdown: factor on computing and sending that run side by side.
        starts: first op of each unit in the topological order and, last, ``n``, ``(u + 1,)``.
        passes: for the backward and for the forward pass, seconds and bytes of each op in the topological order, ``(n,)``.
        prices: of the messages of a graph's runs, kept from call to call; added to.
        busy_s: of a micro-batch through all units before each one, ``(u + 1,)``.
        most_s: runs that are busy for so long are left out.
    """
    result = np.zeros((len(starts), len(starts)))
    if layout.copies == 1:
        return result
    for has_ended, parts, (seconds, sizes) in zip((True, False), (sync_parts, gather_parts), passes, strict=True):
        before = np.concatenate([np.zeros(1), np.cumsum(sizes)])[starts]
        groups = [(part.operation, part.divisor, slowest_group(wires, layout, part.axis, order)) for part in parts(layout)]
        key = wires, has_ended, tuple(groups)
        if not groups:
            continue
        if key not in prices:
            prices[key] = _priced(groups, wires, before)
        whole_s = prices[key]
        _add_tails(result, starts, seconds, sizes, before, whole_s, has_ended, layout.overlap_dp, slowdown, busy_s, most_s)
    return result


def _priced(
    groups: Sequence[tuple[Operation, int, ProcessGroup]], wires: GroupNetwork, before: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the seconds of each message of every run of units, ``(messages, u + 1, u + 1)``."""
    # Units without parameters change nothing: runs that hold the same ones are priced once.
    known, place = np.unique(before, return_inverse=True)
    held_bytes = known[None, :] - known[:, None]
    is_run = held_bytes > 0
    result = np.zeros((len(groups), len(known), len(known)))
    for number, (operation, divisor, group) in enumerate(groups):
        result[number][is_run] = payloads_s(wires, operation, held_bytes[is_run] / divisor, group)
    return np.ascontiguousarray(result[:, place][:, :, place])
