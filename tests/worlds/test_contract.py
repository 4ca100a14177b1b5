"""A world that breaks its contract is named when it is built, not as an error of shapes in torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meshwright.errors import ConfigError, GraphError
from meshwright.worlds.registry import load_world
from meshwright.worlds.tasklets.graph import LINKS
from meshwright.worlds.tasklets.world import TaskletWorld
from meshwright.worlds.world import InstanceGraph

WORLD = TaskletWorld()
GRAPH = WORLD.graph(WORLD.tiny())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"slots": ("stage", "device")}, "begin with a member and its group"),
        ({"slots": ("device", "stage", "link")}, "no type of node"),
        ({"member": "devices"}, "no type of node"),
        ({"prior": {"stages_s": 1.0}}, "no feature of an action"),
        ({"edges": {("device", "reaches", "host"): ()}}, "no type of node"),
    ],
)
def test_a_spec_of_unknown_names_is_refused(change: dict[str, Any], told: str) -> None:
    with pytest.raises(GraphError, match=told):
        replace(WORLD.spec, **change)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda graph: {"nodes": {**graph.nodes, "stage": graph.nodes["stage"][:, :1]}}, r"nodes\.stage.*must have 3 features"),
        (lambda graph: {"nodes": {"device": graph.nodes["device"]}}, r"nodes\.stage"),
        (lambda graph: {"edges": {LINKS: np.full_like(graph.edges[LINKS], np.nan)}}, "not finite"),
        (lambda graph: {"ends": {LINKS: graph.ends[LINKS] + 1}}, "leads to no node: there are 4 of type device"),
        (lambda graph: {"ends": {LINKS: graph.ends[LINKS][:, :-1]}}, "a source and a target for each edge"),
        (lambda graph: {"whole": graph.whole[:1]}, r"whole.*must have 4 features"),
    ],
)
def test_a_graph_that_is_not_as_its_spec_says_is_refused(change: Callable[[InstanceGraph], dict[str, Any]], told: str) -> None:
    GRAPH.check(WORLD.spec)
    with pytest.raises(GraphError, match=told) as found:
        replace(GRAPH, **change(GRAPH)).check(WORLD.spec)
    assert "\n" not in str(found.value)


def test_a_benchmark_of_no_world_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no world that a graph policy plays.*tasklets"):
        load_world("preset:quickstart")


def test_a_digest_knows_features_and_not_the_prior() -> None:
    spec = WORLD.spec
    assert replace(spec, prior={"stage_s": 1.0}).digest == spec.digest
    assert replace(spec, state=spec.state[:-1]).digest != spec.digest
    assert replace(spec, edges={LINKS: spec.edges[LINKS][:-1]}).digest != spec.digest
