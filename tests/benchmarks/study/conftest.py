"""The small inputs of the command line, which a study works on too, and a runner that looks often at its processes."""

import pytest

from benchmarks.study import runner

from ...cli.conftest import work

__all__ = ["work"]


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch):
    monkeypatch.setattr(runner, "LOOK_EVERY_S", 0.005)
