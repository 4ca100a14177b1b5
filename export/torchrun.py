"""torchrun: one command for each host with static rendezvous, and a script that starts them all.

Rendezvous by c10d sorts host names and ignores ``--node-rank``; only the static one keeps our order. torchrun then
numbers ranks host by host.
"""

from __future__ import annotations

import shlex

from ..plans.document import PlacementPlan
from .expressible import check_contiguous, comma_separated, hosts_of
from .target import ExportOptions, Target, header

COMMANDS = "commands.txt"
LAUNCHER = "launch.sh"

_NOT_GUARANTEED = (
    "Restarts: static rendezvous has no elastic restarts; when one host fails the job ends.",
    "Allocation: nothing reserves the hosts; that they are free and reachable is up to whoever starts the commands.",
    "GPU numbering: CUDA_VISIBLE_DEVICES names devices by PCI order as the host's driver sees them.",
    "Process groups: DeviceMesh sorts the ranks inside a group, so groups follow rank order whatever the mesh says.",
)


def node_words(plan: PlacementPlan, options: ExportOptions, node_rank: int, num_per_host: int, master: str) -> list[str]:
    """torchrun's command line on one host, word by word."""
    return [
        "torchrun",
        "--rdzv-backend=static",
        f"--nnodes={len(plan.host_order)}",
        f"--node-rank={node_rank}",
        f"--nproc-per-node={num_per_host}",
        f"--master-addr={master}",
        f"--master-port={options.master_port}",
        *options.torchrun_words,
    ]


def render(plan: PlacementPlan, options: ExportOptions) -> dict[str, str]:
    """The commands, one line for each host, and the launcher.

    Raises:
        ExportError: unequal ranks per host, or ranks of a host that do not follow one another.
    """
    per_host = check_contiguous(plan, "torchrun")
    head = header(options.job_name(plan), plan, "torchrun", _NOT_GUARANTEED)
    lines = []
    for node_rank, (host, devices) in enumerate(hosts_of(plan).items()):
        words = ["env", "CUDA_DEVICE_ORDER=PCI_BUS_ID", f"CUDA_VISIBLE_DEVICES={comma_separated(devices)}"]
        words += node_words(plan, options, node_rank, per_host, plan.host_order[0])
        lines.append(f"{host}\t{shlex.join(words)}\n")
    commands = f"{head}# Host, tab, command to run there; all within the rendezvous timeout.\n{''.join(lines)}"
    return {COMMANDS: commands, LAUNCHER: f"#!/bin/bash\n{head}{_LAUNCHER}"}


_LAUNCHER = f"""#
# Starts every host's command and waits; ends with the first failure.
# REMOTE_SHELL (default ssh) runs a command on a host; WORK_DIR (default the current folder) is where it runs there.
set -euo pipefail

here=$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)
folder=$(printf %q "${{WORK_DIR:-$PWD}}")
read -r -a remote <<<"${{REMOTE_SHELL:-ssh}}"

pids=()
trap 'kill "${{pids[@]}}" 2>/dev/null || true' EXIT
while IFS=$'\\t' read -r host command; do
  case "$host" in '' | '#'*) continue ;; esac
  "${{remote[@]}}" "$host" "cd $folder && exec $command" </dev/null &
  pids+=("$!")
done <"$here/{COMMANDS}"
for _ in "${{pids[@]}}"; do
  wait -n
done
"""

TARGET = Target(
    name="torchrun",
    summary="a command for each host with static rendezvous, and a launcher over ssh",
    guaranteed=(
        "Ranks are numbered host by host in the plan's host order.",
        "The master address is the host of rank 0.",
        "LOCAL_RANK i means the i-th planned device of the host.",
    ),
    not_guaranteed=_NOT_GUARANTEED,
    render=render,
)
