"""A package with two worlds of its own, installed in a folder on the path."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshwright.worlds.registry import worlds

BENCHMARK = """\
name: {name}-8
{name}_jobs: {{jobs: 8, machines: 3}}
best_known_s: 1
num_seeds: 6
num_validation_seeds: 6
"""
WORLDS = ("toy", "changing")


@pytest.fixture(params=WORLDS)
def toy(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The benchmark file ``NAME-8.yaml`` of a world, which is found by its entry point."""
    package = tmp_path / "package"
    about = package / "toy_world-1.0.dist-info"
    about.mkdir(parents=True)
    for name in WORLDS:
        shutil.copy(Path(__file__).parent / f"{name}_world.py", package / f"{name}_world.py")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-world\nVersion: 1.0\n")
    points = "".join(f"{name}_jobs = {name}_world:load_{name}_world\n" for name in WORLDS)
    (about / "entry_points.txt").write_text(f"[meshwright.worlds]\n{points}")
    monkeypatch.syspath_prepend(package)
    worlds.cache_clear()
    benchmark = tmp_path / f"{request.param}-8.yaml"
    benchmark.write_text(BENCHMARK.format(name=request.param))
    yield benchmark
    worlds.cache_clear()
