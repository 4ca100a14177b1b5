"""``make fuzz``: cases of every reader for some minutes, each in a process with limits; exit status 1 where one fails.

- python -m tests.fuzz                              # all readers, six minutes of CPU time
- python -m tests.fuzz plans --minutes 10 --seed 3  # one of them
- python -m tests.fuzz plans --input FILE           # one input again
"""

import argparse
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .inputs import written
from .running import accept, attempt, limit_cpu_of_process, limit_memory, play
from .targets import TARGETS

LAST_RESORT_S = 60.0
"""CPU time after which the system ends a process that compiled code keeps."""

NUM_CASES = 25
"""Of one round, after which a reader's time may be over."""


def main(words: list[str]) -> int:
    """Play what the command line asks for; the exit status."""
    request = _parsed(words)
    names = request.targets or list(TARGETS)
    if request.input is not None:
        attempt(TARGETS[names[0]], request.input.read_bytes().decode(errors="surrogatepass"))
        return 0
    if len(names) == 1:
        return _played(names[0], 60 * request.minutes, request.seed, request.last)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(request.jobs) as pool:
        minutes = request.minutes / len(names)
        failures = sum(pool.map(lambda name: _fails(name, minutes, request.seed, Path(folder) / name), names))
    sys.stdout.write(f"{len(names)} readers, seed {request.seed}: {failures} failed\n")
    return 1 if failures else 0


def _parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="READER", help=f"by default all of {', '.join(TARGETS)}")
    parser.add_argument("--minutes", type=float, default=6.0, help="of CPU time, of all readers together")
    parser.add_argument("--seed", type=int, default=0, help="of the random generator; another one, other cases")
    parser.add_argument("--jobs", type=int, default=2, help="readers at a time")
    parser.add_argument("--input", type=Path, metavar="FILE", help="one input of one reader again")
    parser.add_argument("--last", type=Path, metavar="FILE", help="where the input that is being read is kept")
    options = parser.parse_args(words)
    for name in options.targets:
        if name not in TARGETS:
            parser.error(f"no such reader: {name}")
    return options


def _fails(name: str, minutes: float, seed: int, last: Path) -> bool:
    """Whether a reader fails in a process of its own; where the system ends that, its last input is to blame."""
    command = [sys.executable, "-m", "tests.fuzz", name, "--minutes", str(minutes), "--seed", str(seed), "--last", str(last)]
    status = subprocess.run(command, check=False).returncode
    if status not in (0, 1) and last.exists():
        sys.stdout.write(f"== {name}: ended with status {status} by {last.read_bytes()[:1500]!r}\n")
    return status != 0


def _played(name: str, seconds: float, seed: int, last: Path | None) -> int:
    """Play rounds of cases until a reader's time is over or one fails; the exit status."""
    target, rounds = TARGETS[name], 0
    end_s = time.process_time() + seconds

    def prepare(text: str) -> None:
        limit_cpu_of_process(LAST_RESORT_S)
        if last is not None:
            written(last, text)

    try:
        for valid in target.inputs:
            accept(target, valid)
        limit_memory()
        while time.process_time() < end_s:
            play(target, NUM_CASES, 1_000_000 * seed + rounds, prepare)
            rounds += 1
    except Exception:
        sys.stdout.write(f"== {name}: seed {seed}\n{traceback.format_exc(limit=-6)}\n")
        return 1
    sys.stdout.write(f"{name}: {rounds * NUM_CASES:,} cases\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
