"""Progress of long work."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

Progress = Callable[[str, int, int], None]
"""Called with a phase, how much of it is done, and how much there is."""

Item = TypeVar("Item")


def reported(items: Collection[Item], phase: str, progress: Progress | None) -> Iterator[Item]:
    """Yield the items of a phase one by one; ``progress`` is called before each and after the last."""
    report = progress or (lambda phase, done, of: None)
    for done, item in enumerate(items):
        report(phase, done, len(items))
        yield item
    if items:
        report(phase, len(items), len(items))
