"""Compiled code kept on disk, keyed by what the code is and by all that it reaches.

Numba's own cache keys a function by the text of its file. Such a key misses a change in a compiled function of another file. It
also compiles everything anew after a new comment or in a copy of the tree. Here the key of a function is a digest of its byte
code and of all that this names: compiled functions, constants, arrays and classes, in turn. So an edit compiles anew what it
can change and nothing else, and all copies of the package on a machine share one cache. Each compiled signature is one file,
renamed into its place, so that processes which compile at the same time never read each other's halves.
"""

from __future__ import annotations

import enum
import hashlib
import os
import pickle
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from importlib.util import find_spec
from inspect import CO_NEWLOCALS
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numba
import numba.core.codegen
import numba.core.compiler
import numba.core.runtime
import numba.core.serialize
import numba.extending
import numpy as np
from numba import NumbaWarning

from .errors import InputFileError
from .files import atomic_file

PACKAGE = __package__
UNUSED_DAYS = 60.0
"""Entries that nobody has read for so long are removed when a newer one of the same function is stored."""

FORMAT = 3
"""Of the files; raised whenever they hold something else."""

PLAIN = (bool, int, float, complex, str, bytes, np.generic, enum.Enum)
"""Types of constants whose `repr` says all of them."""

# Numba has no public means of caching; those it has are untyped. Its settings are attributes of a module.
runtime: Any = numba.core.runtime
codegen: Any = numba.core.codegen
CompileResult: Any = numba.core.compiler.CompileResult
serialize: Any = numba.core.serialize
config: Any = numba.config


def root_folder() -> Path:
    """Return the folder of compiled code: ``NUMBA_CACHE_DIR`` if that is set, or else one in the user's cache."""
    named = os.environ.get("NUMBA_CACHE_DIR")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "meshwright" / "compiled"


def function_digest(function: Callable[..., Any]) -> str:
    """Return a digest of a function and of everything that it reaches: the same in every process and in every copy of the tree.

    A comment, a docstring or a function that it does not call change nothing.
    """
    state = hashlib.sha256(_environment().encode())
    for item in _reached(function):
        state.update(item.encode())
        state.update(b"\n")
    return state.hexdigest()


def _environment() -> str:
    versions = FORMAT, numba.__version__, np.__version__, *sys.version_info[:3]
    return repr((versions, config.OPT, config.BOUNDSCHECK, config.ENABLE_AVX))


def _reached(function: Callable[..., Any]) -> list[str]:
    """Return a line for each function, constant and class that the function names, in turn; sorted, each once."""
    lines: set[str] = set()
    seen: set[FunctionType] = set()
    start = getattr(function, "py_func", function)
    waiting: list[tuple[str, Any, frozenset[str]]] = [("", function, frozenset())]
    while waiting:
        name, value, names = waiting.pop()
        if numba.extending.is_jitted(value):
            lines.add(f"{name}: options {sorted(value.targetoptions.items())!r}")
            value = value.py_func
        elif not isinstance(value, type):  # an intrinsic
            value = getattr(value, "__wrapped__", value)
        if isinstance(value, FunctionType):
            full_name = f"{value.__module__}.{value.__qualname__}"
            lines.add(f"{name}: {full_name}")
            if value not in seen and (_is_ours(value.__module__) or value is start):
                seen.add(value)
                lines.add(f"{full_name} {_code_text(value.__code__)}")
                waiting.extend(_named_by(value))
        elif isinstance(value, ModuleType):
            if _is_ours(value.__name__):
                waiting.extend((f"{value.__name__}.{key}", vars(value)[key], names) for key in names & vars(value).keys())
            else:
                lines.add(f"{name}: {value.__name__}")
        else:
            lines.add(f"{name}: {_value_text(value)}")
    return sorted(lines)


def _named_by(function: FunctionType) -> Iterator[tuple[str, Any, frozenset[str]]]:
    """Yield the values of a function's globals, defaults and closure that its code names."""
    names = frozenset(_names_in(function.__code__))
    known = function.__globals__
    for name in names & known.keys():
        yield f"{function.__module__}.{name}", known[name], names
    for position, default in enumerate(function.__defaults__ or ()):
        yield f"{function.__qualname__} default {position}", default, names
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield f"{function.__qualname__} closure {name}", cell.cell_contents, names


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _code_text(code: CodeType) -> str:
    # A docstring is the first constant, and no instruction reads it.
    has_docstring = code.co_flags & CO_NEWLOCALS and isinstance(next(iter(code.co_consts), None), str)
    constants = [_code_text(c) if isinstance(c, CodeType) else _value_text(c) for c in code.co_consts[bool(has_docstring) :]]
    shape = code.co_argcount, code.co_kwonlyargcount, code.co_flags, code.co_names, code.co_varnames, code.co_freevars
    return repr((code.co_code.hex(), code.co_exceptiontable.hex(), shape, constants))


def _value_text(value: Any) -> str:
    """Return a spelling of a constant that is the same in every process.

    Raises:
        TypeError: compiled code names a value that has no such spelling.
    """
    if isinstance(value, np.ndarray):
        return f"array {value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}({', '.join(map(_value_text, value))})"
    if isinstance(value, frozenset | set):
        return f"{type(value).__name__}({', '.join(sorted(map(_value_text, value)))})"
    if isinstance(value, type):
        members = [(m.name, m.value) for m in value] if issubclass(value, enum.Enum) else getattr(value, "_fields", ())
        return f"class {value.__module__}.{value.__qualname__} {members!r}"
    if value is None or value is Ellipsis or isinstance(value, PLAIN):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, numba.types.Type):
        return f"numba {value!r}"
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if name is None:
        raise TypeError(f"compiled code names a value that has no stable spelling: {type(value).__name__}")
    return f"{getattr(value, '__module__', None)}.{name}"


def _is_ours(module: str | None) -> bool:
    return module is not None and (module == PACKAGE or module.startswith(f"{PACKAGE}."))


def _types_digest(signature: Any) -> str:
    """Return a digest of the modules of this package that define types of the arguments; such modules write code themselves."""
    waiting = list(getattr(signature, "args", signature))
    modules = set()
    while waiting:
        kind = waiting.pop()
        modules |= {type(kind).__module__} if _is_ours(type(kind).__module__) else set()
        waiting.extend(getattr(kind, "types", ()))
    state = hashlib.sha256()
    for module in sorted(modules):
        result = find_spec(module)
        state.update(Path(str(result.origin if result else "")).read_bytes())
    return state.hexdigest()


class FunctionCache:
    """The cache of one compiled function; numba calls it with a signature, in place of its own."""

    def __init__(self, dispatcher: Any) -> None:
        self.cache_path = str(root_folder())
        self._dispatcher = dispatcher

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Return the code stored for a signature; None where there is none."""
        runtime.rtsys.initialize(target_context)
        key = self._key(signature, target_context.codegen())
        path = self._path(key)
        try:
            stored, called, payload = pickle.loads(path.read_bytes())  # noqa: S301 - the user's own cache
            if stored != key:
                return None
            if not all(map(codegen.ll.address_of_symbol, called)):  # numba's registries, .3 s, define the rest
                target_context.refresh()
            os.utime(path)
            return CompileResult._rebuild(target_context, *payload)
        except (OSError, pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError, ValueError):
            return None  # absent, or cut off by a full disk: compiled anew

    def save_overload(self, signature: Any, data: Any) -> None:
        """Store what was compiled for a signature."""
        if data.library.has_dynamic_globals or not all(loop.can_cache for loop in data.lifted):
            name = self._dispatcher.py_func.__qualname__
            warnings.warn(f"{name} is compiled in every process, for it holds addresses", NumbaWarning, stacklevel=2)
            return
        key = self._key(signature, data.codegen)
        path = self._path(key)
        # Numba's own pickler, which spells functions and types by value where that has to be.
        content = serialize.dumps((key, _called(data.library), data._reduce()))
        # A full disk or a folder that may not be written: the code is compiled in every process.
        with suppress(InputFileError, OSError):
            with atomic_file(path) as file:
                file.write(content)
            _prune(path.parent)

    def flush(self) -> None:
        """Do nothing: all is kept on disk."""

    @cached_property
    def _digest(self) -> str:
        return function_digest(self._dispatcher)

    def _key(self, signature: Any, codegen: Any) -> tuple[Any, ...]:
        return signature, codegen.magic_tuple(), self._digest, _types_digest(signature)

    def _path(self, key: tuple[Any, ...]) -> Path:
        signature, machine, *digests = key
        function = self._dispatcher.py_func
        name = hashlib.sha256(repr((str(signature), machine, digests)).encode()).hexdigest()[:32]
        return root_folder() / f"{function.__module__}.{function.__qualname__}" / f"{name}.nbc"


def _called(library: Any) -> list[str]:
    """Return the names of what compiled code calls or reads outside itself."""
    module = library._final_module
    names = (one.name for one in (*module.functions, *module.global_variables) if one.is_declaration)
    return [name for name in names if not name.startswith("llvm.")]


def _prune(folder: Path) -> None:
    """Remove entries that were not read for `UNUSED_DAYS`."""
    oldest = time.time() - UNUSED_DAYS * 86_400
    for path in folder.iterdir():
        if path.stat().st_mtime < oldest:
            path.unlink(missing_ok=True)


def keep(dispatcher: Any) -> None:
    """Make a compiled function store what it compiles on disk."""
    dispatcher._cache = FunctionCache(dispatcher)
