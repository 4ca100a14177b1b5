"""A plan in the form of a scheduler or launcher, and whether a launched job is where its plan wants it."""

from .folder import ExportedRun, export, export_run, targets, write
from .probe import Place, read_places
from .target import ExportOptions, Target
from .verify import Verification, verify

__all__ = [
    "ExportOptions",
    "ExportedRun",
    "Place",
    "Target",
    "Verification",
    "export",
    "export_run",
    "read_places",
    "targets",
    "verify",
    "write",
]
