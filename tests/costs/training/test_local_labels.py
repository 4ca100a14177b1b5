"""The example that measures what synthetic labels cost in accuracy."""

import runpy
from pathlib import Path

import pytest

from meshwright.plans.training import parse_training

EXAMPLE = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "local_labels.py"))


def test_what_was_measured_is_a_strategy_with_its_source(capsys):
    (found,) = parse_training(EXAMPLE["told"](steps=80, noise=0.5, seed=0))
    assert (found.kind, found.preset) == ("local-update", "sil")
    exact, local = (line.split(" ") for line in capsys.readouterr().out.splitlines())
    assert found.multiplier == pytest.approx(int(local[3]) / int(exact[6]), rel=0.01)
    assert f"accuracy {local[2].rstrip(',')} against {exact[1]} by backpropagation" in found.multiplier_source


def test_a_goal_that_is_not_reached_gives_no_multiplier():
    (found,) = parse_training(EXAMPLE["told"](steps=30, noise=6.0, seed=0))
    assert found.multiplier is None


def test_steps_to_an_accuracy_worked_by_hand():
    run = EXAMPLE["TestedAccuracies"]((0.2, 0.5, 0.4, 0.9))
    assert [run.steps_to(one) for one in (0.1, 0.5, 0.6, 0.95)] == [10, 20, 40, None]
