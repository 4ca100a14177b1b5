"""TensorFlow: a line for each op with its device for ``tf.device``, and a loader of a few lines."""

from __future__ import annotations

from ...errors import ExportError
from ...plans.document import PlacementPlan
from ..options import ExportOptions
from ..requirements import hosts_of
from ..target import Files, Target, header
from .op_devices import placed_graph

LINES = "placement.tsv"
LOADER = "placement.py"

_NOT_GUARANTEED = (
    "Names: ops are named as the job graph names them; which of the model's ops carry these names is the model's affair.",
    "Placement: TensorFlow puts an op where tf.device says unless it has no kernel there; soft placement would then move it.",
    "Tasks: task H is the H-th host of the plan; the cluster that the program starts must number its hosts so.",
    "GPU numbering: GPU:L is the L-th device that the process sees; all of a host's must be visible, by PCI order.",
    "Order: TensorFlow runs an op when its inputs are there; the plan's order of the ops of a device is not kept.",
)


def render(plan: PlacementPlan, options: ExportOptions) -> Files:
    """Return the lines and the loader.

    Raises:
        ExportError: another kind of plan, replicas, or an op whose name holds a tab or a line end.
    """
    hosts_of(plan)  # refuses what is no host name
    result = placed_graph(plan)
    task = {host: number for number, host in enumerate(plan.host_order)}
    for number, group in enumerate(result.partition.groups):
        if group.replicas > 1:
            raise ExportError("an op has one device", field=f"partition.groups.{number}.replicas", value=group.replicas)
    lines = []
    for op, rank in zip(result.graph.op_names, result.rank_of, strict=True):
        if not op.isprintable() or op.startswith("#"):
            raise ExportError("a line of the file cannot hold this name", field="job.graph.op_names", value=op)
        lines.append(f"{op}\t/job:worker/task:{task[rank.host]}/device:GPU:{rank.local_rank}\n")
    head = header(options.job_name(plan), plan, "TensorFlow", _NOT_GUARANTEED)
    hosts = "".join(f"# task {number}: {host}\n" for host, number in task.items())
    return {LINES: f"{head}{hosts}{''.join(lines)}", LOADER: head + _LOADER}


_LOADER = '''"""Where each op goes: ``with tf.device(device_of()[name]): ...``"""

import pathlib


def device_of():
    """Op name to TensorFlow device."""
    lines = pathlib.Path(__file__).with_name("placement.tsv").read_text(encoding="utf-8").split("\\n")
    return dict(line.split("\\t") for line in lines if line and not line.startswith("#"))
'''

TARGET = Target(
    name="tensorflow",
    summary="a line for each op with its device as tf.device wants it, and a loader",
    guaranteed=("Each op of the job graph has one line, with the host's place in the plan's host order and the device.",),
    not_guaranteed=_NOT_GUARANTEED,
    render=render,
)
