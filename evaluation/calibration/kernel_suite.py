"""The kernels that `measure` measures: the rows of the H100's measured kernels, without their times.

So every device is measured by the same items, in the same order. Products, bytes and operations are those of a transformer layer
on one rank by `costs.work.layer_parts`; tests compare the two.
"""

from __future__ import annotations

from functools import cache

from .kernel_table import FAMILIES, Item, read

PAIRED = ("layer", "model")
"""Families whose forward and backward item follow each other and are measured together."""

QUICK = {
    "product": 24,
    "attention_product": 4,
    "fused_attention": 6,
    "stream": 11,
    "loss": 4,
    "optimizer": 2,
    "layer": 10,
    "model": 2,
}
"""About as many items of these families are measured with ``quick``, spread over each."""


@cache
def suite() -> tuple[Item, ...]:
    """All items."""
    return tuple(
        item.model_copy(update={key: None for key in ("us", "host_us") if hasattr(item, key)}) for item in read("h100").items
    )


def grid(*, quick: bool = False) -> tuple[Item, ...]:
    """All items; with ``quick`` about as many of each family as `QUICK` says, spread over it."""
    if not quick:
        return suite()
    items: list[Item] = []
    for family in FAMILIES:
        own = [item for item in suite() if item.family == family]
        together = 2 if family in PAIRED else 1
        number = min(len(own), QUICK.get(family, len(own))) // together
        for place in range(number):
            first = together * ((2 * place + 1) * (len(own) // together) // (2 * number))
            items += own[first : first + together]
    return tuple(items)
