"""``meshwright profile``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from .. import output
from ..help import takes_keys
from ..keys import own_keys
from ..options import JsonFile, KeyChanges, argument, file_option, option

if TYPE_CHECKING:
    from ...profiling.profile import ProfiledModel


HERE = "here"
"""Of ``--times``: each call is measured on this machine."""


@takes_keys(("ProfileKeys", ""))
def profile_model(
    model: Annotated[
        str,
        argument(
            "MODEL", "FILE.py:NAME or PACKAGE.MODULE:NAME of a factory, a config.json, an ONNX file or a Chakra trace (.et)."
        ),
    ],
    inputs: Annotated[
        list[str] | None, option("[NAME=]SHAPE[:TYPE]", "Of a factory's model, as x=8x3x224x224; in order.", "--input")
    ] = None,
    batch: Annotated[int | None, option("N", "Samples of a step of a config.json; 8 by default.")] = None,
    device: Annotated[str, option("TYPE", "Device type whose roofline times the ops.")] = "a100",
    times: Annotated[
        str | None, option("FILE|here", "Times of ops: a trace of PyTorch's profiler; here: measure each call now.")
    ] = None,
    changes: KeyChanges = None,
    out: Annotated[Path | None, file_option("Write the job graph, which is a job for --job.", "--out")] = None,
    json_file: JsonFile = None,
) -> None:
    """Trace a model without its weights: FLOPs, bytes and shapes of each op, and a job graph.

    The code of a factory runs. A config.json needs the extra [hf], ONNX the extra [onnx].

    Examples:
      meshwright profile model.py:make --input 8x3x224x224 --out model.json
      meshwright profile config.json --batch 16 --out model.json
    """
    from ...devices import device_type
    from ...profiling.profile import profile
    from ..key_models import ProfileKeys

    keys = own_keys(ProfileKeys, changes)
    result = profile(
        model,
        device_type(device),
        inputs=inputs or (),
        batch_size=batch,
        sequence_length=keys.sequence_length,
        dtype=keys.dtype,
        is_eager=keys.eager,
        measures=times == HERE,
        times=None if times in (None, HERE) else Path(times),
    )
    if out is not None:
        result.graph.save(out)
    output.write_json(json_file, result.to_data())
    _show(result, json_file)
    output.print_written(output.console(json_file), json_file, out)


def _show(model: ProfiledModel, json_file: str | None) -> None:
    """Print ops by kind, the dearest first, and the sums."""
    graph, console = model.graph, output.console(json_file)
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
    parameters = f"{model.traced.num_parameters:,} parameters" if model.traced.ops else f"{graph.num_ops} ops"
    title = f"{graph.name}: {parameters}{samples}{where}"
    output.table(console, title, columns, rows, numbers_from=1)
    output.print_remarks(console, list(model.remarks))
