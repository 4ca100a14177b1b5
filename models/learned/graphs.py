"""Rounds of message passing and the pooling of graphs, there and back.

A round's three products, with what predecessors send, with what successors send and with the op's own state, are one.

Legend: ``n`` ops of all graphs, ``m`` edges, ``g`` graphs, ``h`` width of an op's state, ``e`` of an embedding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...compiled import njit
from ..encoders import GraphEncoder, StaticTensors
from .layers import add_linear, gradient_of


class GraphPass:
    """A `GraphEncoder`; ops have no gradient.

    Where several ops have the greatest figure, the first one gets its gradient; torch shares it out.
    """

    def __init__(self, encoder: GraphEncoder) -> None:
        self._encoder = encoder
        self._read: nn.Linear = encoder.read
        self._states: list[Tensor] = []
        self._gathered: list[Tensor] = []
        self._pooled = self._embedded = torch.empty(0)
        self._greatest: NDArray[np.int64] = np.empty((0, 0), np.int64)

    def there(self, static: StaticTensors) -> Tensor:
        """Embeddings ``(g, e)``."""
        lift = self._encoder.lift
        state = torch.addmm(lift.bias, static.ops, lift.weight.T).relu_()
        self._states, self._gathered = [state], []
        for number in range(len(self._encoder.along)):
            along, against = self._round(number)
            n, width = state.shape
            gathered = torch.zeros((n, 3 * width), dtype=state.dtype)
            gathered[:, 2 * width :] = state
            _send(static.edges.numpy(), state.numpy(), gathered.numpy())
            heard = torch.addmm(along.lin_l.bias + against.lin_l.bias, gathered, self._weights(number).T).relu_()
            self._gathered.append(gathered)
            self._states.append(heard)
            state = state + heard
        self._pooled = torch.empty((static.num_graphs, 2 * state.shape[1]), dtype=state.dtype)
        self._greatest = np.empty((static.num_graphs, state.shape[1]), np.int64)
        _pool(state.numpy(), static.graph_of_op.numpy(), self._pooled.numpy(), self._greatest)
        self._embedded = torch.addmm(self._read.bias, self._pooled, self._read.weight.T).tanh_()
        return self._embedded

    def back(self, static: StaticTensors, gradient: Tensor) -> None:
        """Add to the gradients of the weights by that of the embeddings."""
        of_embedded = gradient * (1 - self._embedded.square())
        add_linear(self._read, of_embedded, self._pooled)
        of_state = torch.empty_like(self._states[0])
        _spread((of_embedded @ self._read.weight).numpy(), static.graph_of_op.numpy(), self._greatest, of_state.numpy())
        for number in reversed(range(len(self._gathered))):
            of_heard = torch.ops.aten.threshold_backward(of_state, self._states[number + 1], 0.0)
            of_along, of_against, of_own = (of_heard.T @ self._gathered[number]).chunk(3, dim=1)
            of_bias = of_heard.sum(dim=0)
            for encoder, of_sent in zip(self._round(number), (of_along, of_against), strict=True):
                gradient_of(encoder.lin_l.weight).add_(of_sent)
                gradient_of(encoder.lin_l.bias).add_(of_bias)
                gradient_of(encoder.lin_r.weight).add_(of_own)
            _send_back(static.edges.numpy(), (of_heard @ self._weights(number)).numpy(), of_state.numpy())
        of_lifted = torch.ops.aten.threshold_backward(of_state, self._states[0], 0.0)
        add_linear(self._encoder.lift, of_lifted, static.ops)

    def _round(self, number: int) -> tuple[Any, Any]:
        """A round's convolutions along the edges and against them."""
        return self._encoder.along[number], self._encoder.against[number]

    def _weights(self, number: int) -> Tensor:
        """A round's weights, side by side, ``(h, 3 h)``."""
        along, against = self._round(number)
        return torch.cat([along.lin_l.weight, against.lin_l.weight, along.lin_r.weight + against.lin_r.weight], dim=1)


class RecordedGraphPass:
    """Any other encoder of graphs, differentiated by PyTorch."""

    def __init__(self, encoder: nn.Module) -> None:
        self._encoder = encoder
        self._embedded = torch.empty(0)

    def there(self, static: StaticTensors) -> Tensor:
        """Embeddings ``(g, e)``."""
        with torch.enable_grad():
            self._embedded = self._encoder(static.ops, static.edges, static.graph_of_op, static.num_graphs)
        return self._embedded.detach()

    def back(self, static: StaticTensors, gradient: Tensor) -> None:
        """Add to the gradients of the weights by that of the embeddings."""
        if self._embedded.requires_grad:
            torch.autograd.backward(self._embedded, gradient)


@njit
def _shares(edges, shares):  # type: ignore[no-untyped-def]
    """Set zeros ``(2, n)`` to one over the number of predecessors and of successors; what nobody sends is not divided."""
    for i in range(edges.shape[1]):
        shares[0, edges[1, i]] += 1
        shares[1, edges[0, i]] += 1
    for op in range(shares.shape[1]):
        for way in range(2):
            shares[way, op] = 1 / max(shares[way, op], np.float32(1.0))


@njit
def _send(edges, state, out):  # type: ignore[no-untyped-def]
    """Add the means of predecessors' states to the first third of ``out``, those of successors' to the second."""
    num_ops, width = state.shape
    shares = np.zeros((2, num_ops), state.dtype)
    _shares(edges, shares)
    for i in range(edges.shape[1]):
        source, target = edges[0, i], edges[1, i]
        sent, heard, share = state[source], out[target, :width], shares[0, target]
        for k in range(width):
            heard[k] += sent[k] * share
        sent, heard, share = state[target], out[source, width : 2 * width], shares[1, source]
        for k in range(width):
            heard[k] += sent[k] * share


@njit
def _send_back(edges, of_gathered, of_state):  # type: ignore[no-untyped-def]
    """Add the gradients of what was sent, and of the own states, to those of the states."""
    num_ops, width = of_state.shape
    shares = np.zeros((2, num_ops), of_state.dtype)
    _shares(edges, shares)
    for op in range(num_ops):
        own, to = of_gathered[op, 2 * width :], of_state[op]
        for k in range(width):
            to[k] += own[k]
    for i in range(edges.shape[1]):
        source, target = edges[0, i], edges[1, i]
        heard, to, share = of_gathered[target, :width], of_state[source], shares[0, target]
        for k in range(width):
            to[k] += heard[k] * share
        heard, to, share = of_gathered[source, width : 2 * width], of_state[target], shares[1, source]
        for k in range(width):
            to[k] += heard[k] * share


@njit
def _pool(state, graph_of_op, out, greatest):  # type: ignore[no-untyped-def]
    """Mean and maximum of each graph's ops, and whose the maximum is; a graph without ops has zeros."""
    num_ops, width = state.shape
    out[:] = 0
    greatest[:] = -1
    counts = np.zeros(len(out), np.int64)
    for op in range(num_ops):
        graph = graph_of_op[op]
        counts[graph] += 1
        for k in range(width):
            out[graph, k] += state[op, k]
            if greatest[graph, k] < 0 or state[op, k] > out[graph, width + k]:
                out[graph, width + k] = state[op, k]
                greatest[graph, k] = op
    for graph in range(len(out)):
        for k in range(width):
            out[graph, k] /= max(counts[graph], 1)


@njit
def _spread(of_pooled, graph_of_op, greatest, out):  # type: ignore[no-untyped-def]
    """The gradient of the ops' states."""
    num_ops, width = out.shape
    counts = np.zeros(len(of_pooled), np.int64)
    for op in range(num_ops):
        counts[graph_of_op[op]] += 1
    for op in range(num_ops):
        graph = graph_of_op[op]
        share = out.dtype.type(1.0 / counts[graph])
        for k in range(width):
            out[op, k] = of_pooled[graph, k] * share
    for graph in range(len(of_pooled)):
        for k in range(width):
            if greatest[graph, k] >= 0:
                out[greatest[graph, k], k] += of_pooled[graph, width + k]
