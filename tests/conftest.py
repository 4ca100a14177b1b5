"""Fixtures that several floors share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder of reference data, or a skip that says where it was looked for."""
    named = os.environ.get("MESHWRIGHT_REFERENCE")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "reference"
    if not (folder / "README.md").is_file():
        pytest.skip(f"no reference data at {folder} (set MESHWRIGHT_REFERENCE)")
    return folder
