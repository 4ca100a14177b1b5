"""A model profiled: traced or read, its element-wise ops joined, timed by a device's roofline, by measuring or by a trace.

Element-wise ops run inside the op whose output they read, as compilers and fused kernels have it. An op is element-wise if each
number of its output depends on the numbers at the same place alone. It joins the op before it where no other op reads that op's
output, so the graph stays free of cycles. The graphs of the zoo are made in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import files
from ..devices import DeviceType
from ..errors import TraceError
from ..jobs.graph import JobGraph
from .chakra_trace import SUFFIX as CHAKRA
from .chakra_trace import read_chakra
from .factories import load_factory
from .huggingface import load_model
from .inputs import DTYPES
from .kineto import is_trace, read_times
from .measure import measure
from .onnx_model import read_onnx
from .trace import Model, TracedModel, trace

ONNX = ".onnx"


@dataclass(frozen=True)
class ProfiledModel:
    """A job graph of a model.

    Attributes:
        graph: the job.
        traced: every call that the graph was made of.
        part_of: of each of them, the op of the graph that it is part of.
        remarks: how it was made, for people.
    """

    graph: JobGraph
    traced: TracedModel
    part_of: tuple[int, ...]
    remarks: tuple[str, ...]

    def to_data(self) -> dict[str, Any]:
        """Return the sums and every call, for JSON."""
        graph, ops = self.graph, self.traced.ops
        return {
            "name": graph.name,
            "samples_per_step": graph.samples_per_step,
            "device": graph.reference_device,
            "num_parameters": self.traced.num_parameters,
            "parameter_bytes": self.traced.parameter_bytes,
            "forward_flops": float(graph.forward_flops.sum()),
            "backward_flops": float(graph.backward_flops.sum()),
            "step_s": graph.step_s,
            "remarks": list(self.remarks),
            "calls": [
                {
                    "name": op.name,
                    "op": graph.op_names[part],
                    "inputs": [ops[number].name for number in op.inputs],
                    "input_shapes": [list(shape) for shape in op.input_shapes],
                    "output_shapes": [list(shape) for shape in op.output_shapes],
                    "forward_flops": op.cost.forward_flops,
                    "backward_flops": op.cost.backward_flops,
                    "output_bytes": op.output_bytes,
                    "parameter_bytes": op.parameter_bytes,
                    "workspace_bytes": op.cost.workspace_bytes,
                }
                for op, part in zip(ops, self.part_of, strict=True)
            ],
        }


def profile(
    spec: str,
    device: DeviceType,
    *,
    inputs: Sequence[str] = (),
    batch_size: int | None = None,
    sequence_length: int | None = None,
    dtype: str = "bf16",
    is_eager: bool = False,
    measures: bool = False,
    times: str | Path | None = None,
) -> ProfiledModel:
    """Return the job graph of a model.

    Args:
        spec: ``FILE.py:NAME`` or ``PACKAGE.MODULE:NAME`` (`factories.load_factory`), a Hugging Face ``config.json`` or its
            folder (`huggingface.load_model`), a file of ONNX (`onnx_model.read_onnx`), or a rank's Chakra trace
            (`chakra_trace.read_chakra`).
        device: whose roofline times the ops.
        inputs: of a factory's model or of ONNX, see `inputs.parse_inputs`.
        batch_size, sequence_length: of a Hugging Face model; the first one of ONNX too.
        dtype: of weights: bf16, fp16 or fp32.
        is_eager: keep each call an op of its own, as PyTorch runs them without a compiler.
        measures: whether calls are timed here, see `measure.measure`, in place of the roofline.
        times: a trace of PyTorch's profiler, whose times are taken, see `kineto.read_times`.

    Raises:
        TraceError: the model cannot be made, traced or measured, or an option is for another kind of model.
        InputFileError: a file is missing, or the trace is not of this model.
    """
    if dtype not in DTYPES:
        raise TraceError("no such type", field="--set dtype", value=dtype, choices=DTYPES)
    for option, value in (("--batch", batch_size), ("--set sequence_length", sequence_length)):
        if value is not None and value < 1:
            raise TraceError("must be at least 1", field=option, value=value)
    if measures and times is not None:
        raise TraceError("does not go with measured times", field="--times", value=str(times))
    path = Path(spec)
    is_read = path.suffix in (ONNX, CHAKRA)
    for option, is_said in (("--times here", measures), ("--times", times is not None)):
        if is_read and is_said:
            raise TraceError(f"goes with a model that PyTorch traces, not with {path.suffix}", field=option)
    if path.suffix == CHAKRA:
        said = {"--input": bool(inputs), "--batch": batch_size is not None, "--set sequence_length": sequence_length is not None}
        for name in (name for name, is_said in said.items() if is_said):
            raise TraceError("goes with a model; a trace says what ran", field=name)
        graph = read_chakra(path)
        remarks: tuple[str, ...] = ("times are those of the trace; parameters are those whose gradients it sums",)
        return ProfiledModel(graph, TracedModel(graph, (), 0, float(graph.parameter_bytes.sum()), remarks), (), remarks)
    if path.suffix == ONNX:
        if sequence_length is not None:
            raise TraceError("goes with a config.json; the inputs of ONNX say it (--input)", field="--set sequence_length")
        traced = read_onnx(path, inputs=inputs, batch_size=batch_size)
    else:
        traced = trace(_model(path, spec, inputs, batch_size, sequence_length, dtype))
    return _timed(traced, device, is_eager, measures, times)


def _model(
    path: Path, spec: str, inputs: Sequence[str], batch_size: int | None, sequence_length: int | None, dtype: str
) -> Model:
    if path.is_dir() or path.suffix == ".json":
        if path.is_file() and is_trace(files.read_json(path)):
            problem = "is a trace of PyTorch's profiler; name the model, and the trace as --times"
            raise TraceError(problem, file=path, field="MODEL")
        if inputs:
            raise TraceError("goes with a factory; a config.json says its inputs", field="--input")
        return load_model(path, batch_size=batch_size, sequence_length=sequence_length, dtype=dtype)
    for option, value in (("--batch", batch_size), ("--set sequence_length", sequence_length)):
        if value is not None:
            raise TraceError("goes with a config.json; the inputs of a factory say it (--input)", field=option)
    return load_factory(spec, inputs=inputs, dtype=dtype)


def _timed(traced: TracedModel, device: DeviceType, is_eager: bool, measures: bool, times: str | Path | None) -> ProfiledModel:
    """Return the graph with its times, element-wise ops joined unless that is not wanted."""
    result = measure(traced.ops) if measures else None if times is None else read_times(times, traced.ops)
    graph, parts, remarks = traced.graph, tuple(range(traced.graph.num_ops)), traced.remarks
    if result is not None:
        graph = replace(
            graph, forward_s=result.forward_s, backward_s=result.backward_s, reference_device=result.device, source="measured"
        )
        remarks = (*remarks, *result.remarks)
    if not is_eager:
        graph, numbers = fused(graph, [op.cost.is_pointwise for op in traced.ops])
        parts = tuple(numbers.tolist())
        joined = traced.graph.num_ops - graph.num_ops
        remarks = (*remarks, f"joined: {joined} element-wise calls with the op before them (--set eager=true keeps them apart)")
    if result is not None:
        return ProfiledModel(graph, traced, parts, remarks)
    if not graph.has_flops:
        remarks = (*remarks, "no op multiplies matrices, so that the roofline cannot time the graph")
        return ProfiledModel(graph, traced, parts, remarks)
    return ProfiledModel(graph.timed_on(device), traced, parts, remarks)


def fused(graph: JobGraph, is_pointwise: Sequence[bool]) -> tuple[JobGraph, NDArray[np.int64]]:
    """Return the graph with element-wise ops joined to the ones before them.

    Args:
        graph: with ops in topological order.
        is_pointwise: of each op, ``(n,)``.

    Returns:
        The graph, and for each op the number of the op that contains it, ``(n,)``. FLOPs, seconds and parameters of joined ops
        are summed. The workspace is the largest, the output is that of the last, name and kind are those of the first.
    """
    part_of = np.arange(graph.num_ops)
    last = np.arange(graph.num_ops)
    readers: list[set[int]] = [set() for _ in range(graph.num_ops)]
    sources: list[list[int]] = [[] for _ in range(graph.num_ops)]
    for source, target in graph.edges.tolist():
        readers[source].add(target)
        sources[target].append(source)
    for op in range(graph.num_ops):
        if not is_pointwise[op]:
            continue
        for source in reversed(sources[op]):  # the op nearest before it
            if len(readers[source]) == 1 and last[part_of[source]] == source:
                part_of[op] = part_of[source]
                last[part_of[op]] = op
                break
    parts = np.unique(part_of)
    parts = parts[np.argsort(last[parts])]  # what reads an output ends after it, so the graph stays in topological order
    number = np.full(graph.num_ops, -1)
    number[parts] = np.arange(len(parts))
    part_of = number[part_of]
    edges = part_of[graph.edges]
    edges = np.unique(edges[edges[:, 0] != edges[:, 1]], axis=0)
    workspace = np.zeros(len(parts))
    np.maximum.at(workspace, part_of, graph.workspace_bytes)

    def summed(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(part_of, values, len(parts)).astype(np.float64)

    made = replace(
        graph,
        op_names=tuple(graph.op_names[op] for op in parts.tolist()),
        op_kinds=tuple(graph.op_kinds[op] for op in parts.tolist()),
        activation_bytes=graph.activation_bytes[last[parts]],
        workspace_bytes=workspace,
        edges=edges,
        forward_s=summed(graph.forward_s),
        backward_s=summed(graph.backward_s),
        forward_flops=summed(graph.forward_flops),
        backward_flops=summed(graph.backward_flops),
        parameter_bytes=summed(graph.parameter_bytes),
    )
    return made, part_of
