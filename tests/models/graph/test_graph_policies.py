"""The graph policy: renumbering changes nothing, compiled decisions are torch's, padding is unseen, files keep what they hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from meshwright.budget_clock import NO_MOVE
from meshwright.errors import PolicyError
from meshwright.models.graph.compiled_head import decide, encoded_instances, pooled, scores_and_values
from meshwright.models.graph.graph_network import GRAPH, GraphNetwork, compact
from meshwright.models.graph.graph_player import GraphPlayer, PlayMode, played
from meshwright.models.graph.hetero_gnn import GraphNetworkSettings
from meshwright.models.graph.saved_graph_policy import SavedGraphPolicy, load_graph_player
from meshwright.simulation.tasklets.generators import draw_network
from meshwright.simulation.tasklets.instance import TaskletInstance
from meshwright.simulation.tasklets.placement import tasklet_value_s
from meshwright.worlds.tasklets.world import TaskletWorld
from meshwright.worlds.typed_graph import DecisionArrays

WORLD = TaskletWorld()
NETWORKS = [
    draw_network(0, "spot", num_devices=12, num_stages=4),
    draw_network(1, "uneven", num_devices=8, num_stages=2),
    draw_network(2, "spot", num_devices=6, num_stages=1),
    draw_network(3, "uneven", num_devices=5, num_stages=5),
]
HIDDEN = np.zeros((1, 32), np.float32)
LARGEST = WORLD.sizes_of(draw_network(0, "spot", num_devices=12, num_stages=6))


def network(*, messages: bool = True) -> GraphNetwork:
    torch.manual_seed(0)
    made = GraphNetwork(WORLD.spec, GraphNetworkSettings(hidden=16, heads=4, rounds=2, messages=messages))
    for tensor in made.parameters():  # away from where training begins
        torch.nn.init.normal_(tensor, std=0.3)
    return made.eval()


def renumbered(instance: TaskletInstance, order: np.ndarray) -> TaskletInstance:
    """The same with device ``order[j]`` in place ``j``."""
    return TaskletInstance(
        "renumbered",
        tuple(np.array(instance.regions)[order]),
        instance.latency_s[np.ix_(order, order)],
        instance.bandwidth_bytes_per_s[np.ix_(order, order)],
        instance.num_stages,
        instance.gradient_bytes,
        instance.activation_bytes,
    )


@pytest.mark.parametrize("instance", NETWORKS)
def test_other_numbers_for_devices_change_no_embedding_and_no_value(instance: TaskletInstance) -> None:
    """Devices that are equal in everything are interchangeable."""
    made, order = network(), np.random.default_rng(0).permutation(instance.num_devices)
    results, embedded = [], []
    for each in (instance, renumbered(instance, order)):
        with torch.no_grad():
            embedded.append(np.sort(made.encode([WORLD.graph(each)]).members.numpy(), axis=0))
        results.append(GraphPlayer(made, WORLD, "policy").place(each, PlayMode("greedy")).value_s)
    assert embedded[1] == pytest.approx(embedded[0], abs=1e-4)
    assert results[1] == pytest.approx(results[0])


def test_seconds_in_another_unit_change_no_decision() -> None:
    """Everything twice as slow: the same features, the same stages, twice the value."""
    one = NETWORKS[0]
    slower = TaskletInstance("slower", one.regions, 2 * one.latency_s, one.bandwidth_bytes_per_s / 2, 4, 0.4e9, 0.05e9)
    results = [GraphPlayer(network(), WORLD, "policy").place(each, PlayMode("greedy")) for each in (one, slower)]
    assert results[1].device_of.tolist() == results[0].device_of.tolist()
    assert results[1].value_s == pytest.approx(2 * results[0].value_s)


@pytest.mark.parametrize("messages", [True, False])
def test_compiled_decisions_are_those_of_torch_and_padding_is_not_seen(*, messages: bool) -> None:
    """Networks of several sizes in one batch have the scores that compiled code gives each alone."""
    made, rng = network(messages=messages), np.random.default_rng(1)
    graphs = [WORLD.graph(each) for each in NETWORKS]
    batch = WORLD.batch(len(NETWORKS), len(NETWORKS), LARGEST)
    batch.restart(NETWORKS)
    encoded = made.encode(graphs)
    for number, graph in enumerate(graphs):
        made.bank.put(number, graph)
    alone = encoded_instances(made, graphs)
    groups = [
        pooled(one, DecisionArrays(*(array[e : e + 1] for array in batch.decisions)), each.num_stages)
        for e, (one, each) in enumerate(zip(alone, NETWORKS, strict=True))
    ]
    while batch.is_live.any():
        rows = np.flatnonzero(batch.is_live)
        seen = {key: torch.from_numpy(values[rows]) for key, values in compact(batch.decisions, np.arange(len(NETWORKS))).items()}
        with torch.no_grad():
            scores, values = made.decide(encoded, seen[GRAPH][:, 0], seen)
        for place, e in enumerate(rows.tolist()):
            one = DecisionArrays(*(array[e : e + 1] for array in batch.decisions))
            own, action, noise = np.zeros((1, LARGEST.actions), np.float32), np.zeros(1, np.int64), np.zeros((1, LARGEST.actions))
            decide(alone[e], groups[e], one, np.ones(1, np.bool_), noise.astype(np.float32), 1.0, action, own, HIDDEN)
            mask = one.mask[0]
            assert own[0][mask] == pytest.approx(scores[place].numpy()[mask], rel=1e-3, abs=1e-4)
            assert own[0][action[0]] == own[0][mask].max()
        played_scores, played_values = scores_and_values(made, seen)
        assert played_values.numpy() == pytest.approx(values.numpy(), rel=1e-3, abs=1e-4)
        assert played_scores.argmax(dim=1).tolist() == scores.argmax(dim=1).tolist()
        batch.step(np.where(batch.decisions.mask, rng.random(batch.decisions.mask.shape), -1.0).argmax(axis=1))


def test_an_untrained_policy_follows_the_prior_and_messages_matter() -> None:
    """Without weights of its own the network scores all actions equally; a weight of the prior decides."""
    made = GraphNetwork(WORLD.spec, GraphNetworkSettings(hidden=16))
    with torch.no_grad():
        made.head.direct.weight[0, WORLD.spec.action.index("stage_s")] = -30.0
    (encoded,) = encoded_instances(made, [WORLD.graph(NETWORKS[0])])
    batch = WORLD.batch(1, 1, LARGEST)
    batch.restart([NETWORKS[0]])
    groups, action = pooled(encoded, batch.decisions, 4), np.zeros(1, np.int64)
    noise, scores = np.zeros((1, LARGEST.actions), np.float32), np.zeros((1, LARGEST.actions), np.float32)
    for _ in range(3):
        decide(encoded, groups, batch.decisions, batch.is_live, noise, 1.0, action, scores, HIDDEN)
        mask = batch.decisions.mask[0]
        assert scores[0][mask] == pytest.approx(-30.0 * batch.decisions.features[0][mask, 0], abs=1e-4)
        batch.step(action)
    stages = [GraphPlayer(network(messages=each), WORLD, "p").place(NETWORKS[0], PlayMode("greedy")) for each in (True, False)]
    assert stages[0].device_of.tolist() != stages[1].device_of.tolist()


def test_draws_are_as_likely_as_the_scores_say() -> None:
    """Over 4,000 first decisions, each device is drawn as often as its softmax says, within four standard deviations."""
    made, count = network(), 4000
    (encoded,) = encoded_instances(made, [WORLD.graph(NETWORKS[3])])
    batch = WORLD.batch(count, count, WORLD.sizes_of(NETWORKS[3]))
    batch.restart([NETWORKS[3]] * count)
    groups, actions = pooled(encoded, batch.decisions, 5), np.zeros(count, np.int64)
    scores = np.zeros((count, 5), np.float32)
    noise = np.random.default_rng(0).gumbel(size=scores.shape).astype(np.float32)
    decide(encoded, groups, batch.decisions, batch.is_live, noise, 1.0, actions, scores, np.zeros((count, 32), np.float32))
    share = np.exp(scores[0] - scores[0].max())
    share /= share.sum()
    spread = np.sqrt(share * (1 - share) / count)
    assert (np.abs(np.bincount(actions, minlength=5) / count - share) <= 4 * spread + 1e-9).all()


def test_more_draws_and_a_search_are_no_worse() -> None:
    player, one = GraphPlayer(network(), WORLD, "policy"), draw_network(5, "uneven", num_devices=24, num_stages=4)
    values = [player.place(one, PlayMode.from_text(how)).value_s for how in ("greedy", "sample-4", "sample-32")]
    assert values == sorted(values, reverse=True)
    result = player.place(one, PlayMode.from_text("search-0.1"))
    assert result.value_s < values[0]
    assert result.value_s == pytest.approx(tasklet_value_s(one, result.device_of))
    assert result.planner == "policy"


@pytest.mark.parametrize("num_stages", [1, 2])
def test_two_devices_are_enough(num_stages: int) -> None:
    one = draw_network(0, "spot", num_devices=2, num_stages=num_stages)
    for how in ("greedy", "sample-2", "search-0.01", "shuffled"):
        result = GraphPlayer(network(), WORLD, "policy").place(one, PlayMode.from_text(how))
        assert sorted(result.device_of.reshape(-1).tolist()) == [0, 1]


def test_a_file_keeps_the_policy(tmp_path: Path) -> None:
    path = tmp_path / "policy.pt"
    SavedGraphPolicy.from_network(network(), {"seed": 3}).save(path)
    again = SavedGraphPolicy.load(tmp_path)
    assert again.trained == {"seed": 3}
    one, other = (GraphPlayer(each, WORLD, "p").place(NETWORKS[0], PlayMode()) for each in (network(), again.network(WORLD)))
    assert one.device_of.tolist() == other.device_of.tolist()
    player, mode = load_graph_player(f"{path}@sample-8", WORLD)
    assert (player.name, mode.samples) == (f"{path}@sample-8", 8)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("shipped:nothing", "no such solver, file or shipped policy"),
        ("nowhere", "no such solver, file or shipped policy"),
        ("shipped:tasklets@sample-0", "no way to ask a policy"),
    ],
)
def test_what_is_not_there_is_refused_in_one_line(spec: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message) as error:
        load_graph_player(spec, WORLD)
    assert "\n" not in str(error.value)


def test_a_search_loads_its_code_before_its_clock_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny instance is placed and improved first, once for each player."""
    placed, improved = list[str](), list[str]()
    place, improve = GraphPlayer._place, TaskletWorld.improve
    monkeypatch.setattr(GraphPlayer, "_place", lambda self, one, *more: placed.append(one.name) or place(self, one, *more))
    monkeypatch.setattr(TaskletWorld, "improve", lambda self, one, *more: improved.append(one.name) or improve(self, one, *more))
    player, first, second = GraphPlayer(network(), WORLD, "mine"), NETWORKS[0], NETWORKS[1]
    for one in (first, second):
        player.place(one, PlayMode.from_text("search-0.05"))
    assert placed == improved == [WORLD.tiny().name, first.name, second.name]


def test_a_search_without_time_for_a_move_says_so() -> None:
    player = GraphPlayer(network(), WORLD, "mine")
    assert player.place(NETWORKS[0], PlayMode("search", budget_s=1e-9)).note == NO_MOVE


def test_sixteen_episodes_play_as_one_does() -> None:
    """Greedily, every episode of a batch takes the same decisions."""
    (encoded,) = encoded_instances(network(), [WORLD.graph(NETWORKS[0])])
    batch = WORLD.batch(1, 16, LARGEST)
    batch.put(0, NETWORKS[0])
    played(WORLD, encoded, batch, NETWORKS[0], 16, None)
    assert len({batch.value(e) for e in range(16)}) == 1
