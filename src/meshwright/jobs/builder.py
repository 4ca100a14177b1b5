"""Builds analytic job graphs op by op: element counts and multiply-adds in, frozen arrays out.

Sizes come in elements and are stored in bytes of the training precision (bf16 or fp16: two bytes). Floating-point operations are
those of matrix products and convolutions, two per multiply-add, as in published FLOP counts. Other ops carry none; the bytes that
they move give their time.
"""

from __future__ import annotations

import numpy as np

from .graph import JobGraph

ELEMENT_BYTES = 2


class GraphBuilder:
    """A job graph under construction.

    Args:
        name: of the graph.
        samples_per_step: images or sequences of one step.
        element_bytes: of a weight or an activation.
    """

    def __init__(self, name: str, samples_per_step: int, element_bytes: int = ELEMENT_BYTES) -> None:
        self.name = name
        self._element_bytes = element_bytes
        self.samples_per_step = samples_per_step
        self._names: list[str] = []
        self._kinds: list[str] = []
        self._costs: list[tuple[float, float, float, float, float]] = []
        self._edges: list[tuple[int, int]] = []

    def add(
        self,
        name: str,
        kind: str,
        inputs: list[int],
        *,
        output: int,
        parameters: int = 0,
        multiply_adds: int = 0,
        trains_inputs: bool = True,
        workspace_bytes: int = 0,
    ) -> int:
        """Add an op and return its number.

        Args:
            name: unique in the graph.
            kind: what the op is.
            inputs: numbers of the ops that it reads.
            output: elements of its output.
            parameters: elements of its weights.
            multiply_adds: of the forward pass.
            trains_inputs: whether the backward pass also computes the gradient of the inputs. A matrix product then costs twice
                its forward pass, otherwise once (the gradient of the weights alone).
            workspace_bytes: memory needed only while the op runs.
        """
        op = len(self._names)
        self._names.append(name)
        self._kinds.append(kind)
        flops = 2.0 * multiply_adds
        sizes = (float(self._element_bytes * output), float(self._element_bytes * parameters), float(workspace_bytes))
        self._costs.append((flops, flops * (2 if trains_inputs else 1), *sizes))
        self._edges += [(source, op) for source in inputs]
        return op

    def build(self) -> JobGraph:
        """Return the graph, not yet timed: all its seconds are zero until `JobGraph.timed_on`."""
        costs = np.array(self._costs, np.float64).reshape(-1, 5)
        zeros = np.zeros(len(self._names))
        return JobGraph(
            name=self.name,
            op_names=tuple(self._names),
            op_kinds=tuple(self._kinds),
            forward_s=zeros,
            backward_s=zeros,
            forward_flops=costs[:, 0],
            backward_flops=costs[:, 1],
            activation_bytes=costs[:, 2],
            parameter_bytes=costs[:, 3],
            workspace_bytes=costs[:, 4],
            edges=np.array(self._edges, np.int64),
            samples_per_step=self.samples_per_step,
            element_bytes=self._element_bytes,
        )
