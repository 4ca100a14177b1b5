"""Slurm: one sbatch script that allocates the hosts and orders the ranks with a hostfile.

``--nodelist`` says which hosts and is ignored as an order; ``SLURM_NODEID`` and the first of ``scontrol show hostnames``
follow the sorted node list, not the ranks. So the order comes from ``SLURM_HOSTFILE`` with
``--distribution=arbitrary``, ranks from ``SLURM_PROCID``, and the master is the hostfile's first line.
"""

from __future__ import annotations

import shlex

from ..errors import ExportError
from ..plans.document import PlacementPlan
from .expressible import comma_separated, devices_to_request, hosts_of, ranks_per_host
from .target import ExportOptions, Target, header

FILE_NAME = "job.sbatch"

_MAX_ARGUMENT_BYTES = 131_071
"""Linux passes no longer single argument (MAX_ARG_STRLEN of 32 pages, less the final zero)."""

_NOT_GUARANTEED = (
    "GPU numbering: CUDA_VISIBLE_DEVICES names devices by PCI order; where cgroups hide some of a host's GPUs the numbers "
    "mean something else.",
    "Network: the hosts are the planned ones, the routes between them are the fabric's choice.",
    "Start: the job waits until all hosts are free together; --exclusive keeps other jobs away, not their traffic.",
    "Topology plugins: topology, CR_LLN and CR_Pack_Nodes settings cannot be combined with an arbitrary allocation; here only "
    "the step is arbitrary.",
)


def render(plan: PlacementPlan, options: ExportOptions) -> dict[str, str]:
    """The batch script.

    Raises:
        ExportError: unequal ranks per host, or too many runs of ranks for one command.
    """
    per_host = ranks_per_host(plan, "Slurm")
    name = options.job_name(plan)
    task = _task(plan, options)
    if len(task.encode()) > _MAX_ARGUMENT_BYTES:
        raise ExportError(f"the rank map of {plan.num_ranks} ranks is too long for one srun command", field="ranks")
    hostfile = "".join(f"{rank.host}\n" for rank in plan.ranks)
    text = f"""#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={len(plan.host_order)}
#SBATCH --nodelist={",".join(sorted(plan.host_order))}
#SBATCH --ntasks={plan.num_ranks}
#SBATCH --ntasks-per-node={per_host}
#SBATCH --gpus-per-node={devices_to_request(plan)}
#SBATCH --exclusive
#
{header(name, plan, "Slurm", _NOT_GUARANTEED)}
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
export MASTER_ADDR MASTER_PORT={options.master_port}

srun --distribution=arbitrary --ntasks={plan.num_ranks} --kill-on-bad-exit=1 bash -c {shlex.quote(task)}
"""
    return {FILE_NAME: text}


def _task(plan: PlacementPlan, options: ExportOptions) -> str:
    """What each task runs: find the rank's line in the map, refuse a wrong host, set the environment, start the program.

    A line of the map reads ``last rank of a run, host, devices of the host in local order``.
    """
    devices = hosts_of(plan)
    runs = [
        f"{rank.rank} {rank.host} {comma_separated(devices[rank.host])}"
        for rank, after in zip(plan.ranks, [*plan.ranks[1:], None], strict=True)
        if after is None or after.host != rank.host
    ]
    table = "\n".join(runs)
    return f"""set -eu
while read -r last host devices; do
  if [ "$SLURM_PROCID" -le "$last" ]; then break; fi
done <<\\END_OF_MAP
{table}
END_OF_MAP
if [ "$SLURMD_NODENAME" != "$host" ]; then
  echo "rank $SLURM_PROCID is on $SLURMD_NODENAME, the plan puts it on $host" >&2
  exit 1
fi
export RANK="$SLURM_PROCID" WORLD_SIZE="$SLURM_NTASKS" LOCAL_RANK="$SLURM_LOCALID"
export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES="$devices"
exec {shlex.join(options.rank_words)}
"""


TARGET = Target(
    name="slurm",
    summary="one sbatch script with a hostfile in rank order",
    guaranteed=(
        "Each rank runs on its host, in order; a task that finds itself elsewhere ends the job.",
        "The master address is the host of rank 0.",
        "LOCAL_RANK i means the i-th planned device of the host.",
    ),
    not_guaranteed=_NOT_GUARANTEED,
    render=render,
)
