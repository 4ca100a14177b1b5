"""All weights of an optimizer as one vector, so that a step is a few operations and not some of each weight."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from .adam import EagerAdam

MOMENTS = ("exp_avg", "exp_avg_sq")
"""What Adam keeps of each weight."""


class FlatAdam:
    """Takes Adam's steps on one vector, of which an optimizer's weights, gradients and moments become parts.

    The optimizer stays what is saved and restored; between two calls of `bind` nothing else may step it.

    Args:
        optimizer: of one group.
        weights: where the weights are to lie, ``(size,)``; in memory of its own by default.

    Attributes:
        size: numbers in all.
        weights: ``(size,)``; its ``grad`` is the gradient.
    """

    def __init__(self, optimizer: torch.optim.Adam, weights: Tensor | None = None) -> None:
        (group,) = optimizer.param_groups
        self._optimizer, self._of = optimizer, [weight for weight in group["params"] if weight.requires_grad]
        self.size = sum(weight.numel() for weight in self._of)
        device = self._of[0].device
        self.weights = nn.Parameter(torch.empty(self.size, device=device) if weights is None else weights)
        self.weights.grad = torch.zeros(self.size, device=device)
        self._moments = {name: torch.zeros(self.size, device=device) for name in MOMENTS}
        options = {key: group[key] for key in ("betas", "eps", "weight_decay", "amsgrad", "fused")}
        self._adam = EagerAdam([self.weights], lr=group["lr"], **options)

    def bind(self) -> None:
        """Take weights and moments as they are now, wherever they are."""
        steps = 0.0
        (group,) = self._optimizer.param_groups
        with torch.no_grad():
            for weight, values, gradient, *moments in zip(
                self._of,
                *(parts_of(flat, self._of) for flat in (self.weights.detach(), self.gradient, *self._moments.values())),
                strict=True,
            ):
                if weight.data_ptr() != values.data_ptr():
                    values.copy_(weight)
                    weight.data = values
                weight.grad = gradient
                state = self._optimizer.state[weight]
                for name, moment in zip(MOMENTS, moments, strict=True):
                    if name not in state:
                        moment.zero_()
                    elif state[name].data_ptr() != moment.data_ptr():
                        moment.copy_(state[name])
                    state[name] = moment
                state.setdefault("step", torch.zeros((), device=weight.device))
                steps = max(steps, float(state["step"]))
        self._adam.param_groups[0]["lr"] = group["lr"]
        self._adam.state[self.weights] = {"step": torch.full((), steps, device=self.weights.device), **self._moments}

    @property
    def gradient(self) -> Tensor:
        """The gradient, ``(size,)``."""
        assert self.weights.grad is not None
        return self.weights.grad

    def step(self, max_norm: float) -> None:
        """Scale the gradient down to a norm, and take a step against it."""
        nn.utils.clip_grad_norm_([self.weights], max_norm)
        self._adam.step()

    def end(self) -> None:
        """Tell the optimizer the number of steps."""
        for weight in self._of:
            self._optimizer.state[weight]["step"].copy_(self._adam.state[self.weights]["step"])


def parts_of(flat: Tensor, weights: Iterable[Tensor]) -> list[Tensor]:
    """A vector as parts of the shapes of weights; no copies."""
    of = list(weights)
    split = torch.split(flat, [weight.numel() for weight in of])
    return [part.view_as(weight) for part, weight in zip(split, of, strict=True)]


def bind(weights: Iterable[nn.Parameter], values: Tensor, gradient: Tensor) -> None:
    """Make weights and their gradients parts of two vectors, whose content they take."""
    of = list(weights)
    for weight, its_values, its_gradient in zip(of, parts_of(values, of), parts_of(gradient, of), strict=True):
        weight.data, weight.grad = its_values, its_gradient
