"""Compiled functions: the one door to numba, with a cache on disk that knows what the code reaches."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from .errors import ConfigError

try:
    import numba
    import numba.core.event  # of numba's developer manual; no public event says when it compiles
    import numba.extending
except ValueError as error:  # an environment variable of its own that holds an impossible value
    named = {name: value for name, value in os.environ.items() if name.startswith("NUMBA_")}
    problem = f"numba does not start with this environment ({str(error).rstrip('.')})"
    raise ConfigError(problem, field=" ".join(named) or None, value=" ".join(named.values()) or None) from None

from . import compile_cache
from .compiling import LOADING, CompileTimer, Stopwatch

Function = TypeVar("Function", bound=Callable[..., Any])

# Numba's settings are attributes of a module, set when it is imported.
config: Any = numba.config
events: Any = numba.core.event


def _njit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Return `numba.njit` with its options and a cache on disk (see `compile_cache`)."""

    def compile_(target: Callable[..., Any]) -> Any:
        made = numba.njit(target, **options)
        if numba.extending.is_jitted(made):  # not where compilation is switched off
            compile_cache.keep(made)
            _forget_literals(made)
        return made

    return compile_ if function is None else compile_(function)


def _forget_literals(dispatcher: Any) -> None:
    """Let compiled callers ask for a function by the types of their arguments alone.

    Numba compiles a callee, and all that it calls in turn, once more for each combination of constants that are written at a
    call. LLVM inlines those constants by itself, so the code is as fast without.
    """
    resolve = dispatcher.get_call_template
    unliteral: Any = numba.types.unliteral

    def get_call_template(arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return resolve(tuple(map(unliteral, arguments)), {name: unliteral(kind) for name, kind in named.items()})

    dispatcher.get_call_template = get_call_template


# For functions without annotations: what it makes is untyped for type checkers.
njit: Any = _njit


def njit_typed(function: Function) -> Function:
    """Apply `njit` without options for an annotated function, which keeps its signature for type checkers."""
    made: Function = _njit(function)
    return made


def for_types_of(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """Return a compiled function for arguments of exactly the types of these.

    It is called without looking at the types of its arguments again, which for tuples of many arrays takes numba longer
    than handing them over: the caller must see to it that they stay (dtype, dimensions, contiguity, writeability).
    """
    if not numba.extending.is_jitted(function):
        return function  # compilation is switched off
    types = tuple(function.typeof_pyval(argument) for argument in arguments)
    function.compile(types)
    compiled: Any = function.overloads[types]
    entry: Callable[..., Any] = compiled.entry_point
    return entry


class _Events(numba.core.event.Listener):
    """Hands numba's events to a stopwatch, those of functions with their names."""

    def __init__(self, stopwatch: Stopwatch, *, is_named: bool) -> None:
        self._stopwatch, self._is_named = stopwatch, is_named

    def on_start(self, event: Any) -> None:
        self._stopwatch.begin(event.data["dispatcher"].py_func.__name__ if self._is_named else "")

    def on_end(self, event: Any) -> None:
        self._stopwatch.end()


events.register("numba:compile", _Events(CompileTimer(), is_named=True))
events.register("numba:compiler_lock", _Events(LOADING, is_named=False))
