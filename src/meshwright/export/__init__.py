"""A plan in the form of a scheduler or launcher, and whether a launched job is where its plan says.

`meshwright.export` is a public function and, once this package has been imported, this package: so the package can be
called as the function.
"""

import sys
from types import ModuleType

from .options import ExportOptions
from .probe import Place, read_places
from .target import Target
from .verify import Verification, verify
from .writer import ExportedRun, export, export_run, target_of, targets, write

__all__ = [
    "ExportOptions",
    "ExportedRun",
    "Place",
    "Target",
    "Verification",
    "export",
    "export_run",
    "read_places",
    "target_of",
    "targets",
    "verify",
    "write",
]


class _AsFunction(ModuleType):
    """A module that is called as the function of its own name."""

    __call__ = staticmethod(export)


sys.modules[__name__].__class__ = _AsFunction
