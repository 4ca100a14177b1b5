"""Models of users: ``FILE.py:NAME`` or ``PACKAGE.MODULE:NAME``, where NAME is a function or class that makes a module.

Their code runs, on the ``meta`` device, where weights take no memory.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_map  # nothing public maps nested inputs

from .. import files
from ..errors import MeshwrightError, TraceError
from .inputs import DTYPES, parse_inputs
from .trace import Model, first_line, quiet


def load_factory(spec: str, *, inputs: Sequence[str] = (), dtype: str = "bf16") -> Model:
    """Return the model that a factory makes.

    Args:
        spec: ``FILE.py:NAME`` or ``PACKAGE.MODULE:NAME``. It returns a module; or a module and its inputs, which are a tensor,
            a tuple of them or a mapping by name.
        inputs: see `inputs.parse_inputs`; in place of the factory's own.
        dtype: of weights and of the inputs of floating-point numbers.

    Raises:
        TraceError: no such file, module or name, its code raises, it makes no module, or no input is known.
    """
    place, _, name = spec.rpartition(":")
    if not place or not name.isidentifier():
        raise TraceError("must read FILE.py:NAME or PACKAGE.MODULE:NAME", field="MODEL", value=spec)
    with quiet(), _no_compiled_files():
        factory = _attribute(_module(place), name, spec)
        made = factory if isinstance(factory, torch.nn.Module) else _made(factory, spec)
    example_inputs: Any = None
    if isinstance(made, tuple) and len(made) == 2:
        made, example_inputs = made
    if not isinstance(made, torch.nn.Module):
        raise TraceError(f"makes {type(made).__name__}, a torch.nn.Module is wanted", field="MODEL", value=spec)
    weights = DTYPES[dtype]
    try:
        module = made.to("meta").to(weights).train()
    except Exception as error:
        raise TraceError(f"cannot be moved to the meta device: {first_line(error)}", field="MODEL", value=spec) from None
    args, kwargs = parse_inputs(inputs, weights)
    if not inputs:
        if example_inputs is None:
            raise TraceError("is needed, as x=8x3x224x224, unless the factory returns a module and its inputs", field="--input")
        args, kwargs = _as_inputs(example_inputs, weights)
    first = [tensor for tensor in (*args, *kwargs.values()) if isinstance(tensor, torch.Tensor) and tensor.ndim]
    return Model(name, module, args, kwargs, int(first[0].shape[0]) if first else None)


@contextmanager
def _no_compiled_files() -> Iterator[None]:
    """Keep Python from writing ``__pycache__`` next to a file of the user."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def _module(place: str) -> Any:
    if not place.endswith(".py"):
        try:
            return importlib.import_module(place)
        except Exception as error:
            raise TraceError(f"cannot be imported: {first_line(error)}", field="MODEL", value=place) from None
    path = Path(place)
    files.read_text(path)  # refused like any other missing file, and protected as an input
    spec = importlib.util.spec_from_file_location(f"_profiled_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise TraceError(f"does not run: {first_line(error)}", file=path) from None
    finally:
        sys.path.pop(0)
    return module


def _attribute(module: Any, name: str, spec: str) -> Any:
    if not hasattr(module, name):
        named = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise TraceError("no such function or class in the file", field="MODEL", value=name, choices=named)
    result = getattr(module, name)
    if not callable(result):
        raise TraceError(f"is {type(result).__name__}, and nothing that makes a module", field="MODEL", value=spec)
    return result


def _made(factory: Any, spec: str) -> Any:
    try:
        with torch.device("meta"):
            return factory()
    except MeshwrightError:
        raise
    except (Exception, SystemExit) as error:  # whatever the code of a user raises
        raise TraceError(f"the factory fails: {first_line(error)}", field="MODEL", value=spec) from None


def _as_inputs(inputs: Any, dtype: torch.dtype) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the inputs of a factory, without their data."""

    def bare(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return torch.empty_like(value, device="meta", dtype=dtype if value.is_floating_point() else value.dtype)

    inputs = tree_map(bare, inputs)
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)), {}
