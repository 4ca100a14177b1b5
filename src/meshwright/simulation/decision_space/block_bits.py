"""Sets of blocks as bits, 64 to a word, counted by the processor's own instruction.

Each group of blocks (one degree and shape) begins with a word of its own, so that a group is counted by whole words. Legend:
``b`` blocks, ``g`` groups, ``w`` words.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from ...compiled import config, njit
from ..ragged import row_starts
from .space import CHUNK_PAIRS, Neighbours

WORD = 64


class BlockBits(NamedTuple):
    """The place of each block's bit, and the blocks that share a device with each.

    Attributes:
        word: of each block, ``(b,)``.
        bit: within its word, as a word with this bit alone, ``(b,)``.
        group_start: first word of each group, and the end, ``(g + 1,)``.
        degree_start: first word of each degree, and the end, ``(d + 1,)``.
        neighbours: blocks that share a device with block ``i`` (itself among them), ``(b, w)``.
    """

    word: NDArray[np.int64]
    bit: NDArray[np.uint64]
    group_start: NDArray[np.int64]
    degree_start: NDArray[np.int64]
    neighbours: NDArray[np.uint64]


def block_bits(degree: NDArray[np.int64], group: NDArray[np.int64], neighbours: Neighbours) -> BlockBits:
    """Lay out the bits of blocks.

    Args:
        degree: of each block, not decreasing, ``(b,)``.
        group: of each block, not decreasing, within one degree each, ``(b,)``.
        neighbours: blocks that share a device with each.
    """
    num = len(group)
    sizes = np.bincount(group)
    group_start = row_starts(-(-sizes // WORD))
    place = np.arange(num) - row_starts(sizes)[group]
    position = group_start[group] * WORD + place
    num_words = int(group_start[-1])
    packed = np.empty((num, num_words), np.uint64)
    step = max(1, CHUNK_PAIRS // (num_words * WORD))
    for first in range(0, num, step):
        start = neighbours.start[first : first + step + 1]
        padded = np.zeros((len(start) - 1, num_words * WORD), np.bool_)
        row = np.repeat(np.arange(len(start) - 1), np.diff(start))
        padded[row, position[neighbours.blocks[start[0] : start[-1]]]] = True
        packed[first : first + step] = np.packbits(padded, axis=1, bitorder="little").view("<u8")
    degree_of_group = degree[row_starts(sizes)[:-1]]
    first_group = np.searchsorted(degree_of_group, np.arange(int(degree[-1]) + 2))
    return BlockBits(
        word=(position // WORD).astype(np.int64),
        bit=np.uint64(1) << (position % WORD).astype(np.uint64),
        group_start=group_start,
        degree_start=group_start[first_group],
        neighbours=packed,
    )


def _build_ctpop(typing_context: Any, word: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), build


# The processor's count of the bits that are set in a word; Python's own where compilation is switched off.
_ctpop: Any = (lambda word: int(word).bit_count()) if config.DISABLE_JIT else intrinsic(_build_ctpop)


@njit
def count(these, those, first, end):  # type: ignore[no-untyped-def]
    """Return the number of blocks in both sets, among words ``first`` to ``end - 1``."""
    result = 0
    for w in range(first, end):
        result += _ctpop(these[w] & those[w])
    return result
