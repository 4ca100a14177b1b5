"""The policy that fills stages: renumbering changes nothing, compiled decisions are torch's, and files keep what they hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from meshwright.budget_clock import NO_MOVE
from meshwright.envs.tasklets.batch import FillingBatch
from meshwright.errors import CheckpointError, PolicyError
from meshwright.models.operators.player import PlayMode
from meshwright.models.tasklets.graphs import tasklet_features, tasklet_graphs
from meshwright.models.tasklets.network import TaskletNetworkSettings
from meshwright.models.tasklets.player import TaskletPlayer, load_tasklet_player
from meshwright.models.tasklets.playing import play, replayed
from meshwright.models.tasklets.policy import TaskletPolicy
from meshwright.models.tasklets.saved import SavedTaskletPolicy
from meshwright.models.tensor_file import load_tensors, save_tensors
from meshwright.simulation.tasklets.generators import draw_network
from meshwright.simulation.tasklets.instance import TaskletInstance
from meshwright.simulation.tasklets.placement import tasklet_value_s

NETWORKS = [
    draw_network(0, "spot", num_devices=12, num_stages=4),
    draw_network(1, "uneven", num_devices=8, num_stages=2),
    draw_network(2, "spot", num_devices=6, num_stages=1),
    draw_network(3, "uneven", num_devices=5, num_stages=5),
]
GRAPHS = tasklet_graphs([tasklet_features(each) for each in NETWORKS])
NUMBERS = np.arange(len(NETWORKS))


def policy(*without: str) -> TaskletPolicy:
    torch.manual_seed(0)
    made = TaskletPolicy(TaskletNetworkSettings(hidden=16, heads=4, rounds=2, without=without))
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


@pytest.mark.parametrize("network", NETWORKS)
def test_other_numbers_for_devices_change_no_feature_and_no_value(network: TaskletInstance) -> None:
    """Devices that are alike in everything may stand for each other."""
    made, order = policy(), np.random.default_rng(0).permutation(network.num_devices)
    found, embedded = [], []
    for each in (network, renumbered(network, order)):
        graphs, batch = tasklet_graphs([tasklet_features(each)]), FillingBatch([each], 1)
        with torch.no_grad():
            embedded.append(np.sort(made.encoder(graphs)[0].numpy(), axis=0))
        found.append(play(made, graphs, batch, np.zeros(1, np.int64)).values[0])
    assert embedded[1] == pytest.approx(embedded[0], abs=1e-4)
    assert found[1] == pytest.approx(found[0])


def test_seconds_in_another_unit_change_no_decision() -> None:
    """Everything twice as slow: the same features, the same stages, twice the value."""
    network = NETWORKS[0]
    slower = TaskletInstance(
        "slower", network.regions, 2 * network.latency_s, network.bandwidth_bytes_per_s / 2, 4, 0.4e9, 0.05e9
    )
    greedy = PlayMode("greedy")
    found = [TaskletPlayer(policy(), "policy").place(each, greedy) for each in (network, slower)]
    assert found[1].device_of.tolist() == found[0].device_of.tolist()
    assert found[1].value_s == pytest.approx(2 * found[0].value_s)


@pytest.mark.parametrize("without", [(), ("messages",)])
@pytest.mark.parametrize("num_threads", [1, 3])
def test_compiled_decisions_are_those_of_torch(without: tuple[str, ...], num_threads: int) -> None:
    """Networks of several sizes side by side, drawn: the same probabilities of what was taken, whoever plays and however many."""
    made, batch = policy(*without), FillingBatch(NETWORKS, len(NETWORKS))
    played = play(made, GRAPHS, batch, NUMBERS, samples=3, rng=np.random.default_rng(1), num_threads=num_threads)
    again = play(made, GRAPHS, batch, NUMBERS, samples=3, rng=np.random.default_rng(1))
    assert [each.tolist() for each in played.joined] == [each.tolist() for each in again.joined]
    steps = replayed(batch, NUMBERS, np.repeat(NUMBERS, 3), played.joined, num_threads=num_threads)
    with torch.no_grad():
        log_p = torch.log_softmax(made(GRAPHS, steps), dim=2).gather(2, steps.joined[..., None])[..., 0]
    for row, each in enumerate(played.log_p):
        assert log_p[row, : len(each)].numpy() == pytest.approx(each, abs=1e-4)
        network = NETWORKS[row // 3]
        stages = played.joined[row].reshape(network.num_stages, network.num_replicas)
        assert played.values[row] * batch.stacked.scale_s[row // 3] == pytest.approx(tasklet_value_s(network, stages))


def test_greedy_takes_the_likeliest_and_messages_matter() -> None:
    batch, chosen = FillingBatch(NETWORKS, len(NETWORKS)), []
    for without in ((), ("messages",)):
        made = policy(*without)
        played = play(made, GRAPHS, batch, NUMBERS)
        steps = replayed(batch, NUMBERS, NUMBERS, played.joined)
        with torch.no_grad():
            logits = made(GRAPHS, steps)
        taken = logits.gather(2, steps.joined[..., None])[..., 0]
        assert torch.allclose(taken[steps.is_live], logits.max(dim=2).values[steps.is_live], atol=1e-4)  # some are alike
        chosen.append([each.tolist() for each in played.joined])
    assert chosen[0] != chosen[1]


def test_more_draws_and_a_search_are_no_worse() -> None:
    player, network = TaskletPlayer(policy(), "policy"), draw_network(5, "uneven", num_devices=24, num_stages=4)
    values = [player.place(network, PlayMode.of(how)).value_s for how in ("greedy", "sample-4", "sample-32")]
    assert values == sorted(values, reverse=True)
    found = player.place(network, PlayMode.of("search-0.2"))
    assert found.value_s < values[0]
    assert found.value_s == pytest.approx(tasklet_value_s(network, found.device_of))
    assert found.planner == "policy"


@pytest.mark.parametrize("num_stages", [1, 2])
def test_two_devices_are_enough(num_stages: int) -> None:
    network = draw_network(0, "spot", num_devices=2, num_stages=num_stages)
    for how in ("greedy", "sample-2", "search-0.01"):
        found = TaskletPlayer(policy(), "policy").place(network, PlayMode.of(how))
        assert sorted(found.device_of.reshape(-1).tolist()) == [0, 1]


def test_a_file_keeps_the_policy_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.pt"
    SavedTaskletPolicy.of(policy(), {"seed": 3}).save(path)
    again = SavedTaskletPolicy.load(path)
    assert again.trained == {"seed": 3}
    one, other = (TaskletPlayer(each, "p").place(NETWORKS[0], PlayMode("greedy")) for each in (policy(), again.policy()))
    assert one.device_of.tolist() == other.device_of.tolist()
    player, mode = load_tasklet_player(f"{path}@sample-8")
    assert (player.name, mode.samples) == (f"{path}@sample-8", 8)
    data = load_tensors(path)
    for change, told in (
        ({"kind": "operators"}, "no policy of tasklets"),
        ({"features": "other"}, "train it again"),
        ({"weights": {**data["weights"], "out.weight": torch.full((1, 16), torch.nan)}}, "finite"),
        ({"network": {**data["network"], "hidden": 9}}, "hidden"),
        ({"trained": None}, "lacks a part"),
    ):
        save_tensors(tmp_path / "wrong.pt", {**data, **change})
        with pytest.raises(CheckpointError, match=told):
            SavedTaskletPolicy.load(tmp_path / "wrong.pt")
    save_tensors(tmp_path / "wrong.pt", {**data, "network": {**data["network"], "hidden": 8}})
    with pytest.raises(CheckpointError, match="weights"):
        SavedTaskletPolicy.load(tmp_path / "wrong.pt").policy()


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("shipped:nothing", "no such shipped policy of tasklets"),
        ("nowhere", "no such solver, file or shipped policy"),
        ("nowhere@shuffled", "no way to ask a policy of tasklets"),
        ("nowhere@sample-0", "no way to ask a policy"),
    ],
)
def test_what_is_not_there_is_refused_in_one_line(spec: str, told: str) -> None:
    with pytest.raises(PolicyError, match=told) as found:
        load_tasklet_player(spec)
    assert "\n" not in str(found.value)


def test_a_search_loads_its_code_before_its_clock_begins() -> None:
    code = (
        "from meshwright.budget_clock import budgets_by\n"
        "from meshwright.models.tasklets.player import load_tasklet_player\n"
        "from meshwright.simulation.tasklets.generators import draw_network\n"
        "player, mode = load_tasklet_player('shipped:tasklets@search-0.5')\n"
        "with budgets_by('cpu'):\n"
        "    print(player.place(draw_network(0, 'spot', num_devices=16, num_stages=4), mode).note or 'moved')\n"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "moved\n"


def test_a_search_without_time_for_a_move_says_so() -> None:
    player = TaskletPlayer(policy(), "mine")
    assert player.place(NETWORKS[0], PlayMode("search", budget_s=1e-9)).note == NO_MOVE
