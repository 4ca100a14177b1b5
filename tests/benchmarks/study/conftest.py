"""The small inputs of the command line, which a study works on too, and a runner that looks often at its processes."""

from types import SimpleNamespace

import pytest

from benchmarks.study import runner

from ...cli.conftest import work
from .small_study import PlayedHere

__all__ = ["work"]


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch):
    monkeypatch.setattr(runner, "LOOK_EVERY_S", 0.005)


@pytest.fixture
def no_processes(monkeypatch):
    """What the stand-in does is done in this process, for tests of what becomes of it."""
    monkeypatch.setattr(runner, "subprocess", SimpleNamespace(Popen=PlayedHere, DEVNULL=None))
