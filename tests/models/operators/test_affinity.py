"""Walks over the edges of a job: hand-worked probabilities, and the compiled sums are those of torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from meshwright.models.operators.affinity import Affinity, gathered
from meshwright.models.operators.graphs import batch, features
from meshwright.simulation.operators.generators import DeviceDraw, GraphDraw, draw_instance
from meshwright.simulation.operators.instance import OperatorInstance

FORK = OperatorInstance.of_outputs("fork", np.ones((4, 2)), [(0, 1), (0, 2), (1, 3), (2, 3)], [1.0, 1.0, 1.0, 0.0])


def even(walks: int = 1, steps: int = 3, *, goes_to_readers: bool = True) -> Affinity:
    """All edges alike."""
    made = Affinity(8, walks, steps, goes_to_readers=goes_to_readers)
    torch.nn.init.zeros_(made.gate.weight)
    torch.nn.init.constant_(made.gate.bias, 5.0)
    return made


def near(affinity: Affinity, *instances: OperatorInstance) -> np.ndarray:
    graphs = batch([features(each, "latency") for each in instances])
    with torch.no_grad():
        return affinity.between(torch.zeros(*graphs.is_op.shape, 8), graphs).numpy()


def test_steps_on_a_fork_by_hand() -> None:
    """From the source both branches are one step off, itself and the sink two; from the sink likewise."""
    found = near(even(), FORK)[0]
    assert found[0, 0] == pytest.approx([0, 0.5, 0.5, 0], abs=1e-3)
    assert found[0, 1] == pytest.approx([0.5, 0, 0, 0.5], abs=1e-3)
    assert found[1, 1] == pytest.approx([0, 0.5, 0.5, 0], abs=1e-3)
    assert found[3, 2] == pytest.approx([0, 0.5, 0.5, 0], abs=1e-3)


def test_to_producers_alone_nobody_reaches_a_reader() -> None:
    found = near(even(goes_to_readers=False), FORK)[0]
    assert found[3, 0] == pytest.approx([0, 0.5, 0.5, 0], abs=1e-3)
    assert found[3, 1] == pytest.approx([1, 0, 0, 0], abs=2e-3)
    assert found[0].max() == 0.0


def test_each_row_is_a_probability_and_instances_do_not_mix() -> None:
    drawn = [draw_instance(GraphDraw(num_ops=(size,)), DeviceDraw(num_devices=(2,)), "test", size) for size in (6, 11)]
    affinity = even(walks=2, steps=4)
    together = near(affinity, *drawn)
    assert (together >= 0).all()
    assert together.sum(axis=3).max() <= 1.0 + 1e-6
    for row, instance in enumerate(drawn):
        n = instance.num_ops
        assert together[row, :n, :, :n] == pytest.approx(near(affinity, instance)[0], abs=1e-6)
        assert together[row, :n, :, n:].sum() == 0.0


def test_what_is_gathered_is_what_stands_on_each_device_before() -> None:
    affinity = even(steps=2)
    graphs = batch([features(FORK, "latency")])
    with torch.no_grad():
        between = affinity.between(torch.zeros(1, 4, 8), graphs)
    on = torch.tensor([[[1.0, 0], [0, 1], [1, 0], [0, 1]]])
    before = torch.tensor([[[1.0, 1, 0, 0]]])
    found = gathered(between, torch.zeros(1, dtype=torch.long), torch.tensor([[3]]), on, before)
    assert found[0, 0].numpy() == pytest.approx(np.array([[0.0, 0.5], [0.5, 0.0]]), abs=1e-3)
    everything = gathered(between, torch.zeros(1, dtype=torch.long), torch.tensor([[3]]), on)
    assert everything[0, 0].numpy() == pytest.approx(np.array([[0.5, 0.5], [0.5, 0.5]]), abs=1e-3)
