"""What synthetic labels cost in accuracy: a small dense net whose halves are trained by themselves, and by backpropagation.

The left half learns to turn each class into a random vector, its synthetic label, and the right half learns from what the
left one sends: no gradient crosses the cut. Prints both accuracies and the strategy with the multiplier that was measured, as
``--training`` takes it.

python examples/local_labels.py --steps 400 --noise 3

Source: "Synthetic intermediate labels", 2024, arXiv 2403.11204.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import nn

CLASSES, PIXELS = 47, 28 * 28
"""As many as EMNIST's balanced letters and digits have."""

WIDTH, BATCH, TESTED_EVERY = 256, 128, 10


class TestedAccuracies(NamedTuple):
    """Accuracies on test samples.

    Attributes:
        accuracies: after every `TESTED_EVERY` steps.
    """

    accuracies: tuple[float, ...]

    def steps_to(self, accuracy: float) -> int | None:
        """Steps until the test samples are told apart so well, where they ever are."""
        return next((TESTED_EVERY * (i + 1) for i, one in enumerate(self.accuracies) if one >= accuracy), None)


def half(sizes: tuple[int, ...]) -> nn.Sequential:
    """Dense layers with rectifiers behind all of them."""
    return nn.Sequential(*(layer for inputs, outputs in pairwise(sizes) for layer in (nn.Linear(inputs, outputs), nn.ReLU())))


def train(steps: int, noise: float, seed: int, is_local: bool) -> TestedAccuracies:
    """Train six dense layers on images of `CLASSES` classes, drawn anew for each batch, with ``noise`` in each pixel."""
    draw = torch.Generator().manual_seed(seed)
    means = torch.randn(CLASSES, PIXELS, generator=draw)
    labels = torch.rand(CLASSES, WIDTH, generator=draw)

    def batch(number: int) -> tuple[torch.Tensor, torch.Tensor]:
        classes = torch.randint(CLASSES, (number,), generator=draw)
        return means[classes] + noise * torch.randn(number, PIXELS, generator=draw), classes

    tested, wanted = batch(2000)
    torch.manual_seed(seed)
    left = half((PIXELS, WIDTH, WIDTH, WIDTH))
    right = nn.Sequential(*half((WIDTH, WIDTH, WIDTH)), nn.Linear(WIDTH, CLASSES))
    optimizers = [torch.optim.Adam(part.parameters(), lr=1e-3) for part in (left, right)]
    accuracies = []
    for step in range(steps):
        images, classes = batch(BATCH)
        sent = left(images)
        loss = nn.functional.cross_entropy(right(sent.detach() if is_local else sent), classes)
        if is_local:
            loss = loss + nn.functional.mse_loss(sent, labels[classes])
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        if (step + 1) % TESTED_EVERY == 0:
            with torch.no_grad():
                accuracies.append(float((right(left(tested)).argmax(1) == wanted).float().mean()))
    return TestedAccuracies(tuple(accuracies))


def told(steps: int, noise: float, seed: int) -> str:
    """The strategy with what was measured, as ``--training`` takes it, or without a multiplier where the goal is not reached.

    The goal is 99 % of the accuracy that backpropagation ends with.
    """
    exact, local = (train(steps, noise, seed, is_local) for is_local in (False, True))
    goal = 0.99 * exact.accuracies[-1]
    print(f"backpropagation: {exact.accuracies[-1]:.4f} of the test samples, {exact.steps_to(goal)} steps to {goal:.4f}")
    print(f"synthetic labels: {local.accuracies[-1]:.4f}, {local.steps_to(goal)} steps to {goal:.4f}")
    text = "kind=local-update,preset=sil,force=true"
    before, after = exact.steps_to(goal), local.steps_to(goal)
    if before is None or after is None:
        return text
    after_all = f"{local.accuracies[-1]:.4f} against {exact.accuracies[-1]:.4f} by backpropagation after {steps} steps"
    source = f"6 dense layers on drawn images with noise {noise:g}; accuracy {after_all}"
    return f"{text},multiplier={after / before:.3g},multiplier_source={source}"


def main() -> None:
    """Both runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--noise", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    print(told(asked.steps, asked.noise, asked.seed))


if __name__ == "__main__":
    main()
