"""Measured collectives in the files that tools write: nccl-tests (text, and JSON by ``-J``) and tables in CSV.

The CSV has a row per measurement with the columns ``op_name, nccl_dtype, num_gpus, message_size`` (elements) and
``latency`` (milliseconds), and perhaps ``version`` and ``device``. Of nccl-tests' two times of a size the out-of-place one
is read, and the in-place one where there is no other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ... import files, quantities
from ...costs.collectives import OPERATIONS, Operation
from ...costs.collectives.libraries.system import TableKey
from ...errors import InputFileError

COLUMNS = ("op_name", "nccl_dtype", "num_gpus", "message_size", "latency")

SPELLINGS: dict[str, Operation] = {
    **{name: name for name in OPERATIONS},
    "alltoall": "all_to_all",
    "all2all": "all_to_all",
    "sendrecv": "send_recv",
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
}

ELEMENT_BYTES = {
    **dict.fromkeys(("int8", "uint8", "char", "fp8", "fp8_e4m3", "fp8_e5m2", "f8e4m3", "f8e5m2"), 1),
    **dict.fromkeys(("half", "float16", "fp16", "bfloat16", "bf16"), 2),
    **dict.fromkeys(("int32", "uint32", "int", "float", "float32", "fp32"), 4),
    **dict.fromkeys(("int64", "uint64", "double", "float64", "fp64"), 8),
}
"""Size of an element by the names that nccl-tests and PyTorch give its type."""

MAX_RANKS = 10_000_000
"""Of one collective."""

_WHOLE = re.compile("-?[0-9]+")
_PROGRAM = re.compile(r"\b([a-z0-9_]+?)_perf(?:_mpi)?\b")
_RANK = re.compile(r"#\s+Rank\s+(\d{1,9})(?:\s+Group\s+(\d{1,9}))?\s+Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s+(.*\S)")
_VERSION = re.compile(r"nccl-library=(\d+)|NCCL version (\d+\.\d+\.\d+)")
_THREADS = re.compile(r"#\s+nThread\s+([0-9]{1,6})\s+nGpus\s+([0-9]{1,6})")


@dataclass(frozen=True)
class Measurement:
    """One time of one size.

    Attributes:
        key: operation, group and data type.
        payload_bytes: total size as nccl-tests counts it.
        seconds: the time.
        device: the devices' name, empty if unknown.
        version: of the library, empty if unknown.
        where: line of a text, or field of JSON, for messages.
    """

    key: TableKey
    payload_bytes: float
    seconds: float
    device: str
    version: str
    where: int | str


Row = Callable[[], Measurement | None]
"""Reads a row; raises where it cannot be read, and returns None where it measures nothing."""


def read(
    path: str | Path, *, operation: str | None = None, refused: list[InputFileError] | None = None
) -> tuple[Measurement, ...]:
    """Return the measurements of a file, in its order.

    Args:
        path: the file, of any of the three forms.
        operation: which collective an nccl-tests file is about that does not say so itself.
        refused: takes what is wrong with single rows, which are then left out; without it the first one is raised.

    Raises:
        InputFileError: missing, unreadable, of another form or empty. Or a row has an unknown operation or data type, or a bad
            size or time (with the line). With ``refused``, only if all rows have.
    """
    text = files.read_text(path)
    named = None if operation is None else _operation(operation, path, "--set operation")
    lead = text.lstrip()[:1]
    if not lead:
        raise InputFileError("the file is empty", file=path)
    if lead == "{":
        rows = _from_json(files.read_json(path), path, named)
    elif _is_csv(text):
        rows = _from_csv(text, path)
    else:
        rows = _from_text(text, path, named)
    result = []
    for row in rows:
        try:
            one = row()
        except InputFileError as error:
            if refused is None:
                raise
            refused.append(error)
        else:
            result += [] if one is None else [one]
    if not result and refused:
        raise refused[0]
    if not result:
        expected = f"neither nccl-tests output (text, or JSON by -J) nor CSV with the columns {', '.join(COLUMNS)}"
        raise InputFileError(f"holds no measurement of a collective: {expected}", file=path)
    return tuple(result)


def _is_csv(text: str) -> bool:
    first = next((line for line in text.splitlines() if line.strip()), "")
    names = {name.strip() for name in first.split(",")}
    return len(names & set(COLUMNS)) >= 2


def _from_csv(text: str, path: str | Path) -> Iterator[Row]:
    rows = files.read_csv(path, text, skips_blanks=True)
    first, header = next(rows, (1, []))
    header = [name.strip() for name in header]
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise InputFileError("the column is missing", file=path, line=first, field=missing[0], choices=header)
    for line, cells in rows:
        yield partial(_csv_row, dict(zip(header, cells, strict=False)), path, line)


def _csv_row(row: dict[str, str], path: str | Path, line: int) -> Measurement:
    if any(name not in row for name in COLUMNS):
        raise InputFileError("the row is cut short", file=path, line=line)
    data_type = row["nccl_dtype"].strip()
    if data_type not in ELEMENT_BYTES:
        problem = "unknown data type"
        raise InputFileError(problem, file=path, line=line, field="nccl_dtype", value=data_type, choices=ELEMENT_BYTES)
    elements = _number(row["message_size"], path, line, "message_size", "payload_bytes")
    seconds = _number(row["latency"], path, line, "latency", "time_ms") / 1e3
    ranks = _ranks(row["num_gpus"], path, line, "num_gpus")
    key = TableKey(_operation(row["op_name"].strip(), path, "op_name", line), ranks, 1, data_type)
    source = (row.get("device") or "").strip(), (row.get("version") or "").strip()
    return Measurement(key, elements * ELEMENT_BYTES[data_type], seconds, *source, line)


def _from_json(data: Any, path: str | Path, named: Operation | None) -> Iterator[Row]:
    """Yield the report of ``-J``, of versions 1 and 2."""
    results = data.get("results") if isinstance(data, dict) else None
    if not isinstance(results, list):
        raise InputFileError("the key is missing: not the report of nccl-tests", file=path, field="results")
    config = data.get("config")
    config = config if isinstance(config, dict) else {}
    devices = [one for one in _listed(config.get("devices")) if isinstance(one, dict)]
    group = [one for one in devices if one.get("group", 0) == devices[0].get("group", 0)]
    counts = [config.get("nthreads", 1), config.get("ngpus", 0)]
    num_here = math.prod(counts) if all(isinstance(n, int) and 0 <= n <= MAX_RANKS for n in counts) else 0
    processes = {(str(one.get("hostname")), str(one["pid"])) for one in group if "pid" in one}
    # of a process with several devices the report names the first one only
    num_ranks = max(len(group), max(1, len(processes)) * num_here)
    hosts = len({str(one.get("hostname")) for one in group}) or 1
    device = str(group[0].get("device_info", "")) if group else ""
    arguments = " ".join(str(part) for part in _listed(data.get("args")))

    def made(row: Any, field: str) -> Measurement | None:
        if not isinstance(row, dict):
            raise InputFileError("must be a mapping of keys", file=path, field=field)
        kind = named or _program(f"{row.get('experiment_name') or ''} {arguments}", path, "args")
        timings = row.get("out_of_place") or row.get("in_place") or {}
        if not isinstance(timings, dict) or "time" not in timings:
            raise InputFileError("holds no time of the devices", file=path, field=field)
        if row.get("size") == 0:  # a share of so few bytes that no rank has any
            return None
        size = _number(row.get("size"), path, None, f"{field}.size", "payload_bytes")
        seconds = _number(timings["time"], path, None, f"{field}.time", "time_us") / 1e6
        key = TableKey(kind, _ranks(num_ranks, path, None, "config.devices"), hosts, str(row.get("type") or ""))
        return Measurement(key, size, seconds, device, _version(str(data.get("nccl_version") or "")), field)

    for number, row in enumerate(results):
        yield partial(made, row, f"results.{number}")


def _from_text(text: str, path: str | Path, named: Operation | None) -> Iterator[Row]:
    """Read the output of nccl-tests; lines of other programs between its own are skipped."""
    program, device, version, columns = "", "", "", [""]
    ranks: dict[str, str] = {}
    group, num_here = "", 0

    def made(words: list[str], line: int) -> Measurement | None:
        if words[0].startswith("-"):
            raise InputFileError("must be positive", file=path, line=line, field="size", value=words[0])
        size = _number(words[0], path, line, "size", "payload_bytes", least=0.0)
        if size == 0:
            return None
        kind = named or _program(program, path, "--set operation")
        if not 0 <= _time_column(columns, words) < len(words):
            raise InputFileError("the row is cut short", file=path, line=line)
        seconds = _number(words[_time_column(columns, words)], path, line, "time", "time_us") / 1e6
        num_ranks = _ranks(len(ranks) or num_here, path, line, "ranks")
        data_type = words[columns.index("type")] if "type" in columns else ""
        key = TableKey(kind, num_ranks, len(set(ranks.values())) or 1, data_type)
        return Measurement(key, size, seconds, device, version, line)

    for line, content in enumerate(text.splitlines(), start=1):
        words = content.split()
        is_row = not content.startswith("#") and columns != [""] and bool(words)
        if match := _VERSION.search(content):
            version = _version(match[1] or match[2])
        if match := _THREADS.match(content):
            num_here, ranks = int(match[1]) * int(match[2]), {}
        elif match := _RANK.match(content):
            if not ranks:
                group, device = match[2] or "0", match[4]
            if (match[2] or "0") == group:
                ranks[match[1]] = match[3]
        elif content.startswith("#") and {"size", "time"} <= set(words):
            columns = words[1:]
        elif is_row and _WHOLE.fullmatch(words[0]) and (words[0][0] == "-" or len(words) >= len(columns) // 2):
            yield partial(made, words, line)
        if _PROGRAM.search(content):
            program = content


def _listed(value: Any) -> list[Any]:
    """Return a list as it is; nothing of anything else."""
    return value if isinstance(value, list) else []


def _time_column(columns: list[str], words: list[str]) -> int:
    """Return the column of the first time.

    A row without out-of-place figures has but one, in the same column. One that leaves ``redop`` or ``root`` blank, as
    older versions do where they say nothing, has all columns from there on further to the left.
    """
    first = columns.index("time")
    block = len(columns) - first if columns.count("time") == 1 else columns.index("time", first + 1) - first
    num_missing = len(columns) - len(words)
    return first - num_missing if 0 < num_missing < block else first


def _operation(name: str, path: str | Path, field: str, line: int | None = None) -> Operation:
    spelled = name.lower()
    if spelled not in SPELLINGS:
        raise InputFileError("unknown collective", file=path, line=line, field=field, value=name, choices=SPELLINGS)
    return SPELLINGS[spelled]


def _program(text: str, path: str | Path, field: str) -> Operation:
    """Return the operation by the name of the test program, the last one that the text names."""
    names = _PROGRAM.findall(text)
    if not names:
        problem = "the file does not say which collective it measures; name it by --set operation=NAME"
        raise InputFileError(problem, file=path, choices=OPERATIONS)
    return _operation(names[0], path, field)


def _version(text: str) -> str:
    """Return ``22803`` as ``2.28.3``; what already has dots as it is."""
    if re.fullmatch("[0-9]{1,9}", text) is None or int(text) == 0:
        return text if "." in text else ""
    number = int(text)
    unit = 10000 if number >= 10000 else 1000  # up to 2.8.4 the minor version had one digit
    return f"{number // unit}.{number % unit // 100}.{number % 100}"


def _ranks(value: object, path: str | Path, line: int | None, field: str) -> int:
    try:
        number = quantities.whole(str(value))
    except ValueError:
        number = 0
    if not 2 <= number <= MAX_RANKS:
        problem = "a collective has at least two ranks" + (f", and no more than {MAX_RANKS}" if number > 2 else "")
        raise InputFileError(problem, file=path, line=line, field=field, value=value)
    return number


def _number(value: object, path: str | Path, line: int | None, field: str, name: str, *, least: float | None = None) -> float:
    """Return a number held to what one of this name can be; positive, or from ``least`` on."""
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and (number > 0 if least is None else number >= least)):
        raise InputFileError("must be a positive number", file=path, line=line, field=field, value=value)
    if (problem := quantities.problem(name, number)) is not None:
        raise InputFileError(problem, file=path, line=line, field=field, value=value)
    return number
