"""The probe: one line that each rank of a launched job prints about its place, and its reader.

A line reads ``meshwright-rank[rank=3 world=8 host=gpu-07 local_rank=1 visible=3,2,1,0]``. The brackets mark its ends. So the
reader finds it behind the prefixes of ``srun --label``, ``mpirun --tag-output``, torchrun, Ray and kubectl, or next to another
rank's line, and detects torn lines. ``visible`` is CUDA_VISIBLE_DEVICES of the rank. Where a scheduler renumbers devices, it is
MESHWRIGHT_DEVICES, their numbers on the host. Keys that the rank does not know are absent. ``pp``, ``dp``, ``cp``, ``ep`` and
``tp`` are its coordinates, for programs that know them.

`read_places` also takes what people print without a probe: ``hostname`` under ``srun --label`` or
``mpirun --tag-output``, and Open MPI's ``--display-map``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import InputFileError

AXES = ("pp", "dp", "cp", "ep", "tp")

_PROGRAM = (
    "import os, socket",
    "e = os.environ",
    "first = lambda *names: next((e[n] for n in names if e.get(n)), None)",
    'rank = first("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")',
    'world = first("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")',
    'host = first("MESHWRIGHT_HOST", "SLURMD_NODENAME") or socket.gethostname()',
    'local = first("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")',
    'said = [("rank", rank), ("world", world), ("host", host), ("local_rank", local)]',
    'said += [("visible", first("MESHWRIGHT_DEVICES", "CUDA_VISIBLE_DEVICES"))]',
    'said += [(a, e.get("MESHWRIGHT_" + a.upper())) for a in ("pp", "dp", "cp", "ep", "tp")]',
    # The text of this program may stand in a log too, so it does not hold the line's own beginning.
    'line = "meshwright-" + "rank[" + " ".join(k + "=" + v for k, v in said if v is not None) + "]"',
    "os.write(1, (line + chr(10)).encode())",  # one write: the lines of two ranks do not mix
)

PROGRAM = "; ".join(_PROGRAM)
"""The probe as one line of Python; it needs the standard library and nothing else.

The host is what the scheduler calls it (``MESHWRIGHT_HOST`` where a target hands the node's name on, Slurm's
``SLURMD_NODENAME``), else the machine's own name.
"""

PROBE_WORDS = ("python", "-u", "-c", PROGRAM)
"""The command that prints the line."""

_LINE = re.compile(r"meshwright-rank\[(?P<said>[^\[\]\n]*)(?P<end>\]?)")
_KEYS = ("rank", "world", "host", "local_rank", "visible", *AXES)

# "3: gpu-07" of srun --label, "[1,3]<stdout>:gpu-07" of mpirun --tag-output.
_LABELLED = re.compile(
    r"(?:\s*(?P<slurm>[0-9]{1,9}): |\[[0-9]+,(?P<mpi>[0-9]{1,9})\]<stdout>: ?)"
    r"(?P<host>[A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?)\s*"
)
_MAP_NODE = re.compile(r"\s*Data for node: (?P<host>\S+)")
_MAP_RANK = re.compile(r"\s*Process OMPI jobid: \[[0-9]+,[0-9]+\].*Process rank: (?P<rank>[0-9]{1,9})")


@dataclass(frozen=True)
class Place:
    """The place that one rank of a launched job reports; what it does not report is None.

    Attributes:
        rank: its number.
        host: its host.
        world: how many ranks it counts.
        device: number of its device within the host, as the host's driver counts.
        coordinates: its place in the layout's grid, by axis.
        source: file and line that say so.
    """

    rank: int
    host: str
    world: int | None = None
    device: int | None = None
    coordinates: dict[str, int] = field(default_factory=dict)
    source: str = ""


def read_places(text: str, file: str | Path | None = None) -> list[Place]:
    """Return the places that the ranks of a job print to a log, in the log's order.

    Lines of the probe are taken where there are any; else labelled host names, else the last map of Open MPI's
    ``--display-map``. All other lines are passed over.

    Args:
        text: the log.
        file: its name, for messages and sources.

    Raises:
        InputFileError: a torn or impossible line of the probe, or no place of any rank.
    """
    lines = text.splitlines()
    for reader in (_probed, _labelled, _mapped):
        places = list(reader(lines, file))
        if places:
            return places
    raise InputFileError(
        "no rank says where it is: run the export of --set probe=true, or print hostname under srun --label or "
        "mpirun --tag-output",
        file=file,
    )


def _probed(lines: list[str], file: str | Path | None) -> Iterator[Place]:
    for number, line in enumerate(lines, start=1):
        for match in _LINE.finditer(line):
            if not match["end"]:
                raise InputFileError("a line of the probe is torn", file=file, line=number, value=match[0])
            yield _place(match["said"], file, number)


def _place(text: str, file: str | Path | None, line: int) -> Place:
    said: dict[str, str] = {}
    for word in text.split(" "):
        key, equals, value = word.partition("=")
        if not equals or key in said or key not in _KEYS:
            raise InputFileError("no key=value of the probe", file=file, line=line, value=word, choices=_KEYS)
        said[key] = value
    for key in ("rank", "host"):
        if not said.get(key):
            raise InputFileError(f"a line of the probe has no {key}", file=file, line=line, value=text)
    numbers = {key: _number(key, said[key], file, line) for key in said if key not in ("host", "visible")}
    try:
        device = _device(said.get("visible"), numbers.get("local_rank"))
    except IndexError:
        problem = f"rank {numbers['rank']} has LOCAL_RANK {numbers['local_rank']} and fewer visible devices"
        raise InputFileError(problem, file=file, line=line, value=said["visible"]) from None
    return Place(
        rank=numbers["rank"],
        host=said["host"],
        world=numbers.get("world"),
        device=device,
        coordinates={axis: numbers[axis] for axis in AXES if axis in numbers},
        source=_source(file, line),
    )


def _number(key: str, value: str, file: str | Path | None, line: int) -> int:
    if not re.fullmatch("[0-9]{1,9}", value):
        raise InputFileError(f"{key} is no whole number", file=file, line=line, value=value)
    return int(value)


def _device(visible: str | None, local_rank: int | None) -> int | None:
    """Return the device that a rank uses: the only one that it sees, else the one at its local rank; None for a UUID."""
    if not visible:
        return None
    devices = visible.split(",")
    if len(devices) > 1 and local_rank is None:
        return None
    device = devices[0] if len(devices) == 1 else devices[local_rank or 0]
    return int(device) if re.fullmatch("[0-9]{1,9}", device) else None


def _labelled(lines: list[str], file: str | Path | None) -> Iterator[Place]:
    for number, line in enumerate(lines, start=1):
        match = _LABELLED.fullmatch(line)
        if match:
            yield Place(rank=int(match["slurm"] or match["mpi"]), host=match["host"], source=_source(file, number))


def _mapped(lines: list[str], file: str | Path | None) -> Iterator[Place]:
    """Yield the places of the last map; a job that spawns prints one map after another."""
    places: list[Place] = []
    host = None
    for number, line in enumerate(lines, start=1):
        if "JOB MAP" in line:
            places = []
        node, rank = _MAP_NODE.match(line), _MAP_RANK.match(line)
        if node:
            host = node["host"]
        elif rank and host is not None:
            places.append(Place(rank=int(rank["rank"]), host=host, source=_source(file, number)))
    yield from places


def _source(file: str | Path | None, line: int) -> str:
    return f"line {line}" if file is None else f"{file}:{line}"


if __name__ == "__main__":
    sys.stdout.write(PROGRAM + "\n")
