"""The script of each rank under a launcher that knows only numbers: find the rank's devices, set the environment, start."""

from __future__ import annotations

import shlex

from ..errors import ExportError
from ..plans.document import PlacementPlan
from .options import ExportOptions
from .requirements import comma_separated, hosts_of
from .target import joined

MAX_ARGUMENT_BYTES = 131_071
"""Linux passes no longer single argument (MAX_ARG_STRLEN of 32 pages, less the final zero)."""


def rank_task(
    plan: PlacementPlan,
    options: ExportOptions,
    scheduler: str,
    *,
    rank: str,
    world: str,
    local: str,
    host: str | None = None,
    granted: str | None = None,
) -> str:
    """Return a script for ``bash -c``, the same for every rank.

    It looks the rank up in a map, whose lines read ``last rank of a run, host, devices of the host in local order``,
    sets RANK, WORLD_SIZE, LOCAL_RANK and CUDA_VISIBLE_DEVICES, and becomes the rank's program.

    Args:
        plan: the plan to launch.
        options: with the program.
        scheduler: its name, for messages.
        rank: variable of the launcher that holds the rank.
        world: the same for the number of ranks.
        local: the same for the number of the rank among those of its host.
        host: the same for the host's name; where it is set, a rank that runs elsewhere fails.
        granted: the same for the job's devices of the host, as the host's driver counts, where others may hold the rest. Then
            CUDA_VISIBLE_DEVICES, which the launcher has set for the same devices, is only put into the plan's order. Too few
            devices are refused; devices other than planned are used with a message.

    Raises:
        ExportError: a host name that is none, or the map is too long for one argument.
    """
    devices = hosts_of(plan)
    runs = [
        f"{entry.rank} {entry.host} {comma_separated(devices[entry.host])}"
        for entry, after in zip(plan.ranks, [*plan.ranks[1:], None], strict=True)
        if after is None or after.host != entry.host
    ]
    table = "\n".join(runs)
    check = ""
    if host is not None:
        check = f"""
if [ "${host}" != "$host" ]; then
  echo "rank ${rank} is on ${host}, the plan puts it on $host" >&2
  exit 1
fi"""
    more = "".join(f" {shlex.quote(word)}" for word in options.variables)
    task = f"""set -eu
while read -r last host devices; do
  if [ "${rank}" -le "$last" ]; then break; fi
done <<\\END_OF_MAP
{table}
END_OF_MAP{check}{"" if granted is None else _reorder_devices(rank, local, granted)}
export RANK="${rank}" WORLD_SIZE="${world}" LOCAL_RANK="${local}"
export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES="$devices"{more}
exec {joined(options.rank_words)}
"""
    if len(task.encode()) > MAX_ARGUMENT_BYTES:
        raise ExportError(f"the rank map of {plan.num_ranks} ranks is too long for one {scheduler} command", field="ranks")
    return task


def _reorder_devices(rank: str, local: str, granted: str) -> str:
    """Put the devices that were given into the order of those that were planned."""
    return f"""
IFS=, read -ra wanted <<<"$devices"
IFS=, read -ra given <<<"${{{granted}:-}}"
IFS=, read -ra visible <<<"${{CUDA_VISIBLE_DEVICES:-}}"
if [ "${{#given[@]}}" -ne "${{#wanted[@]}}" ] || [ "${{#visible[@]}}" -ne "${{#wanted[@]}}" ]; then
  echo "rank ${rank} on $host: devices $devices are planned, given were {granted}='${{{granted}:-}}' and \
CUDA_VISIBLE_DEVICES='${{CUDA_VISIBLE_DEVICES:-}}'" >&2
  exit 1
fi
order=()
for device in "${{wanted[@]}}"; do
  for i in "${{!given[@]}}"; do
    if [ "${{given[i]}}" = "$device" ]; then order+=("$i"); fi
  done
done
if [ "${{#order[@]}}" -ne "${{#wanted[@]}}" ]; then
  if [ "${local}" -eq 0 ]; then echo "$host: devices ${{{granted}}} were given, planned were $devices" >&2; fi
  order=("${{!given[@]}}")
fi
devices="" MESHWRIGHT_DEVICES=""
for i in "${{order[@]}}"; do
  devices+="${{devices:+,}}${{visible[i]}}" MESHWRIGHT_DEVICES+="${{MESHWRIGHT_DEVICES:+,}}${{given[i]}}"
done
export MESHWRIGHT_DEVICES"""
