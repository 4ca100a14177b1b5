"""Training of operator placement: the same seed gives the same weights, stopped or not, and it gets better."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from meshwright.errors import CheckpointError, NothingToLearnError
from meshwright.models.operators.saved import SavedOperatorPolicy
from meshwright.training.operators.settings import OperatorTrainSettings
from meshwright.training.operators.train import OperatorProgress, train_operators

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


@pytest.mark.parametrize("kind", ["steps", "one-shot"])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(tmp_path: Path, kind: str) -> None:
    chosen = config(network={"kind": kind, "hidden": 8, "rounds": 1})
    train_operators(chosen, tmp_path / "whole")

    class StoppedError(Exception):
        pass

    def stop(now: OperatorProgress) -> None:
        if now.update == 3:
            raise StoppedError

    with pytest.raises(StoppedError):
        train_operators(chosen, tmp_path / "parts", progress=stop)
    train_operators(chosen, tmp_path / "parts", resume=True)
    whole, parts = (torch.load(tmp_path / name / "checkpoint.pt") for name in ("whole", "parts"))
    for name, tensor in whole["policy"].items():
        assert torch.equal(tensor, parts["policy"][name]), name
    curves = [json.loads((tmp_path / name / "learning_curve.json").read_text()) for name in ("whole", "parts")]
    assert [row["validation"] for row in curves[0]] == [row["validation"] for row in curves[1]]
    assert SavedOperatorPolicy.load(tmp_path / "parts").settings.kind == kind


def test_a_run_of_another_config_is_not_resumed(tmp_path: Path) -> None:
    train_operators(config(updates=2), tmp_path / "run")
    with pytest.raises(CheckpointError, match="differs"):
        train_operators(config(updates=3), tmp_path / "run", resume=True)
    with pytest.raises(CheckpointError, match="exists already"):
        train_operators(config(updates=2), tmp_path / "run")


def test_where_all_placements_tie_training_refuses(tmp_path: Path) -> None:
    one_device = config(changes=("placement.devices.num_devices=[1]", "placement.instances.num_ops=[4]"))
    with pytest.raises(NothingToLearnError, match="nothing to learn"):
        train_operators(one_device, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
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
