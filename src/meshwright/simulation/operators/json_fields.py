"""Fields of a JSON object, read with the name of the field where they are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import InputFileError

MOST = 1e18
"""Greater figures are mistakes, and their sums would lose what is added to them."""


MOST_ID = 10**9
"""Identities of nodes are whole numbers of either sign up to this."""


class JsonFields:
    """An object of a JSON file and where it is in that file.

    Args:
        data: what was read there.
        file: for messages.
        field: where in the file, dotted from its root; empty at the root.
    """

    def __init__(self, data: Any, file: str | Path, field: str = "") -> None:
        self.file, self.field = file, field
        if not isinstance(data, dict):
            raise self.error("must be an object", "", type(data).__name__)
        self.data = data

    def number(self, key: str, *, most: float = MOST) -> float:
        """Return a number of 0 or more."""
        result = self._required(key)
        if isinstance(result, bool) or not isinstance(result, int | float) or not 0 <= result <= most:
            raise self.error(f"must be a number of 0 to {most:g}", key, result)
        return float(result)

    def whole(self, key: str, *, least: int = 0, most: int = 10**9) -> int:
        """Return a whole number; one that is written with a point counts where nothing follows it."""
        result = self._required(key)
        if (
            isinstance(result, bool)
            or not isinstance(result, int | float)
            or result != int(result)
            or not least <= result <= most
        ):
            raise self.error(f"must be a whole number of {least} to {most}", key, result)
        return int(result)

    def ends(self, number: dict[int, int]) -> tuple[int, int]:
        """Return the nodes that an edge joins, ``sourceId`` and ``destId``, by their numbers of these identities."""
        results = []
        for key in ("sourceId", "destId"):
            node_id = self.whole(key, least=-MOST_ID)
            if node_id not in number:
                raise self.error("no node has this id", key, node_id)
            results.append(number[node_id])
        return results[0], results[1]

    def flag(self, key: str) -> bool:
        """Return true or false, or 1 or 0."""
        result = self._required(key)
        if not isinstance(result, bool | int) or result not in (0, 1):
            raise self.error("must be true or false", key, result)
        return bool(result)

    def text(self, key: str) -> str:
        """Return a text that is not empty."""
        result = self._required(key)
        if not isinstance(result, str) or not result:
            raise self.error("must be a text", key, result)
        return result

    def items(self, key: str) -> list[Any]:
        """Return a list of anything."""
        result = self._required(key)
        if not isinstance(result, list):
            raise self.error("must be a list", key, type(result).__name__)
        return result

    def objects(self, key: str) -> list[JsonFields]:
        """Return a list of objects."""
        return [JsonFields(each, self.file, f"{self._path(key)}[{place}]") for place, each in enumerate(self.items(key))]

    def below(self, key: str) -> JsonFields:
        """Return the object under a key."""
        return JsonFields(self._required(key), self.file, self._path(key))

    def error(self, problem: str, key: str, value: object = None) -> InputFileError:
        """Return an error of one field; of the object itself where the key is empty."""
        return InputFileError(problem, file=self.file, field=self._path(key) if key else self.field or None, value=value)

    def _required(self, key: str) -> Any:
        if key not in self.data:
            raise InputFileError(
                "the key is missing", file=self.file, field=self._path(key), value=key, choices=[str(each) for each in self.data]
            )
        return self.data[key]

    def _path(self, key: str) -> str:
        return f"{self.field}.{key}" if self.field else key


def node_numbers(nodes: Sequence[JsonFields]) -> dict[int, int]:
    """Return the number of each node by its ``id``, in the order of the file.

    Raises:
        InputFileError: two have the same.
    """
    number: dict[int, int] = {}
    for node in nodes:
        node_id = node.whole("id", least=-MOST_ID)
        if node_id in number:
            raise node.error("two nodes have this id", "id", node_id)
        number[node_id] = len(number)
    return number
