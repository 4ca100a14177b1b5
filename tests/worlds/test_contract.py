"""A world that breaks its contract is named when it is built, not as an error of shapes in torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meshwright.envs.world_env import WorldEnv
from meshwright.errors import ConfigError, GraphError
from meshwright.worlds.registry import load_world
from meshwright.worlds.tasklets.episodes import TaskletEpisodes
from meshwright.worlds.tasklets.graph import LINKS
from meshwright.worlds.tasklets.world import TaskletWorld
from meshwright.worlds.typed_graph import DecisionArrays, InstanceGraph

WORLD = TaskletWorld()
GRAPH = WORLD.graph(WORLD.tiny())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"slots": ("stage", "device")}, "begin with a member and its group"),
        ({"slots": ("device", "stage", "link")}, "no type of node"),
        ({"member": "devices"}, "no type of node"),
        ({"prior": {"stages_s": 1.0}}, "no feature of an action"),
        ({"edges": {("device", "reaches", "host"): ()}}, "no type of node"),
    ],
)
def test_a_spec_of_unknown_names_is_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        replace(WORLD.spec, **change)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda graph: {"nodes": {**graph.nodes, "stage": graph.nodes["stage"][:, :1]}}, r"nodes\.stage.*must have 3 features"),
        (lambda graph: {"nodes": {"device": graph.nodes["device"]}}, r"nodes\.stage"),
        (lambda graph: {"edges": {LINKS: np.full_like(graph.edges[LINKS], np.nan)}}, "not finite"),
        (lambda graph: {"ends": {LINKS: graph.ends[LINKS] + 1}}, "leads to no node: there are 4 of type device"),
        (lambda graph: {"ends": {LINKS: graph.ends[LINKS][:, :-1]}}, "a source and a target for each edge"),
        (lambda graph: {"whole": graph.whole[:1]}, r"whole.*must have 4 features"),
    ],
)
def test_a_graph_that_is_not_as_its_spec_says_is_refused(change: Callable[[InstanceGraph], dict[str, Any]], problem: str) -> None:
    GRAPH.check(WORLD.spec)
    with pytest.raises(GraphError, match=problem) as error:
        replace(GRAPH, **change(GRAPH)).check(WORLD.spec)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda now: now.mask.fill(False), r"decisions\.mask: no action is possible, and the episode is not over"),
        (lambda now: now.nodes.__setitem__((0, 1, 1), 2), r"nodes\.stage.*there are 2 of type stage"),
        (lambda now: now.nodes.__setitem__((0, 0, 0), -1), r"nodes\.device.*of no node"),
        (lambda now: now.member.__setitem__((0, 3), 2), r"member.*there are 2 of type stage.*got 2"),
        (lambda now: now.features.__setitem__((0, 2, 0), np.inf), r"decisions\.features.*not finite"),
        (lambda now: now.state.fill(np.nan), r"decisions\.state.*not finite"),
    ],
)
def test_a_decision_that_is_not_about_its_graph_is_refused(change: Callable[[DecisionArrays], object], problem: str) -> None:
    batch = WORLD.batch(1, 1, WORLD.sizes_of(WORLD.tiny()))
    batch.restart([WORLD.tiny()])
    known = batch.checked_graph(0)
    change(batch.decisions)
    with pytest.raises(GraphError, match=problem) as error:
        batch.checked_graph(0)
    assert "\n" not in str(error.value)
    assert batch.graph(0).whole.tolist() == known.whole.tolist()


def test_a_graph_that_changes_is_refused_at_the_step_that_breaks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Left(TaskletEpisodes):
        def graph(self, e: int) -> InstanceGraph:
            whole = super().graph(e)
            if self.decisions.state[e, 0] == 0:
                return whole
            return replace(whole, nodes={**whole.nodes, "device": whole.nodes["device"][:3]})  # its links remain

    world = TaskletWorld()
    monkeypatch.setattr(world, "spec", replace(WORLD.spec, changes=True), raising=False)
    monkeypatch.setattr(world, "batch", lambda places, episodes, sizes: Left(world.spec, sizes, places, episodes))
    env = WorldEnv(world, instance=WORLD.tiny())
    env.reset(seed=0)
    with pytest.raises(GraphError, match="leads to no node: there are 3 of type device"):
        env.step(0)


def test_a_benchmark_of_no_world_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no world that a graph policy plays.*tasklets"):
        load_world("preset:quickstart")


def test_a_digest_knows_features_and_not_the_prior() -> None:
    spec = WORLD.spec
    assert replace(spec, prior={"stage_s": 1.0}).digest == spec.digest
    assert replace(spec, state=spec.state[:-1]).digest != spec.digest
    assert replace(spec, changes=True).digest != spec.digest
    assert replace(spec, edges={LINKS: spec.edges[LINKS][:-1]}).digest != spec.digest
