"""Training of operator placement: the same seed gives the same weights, stopped or not, and it gets better."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from meshwright.envs.operators.benchmark import load_placement_benchmark
from meshwright.errors import CheckpointError
from meshwright.models.operators.graphs import batch
from meshwright.models.operators.playing import play
from meshwright.models.operators.saved import SavedOperatorPolicy
from meshwright.simulation.operators.generators import DeviceDraw, GraphDraw, draw_instance
from meshwright.training.hooks.callback import TrainingCallback, UpdateRecord
from meshwright.training.operators import imitation
from meshwright.training.operators.imitation import searched
from meshwright.training.operators.minibatches import part_of
from meshwright.training.operators.settings import ImitatedSearchSettings, OperatorTrainSettings
from meshwright.training.operators.train import _Trainer, train_operators
from meshwright.training.placing.run import PlacingProgress

SMALL = (
    "placement.instances.num_ops=[8]",
    "placement.devices.num_devices=[3]",
    "num_validation_seeds=8",
)


def config(updates: int = 4, **more: object) -> OperatorTrainSettings:
    given = {
        "method": "operators",
        "name": "small",
        "benchmark": "preset:latency-tight",
        "changes": SMALL,
        "updates": updates,
        "num_training_instances": 32,
        "validate_every_updates": 2,
        "network": {"hidden": 8, "rounds": 1},
        "ppo": {"instances_per_update": 4, "samples_per_instance": 4},
        **more,
    }
    return OperatorTrainSettings.model_validate(given)


def test_a_run_that_was_stopped_ends_as_one_that_was_not(tmp_path: Path) -> None:
    """Stopped in the imitation, before PPO, and within it."""
    imitation = {"moves_per_op": 5, "steps": 3, "minibatch": 4, "validate_every_steps": 1}
    chosen, folders = config(updates=2, validate_every_updates=1, imitation=imitation), [tmp_path / "whole", tmp_path / "parts"]
    train_operators(chosen, folders[0])

    class StoppedError(Exception):
        pass

    for stop_at in (1, 3, 4):

        def stop(now: PlacingProgress, stop_at: int = stop_at) -> None:
            if now.update == stop_at:
                raise StoppedError

        with pytest.raises(StoppedError):
            train_operators(chosen, tmp_path / "parts", progress=stop, resume=stop_at > 1)
    train_operators(chosen, tmp_path / "parts", resume=True)
    whole, parts = (torch.load(folder / "checkpoint.pt") for folder in folders)
    for name, tensor in whole["policy"].items():
        assert torch.equal(tensor, parts["policy"][name]), name
    curves = [json.loads((folder / "learning_curve.json").read_text()) for folder in folders]
    assert [row["validation"] for row in curves[0]] == [row["validation"] for row in curves[1]]
    assert [row["stage"] for row in curves[0]] == ["imitation"] * 3 + ["ppo"] * 3
    kept = [SavedOperatorPolicy.load(folder / "imitated.pt") for folder in folders]
    assert kept[1].trained == kept[0].trained
    for name, tensor in kept[0].weights.items():
        assert torch.equal(tensor, kept[1].weights[name]), name


def test_minibatches_of_an_update_hold_each_episode_once_and_judge_it_as_the_whole_does() -> None:
    sizes = ("placement.instances.num_ops=[6, 9]", "placement.devices.num_devices=[2, 3]", "num_validation_seeds=4")
    chosen = config(changes=sizes)
    trainer = _Trainer(chosen, load_placement_benchmark(chosen.benchmark, changes=chosen.changes), lambda done, total: None)
    numbers = np.array([0, 31, 7, 16])
    graphs = batch([trainer.features[number] for number in numbers])
    played = play(trainer.policy, graphs, trainer.episodes, numbers, samples=3, generator=torch.Generator().manual_seed(0))
    beyond, seen = torch.arange(12.0), []
    whole, _, foreseen = trainer._judged(graphs, played)
    for part in (np.array([0]), np.array([1, 3]), np.array([2])):
        few = part_of(graphs, played, beyond, part)
        log_p, _, values = trainer._judged(few.graphs, few.played)
        rows = few.beyond.long()
        seen += rows.tolist()
        assert few.played.values.tolist() == played.values[rows.numpy()].tolist()
        assert torch.allclose(log_p, whole[rows], atol=1e-5)
        assert torch.allclose(values, foreseen[rows], atol=1e-5)
    assert sorted(seen) == list(range(12))


def test_the_network_after_imitation_alone_is_kept_as_ppo_never_touched_it(tmp_path: Path) -> None:
    imitation = {"moves_per_op": 5, "steps": 3, "minibatch": 4, "validate_every_steps": 2}
    train_operators(config(updates=2, imitation=imitation), tmp_path / "both")
    train_operators(config(updates=0, imitation=imitation), tmp_path / "alone")
    kept = SavedOperatorPolicy.load(tmp_path / "both" / "imitated.pt")
    assert kept.trained["update"] == 3
    alone, both = (torch.load(tmp_path / name / "checkpoint.pt")["average"] for name in ("alone", "both"))
    assert all(torch.equal(tensor, alone[name]) for name, tensor in kept.weights.items())
    assert not all(torch.equal(tensor, both[name]) for name, tensor in kept.weights.items())
    train_operators(config(updates=1), tmp_path / "none")
    assert not (tmp_path / "none" / "imitated.pt").exists()


def test_the_imitation_finds_likely_what_the_search_chose(tmp_path: Path) -> None:
    """Untrained, the loss is that of the rule; what was learned makes the search's devices likelier."""
    heard: list[float] = []

    class Listener(TrainingCallback):
        def on_update(self, record: UpdateRecord) -> None:
            heard.append(record.figures.get("cross_entropy", float("inf")))

    train_operators(
        config(updates=0, imitation={"moves_per_op": 30, "steps": 60, "minibatch": 16}), tmp_path / "run", callbacks=[Listener()]
    )
    losses = [each for each in heard if each < float("inf")]
    assert sum(losses[-20:]) < 2 * 0.95 * sum(losses[:10])


def test_a_search_that_was_stopped_goes_on_and_other_placements_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imitation, "_KEPT_EVERY", 2)
    draws = GraphDraw(num_ops=(6, 9)), DeviceDraw(num_devices=(2,))
    instances = [draw_instance(*draws, "training", seed) for seed in range(5)]
    chosen = ImitatedSearchSettings(moves_per_op=5)
    whole = searched(instances, "latency", chosen, tmp_path / "whole.pt", lambda done, total: None)
    placed: list[str] = []
    anneal = imitation.anneal

    def stopping(instance, *args, **more):
        if len(placed) == 3:
            raise KeyboardInterrupt
        placed.append(instance.name)
        return anneal(instance, *args, **more)

    monkeypatch.setattr(imitation, "anneal", stopping)
    with pytest.raises(KeyboardInterrupt):
        searched(instances, "latency", chosen, tmp_path / "parts.pt", lambda done, total: None)
    placed.clear()
    parts = searched(instances, "latency", chosen, tmp_path / "parts.pt", lambda done, total: None)
    assert placed == [each.name for each in instances[2:]]
    assert [each.tolist() for each in parts] == [each.tolist() for each in whole]
    assert [len(each) for each in parts] == [each.num_ops for each in instances]
    for others, moves in ((instances[::-1], 5), (instances, 6)):
        other = ImitatedSearchSettings(moves_per_op=moves)
        with pytest.raises(CheckpointError, match="of these instances"):
            searched(others, "latency", other, tmp_path / "whole.pt", lambda done, total: None)
    (tmp_path / "whole.pt").write_bytes(b"no archive")
    with pytest.raises(CheckpointError):
        searched(instances, "latency", chosen, tmp_path / "whole.pt", lambda done, total: None)


def test_of_what_is_gone_the_old_defaults_are_left_out_and_the_rest_refused() -> None:
    old = {"order": "schedule", "rounds": 1, "draws": 16}
    assert config(imitation=old, network={"kind": "steps", "turns": 4}) == config(imitation={}, network={})
    for part, key, wrong, said in (
        ("imitation", "order", "upward-rank", "policies no longer choose the order of ops"),
        ("imitation", "rounds", 2, "searches from the policy's own draws are gone"),
        ("network", "kind", "one-shot", "policies that place all ops at once are gone"),
    ):
        with pytest.raises(ValueError, match=f"{key}: {said}"):
            config(**{part: {key: wrong}})


@pytest.mark.slow
def test_a_minute_of_learning_beats_the_rule_it_began_as(tmp_path: Path) -> None:
    chosen = config(
        seed=2,
        updates=150,
        num_training_instances=500,
        validate_every_updates=50,
        network={"hidden": 32, "rounds": 2},
        ppo={"instances_per_update": 16, "samples_per_instance": 32, "gae_lambda": 0.9, "learning_rate": 5e-4},
        changes=("placement.instances.num_ops=[20]", "placement.devices.num_devices=[3]", "num_validation_seeds=50"),
    )
    train_operators(chosen, tmp_path / "run")
    curve = json.loads((tmp_path / "run" / "learning_curve.json").read_text())
    assert min(row["validation"] for row in curve) < 0.99 * curve[0]["validation"]
