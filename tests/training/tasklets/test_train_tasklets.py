"""Training of tasklets: the same seed gives the same weights, stopped or not, by any number of threads, and it gets better."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from meshwright.envs.tasklets.batch import FillingBatch
from meshwright.envs.tasklets.benchmark import load_tasklet_benchmark
from meshwright.errors import CheckpointError, NothingToLearnError
from meshwright.models.tasklets.graphs import tasklet_features, tasklet_graphs
from meshwright.models.tasklets.network import TaskletNetworkSettings
from meshwright.models.tasklets.playing import replayed
from meshwright.models.tasklets.policy import TaskletPolicy
from meshwright.models.tasklets.saved import SavedTaskletPolicy
from meshwright.training.placing.run import PlacingProgress
from meshwright.training.tasklets.imitation import an_order, imitation_loss, searched
from meshwright.training.tasklets.settings import TaskletTrainSettings
from meshwright.training.tasklets.train import train_tasklets

SMALL = ("tasklets.num_devices=[8]", "tasklets.num_stages=[2]", "num_validation_seeds=6")
IMITATION = {"networks": 4, "rounds": 1, "steps": 4, "minibatch": 2, "validate_every_steps": 2}


def config(updates: int = 4, **more: object) -> TaskletTrainSettings:
    given = {
        "method": "tasklets",
        "name": "small",
        "benchmark": "preset:tasklets-64",
        "changes": SMALL,
        "updates": updates,
        "validate_every_updates": 2,
        "network": {"hidden": 8, "heads": 2, "rounds": 1},
        "ppo": {"networks_per_update": 4, "samples_per_network": 4, "minibatches": 2},
        **more,
    }
    return TaskletTrainSettings.model_validate(given)


def test_a_run_that_was_stopped_ends_as_one_that_was_not(tmp_path: Path) -> None:
    """Stopped in the imitation and in PPO."""
    chosen = config(updates=4, imitation=IMITATION)
    train_tasklets(chosen, tmp_path / "whole")

    class StoppedError(Exception):
        pass

    for stop_at in (2, 6):

        def stop(now: PlacingProgress, stop_at: int = stop_at) -> None:
            if now.update == stop_at:
                raise StoppedError

        with pytest.raises(StoppedError):
            train_tasklets(chosen, tmp_path / "parts", progress=stop, resume=stop_at > 2)
    train_tasklets(chosen, tmp_path / "parts", resume=True)
    whole, parts = (torch.load(tmp_path / name / "checkpoint.pt") for name in ("whole", "parts"))
    for name, tensor in whole["policy"].items():
        assert torch.equal(tensor, parts["policy"][name]), name
    curves = [json.loads((tmp_path / name / "learning_curve.json").read_text()) for name in ("whole", "parts")]
    assert [row["validation"] for row in curves[0]] == [row["validation"] for row in curves[1]]
    assert [row["stage"] for row in curves[0]] == ["imitation"] * 2 + ["ppo"] * 3
    assert SavedTaskletPolicy.load(tmp_path / "parts").trained["benchmark"] == "tasklets-64"
    assert SavedTaskletPolicy.load(tmp_path / "parts" / "imitated.pt").trained["update"] == 4
    with pytest.raises(CheckpointError, match="seed: differs"):
        train_tasklets(config(updates=4, imitation=IMITATION, seed=1), tmp_path / "parts", resume=True)


def test_it_gets_better(tmp_path: Path) -> None:
    ppo = {"networks_per_update": 8, "samples_per_network": 8, "learning_rate": 0.01}
    train_tasklets(config(updates=16, averaging=0.3, ppo=ppo, validate_every_updates=8), tmp_path / "run")
    curve = json.loads((tmp_path / "run" / "learning_curve.json").read_text())
    assert curve[-1]["validation"] < curve[0]["validation"] - 0.02
    assert curve[-1]["sampled"] > 1.0


def test_the_imitation_wants_every_device_of_the_stage_that_has_not_joined() -> None:
    """Two stages of two: the loss of even odds is ln 4 with two wanted of four, then ln 3, ln 2 and 0."""
    benchmark = load_tasklet_benchmark("tasklets-64", changes=["tasklets.num_devices=[4]", "tasklets.num_stages=[2]"])
    batch = FillingBatch([benchmark.instance("training", 0)], 1)
    steps = replayed(batch, np.zeros(1, np.int64), np.zeros(1, np.int64), [np.array([2, 0, 3, 1])])
    logits = torch.zeros(1, 4, 4).masked_fill(~steps.can_join, -torch.inf)
    found = imitation_loss(logits, steps, torch.tensor([2]))
    assert float(found) == pytest.approx((np.log(4) + np.log(3) + np.log(2) + 0) / 4)
    sure = logits.clone()
    sure[0, 0, [0, 2]], sure[0, 1, 0] = 50.0, 50.0  # either of the first stage, then the other one
    assert float(imitation_loss(sure, steps, torch.tensor([2]))) == pytest.approx((np.log(2) + np.log(2)) / 4)


def test_orders_of_a_grouping_begin_at_either_end() -> None:
    stages, rng = np.arange(6).reshape(3, 2), np.random.default_rng(0)
    orders = {tuple(an_order(stages, rng)) for _ in range(300)}
    assert len(orders) == 2 * 2**3
    assert all({frozenset(order[:2]), frozenset(order[4:])} == {frozenset({0, 1}), frozenset({4, 5})} for order in orders)


def test_a_search_goes_on_where_it_was_stopped_and_knows_its_networks(tmp_path: Path) -> None:
    benchmark = load_tasklet_benchmark("tasklets-64", changes=SMALL)
    path, told = tmp_path / "placements.pt", list[int]()
    found = searched(benchmark, range(3), 1, path, lambda done, total: told.append(done))
    assert told == [1, 2, 3]
    again = searched(benchmark, range(3), 1, path, lambda done, total: told.append(done))
    assert told == [1, 2, 3]
    assert [each.tolist() for each in again] == [each.tolist() for each in found]
    with pytest.raises(CheckpointError, match="no groupings of these networks"):
        searched(benchmark, range(4), 1, path, lambda done, total: None)


def test_a_benchmark_with_nothing_to_learn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NothingToLearnError, match="nothing to learn"):
        train_tasklets(config(changes=("tasklets.num_devices=[2]", "tasklets.num_stages=[2]")), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_padding_changes_no_probability() -> None:
    """Networks of several sizes side by side are judged as alone."""
    torch.manual_seed(0)
    made = TaskletPolicy(TaskletNetworkSettings(hidden=8, heads=2, rounds=2))
    changes = ["tasklets.num_devices=[6, 12]", "tasklets.num_stages=[2, 3]"]
    benchmark = load_tasklet_benchmark("tasklets-64", changes=changes)
    networks = [benchmark.instance("training", seed) for seed in range(5)]
    orders = [np.random.default_rng(seed).permutation(each.num_devices) for seed, each in enumerate(networks)]
    numbers = np.arange(5)
    steps = replayed(FillingBatch(networks, 1), numbers, numbers, orders)
    together = made(tasklet_graphs([tasklet_features(each) for each in networks]), steps)
    for row, each in enumerate(networks):
        one, n = np.zeros(1, np.int64), each.num_devices
        steps = replayed(FillingBatch([each], 1), one, one, [orders[row]])
        alone = made(tasklet_graphs([tasklet_features(each)]), steps)
        assert torch.allclose(together[row, :n, :n], alone[0], atol=1e-5)
