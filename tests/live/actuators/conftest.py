"""Kueue's API in place of a real one, and a controller of the module's own planners."""

import pytest

from meshwright.live.controller import Controller

from .kueue_samples import DictApi, stand_in


@pytest.fixture
def controller(planners, tmp_path) -> Controller:
    return Controller(tmp_path / "s.db", planners)


@pytest.fixture
def api(monkeypatch) -> DictApi:
    return stand_in(monkeypatch)
