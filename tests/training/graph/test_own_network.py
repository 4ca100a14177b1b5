"""A network of the user's own trains, is kept and plays; one that returns something else is refused in a line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from meshwright import settings
from meshwright.errors import ConfigError, PolicyError
from meshwright.models.graph.graph_network import GraphNetwork
from meshwright.models.graph.hetero_gnn import GraphNetworkSettings
from meshwright.models.graph.saved_graph_policy import load_graph_player
from meshwright.training.graph.settings import GraphTrainSettings
from meshwright.training.graph.train import train_graph
from meshwright.worlds.registry import load_world

EXAMPLES = Path(__file__).parents[3] / "examples"
CHANGES = ("placement.instances.num_ops=[6, 9]", "placement.devices.num_devices=[2]", "num_validation_seeds=3")
OWN = "python:own_network:OwnNetwork"


def config(encoder: str) -> GraphTrainSettings:
    network = {"hidden": 8, "encoder": encoder}
    ppo = {"num_envs": 4, "group": 4, "rollout_steps": 12, "minibatch": 24}
    imitation = {"instances": 4, "rounds": 1, "steps": 4, "minibatch": 2, "validate_every_steps": 2}
    given = {"method": "graph", "name": "own", "benchmark": "preset:latency-tight", "changes": CHANGES, "network": network}
    return GraphTrainSettings.model_validate({**given, "imitation": imitation, "ppo": ppo, "updates": 2})


def test_the_example_trains_and_its_file_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    run = train_graph(config(OWN), tmp_path / "run")
    world = load_world("latency-tight", CHANGES)
    player, mode = load_graph_player(str(run.policy), world)
    weights = player.network.state_dict()
    assert any(name.startswith("encoder.own.rounds.") for name in weights)
    begun = GraphNetwork(world.spec, GraphNetworkSettings(hidden=8, encoder=OWN)).state_dict()
    assert weights.keys() == begun.keys()
    placed = player.place(world.instance("test", 0), mode)
    assert np.isfinite(placed.value_s)


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        ("{'op': torch.zeros(1, 1)}", "must return a tensor"),
        ("torch.zeros(3)", "must return a tensor"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_what_is_no_embedding_of_every_node_is_refused(
    returned: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"other_{abs(hash(returned))}"
    lines = [
        "import torch",
        "class Mine(torch.nn.Module):",
        "    def __init__(self, spec, hidden):",
        "        super().__init__()",
    ]
    lines += ["    def forward(self, graphs):", f"        return {returned}"]
    (tmp_path / f"{module}.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    world = load_world("latency-tight", CHANGES)
    network = GraphNetwork(world.spec, GraphNetworkSettings(hidden=8, encoder=f"python:{module}:Mine"))
    with pytest.raises(PolicyError, match=problem):
        network.encode([world.graph(world.instance("test", 0))])


def test_what_is_no_module_is_refused() -> None:
    spec = load_world("latency-tight", CHANGES).spec
    with pytest.raises(PolicyError, match="no such module"):
        GraphNetwork(spec, GraphNetworkSettings(encoder="python:nowhere_at_all:Mine"))
    with pytest.raises(PolicyError, match=r"must make a torch\.nn\.Module"):
        GraphNetwork(spec, GraphNetworkSettings(encoder="python:operator:is_"))
    with pytest.raises(ConfigError, match="encoder"):
        settings.build_settings(GraphNetworkSettings, {"encoder": "mine"})


def test_gradients_reach_the_users_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    world = load_world("latency-tight", CHANGES)
    network = GraphNetwork(world.spec, GraphNetworkSettings(hidden=8, encoder=OWN))
    torch.stack([part.sum() for part in network.encode([world.graph(world.instance("test", 0))]).slots]).sum().backward()
    assert all(tensor.grad is not None for name, tensor in network.encoder.named_parameters() if "enter" in name)
