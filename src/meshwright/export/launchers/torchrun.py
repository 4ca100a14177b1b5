"""torchrun: one command for each host with static rendezvous, a script that starts them all, and the plan's mesh.

Rendezvous by c10d sorts host names and ignores ``--node-rank``; only the static one keeps our order. torchrun then
numbers ranks host by host. For plans with coordinates ``mesh.py`` builds the planned ``DeviceMesh``.
"""

from __future__ import annotations

from ...costs.pipelines.tasks import FORWARD
from ...plans.document import PlacementPlan
from ...plans.frameworks.defaults import EAGER
from ...plans.partition import Layout
from ..frameworks import device_mesh, meshed_stages
from ..operators import pipeline
from ..options import ExportOptions
from ..requirements import check_contiguous, comma_separated, hosts_of
from ..target import Files, Target, header, joined
from . import remote_shell

COMMANDS = "commands.txt"
SCHEDULE = "schedule.csv"
"""A row for each rank of a pipeline, a cell for each pass: stage, ``F`` or ``B``, micro-batch, as ``0F3``. PyTorch's runtime
adds the sends and receives. It reads no comments in schedules other than its own, so the file has none."""

_NOT_GUARANTEED = (
    remote_shell.RESTARTS,
    "Allocation: nothing reserves the hosts; that they are free and reachable is up to whoever starts the commands.",
    remote_shell.GPU_NUMBERING,
    *device_mesh.NOT_GUARANTEED,
    *pipeline.NOT_GUARANTEED,
    "Order of passes: schedule.csv holds it for eager 1F1B; the program hands the file to _PipelineScheduleRuntime's _load_csv "
    "(format compute_only), which is a private name of torch.distributed.pipelining.",
)


def node_words(plan: PlacementPlan, options: ExportOptions, node_rank: int | None, master: str) -> list[str]:
    """Return torchrun's command line on one host, word by word; arguments as those of `own_words`."""
    return [*own_words(plan, options, node_rank, master), *options.torchrun_words]


def own_words(plan: PlacementPlan, options: ExportOptions, node_rank: int | None, master: str) -> list[str]:
    """Return torchrun and its own options on one host.

    Args:
        plan: one with equally many ranks on each host.
        options: with the port.
        node_rank: of the host; None leaves it out.
        master: address of the first host.
    """
    return [
        "torchrun",
        "--rdzv-backend=static",
        f"--nnodes={len(plan.host_order)}",
        *([] if node_rank is None else [f"--node-rank={node_rank}"]),
        f"--nproc-per-node={plan.num_ranks // len(plan.host_order)}",
        f"--master-addr={master}",
        f"--master-port={options.master_port}",
    ]


def render(plan: PlacementPlan, options: ExportOptions) -> Files:
    """Return the commands, one line for each host, the launcher and, where ranks have coordinates or ops, the mesh.

    Raises:
        ExportError: unequal ranks per host, ranks of a host that are not consecutive, or groups of ops that are not consecutive
            in the model.
    """
    check_contiguous(plan, "torchrun")
    head = header(options.job_name(plan), plan, "torchrun", _NOT_GUARANTEED)
    lines = []
    for node_rank, (host, devices) in enumerate(hosts_of(plan).items()):
        words = ["env", "CUDA_DEVICE_ORDER=PCI_BUS_ID", f"CUDA_VISIBLE_DEVICES={comma_separated(devices)}"]
        words += options.variables + node_words(plan, options, node_rank, plan.host_order[0])
        lines.append(f"{host}\t{joined(words)}\n")
    folder = "# MESHWRIGHT_FILES is this file's folder.\n" if options.carried else ""
    commands = f"{head}# Host, tab, command to run there; all within the rendezvous timeout.\n{folder}{''.join(lines)}"
    launch = remote_shell.script(
        head,
        starts="its command",
        rows=COMMANDS,
        columns="IFS=$'\\t' read -r host command",
        command=f'command="{"export MESHWRIGHT_FILES=$there; " if folder else ""}exec env MESHWRIGHT_HOST=$host $command"',
    )
    rendered: Files = {COMMANDS: commands, remote_shell.FILE_NAME: launch}
    if device_mesh.has_grid(plan):
        rendered[device_mesh.FILE_NAME] = meshed_stages.mesh_text(plan, head)
        layout = plan.layout()
        if layout is not None and layout.schedule == EAGER and layout.pp > 1:  # torch has the other schedules
            rendered[SCHEDULE] = compute_rows(layout)
    elif plan.op_placement() is not None:
        rendered[device_mesh.FILE_NAME] = pipeline.stages_text(plan, head)
    return rendered


def compute_rows(layout: Layout) -> str:
    """Return the passes of every stage as torch's runtime reads them, lines ending in newlines."""
    from ...costs.pipelines.schedules import orders  # which loads numba, and no other export does

    tasks = orders(layout.schedule, layout.pp, layout.virtual_stages, layout.num_micro_batches).tolist()
    rows = (
        ",".join(f"{stage}{'F' if kind == FORWARD else 'B'}{micro}" for kind, _, micro in of_stage)
        for stage, of_stage in enumerate(tasks)
    )
    return "".join(f"{row}\n" for row in rows)


TARGET = Target(
    name="torchrun",
    summary="a command for each host with static rendezvous, a launcher over ssh, and the plan's DeviceMesh",
    guaranteed=(
        "Ranks are numbered host by host in the plan's host order.",
        "The master address is the host of rank 0.",
        "LOCAL_RANK i means the i-th planned device of the host.",
        "mesh.py (plans with coordinates) makes a DeviceMesh with each rank at its planned place, and split points for the "
        "planned stages; of a pipeline of ops its stages, with a process group for each.",
        "schedule.csv (eager 1F1B) has the planned order of passes of each stage, for torch's pipelining runtime.",
    ),
    not_guaranteed=_NOT_GUARANTEED,
    render=render,
)
