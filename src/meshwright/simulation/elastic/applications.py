"""Measured applications as flat arrays for compiled code, with the tetrahedra between measured steps.

Legend: ``a`` applications, ``b`` global batches, ``t`` epochs, ``p`` measured placements, ``n`` steps measured on them. ``m`` are
points (hosts, ranks, local batch), ``s`` tetrahedra of points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import Delaunay, QhullError

from ...errors import InputFileError
from ...jobs.readers.elastic import ElasticApplication, MeasuredSteps
from ...numba_records import by_reference

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


@by_reference
class ApplicationArrays(NamedTuple):
    """The arrays of all applications.

    Attributes:
        initial_batch: smallest global batch, for which progress is counted, ``(a,)``.
        max_batch: largest global batch, ``(a,)``.
        min_local: fewest samples of a rank, ``(a,)``.
        max_local: most samples of a rank, ``(a,)``.
        num_epochs: to the wanted quality, ``(a,)``.
        num_batches: ``(a,)``.
        batch: increasing, ``(a, b)``.
        progress: at the end of so many epochs, ``(a, t + 1)``.
        iteration: steps taken by the end of an epoch, ``(a, b, t)``.
        grad_sqr: ``(a, b, t)``.
        grad_var: ``(a, b, t)``.
        num_placements: ``(a,)``.
        placement: measured placements as digits, increasing, ``(a, p)``.
        first_step: where the steps of a placement begin, ``(a, p + 1)``.
        local_batch: of measured steps, increasing within a placement, ``(n,)``.
        measured_s: time of the step and its part of waiting for gradients, ``(n, 2)``.
        first_tetrahedron: ``(a + 1,)``.
        corner: points of a tetrahedron, ``(s, 4)``.
        neighbour: tetrahedron behind the face opposite to each corner, -1 where there is none, ``(s, 4)``.
        transform: from a point to its barycentric coordinates, ``(s, 4, 3)``.
        point_s: as ``measured_s``, ``(m, 2)``.
    """

    initial_batch: Whole
    max_batch: Whole
    min_local: Whole
    max_local: Whole
    num_epochs: Whole
    num_batches: Whole
    batch: Whole
    progress: Floats
    iteration: Floats
    grad_sqr: Floats
    grad_var: Floats
    num_placements: Whole
    placement: Whole
    first_step: Whole
    local_batch: Whole
    measured_s: Floats
    first_tetrahedron: Whole
    corner: Whole
    neighbour: Whole
    transform: Floats
    point_s: Floats


def arrays_of(applications: Sequence[ElasticApplication]) -> ApplicationArrays:
    """Return the arrays of some applications.

    Raises:
        InputFileError: the measured steps of one span no volume of hosts, ranks and local batch.
    """
    curves = ("iteration", "grad_sqr", "grad_var")
    placed = [_by_placement(each.placed) for each in applications]
    firsts = np.cumsum([0, *(len(each.placed.step_s) for each in applications)])
    nets = [_tetrahedra(each) for each in applications]
    tetrahedra = np.cumsum([0, *(len(net.simplices) for net, _ in nets)])
    points = np.cumsum([0, *(len(times) for _, times in nets)])
    return ApplicationArrays(
        initial_batch=np.array([each.batch[0] for each in applications]),
        max_batch=np.array([each.batch[-1] for each in applications]),
        min_local=np.array([each.placed.local_batch.min() for each in applications]),
        max_local=np.array([each.max_local_batch for each in applications]),
        num_epochs=np.array([each.num_epochs for each in applications]),
        num_batches=np.array([len(each.batch) for each in applications]),
        batch=_stacked([each.batch for each in applications]),
        # An epoch ends when the slowest of the measured runs has ended it.
        progress=_stacked([np.array([0.0, *each.progress.min(axis=0)]) for each in applications]),
        **{name: _stacked([getattr(each, name) for each in applications]) for name in curves},
        num_placements=np.array([len(keys) for keys, _, _ in placed]),
        placement=_stacked([keys for keys, _, _ in placed]),
        first_step=_stacked([starts + first for (_, starts, _), first in zip(placed, firsts, strict=False)]),
        local_batch=np.concatenate(
            [each.placed.local_batch[order] for each, (_, _, order) in zip(applications, placed, strict=True)]
        ),
        measured_s=np.concatenate([_times(each.placed)[order] for each, (_, _, order) in zip(applications, placed, strict=True)]),
        first_tetrahedron=tetrahedra,
        corner=np.concatenate([net.simplices + first for (net, _), first in zip(nets, points, strict=False)]).astype(np.int64),
        neighbour=np.concatenate(
            [np.where(net.neighbors < 0, -1, net.neighbors + first) for (net, _), first in zip(nets, tetrahedra, strict=False)]
        ).astype(np.int64),
        transform=np.concatenate([net.transform for net, _ in nets]),
        point_s=np.concatenate([times for _, times in nets]),
    )


def _times(steps: MeasuredSteps) -> Floats:
    return np.stack([steps.step_s, steps.sync_s], axis=1)


def _by_placement(steps: MeasuredSteps) -> tuple[Whole, Whole, Whole]:
    """Return the placements, where the steps of each begin, and the order in which they do."""
    order = np.lexsort((steps.local_batch, steps.placement))
    keys, starts = np.unique(steps.placement[order], return_index=True)
    return keys, np.append(starts, len(order)), order


def _tetrahedra(application: ElasticApplication) -> tuple[Delaunay, Floats]:
    """Return Delaunay's tetrahedra between all measured steps, those on equal numbers of hosts and ranks averaged."""
    placed, scaled = application.placed, application.scaled
    at = np.stack([placed.num_hosts, placed.num_ranks, placed.local_batch], axis=1)
    unique, which = np.unique(at, axis=0, return_inverse=True)
    sums, counts = np.zeros((len(unique), 2)), np.bincount(which)
    np.add.at(sums, which, _times(placed))  # one by one in the order of the file, as the original
    points = np.concatenate([unique, np.stack([scaled.num_hosts, scaled.num_ranks, scaled.local_batch], axis=1)])
    try:
        return Delaunay(points.astype(np.float64)), np.concatenate([sums / counts[:, None], _times(scaled)])
    except QhullError:
        raise InputFileError("the measured steps span no volume", field="application", value=application.name) from None


def _stacked(parts: Sequence[NDArray[Any]]) -> Any:
    """Return arrays of different lengths one above another, filled up with zeros."""
    shape = np.max([part.shape for part in parts], axis=0)
    result = np.zeros((len(parts), *shape), parts[0].dtype)
    for row, part in zip(result, parts, strict=True):
        row[tuple(map(slice, part.shape))] = part
    return result
