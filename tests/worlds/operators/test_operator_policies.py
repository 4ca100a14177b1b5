"""Policies that place ops: compiled decisions are torch's, and hard instances are placed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from meshwright.models.graph.graph_network import GRAPH, GraphNetwork, compact
from meshwright.models.graph.graph_player import GraphPlayer, PlayMode, _shuffled, greedy_values
from meshwright.models.graph.hetero_gnn import GraphNetworkSettings
from meshwright.planners.operators.place import place
from meshwright.planners.operators.request import PlacementRequest
from meshwright.simulation.operators.generators import DeviceDraw, GraphDraw, draw_instance
from meshwright.simulation.operators.instance import OperatorInstance
from meshwright.simulation.operators.placement import check
from meshwright.worlds.operators.graph import FEEDS, LINK, READ_BY
from meshwright.worlds.operators.world import OperatorWorld
from meshwright.worlds.world import KnownPart

from .played import episodes_on, next_op

WORLD = OperatorWorld("latency")
DRAWN = GraphDraw(num_ops=(10, 20), joined_share=(0.0, 0.5))
INSTANCES = [draw_instance(DRAWN, DeviceDraw(num_devices=(2, 4)), "test", seed) for seed in range(4)]


def network(**more: object) -> GraphNetwork:
    torch.manual_seed(0)
    made = GraphNetwork(WORLD.spec, GraphNetworkSettings(hidden=16, rounds=2, **more))
    for tensor in made.parameters():  # away from where training begins
        torch.nn.init.normal_(tensor, std=0.3)
    return made.eval()


def permuted(instance: OperatorInstance, ops: np.ndarray, devices: np.ndarray) -> OperatorInstance:
    """The same with op ``ops[v]`` in place ``v`` and device ``devices[j]`` in place ``j``."""
    output = np.zeros(instance.num_ops)
    output[instance.edges[:, 0]] = instance.edge_bytes
    return OperatorInstance.of_outputs(
        "permuted",
        instance.times_s[np.ix_(ops, devices)],
        np.argsort(ops)[instance.edges],
        output[ops],
        latency_s=instance.latency_s[np.ix_(devices, devices)],
        bandwidth_bytes_per_s=instance.bandwidth_bytes_per_s[np.ix_(devices, devices)],
        memory_bytes=instance.memory_bytes[devices],
        resident_bytes=instance.resident_bytes[ops],
        group=np.unique(instance.group[ops], return_inverse=True)[1],
    )


def test_compiled_decisions_are_those_of_torch() -> None:
    for messages in (True, False):
        made = network(messages=messages)
        graphs = [WORLD.graph(each) for each in INSTANCES]
        encoded, values = made.encode(graphs), []
        for number, instance in enumerate(INSTANCES):
            batch = episodes_on(instance, "latency")
            while batch.is_live[0]:
                seen = {key: torch.from_numpy(each) for key, each in compact(batch.decisions, np.array([number])).items()}
                scores, _ = made.decide(encoded, seen[GRAPH][:, 0], seen)
                batch.step(scores.argmax(dim=1).numpy())
            values.append(batch.value(0))
        assert greedy_values(made, WORLD, INSTANCES, graphs) == pytest.approx(values, rel=1e-9)


def test_the_graph_holds_every_edge_both_ways_and_every_link() -> None:
    graph, instance = WORLD.graph(INSTANCES[0]), INSTANCES[0]
    assert graph.ends[FEEDS].T.tolist() == instance.edges.tolist()
    assert graph.ends[READ_BY].T.tolist() == instance.edges[:, ::-1].tolist()
    assert graph.ends[LINK].shape[1] == instance.num_devices * (instance.num_devices - 1)


def copies(instance: OperatorInstance, times: int) -> OperatorInstance:
    """Copies of a graph next to each other, on devices with as many times the memory."""
    n, outputs = instance.num_ops, np.zeros(instance.num_ops)
    outputs[instance.edges[:, 0]] = instance.edge_bytes
    return OperatorInstance.of_outputs(
        "many",
        np.tile(instance.times_s, (times, 1)),
        [(int(a) + copy * n, int(b) + copy * n) for copy in range(times) for a, b in instance.edges],
        [float(each) for each in np.tile(outputs, times)],
        latency_s=instance.latency_s,
        bandwidth_bytes_per_s=instance.bandwidth_bytes_per_s,
        memory_bytes=times * instance.memory_bytes,
        resident_bytes=np.tile(instance.resident_bytes, times),
    )


@pytest.mark.parametrize("times", [2, 10])
def test_features_are_the_same_in_a_graph_that_holds_the_same_graph_more_often(times: int) -> None:
    one = replace(INSTANCES[0], group=np.arange(INSTANCES[0].num_ops))
    many = copies(one, times)
    alone, seen = WORLD.graph(one), WORLD.graph(many)
    assert seen.nodes["op"][: one.num_ops] == pytest.approx(alone.nodes["op"], rel=1e-5, abs=1e-6)
    assert seen.nodes["device"] == pytest.approx(alone.nodes["device"], rel=1e-5)
    assert seen.edges[FEEDS][: len(one.edges)] == pytest.approx(alone.edges[FEEDS], rel=1e-5)
    assert seen.edges[LINK] == pytest.approx(alone.edges[LINK], rel=1e-5)
    first, later = episodes_on(one, "latency"), episodes_on(many, "latency")
    assert next_op(later) % one.num_ops == next_op(first)
    stored = [
        WORLD.spec.action.index(name) for name in ("start_beyond_best", "end_beyond_best", "wait_for_inputs", "op_time", "growth")
    ]
    assert later.decisions.features[0][:, stored] == pytest.approx(first.decisions.features[0][:, stored], rel=1e-5)


def test_edges_that_are_dealt_out_anew_are_the_same_both_ways() -> None:
    graph = WORLD.graph(INSTANCES[0])
    made = _shuffled(graph, np.random.default_rng(0))
    assert (made.ends[FEEDS] == made.ends[READ_BY][::-1]).all()
    assert (made.ends[FEEDS] != graph.ends[FEEDS]).any()
    for triple, ends in graph.ends.items():
        assert [np.sort(each).tolist() for each in made.ends[triple]] == [np.sort(each).tolist() for each in ends]


def test_a_search_starts_from_the_best_of_the_whole_instance() -> None:
    """Outcomes whose order turns when the part becomes the whole."""

    class Turned(KnownPart[OperatorInstance]):
        def of_whole(self, outcome, or_rule=True):
            return replace(outcome, value_s=-outcome.value_s)

    class Recorded(OperatorWorld):
        def known_part(self, instance, trained):
            return Turned(instance)

        def improve(self, instance, outcomes, budget_s, seed):
            values.append([each.value_s for each in outcomes])
            return outcomes[0]

    values: list[list[float]] = []
    player = GraphPlayer(network(), Recorded("latency"), "mine")
    player.load()
    values.clear()
    player.place(INSTANCES[0], PlayMode("search", budget_s=2.0))
    assert values == [sorted(values[0])]
    assert values[0][0] < values[0][-1]


@pytest.mark.parametrize("budget_s", [1e-6, 0.01])
def test_a_search_of_any_length_is_no_worse_than_its_start_and_heft(budget_s: float) -> None:
    for instance in INSTANCES:
        heft, slow = place(instance, "heft", PlacementRequest()), WORLD.solver("round-robin")(instance, 0)
        for start in (heft, slow):
            assert WORLD.improve(instance, [start], budget_s, 0).value_s <= min(heft.value_s, start.value_s) * (1 + 1e-12)


def test_instances_at_the_edges_are_placed() -> None:
    """No time at all, memory of 0 for ops that hold nothing, packings that largest first does not find."""
    player = GraphPlayer(network(), WORLD, "mine")
    nothing = OperatorInstance.of_outputs("nothing", np.zeros((3, 2)), [(0, 1), (1, 2)], [1.0] * 3, bandwidth_bytes_per_s=1e9)
    bare = OperatorInstance.of_outputs("bare", np.ones((3, 2)), [(0, 1)], [1.0] * 3, memory_bytes=[0.0, 1e9])
    roomy = OperatorInstance.of_outputs("roomy", np.ones((3, 2)), [(0, 1)], [1.0] * 3, memory_bytes=16e9)
    tight = OperatorInstance.of_outputs(
        "tight", np.ones((5, 2)), [], [0.0] * 5, memory_bytes=6.0, resident_bytes=[3.0, 3.0, 2.0, 2.0, 2.0]
    )
    for instance in (nothing, bare, roomy, tight):
        for how in ("greedy", "sample-4", "search-0.01"):
            check(instance, player.place(instance, PlayMode.from_text(how), seed=2**64).device_of)


def test_where_every_episode_is_a_dead_end_the_rule_places() -> None:
    class Dead(OperatorWorld):
        def batch(self, *args, **more):
            batch = super().batch(*args, **more)
            batch.value = lambda e: float("inf")
            return batch

    result = GraphPlayer(network(), Dead("latency"), "mine").place(INSTANCES[0], PlayMode())
    heft = place(INSTANCES[0], "heft", PlacementRequest())
    assert result.device_of.tolist() == heft.device_of.tolist()
    assert (result.planner, result.note.partition(",")[0]) == ("mine", "memory left the policy no device for some op")
