"""How near each op is to the ops already placed on each device: short walks over the job's edges, with learned weights.

Candidate features tell of an op's own producers and of those of its readers; walks tell of what stands further off. In the
shipped policy they change nothing measurable, and messages do (`docs/operators.md`).

Legend of shapes: ``b`` instances, ``E`` episodes, ``t`` decisions, ``n`` ops, ``m`` devices, ``e`` edges of all instances
together, ``h`` width, ``j`` kinds of walk, ``s`` steps, ``a = j s`` affinities.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .graphs import NUM_EDGE_FEATURES, OperatorGraphs

_LEAST = 1e-3
"""Added to the sum of an op's weights, so that walks over edges of next to no weight end."""


class Affinity(nn.Module):
    """Learned weights of edges, and the walks over them.

    From an op a step leads over one of its edges, with a probability in proportion to the edge's weight. The affinity of two ops
    in ``s`` steps is the probability of being at the second after ``s`` steps from the first, for each kind of walk.

    Args:
        h: width of embeddings.
        walks: kinds of walk ``j``, each with weights of its own.
        steps: of the longest walk ``s``.
        goes_to_readers: whether steps lead to readers as well as to producers.
    """

    def __init__(self, h: int, walks: int, steps: int, *, goes_to_readers: bool) -> None:
        super().__init__()
        self.walks, self.steps, self.goes_to_readers = walks, steps, goes_to_readers
        self.gate = nn.Linear(2 * h + NUM_EDGE_FEATURES, 2 * walks)

    @property
    def size(self) -> int:
        """Affinities of two ops, ``a``."""
        return self.walks * self.steps

    def step_weights(self, ops: Tensor, graphs: OperatorGraphs) -> tuple[Tensor, Tensor]:
        """Probability of each step from embeddings ``(b, n, h)``: from producer to reader, and back, ``(e, j)`` each."""
        b, n, h = ops.shape
        flat = ops.reshape(b * n, h)
        ends = torch.cat([flat[graphs.producer], flat[graphs.reader], graphs.edges], dim=1)
        down, up = nn.functional.softplus(self.gate(ends)).chunk(2, dim=1)
        if not self.goes_to_readers:
            down = torch.zeros_like(down)
        total = torch.full((b * n, self.walks), _LEAST, dtype=ops.dtype, device=ops.device)
        total = total.index_add(0, graphs.producer, down).index_add(0, graphs.reader, up)
        return down / total[graphs.producer], up / total[graphs.reader]

    def between(self, ops: Tensor, graphs: OperatorGraphs) -> Tensor:
        """Affinity of each op, in rows, to each other of its instance, ``(b, n, a, n)``; columns of walks, then of steps."""
        b, n, _ = ops.shape
        down, up = self.step_weights(ops, graphs)
        source = torch.cat([graphs.producer, graphs.reader])
        target = torch.cat([graphs.reader, graphs.producer])
        weight = torch.cat([down, up])[..., None]
        nowhere = torch.zeros(b * n, self.walks, n, dtype=ops.dtype, device=ops.device)
        here = torch.eye(n, dtype=ops.dtype, device=ops.device).repeat(b, 1)[:, None].expand(-1, self.walks, -1)
        made = []
        for _ in range(self.steps):
            here = nowhere.index_add(0, source, weight * here[target])
            made.append(here)
        return torch.stack(made, dim=2).reshape(b, n, self.size, n)


def gathered(near: Tensor, of: Tensor, ops: Tensor, on: Tensor, is_before: Tensor | None = None) -> Tensor:
    """Affinity of the op of each decision to all ops placed on each device before it, ``(E, t, m, a)``.

    Args:
        near: `Affinity.between`, ``(b, n, a, n)``.
        of: instance of each episode, ``(E,)``.
        ops: op of each decision, ``(E, t)``.
        on: 1 where an op is on a device, ``(E, n, m)``.
        is_before: 1 for each decision where an op was placed before it, ``(E, t, n)``; None: all of them were.
    """
    count_e, t = ops.shape
    rows = near[of[:, None], ops]
    if is_before is not None:
        rows = rows * is_before[:, :, None]
    summed = torch.matmul(rows.flatten(1, 2), on)
    return summed.reshape(count_e, t, rows.shape[2], on.shape[2]).transpose(2, 3)
