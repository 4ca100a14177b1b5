"""The core of a partially masked job: the same ops with part of their weights.

A core of a width keeps a share ``w`` of the channels between layers; inputs and outputs of the job stay whole. Weights between
two hidden layers and their computation shrink to ``w^2``. Those at either end, vectors of weights and ops without weights shrink
to ``w``. A core of a rank has two thin matrices in place of each, ``r (a + b)`` of ``a b`` weights, where that is less. Its
outputs keep their width.

Source:
    Mohtashami, Jaggi and Stich, "Masked training of neural networks with partial gradients", 2022, arXiv 2106.08895.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from .. import settings
from ..errors import GraphError
from ..settings import Count
from .graph import JobGraph
from .transformer import TransformerShape

WEIGHT_BYTES = 4
"""Bytes of a weight, from which the side of an op's matrix is computed."""

VECTORS = re.compile(r"(?i)norm|scale|bias")
"""Kinds of ops whose weights have one hidden dimension."""


class Core(settings.Settings):
    """The part of a model that stays: a narrow network of the same depth, or the same network with matrices of low rank."""

    width: float | None = Field(default=None, gt=0, le=1, description="share of the channels between layers that are kept")
    rank: Count | None = Field(default=None, description="rank of the matrices")

    @model_validator(mode="after")
    def _is_one(self) -> Core:
        if (self.width is None) == (self.rank is None):
            raise ValueError("wants a width or a rank, one of them")
        return self


class CoreShares(NamedTuple):
    """Shares of each op that a core keeps.

    Attributes:
        compute: of its operations and seconds, ``(n,)``.
        weights: of its weights, ``(n,)``.
        activations: of its output, ``(n,)``.
    """

    compute: NDArray[np.float64]
    weights: NDArray[np.float64]
    activations: NDArray[np.float64]


def core_shares(graph: JobGraph, core: Core) -> CoreShares:
    """Return the shares of each op of a job graph that a core keeps.

    Under a rank, an op's weights count as one square matrix, since a job graph has bytes and no shapes.
    """
    if core.rank is not None:
        side = np.sqrt(graph.parameter_bytes / WEIGHT_BYTES)
        thin = np.divide(2.0 * core.rank, side, out=np.ones(graph.num_ops), where=side > 0)
        shares = np.minimum(1.0, thin)
        shares[~_matrices(graph)] = 1.0
        return CoreShares(shares, shares, np.ones(graph.num_ops))
    matrices, width = _matrices(graph), core.width or 1.0
    behind, ahead = _on_both_sides(graph, matrices)
    activations = np.where(ahead & (behind | matrices), width, 1.0)
    shares = np.where(matrices & behind, width, 1.0) * activations
    return CoreShares(shares, shares, activations)


def core_graph(graph: JobGraph, core: Core, launch_s: float = 0.0) -> JobGraph:
    """Return the core of a job graph.

    Args:
        graph: the job.
        core: the part that stays.
        launch_s: least seconds of an op that the mask shortens, unless it took less before.

    Raises:
        GraphError: a network on volumes, whose layers are described one by one.
    """
    if graph.volumes is not None:
        raise GraphError("the core of a network on volumes is not known", field="training.core", value=graph.name)
    compute, weights, activations = core_shares(graph, core)
    return replace(
        graph,
        times_s={},  # of the whole ops
        forward_s=masked_s(graph.forward_s, compute, launch_s),
        backward_s=masked_s(graph.backward_s, compute, launch_s),
        forward_flops=graph.forward_flops * compute,
        backward_flops=graph.backward_flops * compute,
        activation_bytes=graph.activation_bytes * activations,
        parameter_bytes=graph.parameter_bytes * weights,
        workspace_bytes=graph.workspace_bytes * activations,
    )


def masked_s(seconds: NDArray[np.float64], shares: NDArray[np.float64], launch_s: float) -> NDArray[np.float64]:
    """Return the seconds of ops reduced to their shares, ``(n,)``: in proportion, but not below a launch."""
    floor = np.where(shares < 1.0, np.minimum(seconds, launch_s), 0.0)
    result: NDArray[np.float64] = np.maximum(shares * seconds, floor)
    return result


def core_shape(shape: TransformerShape, width: float) -> TransformerShape:
    """Return a transformer with a share of the heads and of all widths; its vocabulary and positions stay whole.

    Raises:
        GraphError: the width leaves a fraction of a head or size, or the model has several kinds of layers.
    """
    if width == 1.0:
        return shape
    if shape.latent is not None or shape.other_layers:
        problem = f"the core of {shape.name} is not known: its layers are of several kinds or have latent attention"
        raise GraphError(problem, field="training.core.width", value=width)
    keys: dict[str, Any] = {}
    for key in ("hidden", "num_heads", "num_key_value_heads", "feed_forward", "shared_feed_forward"):
        whole = getattr(shape, key)
        if whole is None:
            continue
        part = whole * width
        if abs(part - round(part)) > 1e-9 or round(part) < 1:
            raise GraphError(f"leaves {part:g} of {key}={whole} of {shape.name}", field="training.core.width", value=width)
        keys[key] = round(part)
    return shape.model_copy(update=keys)


def _matrices(graph: JobGraph) -> NDArray[np.bool_]:
    """Return the ops whose weights have two dimensions, ``(n,)``."""
    has_matrix: NDArray[np.bool_] = np.array([VECTORS.search(kind) is None for kind in graph.op_kinds])
    return has_matrix & (graph.parameter_bytes > 0)


def _on_both_sides(graph: JobGraph, matrices: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return whether an op with a matrix lies on the way to each op, and whether one lies on the way from it, ``(n,)`` each."""
    behind, ahead = np.zeros(graph.num_ops, bool), np.zeros(graph.num_ops, bool)
    sources: list[list[int]] = [[] for _ in range(graph.num_ops)]
    targets: list[list[int]] = [[] for _ in range(graph.num_ops)]
    for source, target in graph.edges.tolist():
        sources[target].append(source)
        targets[source].append(target)
    for op in graph.order.tolist():
        behind[op] = any(behind[one] or matrices[one] for one in sources[op])
    for op in graph.order[::-1].tolist():
        ahead[op] = any(ahead[one] or matrices[one] for one in targets[op])
    return behind, ahead
