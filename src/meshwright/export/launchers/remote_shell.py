"""The script that starts a command on every host through a remote shell and ends as they end.

Its status is 0 where every host ended well, else that of the first host seen to fail; then the others are ended too. It asks
which of its children still run, and takes the status of each ended one by its own number. ``wait -n`` would report a failure at
once, but before bash 5.3 it loses children that end together. A job that had succeeded everywhere then ended with 127. Once its
traps are set, the script substitutes no command. A signal during a substitution ended 32 of 4,000 scripts of bash 5.2.15 with
another status. The script needs bash 4.2.
"""

from __future__ import annotations

FILE_NAME = "launch.sh"

GPU_NUMBERING = "GPU numbering: CUDA_VISIBLE_DEVICES names devices by PCI order as the host's driver sees them."
RESTARTS = "Restarts: static rendezvous has no elastic restarts; when one host fails the job ends."
"""A guarantee that no launcher over a shell gives."""


def script(head: str, *, starts: str, rows: str, columns: str, command: str, prepare: str = "") -> str:
    """Return the script that starts a command on every host.

    Args:
        head: comment lines to begin with.
        starts: description of the started command, for its comment.
        rows: name of the file in the script's folder with a line for each host, the host first. Lines that begin with ``#`` are
            skipped.
        columns: how ``read`` takes such a line apart, ending in the names of the columns; the first is ``host``.
        command: shell lines that set ``command`` to the words that the host's shell runs, quoted for it. They find
            ``host``, the other columns, ``node`` (the host's number) and ``there`` (the script's folder, quoted), and
            substitute no command.
        prepare: shell lines that are run once before; they find ``here``, the script's folder, too.
    """
    indented = "\n".join(f"  {line}" for line in command.strip().splitlines())
    there = 'there=$(printf %q "$here")\n' if "$there" in prepare + command else ""
    return f"""#!/bin/bash
{head}#
# Starts {starts} on every host and waits; ends with the first failure, within a second of it.
# REMOTE_SHELL (default ssh) runs a command on a host; WORK_DIR (default the current folder) is where it runs there.
set -euo pipefail

here=$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)
{there}folder=$(printf %q "${{WORK_DIR:-$PWD}}")
read -r -a remote <<<"${{REMOTE_SHELL:-ssh}}"
{prepare}
node=0
hosts=()
pids=()
# The last one too, which may not be noted yet. From here on no command is substituted: bash may mistake a signal then.
trap 'kill ${{pids[@]+"${{pids[@]}}"}} ${{!-}} 2>/dev/null || true' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
while {columns}; do
  case "$host" in '' | '#'*) continue ;; esac
{indented}
  "${{remote[@]}}" "$host" "cd $folder && $command" </dev/null &
  hosts+=("$host")
  pids+=("$!")
  node=$((node + 1))
done <"$here/{rows}"

# Each host is waited for by its own number: before bash 5.3, 'wait -n' loses children that end together.
left=$node
pauses=(0.01 0.02 0.05 0.1 0.2 0.5 1)
while [ "$left" -gt 0 ]; do
  for node in "${{!pids[@]}}"; do
    if kill -0 "${{pids[node]}}" 2>/dev/null; then continue; fi
    status=0
    wait "${{pids[node]}}" || status=$?
    unset "pids[node]"
    left=$((left - 1))
    if [ "$status" -ne 0 ]; then
      echo "{FILE_NAME}: ${{hosts[node]}} ended with status $status" >&2
      exit "$status"
    fi
  done
  [ "$left" -eq 0 ] || sleep "${{pauses[0]}}"
  [ "${{#pauses[@]}}" -eq 1 ] || pauses=("${{pauses[@]:1}}")
done
"""
