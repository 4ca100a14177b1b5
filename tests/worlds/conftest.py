"""A package with a world of its own, installed in a folder on the path."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshwright.worlds.registry import worlds

BENCHMARK = """\
name: toy-8
toy_jobs: {jobs: 8, machines: 3}
best_known_s: 1
num_seeds: 6
num_validation_seeds: 6
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The benchmark file of the toy world; its package is found by its entry point."""
    package = tmp_path / "package"
    about = package / "toy_world-1.0.dist-info"
    about.mkdir(parents=True)
    shutil.copy(Path(__file__).parent / "toy_world.py", package / "toy_world.py")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-world\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[meshwright.worlds]\ntoy_jobs = toy_world:load_toy_world\n")
    monkeypatch.syspath_prepend(package)
    worlds.cache_clear()
    benchmark = tmp_path / "toy-8.yaml"
    benchmark.write_text(BENCHMARK)
    yield benchmark
    worlds.cache_clear()
