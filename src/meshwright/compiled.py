"""Compiled functions whose cache on disk never outlives the sources that they were compiled from.

Numba keys its cache by the file of the outermost function alone, so a change in a compiled function that another file
calls would go unnoticed. Here the cache lies in a folder whose name is a hash of all compiled sources of the package.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numba
import numba.core.config
import numba.core.dispatcher

Function = TypeVar("Function", bound=Callable[..., Any])

# Numba's settings are attributes of a module, set when it is imported.
config: Any = numba.core.config

# The floors that hold compiled code, with their subpackages.
FLOORS = ("costs", "costs.layouts", "simulation", "simulation.pacml", "planners", "envs", "models")


def _njit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """`numba.njit` with its options and a cache on disk; where ``NUMBA_CACHE_DIR`` is set, below that folder."""

    def compile_(given: Callable[..., Any]) -> Any:
        before = config.CACHE_DIR
        config.CACHE_DIR = str(cache_folder())
        try:
            return numba.njit(given, cache=True, **options)
        finally:
            config.CACHE_DIR = before

    return compile_ if function is None else compile_(function)


# For functions without annotations: what it makes is untyped for type checkers.
njit: Any = _njit


def njit_typed(function: Function) -> Function:
    """`njit` without options for an annotated function, which keeps its signature for type checkers."""
    made: Function = _njit(function)
    return made


def for_types_of(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """A compiled function for arguments of exactly the types of these.

    It is called without looking at the types of its arguments again, which for tuples of many arrays takes numba longer
    than handing them over: the caller must see to it that they stay (dtype, dimensions, contiguity, writeability).
    """
    if not isinstance(function, numba.core.dispatcher.Dispatcher):
        return function  # compilation is switched off
    types = tuple(function.typeof_pyval(argument) for argument in arguments)
    function.compile(types)
    compiled: Any = function.overloads[types]
    entry: Callable[..., Any] = compiled.entry_point
    return entry


@cache
def cache_folder() -> Path:
    """Where compiled code of exactly these sources is kept."""
    named = os.environ.get("NUMBA_CACHE_DIR")
    root = Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "meshwright" / "compiled"
    return root / sources_digest()


@cache
def sources_digest() -> str:
    """A hash of the text of every module that holds compiled functions."""
    state = hashlib.sha256()
    for floor in FLOORS:
        found = find_spec(f"{__package__}.{floor}")
        for folder in (found.submodule_search_locations or []) if found is not None else []:
            for path in sorted(Path(folder).glob("*.py")):
                text = path.read_bytes()
                if b"numba" in text or b"njit" in text:
                    state.update(f"{floor}.{path.name}:{len(text)};".encode())
                    state.update(text)
    return state.hexdigest()[:20]
