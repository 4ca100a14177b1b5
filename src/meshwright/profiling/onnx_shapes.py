"""Shapes in an ONNX model that follow from numbers which the file computes: sizes of tensors, ranges, targets of reshapes.

Such nodes are computed, with onnx's own reference implementation, and their results put in their place, until no shape follows
any more. Nothing else is computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

MOST_NUMBERS = 100_000
"""Of a result that is computed; sizes and positions have fewer."""

_MOST_ROUNDS = 1_000


def folded(onnx: Any, model: Any) -> Any:
    """The model with every shape that follows.

    Args:
        onnx: the package.
        model: whose inputs have known shapes; changed.
    """
    declared = [type(one).FromString(one.SerializeToString()) for one in model.graph.value_info if _is_whole(one)]
    for _ in range(_MOST_ROUNDS):
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
        found = _computed(onnx, inferred.graph)
        if not found:
            return inferred
        del model.graph.value_info[:]
        model.graph.value_info.extend(declared)
        left = [node for node in model.graph.node if not any(name in found for name in node.output)]
        del model.graph.node[:]
        model.graph.node.extend(left)
        model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in found.items())
    return inferred


def _computed(onnx: Any, graph: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Results of nodes that depend on shapes and constants alone."""
    whole = [getattr(onnx.TensorProto, name) for name in ("INT64", "INT32", "BOOL")]
    known = {
        one.name: onnx.numpy_helper.to_array(one)
        for one in graph.initializer
        if (one.data_type in whole or not one.dims) and np.prod(one.dims, dtype=float) <= MOST_NUMBERS and not one.external_data
    }
    shapes = {
        one.name: [dim.dim_value for dim in one.type.tensor_type.shape.dim]
        for one in (*graph.input, *graph.value_info)
        if _is_whole(one)
    }
    shapes |= {one.name: list(one.dims) for one in graph.initializer}
    found: dict[str, np.ndarray[Any, Any]] = {}
    for node in graph.node:
        read = [name for name in node.input if name]
        if node.op_type == "Shape" and read[0] in shapes:
            ends = {one.name: one.i for one in node.attribute}
            value = np.array(shapes[read[0]][ends.get("start", 0) : ends.get("end")], np.int64)
            found[node.output[0]] = known[node.output[0]] = value
        elif all(name in known for name in read) and not node.op_type.startswith(("Random", "Loop", "If", "Scan")):
            results = _run(onnx, node, {name: known[name] for name in read})
            if all(value.size <= MOST_NUMBERS for value in results.values()):
                known |= results
                found |= results
    return found


def _is_whole(info: Any) -> bool:
    """Whether all dimensions of a tensor are numbers."""
    kind = info.type.tensor_type
    return bool(kind.HasField("shape")) and all(dim.HasField("dim_value") for dim in kind.shape.dim)


def _run(onnx: Any, node: Any, given: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Outputs of a node by name; none where the reference implementation cannot compute it, so that it stays a node."""
    try:
        values = onnx.reference.ReferenceEvaluator(node).run(None, given)
    except Exception:  # whatever an operator raises
        return {}
    return {name: np.asarray(value) for name, value in zip(node.output, values, strict=True) if name}
