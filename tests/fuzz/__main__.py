"""``make fuzz``: cases of every reader for some minutes, each in a process with limits; exit status 1 where one fails.

python -m tests.fuzz                              # all readers, six minutes of CPU time
python -m tests.fuzz plans --minutes 10 --seed 3  # one of them
python -m tests.fuzz plans --seed 3 --case 417    # one case again, in this process
"""

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections import deque
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from .running import Failure, attempt, limit_cpu_of_process, limit_memory, shrunken
from .targets import TARGETS

LAST_RESORT_S = 60.0
"""CPU time after which the system ends a process that compiled code keeps."""

MOST_FAILURES = 40
"""Of one reader, with different causes."""


@dataclass
class Share:
    """What is left to do of one reader.

    Attributes:
        name: of the reader.
        seconds: of CPU time.
        first: number of the next case.
        failures: so far.
    """

    name: str
    seconds: float
    first: int = 0
    failures: int = 0


def main(words: list[str]) -> int:
    """Play what the command line asks for and tell each failure once, with its smallest input."""
    asked = _parsed(words)
    names = asked.targets or list(TARGETS)
    if asked.case is not None:
        return _again(names[0], asked.seed, asked.case)
    shares = [Share(name, 60 * asked.minutes / len(names)) for name in names]
    _play(shares, asked.seed, asked.jobs)
    cases, failures = sum(share.first for share in shares), sum(share.failures for share in shares)
    _write(f"{cases:,} cases of {len(names)} readers, seed {asked.seed}: {failures} failures\n")
    return 1 if failures else 0


def _parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="READER", help=f"by default all of {', '.join(TARGETS)}")
    parser.add_argument("--minutes", type=float, default=6.0, help="of CPU time, of all readers together")
    parser.add_argument("--seed", type=int, default=0, help="of the random generator; another one, other cases")
    parser.add_argument("--jobs", type=int, default=2, help="readers at a time")
    parser.add_argument("--case", type=int, help="one case of one reader again")
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
    _write(f"{text[:4000]}\n{told}\n")
    return 0 if failure is None else 1


def _play(shares: list[Share], seed: int, jobs: int) -> None:
    """Play each reader in a process of its own; one that the system ends begins again at the next case."""
    context = multiprocessing.get_context("fork")  # what is imported here is not imported again
    waiting, running = deque(shares), dict[Connection, tuple[Share, Any]]()
    while waiting or running:
        while waiting and len(running) < jobs:
            share = waiting.popleft()
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=_child, args=(share, seed, there))
            process.start()
            there.close()
            running[here] = share, process
        for here in wait(list(running)):
            assert isinstance(here, Connection)
            share, process = running[here]
            try:
                told = here.recv()
            except EOFError:
                process.join()
                del running[here]
                if process.exitcode != 0:
                    lost = Failure("ended by the system", f"status {process.exitcode}", "")
                    _tell(share, seed, {**asdict(lost), "number": share.first, "text": ""})
                    share.first += 1
                    waiting.append(share)
                continue
            share.seconds = told["seconds"]
            if "kind" in told:
                _tell(share, seed, told)
            else:
                share.first = told["number"] + 1


def _child(share: Share, seed: int, there: Connection) -> None:
    """Play cases and say so; where the system ends this process, the case after the last one said is to blame."""
    target, known, number = TARGETS[share.name], set[tuple[str, str]](), share.first
    end_s = time.process_time() + share.seconds
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "work"
        folder.mkdir()
        for valid in target.inputs if number == 0 else ():
            failure = target.rejection(valid, folder)
            if failure is not None:
                there.send({**asdict(failure), "number": -1, "text": valid, "seconds": share.seconds})
        limit_memory()
        while time.process_time() < end_s and len(known) < MOST_FAILURES:
            limit_cpu_of_process(LAST_RESORT_S)
            failure = attempt(target, target.case(seed, number), folder)
            if failure is not None and (failure.kind, failure.where) not in known:
                known.add((failure.kind, failure.where))
                limit_cpu_of_process(10 * LAST_RESORT_S)
                text, failure = shrunken(target, seed, number, folder)
                there.send({**asdict(failure), "number": number, "text": text, "seconds": end_s - time.process_time()})
            there.send({"number": number, "seconds": end_s - time.process_time()})
            number += 1


def _tell(share: Share, seed: int, found: dict[str, Any]) -> None:
    share.failures += 1
    told = f"\n== {share.name}: {found['kind']}: {found['where']}\n"
    told += f"   again: python -m tests.fuzz {share.name} --seed {seed} --case {found['number']}\n"
    told += f"   smallest input ({len(found['text'])} letters): {found['text'][:1500]!r}\n"
    _write(told + "".join(f"   | {line}\n" for line in found["told"].splitlines()[-24:]))


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
