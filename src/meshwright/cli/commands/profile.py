"""``meshwright profile``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .. import output
from ..options import JsonFile, SequenceLength

if TYPE_CHECKING:
    from ...profiling.profile import ProfiledModel


def profile_model(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="FILE.py:NAME or PACKAGE.MODULE:NAME that makes a module, a config.json, an ONNX file, a Chakra trace (.et).",
        ),
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="[NAME=]SHAPE[:TYPE]", help="Of a factory's model, as x=8x3x224x224; in order."),
    ] = None,
    batch: Annotated[int | None, typer.Option(metavar="N", help="Samples of a step of a config.json; 8 by default.")] = None,
    sequence_length: SequenceLength = None,
    dtype: Annotated[str, typer.Option(metavar="TYPE", help="Of weights: bf16, fp16 or fp32.")] = "bf16",
    device: Annotated[str, typer.Option(metavar="TYPE", help="Device type whose roofline times the ops.")] = "a100",
    measures: Annotated[bool, typer.Option("--measure", help="Time each call here, on a GPU where there is one.")] = False,
    times: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A trace of PyTorch's profiler of the model's steps, whose times are taken."),
    ] = None,
    eager: Annotated[bool, typer.Option("--eager", help="Keep element-wise calls as ops of their own.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the job graph, which is a job for --job.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Trace a model of PyTorch or Hugging Face without its weights: FLOPs, bytes and shapes of each op, and a job graph.

    The code of a factory runs. A config.json needs the extra [hf], ONNX the extra [onnx].
    """
    output.check_file("--out", out)
    output.check_file("--json", json_file)
    from ...devices import device_type
    from ...profiling.profile import profile

    found = profile(
        model,
        device_type(device),
        inputs=inputs or (),
        batch_size=batch,
        sequence_length=sequence_length,
        dtype=dtype,
        is_eager=eager,
        measures=measures,
        times=times,
    )
    if out is not None:
        found.graph.save(out)
    output.write_json(json_file, found.to_data())
    _show(found, json_file)
    output.print_written(output.console(json_file), json_file, out)


def _show(found: ProfiledModel, json_file: str | None) -> None:
    """Ops by kind, the dearest first, and the sums."""
    graph, console = found.graph, output.console(json_file)
    by_kind: dict[str, list[int]] = {}
    for op, kind in enumerate(graph.op_kinds):
        by_kind.setdefault(kind, []).append(op)
    step_s = graph.forward_s + graph.backward_s
    order = sorted(by_kind, key=lambda kind: (-float(step_s[by_kind[kind]].sum()), kind))
    groups = [(kind, by_kind[kind]) for kind in order] + [("all", list(range(graph.num_ops)))]
    rows = [
        [
            kind,
            str(len(ops)),
            f"{graph.forward_flops[ops].sum() / 1e9:,.3f}",
            f"{graph.backward_flops[ops].sum() / 1e9:,.3f}",
            f"{graph.parameter_bytes[ops].sum() / 1e6:,.3f}",
            f"{graph.activation_bytes[ops].sum() / 1e6:,.3f}",
            f"{1e3 * step_s[ops].sum():,.3f}",
        ]
        for kind, ops in groups
    ]
    columns = ["kind", "ops", "forward GFLOP", "backward GFLOP", "parameter MB", "output MB", "step ms"]
    samples = "" if graph.samples_per_step is None else f", {graph.samples_per_step} samples a step"
    where = f", on {graph.reference_device}" if graph.reference_device else ""
    parameters = f"{found.traced.num_parameters:,} parameters" if found.traced.ops else f"{graph.num_ops} ops"
    title = f"{graph.name}: {parameters}{samples}{where}"
    output.table(console, title, columns, rows, numbers_from=1)
    output.print_remarks(console, list(found.remarks))
