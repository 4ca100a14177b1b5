"""Names of hosts as Slurm writes many of them: ``node[1-3,07],login``."""

from __future__ import annotations

import itertools
import re

from ...errors import StateError

MOST_HOSTS = 65_536
"""Of one list; Slurm's own limit of a range."""

_PART = re.compile(r"([^\[\],\s]*)((?:\[[^\[\]\s]*\][^\[\],\s]*)*)")
"""A name with any number of ranges: what comes before the first, and the rest."""

_RANGE = re.compile(r"\[([^\[\]]*)\]([^\[\]]*)")
_BOUNDS = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


def hosts_in(text: str) -> list[str]:
    """Return the names in a list of hosts, in its order.

    The bounds of a range are whole numbers. Numbers are filled with zeros to the width of the lower one: ``n[08-11]`` is n08,
    n09, n10, n11 and ``n[8-11]`` is n8 to n11. Of several ranges in a name the last one runs fastest.

    Raises:
        StateError: no such list, or more than `MOST_HOSTS` names.

    Source:
        Slurm 22.05, ``scontrol show hostnames``, with which it agrees.
    """
    names: list[str] = []
    place = 0
    while True:
        part = _PART.match(text, place)
        assert part is not None  # it may be empty
        place = part.end()
        if not part[0] or (place < len(text) and text[place] != ","):
            raise StateError("is no list of hosts, as node[1-3,07],login", field="Nodes", value=text)
        names += _named(part[1], part[2], text, MOST_HOSTS - len(names))
        if place == len(text):
            return names
        place += 1


def _named(before: str, ranges: str, text: str, most: int) -> list[str]:
    """Return the names in a part."""
    columns: list[list[str]] = [[before]]
    count = 1
    for numbers, behind in _RANGE.findall(ranges):
        column: list[str] = []
        for piece in numbers.split(","):
            bounds = _BOUNDS.fullmatch(piece)
            first, last = (int(bounds[1]), int(bounds[2] or bounds[1])) if bounds else (1, 0)
            if bounds is None or first > last:
                raise StateError("is no range of hosts, as [1-3,07]", field="Nodes", value=text)
            if (last - first + 1 + len(column)) * count > most:
                raise StateError(f"more than {MOST_HOSTS:,} hosts", field="Nodes", value=text)
            column += [f"{number:0{len(bounds[1])}d}{behind}" for number in range(first, last + 1)]
        count *= len(column)
        columns.append(column)
    if count > most:
        raise StateError(f"more than {MOST_HOSTS:,} hosts", field="Nodes", value=text)
    return ["".join(parts) for parts in itertools.product(*columns)]
