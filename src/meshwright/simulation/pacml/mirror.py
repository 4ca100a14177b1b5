"""The job graph as the published simulator sees it: every forward op has a backward op, edges run back in mirror.

Legend: ``n`` forward ops, ``o = 2 n`` ops, ``m`` edges of the profile, ``2 m + 1`` edges of the mirrored graph. The
forward op with profile number ``i`` (1 to ``n``) has index ``i - 1``, its backward op ``2 n - i``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...errors import GraphError
from ...jobs.graph import JobGraph
from ...jobs.readers.pipedream import without_inputs
from .semantics import Defects

MILLISECONDS_PER_SECOND = 1e3
# Times are printed with a few decimals of a millisecond; rounding gives back the very numbers of the profile.
_DECIMALS = 9


@dataclass(frozen=True, eq=False)
class MirroredJob:
    """One training step, forward and backward, before it is cut.

    Attributes:
        name: of the graph.
        compute_s: duration of each op on one worker, ``(o,)``; milliseconds where these pass as seconds.
        activation_bytes: of the op or of its forward op, ``(o,)``.
        parameter_bytes: of the op or of its forward op, ``(o,)``.
        edges: source and target, forward edges in the profile's order, then mirrored ones, then the join, ``(2 m + 1, 2)``.
        split_rank: when the op is cut, by the profile's order, forward before backward, ``(o,)``.
        forward_order: forward ops as they are placed (Kahn's order, sources as in the profile), ``(n,)``.
    """

    name: str
    compute_s: NDArray[np.float64]
    activation_bytes: NDArray[np.float64]
    parameter_bytes: NDArray[np.float64]
    edges: NDArray[np.int64]
    split_rank: NDArray[np.int64]
    forward_order: NDArray[np.int64]

    @property
    def num_forward(self) -> int:
        """Number of forward ops, ``n``."""
        return len(self.compute_s) // 2

    @property
    def num_ops(self) -> int:
        """Forward and backward ops, ``2 n``."""
        return len(self.compute_s)

    @cached_property
    def memory_bytes(self) -> NDArray[np.float64]:
        """Activation and parameters of each op, ``(o,)``."""
        return self.activation_bytes + self.parameter_bytes

    @cached_property
    def step_s(self) -> float:
        """Duration of a step on one worker, ops one after another.

        The sum is that of the published simulator, forward ops as in the profile, then backward ops. Its last bit decides whether
        a deadline of exactly this time is met.
        """
        order = np.argsort(self.split_rank[: self.num_forward])
        return float(sum(self.compute_s[np.concatenate([order, self.num_ops - 1 - order])].tolist()))

    @cached_property
    def edge_bytes(self) -> NDArray[np.float64]:
        """Activation of each edge's source, ``(2 m + 1,)``: the demand that the statistics count."""
        return self.activation_bytes[self.edges[:, 0]]

    @cached_property
    def parents(self) -> list[list[int]]:
        """Forward parents of each forward op, in the profile's order of edges."""
        result: list[list[int]] = [[] for _ in range(self.num_forward)]
        for source, target in self.edges[: (len(self.edges) - 1) // 2].tolist():
            result[target].append(source)
        return result


def mirror(graph: JobGraph, defects: Defects) -> MirroredJob:
    """Mirror a job graph.

    Ops named ``node1``, ``node2`` and so on have the numbers of their names, less the missing numbers below, such as those of
    Input ops. Ops of any other names are numbered in topological order.

    Raises:
        GraphError: two ops have one number, one has none, or nothing but data loading is left.
    """
    if not defects.input_ops_run:
        graph = without_inputs(graph)
    numbers = _numbers(graph)
    n = graph.num_ops
    forward, backward = numbers - 1, 2 * n - numbers
    unit = MILLISECONDS_PER_SECOND if defects.milliseconds_as_seconds else 1.0
    compute_s, activation, parameters = np.empty((3, 2 * n))
    split_rank = np.empty(2 * n, np.int64)
    for side, place, seconds in ((0, forward, graph.forward_s), (1, backward, graph.backward_s)):
        compute_s[place] = np.round(seconds * unit, _DECIMALS) if defects.milliseconds_as_seconds else seconds
        activation[place], parameters[place] = graph.activation_bytes, graph.parameter_bytes
        split_rank[place] = 2 * np.arange(n) + side
    forward_edges = forward[graph.edges]
    backward_edges = backward[graph.edges[:, ::-1]]
    return MirroredJob(
        name=graph.name,
        compute_s=compute_s,
        activation_bytes=activation,
        parameter_bytes=parameters,
        edges=np.concatenate([forward_edges, backward_edges, [[n - 1, n]]]),
        split_rank=split_rank,
        forward_order=forward[graph.order],
    )


def _numbers(graph: JobGraph) -> NDArray[np.int64]:
    """Return the number of each op, 1 to ``n``, each once."""
    results = [re.fullmatch("node([0-9]{1,9})", name) for name in graph.op_names]
    if not all(results):
        numbers = np.empty(graph.num_ops, np.int64)
        numbers[graph.order] = np.arange(1, graph.num_ops + 1)
        return numbers
    named = [int(match[1]) for match in results if match]
    for number, name in zip(named, graph.op_names, strict=True):
        if number < 1:
            raise GraphError("ops are numbered from 1 on, each once", field="op_names", value=name)
    if len(set(named)) < len(named):
        twice = next(name for name, number in zip(graph.op_names, named, strict=True) if named.count(number) > 1)
        raise GraphError("two ops have this number", field="op_names", value=twice)
    return np.argsort(np.argsort(named)) + 1
