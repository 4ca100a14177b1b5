"""Look-ups in a Hugging Face ``config.json``, each with the error of a value that no model has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import GraphError
from ..transformer import MAX_SIZE


class ConfigKeys:
    """Typed look-ups in a configuration.

    Args:
        config: its data.
        file: that holds it, for errors.
        inside: the key of the file that holds the configuration; empty where it is the whole file.
    """

    def __init__(self, config: dict[str, Any], file: str | Path | None, inside: str = "") -> None:
        self.config = config
        self.file = file
        self.inside = inside

    def count(self, key: str, default: int | None = None, most: int = MAX_SIZE) -> int:
        """Return a positive whole number; an absent one is an error where there is no default."""
        value = self.config.get(key)
        if value is None:
            if default is None:
                raise self.error("the key is missing", key)
            return default
        if isinstance(value, list) and value and all(one == value[0] for one in value):  # one number for each layer
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.error("must be a positive whole number", key, value)
        if value > most:
            raise self.error(f"must be {most} at most", key, value)
        return value

    def first_key(self, *names: str) -> str:
        """Return the first of some keys of one meaning that is there, else the first."""
        return next((key for key in names if self.config.get(key) is not None), names[0])

    def count_or_none(self, key: str) -> int:
        """Return a whole number whose key must be there; 0 where it is 0 or ``null``."""
        if key not in self.config:
            raise self.error("the key is missing", key)
        value = self.config[key]
        return 0 if value is None or (value == 0 and type(value) is int) else self.count(key)

    def number(self, key: str, where: Mapping[str, Any] | None = None, most: float = MAX_SIZE) -> float | None:
        """Return a positive number of the configuration, or of a mapping in it; None where it is absent."""
        value = (self.config if where is None else where).get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
            raise self.error(f"must be a positive number, {most:g} at most", key, value)
        return float(value)

    def first_number(self, names: Sequence[str], most: float = MAX_SIZE) -> float | None:
        """Return the number of the first of some keys that is there."""
        return self.number(self.first_key(*names), most=most)

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false."""
        value = self.config.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error("must be true or false", key, value)
        return value

    def window(self, key: str) -> int | None:
        """Return the tokens that a query looks back at most; None where it looks back over all."""
        return None if self.config.get(key) is None else self.count(key)

    def key_value_heads(self, heads: int, key: str) -> int:
        """Return the key and value heads, which divide the query heads."""
        groups = self.count(key)
        if heads % groups:
            raise self.error(f"{groups} key-value heads do not divide {heads} heads", key)
        return groups

    def active_experts(self, experts: int, key: str) -> int:
        """Return the experts that each token visits, no more than there are."""
        active = self.count(key)
        if active > experts:
            raise self.error(f"there are only {experts} experts", key, active)
        return active

    def places(self, key: str, num_layers: int) -> frozenset[int]:
        """Return the layers that a list names, from 0."""
        value = self.config.get(key) or []
        known = range(num_layers)
        if not isinstance(value, list) or any(isinstance(one, bool) or one not in known for one in value):
            raise self.error(f"must be a list of layers from 0 to {num_layers - 1}", key, value)
        return frozenset(value)

    def layer_types(self, num_layers: int, known: Sequence[str], absent: list[str], key: str = "layer_types") -> list[str]:
        """Return the type of each layer, one of those known; where the key is absent, by a rule."""
        value = self.config.get(key)
        if value is None:
            return absent
        if not isinstance(value, list) or len(value) != num_layers or any(one not in known for one in value):
            raise self.error(f"must name {' or '.join(known)} for each of the {num_layers} layers", key)
        return value

    def head_dim(self, hidden_key: str, heads_key: str) -> int:
        """Return the width of a head: as given, or the hidden width divided evenly among the heads."""
        if self.config.get("head_dim") is not None:
            return self.count("head_dim")
        hidden, heads = self.count(hidden_key), self.count(heads_key)
        if hidden % heads:
            raise self.error(f"{heads} heads do not divide {hidden_key} {hidden}", heads_key)
        return hidden // heads

    def error(self, problem: str, key: str, value: object = None) -> GraphError:
        """Return the error of a key."""
        return GraphError(problem, file=self.file, field=f"{self.inside}.{key}" if self.inside else key, value=value)
