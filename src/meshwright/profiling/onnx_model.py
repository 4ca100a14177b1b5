"""Models as ONNX files: their nodes as the ops of a job graph. No weights are loaded and nothing runs.

A node that copies nothing in a training framework (a reshape, a transposed view, a slice) is no op. Nor is one that no
parameter reaches (shapes, positions, masks). Floating-point operations are those of products and convolutions, two per
multiply-add. ONNX describes the forward pass. A product's backward pass counts its operations once for each operand that needs
a gradient.

Shapes may follow from numbers that the file computes: sizes of tensors, ranges, targets of reshapes. Such nodes are computed
with onnx's own reference implementation and replaced by their results, until no further shape follows. Nothing else is
computed.

Source:
    onnx/onnx, docs/Operators.md: operands and attributes of the operators named below.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .. import files
from ..errors import TraceError
from .inputs import parse_inputs
from .op_costs import OpCost
from .recorder import RecordedOp, graph_of
from .trace import TracedModel, first_line

VIEWS = (
    *("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Split", "Slice", "Expand", "Dropout"),
    *("CastLike", "SequenceAt", "SplitToSequence"),
)
"""Nodes whose output PyTorch makes without a copy, or not at all while it is exported."""

POINTWISE = (
    *("Add", "Sub", "Mul", "Div", "Neg", "Abs", "Pow", "Sqrt", "Exp", "Log", "Reciprocal", "Where", "Cast", "Clip", "Min", "Max"),
    *("Relu", "LeakyRelu", "Elu", "Selu", "Celu", "PRelu", "Gelu", "Erf", "Tanh", "Sigmoid", "HardSigmoid", "HardSwish", "Mish"),
    *("Softplus", "Softsign", "Swish", "Not", "Sin", "Cos"),
)
"""Nodes that make each number of their output of the numbers at the same place."""

_MOST_NODES = 1_000_000
MOST_NUMBERS = 100_000
"""Of a result that is computed; sizes and positions have fewer."""
_MOST_ROUNDS = 1_000


@dataclass(frozen=True)
class _Tensor:
    shape: tuple[int, ...]
    width: int
    is_float: bool

    @property
    def num_bytes(self) -> float:
        return float(math.prod(self.shape) * self.width)


@dataclass
class _Reader:
    """State of the reader of nodes.

    Attributes:
        tensors: by name.
        unread: bytes of parameters that no op has read, by name.
        producer: op that made a tensor, or the tensor that it views.
        wants: tensors that want a gradient.
        same: of views, and of parameters under other names, the tensor that they are.
    """

    tensors: dict[str, _Tensor]
    unread: dict[str, float]
    producer: dict[str, int] = field(default_factory=dict)
    wants: set[str] = field(default_factory=set)
    same: dict[str, str] = field(default_factory=dict)
    ops: list[RecordedOp] = field(default_factory=list)
    names: Counter[str] = field(default_factory=Counter)
    num_left_out: int = 0

    def node(self, node: Any) -> None:
        read = [self.same.get(name, name) for name in node.input if name]
        outputs = [name for name in node.output if name]
        if node.op_type in VIEWS and read:
            for name in outputs:
                self.same[name] = read[0]
            return
        reached = [name for name in read if name in self.wants]
        if not reached:
            self.num_left_out += bool(outputs) and node.op_type not in ("Constant", "Shape")
            return
        read, outputs = [one for one in node.input if one], [output for output in outputs if output in self.tensors]
        self._op(node, read, outputs)
        for name in outputs:
            self.producer[name] = len(self.ops) - 1
            self.wants.add(name)

    def _op(self, node: Any, read: list[str], outputs: list[str]) -> None:
        real = [self.same.get(name, name) for name in read]
        flops = _flops(node, [self.tensors.get(name) for name in read], [self.tensors.get(name) for name in node.output])
        wanting = sum(name in self.wants for name in real[:2])
        path = node.name.strip("/").replace("/", ".") or node.op_type
        self.names[path] += 1
        number = self.names[path]
        cost = OpCost(flops, flops * wanting, 0.0, True, node.op_type in POINTWISE)
        self.ops.append(
            RecordedOp(
                path if number == 1 else f"{path}:{number}",
                node.op_type,
                _not_run,
                (),
                {},
                tuple(dict.fromkeys(self.producer[name] for name in real if name in self.producer)),
                cost,
                sum(self.tensors[name].num_bytes for name in outputs),
                sum(self.unread.pop(name, 0.0) for name in dict.fromkeys(real)),
                tuple(self.tensors[name].shape for name in read if name in self.tensors),
                tuple(self.tensors[name].shape for name in outputs),
            )
        )


def read_onnx(path: Path, *, inputs: Sequence[str] = (), batch_size: int | None = None) -> TracedModel:
    """Return the ops of an ONNX file.

    Args:
        path: the file.
        inputs: shapes of inputs that the file leaves open, each ``NAME=SHAPE``.
        batch_size: in place of a first dimension that the file leaves open.

    Raises:
        InputFileError: the file is missing.
        TraceError: the onnx package is not installed, the file is none, or a shape is not known.
    """
    content = files.read_bytes(path)
    try:
        import onnx
        import onnx.inliner
        import onnx.reference
    except ImportError:
        raise TraceError(
            "the onnx package reads it, which the extra [onnx] installs: pip install '.[onnx]' in the checkout", file=path
        ) from None
    try:
        model = onnx.load_model_from_string(content)
        model = onnx.inliner.inline_local_functions(model) if model.functions else model
        _fix_inputs(model.graph, inputs, batch_size, path)
        graph = folded(onnx, model).graph
        tensors = _tensors(onnx, graph)
    except TraceError:
        raise
    except Exception as error:  # of a file that the package cannot read
        raise TraceError(f"is no ONNX model that the onnx package reads: {first_line(error)}", file=path) from None
    if len(graph.node) > _MOST_NODES:
        raise TraceError(f"has more than {_MOST_NODES} nodes", file=path, value=len(graph.node))
    parameters = {one.name: tensors[one.name].num_bytes for one in graph.initializer if _is_parameter(tensors[one.name])}
    reader = _Reader(tensors, dict(parameters))
    reader.wants.update(parameters)
    for node in graph.node:
        if any(isinstance(text, bytes) for text in (node.name, node.op_type, *node.input, *node.output)):
            raise TraceError("a node has a name that is no text", file=path)  # protobuf hands on what is no UTF-8 as bytes
        unknown = [name for name in node.output if name and name not in tensors]
        reached = any(reader.same.get(name, name) in reader.wants for name in node.input)
        if unknown and reached and node.op_type not in VIEWS:
            problem = "its shape does not follow from the file; say those of the inputs, as --input ids=8x1024"
            raise TraceError(problem, file=path, field=unknown[0], value=node.op_type)
        if any(attribute.HasField("g") for attribute in node.attribute):
            raise TraceError("branches and loops depend on numbers, which are not there", file=path, value=node.op_type)
        reader.node(node)
    remarks = [f"read from ONNX, opset {max((one.version for one in model.opset_import if not one.domain), default=0)}"]
    if reader.num_left_out:
        remarks.append(f"left out: {reader.num_left_out} nodes that only prepare data (positions, masks)")
    remarks.append("backward passes are not in ONNX: counted as a product for each operand that wants a gradient")
    first = next((tensors[one.name].shape for one in graph.input if one.name not in parameters and one.name in tensors), ())
    widths = {name: tensors[name].width for name in parameters}
    return TracedModel(
        graph_of(reader.ops, path.stem, first[0] if first else None, max(widths.values(), default=4)),
        tuple(reader.ops),
        int(sum(size / widths[name] for name, size in parameters.items())),
        sum(parameters.values()),
        tuple(remarks),
    )


def _fix_inputs(graph: Any, inputs: Sequence[str], batch_size: int | None, path: Path) -> None:
    """Write the shapes that are said into the file's inputs."""
    import torch

    weights = {one.name for one in graph.initializer}
    open_ = {one.name: one for one in graph.input if one.name not in weights}
    called: dict[str, int] = {}
    args, kwargs = parse_inputs(inputs, torch.float32)
    if args:
        raise TraceError("an ONNX model's inputs have names: NAME=SHAPE", file=path, field="--input", choices=open_)
    for name, tensor in kwargs.items():
        if name not in open_:
            raise TraceError("the model has no such input", file=path, field="--input", value=name, choices=open_)
        dims = open_[name].type.tensor_type.shape.dim
        fixed = [one.dim_value for one in dims]
        if len(fixed) != tensor.ndim or any(one and one != said for one, said in zip(fixed, tensor.shape, strict=True)):
            request = "x".join(map(str, tensor.shape))
            raise TraceError(f"the model's {name} is {_written(dims)}", file=path, field="--input", value=request)
        for dim, said in zip(dims, tensor.shape, strict=True):
            called.setdefault(dim.dim_param, said)
            dim.dim_value = said
    for one in open_.values():
        dims = one.type.tensor_type.shape.dim
        if dims and not dims[0].dim_value and batch_size is not None:
            called.setdefault(dims[0].dim_param, batch_size)
            dims[0].dim_value = batch_size
        unknown = [at for at, dim in enumerate(dims) if not dim.dim_value]
        if unknown:
            hint = (
                f"is {_written(dims)}: say its shape, as --input {one.name}={'x'.join(str(dim.dim_value or 8) for dim in dims)}"
            )
            raise TraceError(hint + (", or --batch" if unknown == [0] else ""), file=path, field=one.name)
    for dim in (dim for one in (*graph.value_info, *graph.output) for dim in one.type.tensor_type.shape.dim):
        if dim.dim_param and dim.dim_param in called:  # as of nodes of which no shape can be inferred
            dim.dim_value = called[dim.dim_param]


def _written(dims: Any) -> str:
    """Return a shape as it is written, with the names of dimensions that are open."""
    return "x".join(str(dim.dim_value) if dim.dim_value else dim.dim_param or "?" for dim in dims)


def _tensors(onnx: Any, graph: Any) -> dict[str, _Tensor]:
    tensors: dict[str, _Tensor] = {}
    for one in (*graph.value_info, *graph.input, *graph.output):
        kind = one.type.tensor_type
        shape = [dim.dim_value for dim in kind.shape.dim]
        if kind.HasField("shape") and all(dim.HasField("dim_value") for dim in kind.shape.dim):
            tensors[one.name] = _tensor(onnx, tuple(shape), kind.elem_type)
    tensors |= {one.name: _tensor(onnx, tuple(one.dims), one.data_type) for one in graph.initializer}
    return tensors


def _tensor(onnx: Any, shape: tuple[int, ...], elem_type: int) -> _Tensor:
    kind = onnx.helper.tensor_dtype_to_np_dtype(elem_type) if elem_type else None
    name = onnx.TensorProto.DataType.Name(elem_type)
    return _Tensor(shape, 4 if kind is None else max(1, kind.itemsize), "FLOAT" in name or name == "DOUBLE")


def _is_parameter(tensor: _Tensor) -> bool:
    """Return whether it is a tensor: a number alone is a constant of the code."""
    return tensor.is_float and math.prod(tensor.shape) > 1


def _flops(node: Any, read: list[_Tensor | None], made: list[_Tensor | None]) -> float:
    """Return two for each multiply-add."""
    if len(read) < 2 or read[0] is None or read[1] is None or not made or made[0] is None:
        return 0.0
    left, right, out = read[0].shape, read[1].shape, math.prod(made[0].shape)
    attributes = {one.name: one for one in node.attribute}
    if node.op_type in ("MatMul", "FusedMatMul"):
        return 2.0 * out * left[-1]
    if node.op_type == "Gemm":
        flipped = "transA" in attributes and attributes["transA"].i
        return 2.0 * out * left[0 if flipped else -1]
    if node.op_type == "Conv":
        return 2.0 * out * math.prod(right[1:])
    if node.op_type == "ConvTranspose":
        return 2.0 * math.prod(left) * math.prod(right[1:])
    if node.op_type in ("LSTM", "GRU", "RNN") and len(read) > 2 and read[2] is not None:
        return 2.0 * left[0] * left[1] * (math.prod(right) + math.prod(read[2].shape))
    if node.op_type == "Einsum" and "equation" in attributes:
        terms = attributes["equation"].s.decode().replace(" ", "").split("->")[0].split(",")
        letters = "".join(terms[:2])
        return 2.0 * math.prod(dict(zip(letters, (*left, *right), strict=False)).values())
    return 0.0


def _not_run(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError("a node of ONNX is read, not run")


def folded(onnx: Any, model: Any) -> Any:
    """Return the model with every shape that follows.

    Args:
        onnx: the package.
        model: whose inputs have known shapes; changed.
    """
    declared = [type(one).FromString(one.SerializeToString()) for one in model.graph.value_info if _is_whole(one)]
    for _ in range(_MOST_ROUNDS):
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
        result = _computed(onnx, inferred.graph)
        if not result:
            return inferred
        del model.graph.value_info[:]
        model.graph.value_info.extend(declared)
        left = [node for node in model.graph.node if not any(name in result for name in node.output)]
        del model.graph.node[:]
        model.graph.node.extend(left)
        model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in result.items())
    return inferred


def _computed(onnx: Any, graph: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Return the results of nodes that depend on shapes and constants alone."""
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
    result: dict[str, np.ndarray[Any, Any]] = {}
    for node in graph.node:
        read = [name for name in node.input if name]
        if node.op_type == "Shape" and read[0] in shapes:
            ends = {one.name: one.i for one in node.attribute}
            value = np.array(shapes[read[0]][ends.get("start", 0) : ends.get("end")], np.int64)
            result[node.output[0]] = known[node.output[0]] = value
        elif all(name in known for name in read) and not node.op_type.startswith(("Random", "Loop", "If", "Scan")):
            results = _run(onnx, node, {name: known[name] for name in read})
            if all(value.size <= MOST_NUMBERS for value in results.values()):
                known |= results
                result |= results
    return result


def _is_whole(info: Any) -> bool:
    """Return whether all dimensions of a tensor are numbers."""
    kind = info.type.tensor_type
    return bool(kind.HasField("shape")) and all(dim.HasField("dim_value") for dim in kind.shape.dim)


def _run(onnx: Any, node: Any, inputs: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Return a node's outputs by name; none where the reference implementation cannot compute it, so it stays a node."""
    try:
        values = onnx.reference.ReferenceEvaluator(node).run(None, inputs)
    except Exception:  # whatever an operator raises
        return {}
    return {name: np.asarray(value) for name, value in zip(node.output, values, strict=True) if name}
