"""Slurm: one sbatch script that allocates the hosts and orders the ranks with a hostfile.

``--nodelist`` says which hosts and is ignored as an order; ``SLURM_NODEID`` and the first of ``scontrol show hostnames``
follow the sorted node list, not the ranks. So the order comes from ``SLURM_HOSTFILE`` with
``--distribution=arbitrary``, ranks from ``SLURM_PROCID``, and the master is the hostfile's first line.
"""

from __future__ import annotations

import math
import shlex

from ...errors import ExportError
from ...plans.document import PlacementPlan
from ..options import ExportOptions
from ..rank_launcher import rank_task
from ..requirements import devices_to_request, ranks_per_host
from ..target import Files, Target, header
from .slurm_topology import topology_conf

FILE_NAME = "job.sbatch"
TOPOLOGY_FILE = "topology.conf"

_VARIABLES = {"rank": "SLURM_PROCID", "world": "SLURM_NTASKS", "local": "SLURM_LOCALID", "host": "SLURMD_NODENAME"}

PORTS = 5000
"""Over so many ports the rendezvous of jobs that share hosts are spread."""

_EXCLUSIVE = "#SBATCH --exclusive\n"

_DIRECTIVES = ("partition", "account", "qos", "reservation", "time", "output", "cpus_per_task", "mem")
"""Options that are sbatch's own, in the order in which they are written."""

_NOT_GUARANTEED = (
    "GPU numbering: CUDA_VISIBLE_DEVICES names devices by PCI order; where cgroups hide some of a host's GPUs the numbers "
    "mean something else.",
    "Network: the hosts are the planned ones, the routes between them are the fabric's choice.",
    "Start: the job waits until all hosts are free together; --exclusive keeps other jobs away, not their traffic.",
    "Topology plugins: topology, CR_LLN and CR_Pack_Nodes settings cannot be combined with an arbitrary allocation; here only "
    "the step is arbitrary.",
)

_NOT_GUARANTEED_IN_PART = (
    "Devices: Slurm itself picks which GPUs of a host the job gets; where they are others than planned the job runs on them and "
    "says so.",
    _NOT_GUARANTEED[1],
    "Start: the job waits until the devices are free on all hosts together; others may run on the rest of its hosts.",
    _NOT_GUARANTEED[3],
)


def render(plan: PlacementPlan, options: ExportOptions) -> Files:
    """Return the batch script and, if asked for, the cluster's ``topology.conf``.

    Raises:
        ExportError: unequal ranks per host, too many runs of ranks for one command, or a limit of time below the predicted one.
            Also a ``topology.conf`` for a plan without a cluster, or with one that is no tree.
    """
    _check_time(plan, options)
    per_host = ranks_per_host(plan, "Slurm")
    name = options.job_name(plan)
    is_whole = options.sharing == "hosts"
    if not is_whole and options.gpu_bind is not None:
        problem = "hides from ranks which GPUs of a shared host are theirs; leave it out, or take hosts whole by sharing=hosts"
        raise ExportError(problem, field="gpu_bind", value=options.gpu_bind)
    task = rank_task(plan, options, "srun", **_VARIABLES, granted=None if is_whole else "SLURM_STEP_GPUS")
    devices = devices_to_request(plan) if is_whole else per_host
    # Two jobs may have their first ranks on one host.
    ports = min(PORTS, 65_536 - options.master_port)
    port = f"{options.master_port}" if is_whole else f"$(({options.master_port} + SLURM_JOB_ID % {ports}))"
    request = [("comment", options.decision and f"mw:{options.decision}"), *((key, getattr(options, key)) for key in _DIRECTIVES)]
    directives = "".join(f"#SBATCH --{key.replace('_', '-')}={value}\n" for key, value in request if value is not None)
    if options.requeue is not None:
        directives += f"#SBATCH --{'' if options.requeue else 'no-'}requeue\n"
    hostfile = "".join(f"{rank.host}\n" for rank in plan.ranks)
    text = f"""#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={len(plan.host_order)}
#SBATCH --nodelist={",".join(sorted(plan.host_order))}
#SBATCH --ntasks={plan.num_ranks}
#SBATCH --ntasks-per-node={per_host}
#SBATCH --gpus-per-node={devices}
{directives}{_EXCLUSIVE if is_whole else ""}#
{header(name, plan, "Slurm", _left_open(options))}
set -euo pipefail

# One line for each task, in rank order.
export SLURM_HOSTFILE="$PWD/hosts.${{SLURM_JOB_ID:?submit this script with sbatch}}"
cat >"$SLURM_HOSTFILE" <<\\END_OF_HOSTS
{hostfile}END_OF_HOSTS

# sbatch --test-only accepts a hostfile that is too short, so the count is checked here.
lines=$(wc -l <"$SLURM_HOSTFILE")
if [ "$lines" -ne {plan.num_ranks} ] || [ "${{SLURM_NTASKS:?}}" -ne {plan.num_ranks} ]; then
  echo "{FILE_NAME}: $lines lines in the hostfile, $SLURM_NTASKS tasks, {plan.num_ranks} ranks in the plan" >&2
  exit 1
fi

# Not the first of 'scontrol show hostnames': that list is sorted.
MASTER_ADDR=$(head -n 1 "$SLURM_HOSTFILE")
export MASTER_ADDR MASTER_PORT={port}
{_carried(options)}
# shellcheck disable=SC2016 # each rank expands the quoted text
srun --distribution=arbitrary --ntasks={plan.num_ranks} --kill-on-bad-exit=1{_step(options)} bash -c {shlex.quote(task)}
"""
    return {FILE_NAME: text, **(_switches(plan, name, options) if options.topology_conf else {})}


def _carried(options: ExportOptions) -> str:
    """Return the framework's files, written next to the hostfile."""
    if not options.carried:
        return ""
    lines = '\nexport MESHWRIGHT_FILES="$PWD/files.$SLURM_JOB_ID"\nmkdir -p "$MESHWRIGHT_FILES"\n'
    for name, text in options.carried.items():
        lines += f'cat >"$MESHWRIGHT_FILES/{name}" <<\\END_OF_FILE\n{text!s}END_OF_FILE\n'
    return lines


def _step(options: ExportOptions) -> str:
    """Return further options of srun; those of pyxis run the tasks in an image, with the job's folder where it is outside."""
    # srun takes no processors from the job since Slurm 22.05
    words = [] if options.cpus_per_task is None else [f"--cpus-per-task={options.cpus_per_task}"]
    words += [] if options.gpu_bind is None else [f"--gpu-bind={options.gpu_bind}"]
    words_of_srun = "".join(f" {shlex.quote(word)}" for word in (*words, *shlex.split(options.srun or "")))
    more = "" if options.mounts is None else f",{options.mounts}"
    if more and options.container is None:
        raise ExportError("is read with a container; name one by container=, or leave it out", field="mounts")
    if options.container is None:
        return words_of_srun
    image = shlex.quote(options.container)
    return f'{words_of_srun} --container-image={image} --container-mounts="$PWD:$PWD{more}" --container-workdir="$PWD"'


def _check_time(plan: PlacementPlan, options: ExportOptions) -> None:
    """Refuse a limit that ends the job before it is predicted to end, unless it may be started again."""
    whole, step = plan.figure("completion_s"), plan.figure("step_s")
    predicted_s = whole.value if whole is not None else step.value * (plan.job.num_steps or 0) if step is not None else 0.0
    if options.time is None or options.requeue or predicted_s <= _limit_s(options.time):
        return
    hours = math.ceil(predicted_s / 3600)
    advice = f"time={hours // 24}-{hours % 24} would do, or requeue=true for a job that continues where it was ended"
    problem = f"the plan is predicted to run for {predicted_s / 3600:.4g} h, longer than that; {advice}"
    raise ExportError(problem, field="time", value=options.time)


def _limit_s(text: str) -> float:
    """Return the seconds of a limit as Slurm spells it; 0 is none."""
    days, dash, clock = text.rpartition("-")
    if text == "UNLIMITED" or not text.strip("0:-"):
        return math.inf
    parts = [int(part) for part in clock.split(":")]
    units = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
    return 86_400 * int(days or 0) + sum(number * unit for number, unit in zip(parts, units, strict=False))


def _left_open(options: ExportOptions) -> tuple[str, ...]:
    return _NOT_GUARANTEED if options.sharing == "hosts" else _NOT_GUARANTEED_IN_PART


def _switches(plan: PlacementPlan, name: str, options: ExportOptions) -> Files:
    cluster = plan.embedded_cluster()
    if cluster is None:
        raise ExportError("topology.conf is made from the plan's cluster, and the plan has none", field="cluster")
    head = header(name, plan, "Slurm", _left_open(options))
    note = f"# Switches of cluster {cluster.name}, for TopologyPlugin=topology/tree; belongs next to slurm.conf on every host.\n"
    return {TOPOLOGY_FILE: head + note + topology_conf(cluster)}


TARGET = Target(
    name="slurm",
    summary="one sbatch script with a hostfile in rank order; on request the cluster's topology.conf",
    guaranteed=(
        "Each rank runs on its host, in order; a task that finds itself elsewhere ends the job.",
        "The master address is the host of rank 0.",
        "LOCAL_RANK i means the i-th planned device of the host.",
    ),
    not_guaranteed=_NOT_GUARANTEED,
    render=render,
    left_open=_left_open,
)
