"""A plan in the form of a scheduler or launcher."""

from .folder import ExportedRun, export, export_run, targets, write
from .target import ExportOptions, Target

__all__ = ["ExportOptions", "ExportedRun", "Target", "export", "export_run", "targets", "write"]
