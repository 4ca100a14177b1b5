"""The latency of dnn-partitioning: an accelerator takes its inputs, runs all its ops at once and hands its outputs over.

An accelerator begins when the last of its inputs is ready, wherever that was made. It receives every tensor from outside, runs,
and sends every tensor that is read outside, one after another through its port. Ops on hosts run as soon as their inputs are
ready, any number at a time, and pay for no tensor. For its published figures only (Tarnawski et al. 2020, appendix on latency,
and the valuation of its repository).

Legend of shapes: ``n`` ops, ``e`` edges, ``k`` tensors. A *box* runs at once: an accelerator, or a piece of its set.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...errors import PlanError
from .instance import OperatorInstance
from .placement import port_s

BoxArrays = tuple[NDArray[Any], ...]


def contiguous_latency_s(instance: OperatorInstance, device_of: NDArray[np.int64], *, in_pieces: bool = False) -> float:
    """Return the seconds of one step.

    Args:
        instance: what is placed.
        device_of: device of each op, ``(n,)``; memory is the caller's matter.
        in_pieces: cut a set that is not contiguous into pieces that run one after another, as its authors do for splits of
            another objective.

    Returns:
        Infinite where an accelerator would wait for itself.
    """
    box_of = np.where(instance.is_host[device_of], -1, device_of)
    if in_pieces:
        box_of = pieces(instance, box_of)
    boxes = box_arrays(instance)
    times_s = instance.times_s[np.arange(instance.num_ops), device_of]
    return float(boxes_latency_s(boxes, times_s, box_of, int(box_of.max()) + 1))


def contiguous_value_s(instance: OperatorInstance, device_of: NDArray[np.int64]) -> tuple[float, bool]:
    """Return the seconds of one step, in pieces where an accelerator would wait for itself, and whether it is in pieces.

    Raises:
        PlanError: accelerators wait for each other, in pieces too.
    """
    for in_pieces in (False, True):
        found_s = contiguous_latency_s(instance, device_of, in_pieces=in_pieces)
        if np.isfinite(found_s):
            return found_s, in_pieces
    raise PlanError("accelerators wait for each other, in pieces too", field="device_of")


def box_arrays(instance: OperatorInstance) -> BoxArrays:
    """Return the input of `boxes_latency_s`: outgoing edges by op with reader and tensor, incoming ones likewise, seconds of
    tensors.
    """
    first_out, out = instance.outgoing
    first_in, into = instance.incoming
    accelerators = np.flatnonzero(~instance.is_host)
    # Accelerators are equal in the published instances; a tensor takes as long as at the slowest port.
    ports = port_s(instance, instance.tensor_bytes)
    tensor_s = ports[:, accelerators].max(axis=1) if accelerators.size else np.zeros(len(instance.tensor_bytes))
    return (
        first_out,
        np.ascontiguousarray(instance.edges[out, 1]),
        np.ascontiguousarray(instance.edge_tensor[out]),
        first_in,
        np.ascontiguousarray(instance.edges[into, 0]),
        np.ascontiguousarray(instance.edge_tensor[into]),
        tensor_s,
    )


def pieces(instance: OperatorInstance, box_of: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return boxes cut where a way leaves them and comes back: ops by how often the ways to them came from outside, ``(n,)``."""
    made = np.full(instance.num_ops, -1, np.int64)
    count = 0
    first, edge = instance.incoming
    for box in np.unique(box_of[box_of >= 0]):
        entered = np.zeros(instance.num_ops, np.int64)
        for op in instance.topological:
            producers = instance.edges[edge[first[op] : first[op + 1]], 0]
            inside = box_of[op] == box
            entered[op] = int(inside)
            for producer in producers:
                entered[op] = max(entered[op], entered[producer] + int(inside and box_of[producer] != box))
        members = box_of == box
        made[members] = count + entered[members] - 1
        count += int(entered[members].max())
    return made


@njit
def boxes_latency_s(inputs, times_s, box_of, num_boxes):  # type: ignore[no-untyped-def]
    """Return the seconds of one step; infinite where boxes wait for each other in a circle.

    Args:
        inputs: `box_arrays`.
        times_s: seconds of each op where it is, ``(n,)``.
        box_of: box of each op, -1 for an op of a host, ``(n,)``.
        num_boxes: one more than the largest.
    """
    first_out, reader, out_tensor, first_in, producer, in_tensor, tensor_s = inputs
    n = len(box_of)
    # Ops of hosts are boxes of their own, numbered behind the others.
    first, count = np.zeros(num_boxes + n + 1, np.int64), np.zeros(num_boxes + n, np.int64)
    box = np.empty(n, np.int64)
    for op in range(n):
        box[op] = box_of[op] if box_of[op] >= 0 else num_boxes + op
        first[box[op] + 1] += 1
    for one in range(num_boxes + n):
        first[one + 1] += first[one]
    member = np.empty(n, np.int64)
    for op in range(n):
        member[first[box[op]] + count[box[op]]] = op
        count[box[op]] += 1
    waits, ready_s = np.zeros(num_boxes + n, np.int64), np.zeros(num_boxes + n)
    for op in range(n):
        for at in range(first_in[op], first_in[op + 1]):
            waits[box[op]] += box[producer[at]] != box[op]
    queue, tail = np.empty(num_boxes + n, np.int64), 0
    for one in range(num_boxes + n):
        if count[one] > 0 and waits[one] == 0:
            queue[tail] = one
            tail += 1
    seen, sent = np.full(len(tensor_s), -1, np.int64), np.full(len(tensor_s), False)
    last_s, head, done = 0.0, 0, 0
    while head < tail:
        one = queue[head]
        head += 1
        end_s = ready_s[one]
        for place in range(first[one], first[one + 1]):
            op = member[place]
            done += 1
            end_s += times_s[op]
            if one >= num_boxes:
                continue
            for at in range(first_in[op], first_in[op + 1]):
                if box[producer[at]] != one and seen[in_tensor[at]] != one:
                    seen[in_tensor[at]] = one
                    end_s += tensor_s[in_tensor[at]]
            for at in range(first_out[op], first_out[op + 1]):
                if box[reader[at]] != one and not sent[out_tensor[at]]:
                    sent[out_tensor[at]] = True
                    end_s += tensor_s[out_tensor[at]]
        last_s = max(last_s, end_s)
        for place in range(first[one], first[one + 1]):
            op = member[place]
            for at in range(first_out[op], first_out[op + 1]):
                reader_box = box[reader[at]]
                if reader_box != one:
                    ready_s[reader_box] = max(ready_s[reader_box], end_s)
                    waits[reader_box] -= 1
                    if waits[reader_box] == 0:
                        queue[tail] = reader_box
                        tail += 1
    return last_s if done == n else np.inf
