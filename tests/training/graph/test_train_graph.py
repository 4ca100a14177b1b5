"""Training of graph policies: the same seed gives the same weights, stopped or not, and it gets better."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from meshwright.errors import CheckpointError, ConfigError, NothingToLearnError, PolicyError
from meshwright.models.graph.graph_network import GraphBank, GraphNetwork
from meshwright.models.graph.hetero_gnn import GraphNetworkSettings
from meshwright.models.graph.saved_graph_policy import SavedGraphPolicy, load_graph_player
from meshwright.training.graph.imitation import imitation_loss, searched
from meshwright.training.graph.train import GraphLearner, beyond_past, steps_left
from meshwright.training.graph.vec_env import WorldVecEnv
from meshwright.training.hooks.callback import StageRecord, TrainingCallback
from meshwright.training.methods import train
from meshwright.worlds.registry import load_world

from ..runs import GRAPH, IMITATION
from ..runs import graph_config as config

SMALL, PPO = GRAPH["changes"], GRAPH["ppo"]


def test_a_run_begins_with_the_weights_of_another_policy(tmp_path: Path) -> None:
    first = SavedGraphPolicy.load(train(config(updates=2), tmp_path / "first").policy)
    begun = {"start": str(tmp_path / "first"), "updates": 0}
    again = SavedGraphPolicy.load(train(config(**begun), tmp_path / "again").policy)
    assert again.trained["stages"] == first.trained["stages"]
    assert all(torch.equal(tensor, first.weights[name]) for name, tensor in again.weights.items())
    with pytest.raises(ConfigError, match="has another network"):
        train(config(**begun, network={"hidden": 16}), tmp_path / "wider")


def test_it_gets_better(tmp_path: Path) -> None:
    """The mean of sampled values over the last of 24 updates is below that over the first."""
    ppo = {**PPO, "num_envs": 64, "group": 8, "rollout_steps": 8, "minibatch": 512, "epochs": 4}
    ppo |= {"learning_rate": 0.01, "final_learning_rate": 0.01, "averaging": 0.3}
    train(config(ppo=ppo, updates=24, validate_every_updates=1), tmp_path / "run")
    sampled = [row["sampled"] for row in json.loads((tmp_path / "run" / "learning_curve.json").read_text())[1:]]
    assert np.mean(sampled[-6:]) < np.mean(sampled[:6]) - 0.02


def test_the_imitation_wants_every_device_of_the_stage_that_has_not_joined() -> None:
    """Two stages of two, an untrained network: even odds cost ln 4 with two wanted of four, then ln 3, ln 2 and 0."""
    world = load_world("tasklets-64", ["tasklets.num_devices=[4]", "tasklets.num_stages=[2]"])
    network, rng = GraphNetwork(world.spec, GraphNetworkSettings(hidden=8)), np.random.default_rng(0)
    instance = world.instance("training", 0)
    loss = imitation_loss(network, world, [(instance, world.graph(instance), np.array([0, 1, 0, 1]))], 100, rng)
    assert loss.item() == pytest.approx((np.log(4) + np.log(3) + np.log(2) + 0) / 4)


def test_a_search_continues_where_it_was_stopped_and_knows_its_instances(tmp_path: Path) -> None:
    shares = list[float]()

    class StopsHalfway(TrainingCallback):
        def on_stage(self, record: StageRecord) -> bool:
            shares.append(record.share)
            return record.share != 0.5

    for is_resumed in (False, True):
        run = train(config(imitation=IMITATION), tmp_path / "run", resume=is_resumed, callbacks=[StopsHalfway()])
        assert SavedGraphPolicy.load(run.policy).trained["validation"] > 0
    assert shares == [0.25, 0.5, 0.75, 1.0]
    with pytest.raises(CheckpointError, match="no solutions of these instances"):
        searched(load_world("tasklets-64", SMALL), range(4), 1, run.solutions, lambda done, total: None)


def test_a_benchmark_with_nothing_to_learn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NothingToLearnError, match="nothing to learn"):
        train(config(changes=("tasklets.num_devices=[2]", "tasklets.num_stages=[2]")), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_of_an_episode_that_a_rollout_cuts_off_nothing_is_learned() -> None:
    starts = np.array([[1, 0], [0, 1], [1, 0], [0, 0]], np.float32)
    assert steps_left(starts, np.array([False, True])).T.tolist() == [[2, 1, 0, 0], [1, 3, 2, 1]]
    with pytest.raises(ConfigError, match=r"ppo.rollout_steps: an episode may have 8 decisions, .*got 6"):
        GraphLearner(config(ppo=PPO | {"rollout_steps": 6}))


def test_what_the_past_explains_is_no_advantage() -> None:
    past, left = np.array([[1.0, -1.0], [2.0, -2.0]], np.float32), np.array([[2, 2], [1, 1]])
    assert beyond_past(-0.5 * past, past, left).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    chance = np.array([[0.25, 0.25], [1.0, 1.0]], np.float32)  # not in the past's direction
    assert beyond_past(chance - 0.5 * past, past, left).tolist() == chance.tolist()


def test_a_group_meets_the_same_instances_and_other_groups_others() -> None:
    env = WorldVecEnv(load_world("tasklets-64", SMALL), 6, 0, 3, GraphBank())
    seen = env.reset()
    for _ in range(20):
        graphs = seen["graph"][:, 0].reshape(2, 3)
        assert (graphs == graphs[:, :1]).all()
        assert graphs[0, 0] != graphs[1, 0]
        env.step_async(env.action_masks().argmax(axis=1))
        seen, *_ = env.step_wait()
        env.forget_graphs()


def test_a_network_of_the_users_own_trains_and_its_file_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "examples")
    own = {"hidden": 8, "encoder": "python:own_network:OwnNetwork"}
    run = train(config(network=own, imitation=IMITATION, updates=2), tmp_path / "run")
    world = load_world("tasklets-64", SMALL)
    player, mode = load_graph_player(str(run.policy), world)
    assert any(name.startswith("encoder.own.rounds.") for name in player.network.state_dict())
    assert np.isfinite(player.place(world.instance("test", 0), mode).value_s)


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        ("{'device': torch.zeros(1, 1)}", "must return a tensor"),
        ("torch.zeros(3)", "must return a tensor"),
        ("1 / 0", "mine_5.py:4"),
    ],
)
def test_what_is_no_embedding_of_every_node_is_refused(
    returned: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"mine_{len(returned)}"
    made = "class Mine(torch.nn.Module):\n    __init__ = lambda self, *_: super(Mine, self).__init__()\n"
    made += f"    __call__ = lambda *_: {returned}\n"
    (tmp_path / f"{module}.py").write_text(f"import torch\n{made}")
    monkeypatch.syspath_prepend(tmp_path)
    world, encoder = load_world("tasklets-64", SMALL), f"python:{module}:Mine"
    network = GraphNetwork(world.spec, GraphNetworkSettings(hidden=8, encoder=encoder))
    with pytest.raises(PolicyError, match=problem):
        network.encode([world.graph(world.instance("test", 0))])
