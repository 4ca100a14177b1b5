"""The layers that score candidates, there and back.

Legend: ``b`` samples, ``v`` candidates of all samples together, sample after sample; ``f`` features, ``h`` hidden.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from ...compiled import njit
from .layers import add_linear, gradient_of


class ScorePass:
    """Two hidden layers and a score for each candidate; what its sample adds to the first layer is computed once a sample.

    Args:
        first: of candidates.
        score: what follows: a cut at zero, a layer, a cut at zero, and a layer of one figure.
    """

    def __init__(self, first: nn.Linear, score: nn.Sequential) -> None:
        _, second, _, last = score
        assert isinstance(second, nn.Linear)
        assert isinstance(last, nn.Linear)
        self._first, self._second, self._last = first, second, last
        self._features = self._count = self._before = self._after = torch.empty(0)

    def there(self, features: Tensor, of_sample: Tensor, count: Tensor) -> Tensor:
        """Scores ``(v,)`` of candidates ``(v, f)``.

        Args:
            features: of candidates.
            of_sample: added to the first layer, ``(b, h)``.
            count: candidates of each sample, ``(b,)``.
        """
        self._features, self._count = features, count
        self._before = torch.addmm(self._first.bias, features, self._first.weight.T)
        _join(self._before.numpy(), of_sample.numpy(), count.numpy())
        self._after = torch.addmm(self._second.bias, self._before, self._second.weight.T).relu_()
        return torch.addmv(self._last.bias, self._after, self._last.weight[0])

    def back(self, of_score: Tensor, columns: slice) -> tuple[Tensor, Tensor]:
        """The gradients of some columns of the features, and of what samples added."""
        gradient_of(self._last.weight)[0].addmv_(self._after.T, of_score)
        gradient_of(self._last.bias).add_(of_score.sum())
        of_after = torch.empty_like(self._after)
        _last_layer(of_score.numpy(), self._last.weight[0].detach().numpy(), self._after.numpy(), of_after.numpy())
        add_linear(self._second, of_after, self._before)
        of_before = of_after @ self._second.weight
        of_sample = torch.empty((len(self._count), of_before.shape[1]), dtype=of_before.dtype)
        _first_layer(self._before.numpy(), self._count.numpy(), of_before.numpy(), of_sample.numpy())
        gradient_of(self._first.weight).addmm_(of_before.T, self._features)
        gradient_of(self._first.bias).add_(of_sample.sum(dim=0))
        return of_before @ self._first.weight[:, columns], of_sample


@njit
def _join(figures, of_sample, count):  # type: ignore[no-untyped-def]
    """Add what each sample adds, and cut at zero, in place."""
    zero, end = np.float32(0.0), 0
    for b in range(len(count)):
        added, begin = of_sample[b], end
        end = begin + count[b]
        for v in range(begin, end):
            row = figures[v]
            for k in range(len(row)):
                x = row[k] + added[k]
                row[k] = x if x > zero else zero


@njit
def _last_layer(of_score, weight, figures, out):  # type: ignore[no-untyped-def]
    """The gradient before the cut at zero whose ``figures`` the last layer reads."""
    zero = np.float32(0.0)
    for v in range(len(of_score)):
        given, row, to = of_score[v], figures[v], out[v]
        for k in range(len(row)):
            x = given * weight[k]
            to[k] = x if row[k] > zero else zero


@njit
def _first_layer(figures, count, gradient, out):  # type: ignore[no-untyped-def]
    """The gradient before the cut at zero, in place, and its sums over each sample's candidates."""
    zero, end = np.float32(0.0), 0
    for b in range(len(count)):
        total, begin = out[b], end
        end = begin + count[b]
        total[:] = zero
        for v in range(begin, end):
            row, given = figures[v], gradient[v]
            for k in range(len(row)):
                x = given[k] if row[k] > zero else zero
                given[k] = x
                total[k] += x
