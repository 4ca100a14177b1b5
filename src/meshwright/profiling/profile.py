"""A model profiled: traced, its element-wise ops joined, timed by a device's roofline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..devices import DeviceType
from ..errors import TraceError
from ..jobs.graph import JobGraph
from .factories import load_factory
from .fusion import fused
from .huggingface import load_model
from .inputs import DTYPES
from .trace import TracedModel, trace


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
        """Sums and every call, for JSON."""
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
) -> ProfiledModel:
    """The job graph of a model in PyTorch.

    Args:
        spec: ``FILE.py:NAME`` or ``PACKAGE.MODULE:NAME`` (see `factories.load_factory`), or a Hugging Face ``config.json`` or its
            folder (see `huggingface.load_model`).
        device: whose roofline times the ops.
        inputs: of a factory's model, see `inputs.parse_inputs`.
        batch_size, sequence_length: of a Hugging Face model.
        dtype: of weights: bf16, fp16 or fp32.
        is_eager: keep each call an op of its own, as PyTorch runs them without a compiler.

    Raises:
        TraceError: the model cannot be made or traced, or an option is for another kind of model.
        InputFileError: its file is missing.
    """
    if dtype not in DTYPES:
        raise TraceError("no such type", field="--dtype", value=dtype, choices=DTYPES)
    for option, value in (("--batch", batch_size), ("--sequence-length", sequence_length)):
        if value is not None and value < 1:
            raise TraceError("must be at least 1", field=option, value=value)
    path = Path(spec)
    if path.is_dir() or path.suffix == ".json":
        if inputs:
            raise TraceError("goes with a factory; a config.json says its inputs", field="--input")
        model = load_model(path, batch_size=batch_size, sequence_length=sequence_length, dtype=dtype)
    else:
        for option, value in (("--batch", batch_size), ("--sequence-length", sequence_length)):
            if value is not None:
                raise TraceError("goes with a config.json; the inputs of a factory say it (--input)", field=option)
        model = load_factory(spec, inputs=inputs, dtype=dtype)
    traced = trace(model)
    graph, parts, remarks = traced.graph, tuple(range(traced.graph.num_ops)), traced.remarks
    if not is_eager:
        graph, numbers = fused(graph, [op.cost.is_pointwise for op in traced.ops])
        parts = tuple(numbers.tolist())
        joined = traced.graph.num_ops - graph.num_ops
        remarks = (*remarks, f"joined: {joined} element-wise calls with the op before them (--eager keeps them apart)")
    if not graph.has_flops:
        remarks = (*remarks, "no op multiplies matrices, so that the roofline cannot time the graph")
        return ProfiledModel(graph, traced, parts, remarks)
    return ProfiledModel(graph.timed_on(device), traced, parts, remarks)
