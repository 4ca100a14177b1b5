"""Layers there and back: each keeps what it has read, and adds to the gradients of its weights.

A layer's weights have gradients already, to which is added. Nothing here is recorded by PyTorch; callers see to that.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..encoders import SetEncoder
from .sets import PooledSet, pool_set, set_gradient


def gradient_of(weight: Tensor) -> Tensor:
    """The gradient to which is added."""
    assert weight.grad is not None, "weights have gradients before a pass back"
    return weight.grad


class LinearPass:
    """A linear layer, with or without a cut at zero after it.

    Args:
        layer: a linear one, whose weights it takes.
        is_cut: whether ``relu`` follows.
    """

    def __init__(self, layer: nn.Module, *, is_cut: bool) -> None:
        assert isinstance(layer, nn.Linear)
        self._layer, self._is_cut = layer, is_cut
        self._read = self._made = torch.empty(0)

    def there(self, read: Tensor) -> Tensor:
        """``(b, f)`` to ``(b, h)``."""
        self._read = read
        self._made = torch.addmm(self._layer.bias, read, self._layer.weight.T)
        return self._made.relu_() if self._is_cut else self._made

    def back(self, gradient: Tensor, columns: slice = slice(None)) -> Tensor:
        """The gradient of some columns of what was read."""
        if self._is_cut:
            gradient = torch.ops.aten.threshold_backward(gradient, self._made, 0.0)
        add_linear(self._layer, gradient, self._read)
        return gradient @ self._layer.weight[:, columns]


class SetPass:
    """A `SetEncoder`, of several batches one after the other if need be."""

    def __init__(self, encoder: SetEncoder) -> None:
        self._encoder = encoder

    def there(self, members: Tensor) -> PooledSet:
        """Pool ``(n, b, f)``."""
        return pool_set(members, self._encoder.lift.weight, self._encoder.lift.bias)

    def back(self, made: PooledSet, gradient: Tensor) -> None:
        """Members have no gradient."""
        add_linear(self._encoder.lift, set_gradient(made, gradient), made.members)


def add_linear(layer: nn.Linear, gradient: Tensor, read: Tensor) -> None:
    """Add to a layer's gradients by that of what it made, ``(b, h)``, and what it had read, ``(b, f)``."""
    gradient_of(layer.weight).addmm_(gradient.T, read)
    gradient_of(layer.bias).add_(gradient.sum(dim=0))
