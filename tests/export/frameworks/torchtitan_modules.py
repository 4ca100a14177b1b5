"""torchtitan's own configuration and meshes, loaded without the rest of its package, which wants much else installed.

The tests import it; nothing of what it is asked is stood in for.
"""

import dataclasses
import importlib
import importlib.util
import sys
import types
import typing
from importlib.machinery import ModuleSpec

PACKAGE = importlib.util.find_spec("torchtitan")
"""Where torchtitan is installed; None: it is not."""


def module(name: str) -> types.ModuleType:
    """A module of torchtitan by its name below the package."""
    assert PACKAGE is not None
    folders = PACKAGE.submodule_search_locations or []
    parents = name.split(".")[:-1]
    for depth in range(len(parents) + 1):
        spec = ModuleSpec(".".join(["torchtitan", *parents[:depth]]), None, is_package=True)
        spec.submodule_search_locations = ["/".join([folder, *parents[:depth]]) for folder in folders]
        shell = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(shell.__name__, shell)
    return importlib.import_module(f"torchtitan.{name}")


def read_table(kind, given):
    """A table of the configuration as its dataclass, whose keys and choices are held."""
    hints = typing.get_type_hints(kind)
    assert set(given) <= {one.name for one in dataclasses.fields(kind)}
    values = {
        key: read_table(hints[key], value) if dataclasses.is_dataclass(hints[key]) else value for key, value in given.items()
    }
    for key, value in values.items():
        if typing.get_origin(hints[key]) is typing.Literal:
            assert value in typing.get_args(hints[key])
    return kind(**values)
