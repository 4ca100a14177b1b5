"""``make frozen``: compare today's outputs of the commands with the recorded ones; exit status 1 where one differs.

- ``python -m tests.frozen``: all groups, some minutes.
- ``python -m tests.frozen estimate export``: two of them.
- ``python -m tests.frozen --record plan``: record a group anew; the commit says what moved and why.

A record is a file of lines, ``case <tab> path <tab> value``, one for each leaf of the JSON that a command writes. Large parts
that repeat the input (job, cluster, ranks, exported files) are one digest each. Measured times are left out.
"""

import argparse
import contextlib
import hashlib
import io
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from meshwright.cli.app import app
from meshwright.errors import MeshwrightError

from .cases import CASES, NEED_REFERENCE, Case, reference

RECORDS = Path(__file__).parent / "records"
DIGESTED = {"job", "cluster", "ranks", "stages", "files", "graph", "placement", "executed"}
"""Keys whose value is recorded as a digest where it is a list or a mapping."""

MEASURED = {
    "cpu_s",
    "wall_s",
    "seconds_spent",
    "search_s",
    "decision_ms",
    "latency_ms",
    "elapsed_s",
    "latencies",
    "timing",
    "command",
    "created",
}
"""Keys of what depends on the machine's speed or on the moment."""

MOST_SHOWN = 12
"""Differences of one group that are printed."""


def digest(value: Any) -> str:
    """Return sixteen hexadecimal digits of a JSON value."""
    return "sha256:" + hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def leaves(value: Any, path: str = "", rows: bool = True) -> Iterator[tuple[str, str]]:
    """Yield the path and the exact text of each leaf of a JSON value; without ``rows`` a digest of each list of mappings."""
    if isinstance(value, Mapping):
        for key in sorted(value):
            below = f"{path}.{key}" if path else key
            if key in DIGESTED and isinstance(value[key], Mapping | list):
                yield below, digest(value[key])
            elif key not in MEASURED:
                yield from leaves(value[key], below, rows)
    elif isinstance(value, list) and not rows and value and isinstance(value[0], Mapping):
        yield f"{path} ({len(value)})", digest(list(map(unmeasured, value)))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from leaves(part, f"{path}[{index}]", rows)
    else:
        yield path, json.dumps(value)


def unmeasured(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without the times that a command measures of itself."""
    return {key: value for key, value in row.items() if key not in MEASURED}


def output(case: Case, folder: Path) -> dict[str, str]:
    """Run one command with a JSON file and return its leaves; the error's line where it is refused."""
    file = folder / "out.json"
    file.unlink(missing_ok=True)
    arguments = [part.replace("{folder}", str(folder)) for part in case.arguments]
    with contextlib.redirect_stderr(io.StringIO()):
        result = CliRunner().invoke(app, [*arguments, "--json", str(file)])
    if isinstance(result.exception, MeshwrightError):
        return {"refused": json.dumps(str(result.exception).replace(str(folder), "{folder}"))}
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if case.keeps:
        (folder / case.keeps).write_bytes(file.read_bytes())
    status = {"exit status": str(result.exit_code)}
    if case.written:
        root, here = folder / case.written, str(folder).encode()
        files = {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}
        return status | {name: digest(data.replace(here, b"{folder}").decode("latin-1")) for name, data in files.items()}
    text = file.read_text().replace(str(reference() or folder), "{reference}")
    return status | dict(leaves(json.loads(text), rows=case.rows))


def run(group: str) -> dict[tuple[str, str], str]:
    """Run all cases of a group, in order, in one folder of their own."""
    lines = {}
    with tempfile.TemporaryDirectory(prefix="frozen-") as folder:
        for case in CASES[group]():
            sys.stderr.write(f"  {case.name}\n")
            lines.update({(case.name, path): value for path, value in output(case, Path(folder)).items()})
    return lines


def read(group: str) -> dict[tuple[str, str], str]:
    """Read what was recorded of a group."""
    rows = (line.split("\t") for line in (RECORDS / f"{group}.tsv").read_text().splitlines())
    return {(name, path): value for name, path, value in rows}


def differences(was: Mapping[tuple[str, str], str], now: Mapping[tuple[str, str], str]) -> list[str]:
    """Return a line for each leaf that differs, is new or is gone."""
    changed = (key for key in {**was, **now} if was.get(key) != now.get(key))
    return [f"{name}: {path}: {was.get((name, path), 'absent')} -> {now.get((name, path), 'absent')}" for name, path in changed]


def say(line: str) -> None:
    """Write a line to standard output at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Record or compare the groups that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.frozen")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(CASES)}; all by default")
    parser.add_argument("--record", action="store_true", help="write the records")
    parser.add_argument("--all", action="store_true", help="print every difference")
    options = parser.parse_args()
    if wrong := [name for name in options.groups if name not in CASES]:
        parser.error(f"no group {wrong[0]!r}; valid: {', '.join(CASES)}")
    failed = False
    for group in options.groups or CASES:
        now = run(group)
        absent = set() if options.record or reference() else NEED_REFERENCE
        if options.record:
            RECORDS.mkdir(exist_ok=True)
            (RECORDS / f"{group}.tsv").write_text("".join(f"{a}\t{b}\t{c}\n" for (a, b), c in now.items()))
            say(f"{group}: {len(now)} figures recorded")
            continue
        was = {key: value for key, value in read(group).items() if key[0] not in absent}
        lines = differences(was, now)
        failed |= bool(lines)
        say(f"{group}: {len(now)} figures, {len(lines)} differ")
        shown = lines if options.all else lines[:MOST_SHOWN]
        for line in shown:
            say(f"  {line}")
        if len(shown) < len(lines):
            say(f"  ... and {len(lines) - len(shown)} more (--all)")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
