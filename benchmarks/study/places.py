"""Where the things of a study lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Places:
    """Where things lie.

    Attributes:
        out: the study's folder.
        graphs: profiles by folder name.
        trace: the CSV file of a trace.
    """

    out: Path
    graphs: Path | None = None
    trace: Path | None = None


SHOWN = Places(Path("runs/results"), Path("PROFILES"), Path("TRACE"))
"""As commands are printed on a page."""
