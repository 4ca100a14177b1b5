"""What the tables of a study are made of, as one file: it travels without the hours that it took, and without the networks.

A tar archive, compressed by xz, of the study's folder as far as tables read it: records of tasks that are done, results of
evaluations (of single episodes only what the benchmark is about), learning curves. A training run that is put back is known by
its record and curve alone; whoever needs its policy, as an evaluation that is not done yet, trains it anew. The same results give
the same bytes.
"""

from __future__ import annotations

import io
import json
import lzma
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from meshwright import files
from meshwright.errors import InputFileError

from .measures import measure_of
from .places import SHOWN, Places
from .runner import record, record_file
from .tasks import CURVE, RESULTS, EvaluationTask, Task

MAX_BYTES = 100_000_000
"""No study's results are nearly as large; what is so when expanded is refused."""

MAX_DECODER_BYTES = 100_000_000
"""Memory that an archive may make its decoder ask for; what `pack` writes wants 65 MiB."""

UNREAD = frozenset({"completion_percentiles_s", "against", "by_size"})
"""Of rows of results: quantiles of completion, and of operator placement every pair of policies and every size."""


def pack(tasks: Sequence[Task], places: Places, archive: Path) -> list[str]:
    """Write what there is of done tasks.

    Args:
        tasks: of the study.
        places: where they lie.
        archive: the file to write, whole or not at all.

    Returns:
        Names of the tasks that are in it.

    Raises:
        InputFileError: a file cannot be read or written, or nothing is done.
    """
    packed, members = [], dict[Path, str]()
    for task in tasks:
        told = record(task, places)
        file = _told_by(task, places)
        if told.get("state") != "done" or not file.is_file():
            continue
        packed.append(task.name)
        told["command"] = ["meshwright", *task.command(SHOWN)]  # no folders of this machine
        members[record_file(task, places)] = files.json_text(told)
        members[file] = json.dumps(_slimmed(files.read_json(file)), sort_keys=True)
    if not packed:
        raise InputFileError("nothing is done that could be packed", file=places.out)
    with files.atomic_file(archive) as written, tarfile.open(fileobj=written, mode="w:xz", preset=9) as tar:
        for path, text in sorted(members.items()):
            data = text.encode()
            member = tarfile.TarInfo(path.relative_to(places.out).as_posix())
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return packed


def unpack(archive: Path, tasks: Sequence[Task], places: Places) -> list[str]:
    """Put back what was packed of tasks that are not there; what is there stays as it is.

    Args:
        archive: by `pack`.
        tasks: of the study; what the archive holds of others is left out.
        places: where it goes.

    Returns:
        Names of the tasks that were put back.

    Raises:
        InputFileError: the file is missing, is no such archive, or a file cannot be written.
    """
    held = _read(archive)
    put_back = []
    for task in tasks:
        names = [path.relative_to(places.out).as_posix() for path in (_told_by(task, places), record_file(task, places))]
        if record(task, places) or task.folder(places).exists() or not all(name in held for name in names):
            continue
        for name in names:  # the record last: only with it is a task done
            files.write_text(places.out / name, held[name])
        put_back.append(task.name)
    return put_back


def _told_by(task: Task, places: Places) -> Path:
    """The file that tables read of a task."""
    return task.folder(places) / (RESULTS if isinstance(task, EvaluationTask) else CURVE)


def _slimmed(told: Any) -> Any:
    """Results without what no table reads: other figures of single episodes than the measure, and the keys `UNREAD` of rows."""
    if not isinstance(told, dict):
        return told
    rows = [{key: value for key, value in row.items() if key not in UNREAD} for row in told["rows"]]
    metric = measure_of(told).metric
    for row in rows:
        if "per_seed" in row:
            row["per_seed"] = {metric: row["per_seed"][metric]}
    return {**told, "rows": rows}


def _read(archive: Path) -> dict[str, str]:
    """Texts by the name of their file."""
    found: dict[str, str] = {}
    content = files.read_bytes(archive)
    expanding = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_DECODER_BYTES)
    try:
        data = expanding.decompress(content, MAX_BYTES)
        if not expanding.eof:
            raise EOFError
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            for member in tar:
                # What is sparse is longer than what is stored of it.
                stream = tar.extractfile(member) if member.isfile() and not member.issparse() else None
                if stream is None or ".." in PurePosixPath(member.name).parts or os.path.isabs(member.name):
                    raise InputFileError("holds something else than the results of a study", file=archive, value=member.name)
                found[member.name] = stream.read().decode()
    except (tarfile.TarError, lzma.LZMAError, EOFError, UnicodeDecodeError):
        raise InputFileError("is no archive of a study's results", file=archive) from None
    return found
