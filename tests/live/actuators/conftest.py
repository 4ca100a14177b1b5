"""Kueue's API in place of a real one."""

import pytest

from meshwright.live.actuators import kubernetes_api

from .kueue_samples import DictApi


@pytest.fixture
def api(monkeypatch) -> DictApi:
    made = DictApi()
    for name in ("get", "replace", "label_nodes"):
        monkeypatch.setattr(kubernetes_api, name, lambda *words, name=name: getattr(made, name)(*words))
    return made
