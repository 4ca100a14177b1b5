"""``make fuzz``: cases of every reader for some minutes, each in a process with limits; exit status 1 where one fails.

python -m tests.fuzz                              # all readers, some minutes
python -m tests.fuzz plans --minutes 10 --seed 3  # one of them
python -m tests.fuzz plans --seed 3 --case 417    # one case again, in this process
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .running import Failure, attempt, limit_cpu_of_process, limit_memory, shrunken
from .targets import TARGETS

LAST_RESORT_S = 60.0
"""CPU time after which the system ends a process that compiled code keeps."""

MOST_FAILURES = 40
"""Of one reader, with different causes."""


def main(words: list[str]) -> int:
    """Play what the command line asks for and tell each failure once, with its smallest input."""
    asked = _parsed(words)
    names = asked.targets or list(TARGETS)
    if asked.case is not None:
        return _again(names[0], asked.seed, asked.case)
    if asked.child:
        return _child(names[0], asked.seed, asked.seconds)
    seconds = 60 * asked.minutes * asked.jobs / len(names)
    with ThreadPoolExecutor(asked.jobs) as pool:
        found = list(pool.map(lambda name: _parent(name, asked.seed, seconds), names))
    total, failures = sum(cases for cases, _ in found), sum(failures for _, failures in found)
    sys.stdout.write(f"{total:,} cases of {len(names)} readers, seed {asked.seed}: {failures} failures\n")
    return 1 if failures else 0


def _parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="READER", help=f"by default all of {', '.join(TARGETS)}")
    parser.add_argument("--minutes", type=float, default=6.0, help="of all readers together")
    parser.add_argument("--seed", type=int, default=0, help="of the random generator; another one, other cases")
    parser.add_argument("--jobs", type=int, default=2, help="readers at a time")
    parser.add_argument("--case", type=int, help="one case of one reader again")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=0.0, help=argparse.SUPPRESS)
    asked = parser.parse_args(words)
    for name in asked.targets:
        if name not in TARGETS:
            parser.error(f"no such reader: {name}")
    return asked


def _again(name: str, seed: int, number: int) -> int:
    text = TARGETS[name].case(seed, number)
    with tempfile.TemporaryDirectory() as folder:
        failure = attempt(TARGETS[name], text, Path(folder))
    told = "passes" if failure is None else f"{failure.kind}: {failure.where}\n{failure.told}"
    sys.stdout.write(f"{text[:4000]}\n{told}\n")
    return 0 if failure is None else 1


def _parent(name: str, seed: int, seconds: float) -> tuple[int, int]:
    """Play one reader in a process of its own, again from the next case on where the system ended it."""
    first, cases, failures, end_s = 0, 0, 0, time.monotonic() + seconds
    while (left := end_s - time.monotonic()) > 0:
        command = [sys.executable, "-m", "tests.fuzz", name, "--child", "--seed", str(seed), "--seconds", f"{left:.0f}"]
        environment = {**os.environ, "FUZZ_FIRST": str(first)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
            assert child.stdout is not None
            last: dict[str, Any] = {"number": first - 1}
            for line in child.stdout:
                last = json.loads(line)
                if "kind" in last:
                    failures += 1
                    _tell(name, seed, last)
        cases += last["number"] + 1 - first
        if child.returncode == 0:
            break
        failures += 1
        lost = {"kind": "ended by the system", "where": f"status {child.returncode}", "told": "", "text": ""}
        _tell(name, seed, {**lost, "number": last["number"] + 1})
        first = last["number"] + 2
    return cases, failures


def _child(name: str, seed: int, seconds: float) -> int:
    """Play cases and say so, a line each; the number of a case is said before what it may do to this process."""
    target, known, number = TARGETS[name], set[tuple[str, str]](), int(os.environ.get("FUZZ_FIRST", "0"))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "work"
        folder.mkdir()
        for valid in target.inputs:
            failure = attempt(target, valid, folder)
            if failure is not None:
                _say(_data(failure, -1, valid))
        limit_memory()
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s and len(known) < MOST_FAILURES:
            limit_cpu_of_process(LAST_RESORT_S)
            failure = attempt(target, target.case(seed, number), folder)
            if failure is not None and (failure.kind, failure.where) not in known:
                known.add((failure.kind, failure.where))
                limit_cpu_of_process(10 * LAST_RESORT_S)
                text, failure = shrunken(target, seed, number, folder)
                _say(_data(failure, number, text))
            _say({"number": number})
            number += 1
    return 0


def _say(told: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def _data(failure: Failure, number: int, text: str) -> dict[str, Any]:
    return {"kind": failure.kind, "where": failure.where, "told": failure.told, "number": number, "text": text}


def _tell(name: str, seed: int, found: dict[str, Any]) -> None:
    told = f"\n== {name}: {found['kind']}: {found['where']}\n"
    told += f"   again: python -m tests.fuzz {name} --seed {seed} --case {found['number']}\n"
    told += f"   smallest input ({len(found['text'])} letters): {found['text'][:1500]!r}\n"
    sys.stdout.write(told + "".join(f"   | {line}\n" for line in found["told"].splitlines()[-24:]))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
