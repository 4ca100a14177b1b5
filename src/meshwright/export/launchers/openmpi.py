"""Open MPI: a script for mpirun, the ``-H`` list in rank order, a host file of one line per rank, and a rankfile.

mpirun of the 4.1 series fills the hosts of ``-H`` in the order given, one after another, with as many ranks as each has slots.
It adds up the slots of a host that is in the list twice. So ranks that alternate between hosts use the sequential mapper, which
gives rank ``k`` to the ``k``-th line of a host file. The rankfile says the same and also binds each rank to a core.

Sources: mpirun(1) of Open MPI 4.1, sections "Mapping, Ranking, and Binding" and "Rankfiles".
"""

from __future__ import annotations

import shlex

from ...plans.document import PlacementPlan
from ..options import ExportOptions
from ..rank_launcher import MAX_ARGUMENT_BYTES, rank_task
from ..requirements import hosts_of, is_contiguous
from ..target import Files, Target, header
from . import remote_shell

LAUNCHER = "run.sh"
HOST_FILE = "hostfile"
RANK_FILE = "rankfile"

_VARIABLES = {"rank": "OMPI_COMM_WORLD_RANK", "world": "OMPI_COMM_WORLD_SIZE", "local": "OMPI_COMM_WORLD_LOCAL_RANK"}

_NOT_GUARANTEED = (
    "Allocation: nothing reserves the hosts, and inside a batch job the batch system's allocation is not looked at; that the "
    "hosts are free and reachable by ssh is up to whoever starts the script.",
    remote_shell.GPU_NUMBERING,
    "Cores: ranks are bound to no core; the rankfile, which binds the i-th rank of a host to its core i, is not used by the "
    "script.",
    "Versions: made for the 4.x series. In 5.x a rankfile is given by '--map-by rankfile:file=rankfile' and a host file in "
    "rank order by '--map-by seq:file=hostfile'.",
    "Host names: mpirun takes a host by another name than its own for a remote one; two names of one host are two hosts.",
)


def render(plan: PlacementPlan, options: ExportOptions) -> Files:
    """Return the script and the two files.

    Raises:
        ExportError: a host name that is none, or a rank map that is too long for one command.
    """
    head = header(options.job_name(plan), plan, "Open MPI", _NOT_GUARANTEED)
    devices = hosts_of(plan)
    task = rank_task(plan, options, "mpirun", **_VARIABLES)
    hosts = ",".join(f"{host}:{len(devices[host])}" for host in devices)
    if is_contiguous(plan) and len(hosts) <= MAX_ARGUMENT_BYTES:
        where = f"-H {hosts} --map-by slot"
    else:
        where = f'--hostfile "$here/{HOST_FILE}" --map-by seq'
    with_domains = any("." in host for host in devices)
    folder = 'export MESHWRIGHT_FILES="$here"\n' if options.carried else ""
    here = 'here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\n' if "$here" in where + folder else ""
    script = f"""#!/bin/bash
{head}#
# MPIRUN (default mpirun) is the command with options of your own.
set -euo pipefail

{here}read -r -a mpirun <<<"${{MPIRUN:-mpirun}}"

# A batch system's allocation has an order of its own: neither its host list nor its launcher is used.
export OMPI_MCA_ras=^slurm,tm,lsf,gridengine OMPI_MCA_plm=rsh OMPI_MCA_orte_keep_fqdn_hostnames={int(with_domains)}
export MASTER_ADDR={shlex.quote(plan.host_order[0])} MASTER_PORT={options.master_port}
{folder}
# shellcheck disable=SC2016 # each rank expands the quoted text
exec "${{mpirun[@]}}" {where} -np {plan.num_ranks} --bind-to none \\
  -x MASTER_ADDR -x MASTER_PORT{" -x MESHWRIGHT_FILES" if folder else ""} bash -c {shlex.quote(task)}
"""
    one_line_each = "".join(f"{rank.host}\n" for rank in plan.ranks)
    return {LAUNCHER: script, HOST_FILE: head + one_line_each, RANK_FILE: head + rankfile(plan)}


def rankfile(plan: PlacementPlan) -> str:
    """Return a line ``rank R=HOST slot=CORE`` for each rank; the i-th rank of a host gets the host's core i."""
    seen = dict.fromkeys(plan.host_order, 0)
    lines = []
    for rank in plan.ranks:
        lines.append(f"rank {rank.rank}={rank.host} slot={seen[rank.host]}\n")
        seen[rank.host] += 1
    return "".join(lines)


TARGET = Target(
    name="openmpi",
    summary="a script for mpirun 4.x with the hosts in rank order, a host file and a rankfile",
    guaranteed=(
        "Each rank runs on its host, in order, also where ranks go back and forth between hosts or hosts have unequal "
        "numbers of ranks.",
        "The master address is the host of rank 0.",
        "LOCAL_RANK i means the i-th planned device of the host.",
    ),
    not_guaranteed=_NOT_GUARANTEED,
    render=render,
)
