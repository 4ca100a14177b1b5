"""One case and what becomes of it, within limits; cases by number; the smallest input that still fails."""

import json
import os
import random
import resource
import signal
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Literal

from meshwright import yaml12
from meshwright.errors import MeshwrightError

from .mutations import OF_JSON, OF_YAML, mutate_csv, mutate_text, mutate_tree, mutate_words, to_json, to_yaml, tree_of

MOST_CPU_S = 10.0
"""Of one reading; the valid inputs take hundredths of it."""

MOST_BYTES = 2_000_000_000
"""That one reading may ask for beyond what the process holds."""

MOST_MESSAGE = 4_000
"""Letters of the line that tells what is wrong."""

NUM_TRIES = 400
"""Smaller inputs that are tried for one failure."""


class NonsenseError(Exception):
    """Something was accepted that no machine, job or run can be."""


class Hang(BaseException):
    """More than `MOST_CPU_S` of CPU time."""


@dataclass(frozen=True)
class Failure:
    """What is wrong with the answer to an input.

    Attributes:
        kind: ``traceback``, ``hang``, ``memory``, ``nonsense`` or ``message``.
        where: what failures of the same cause share.
        told: the last lines of the traceback, or what was accepted.
    """

    kind: str
    where: str
    told: str


@dataclass(frozen=True)
class Target:
    """One reader.

    Attributes:
        name: as the command line of the fuzzer spells it.
        form: of what is read.
        valid: inputs that are accepted, from which cases are made.
        read: reads an input in an empty folder; raises `MeshwrightError` where it refuses it and `NonsenseError` where what it
            makes of it cannot be.
        is_quick: whether it takes a few milliseconds, so that the tests play it too.
    """

    name: str
    form: Literal["json", "yaml", "csv", "text", "words"]
    valid: Callable[[], Iterable[str]]
    read: Callable[[str, Path], object]
    is_quick: bool = True

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The valid inputs."""
        return tuple(self.valid())

    def case(self, seed: int, number: int, kept: Iterable[int] | None = None) -> str:
        """The input of a case.

        Args:
            seed: of the run.
            number: of the case.
            kept: which of its mutations are made, by their places; None: all.
        """
        rng = random.Random(f"{self.name} {seed} {number}")
        text = rng.choice(self.inputs)
        mutations = self._mutations(rng)
        kept = range(len(mutations)) if kept is None else kept
        return self._mutated(text, [mutations[place] for place in kept])

    def rejection(self, valid: str, folder: Path) -> Failure | None:
        """What is wrong with the answer to a valid input, which must be accepted; None where it is."""
        clear(folder)
        try:
            with within(folder):
                self.read(valid, folder)
        except Exception as error:
            return Failure("valid input", type(error).__name__, _told(error))
        return None

    def num_mutations(self, seed: int, number: int) -> int:
        """How many mutations a case has."""
        rng = random.Random(f"{self.name} {seed} {number}")
        rng.choice(self.inputs)
        return len(self._mutations(rng))

    def _mutations(self, rng: random.Random) -> list[tuple[bool, float]]:
        """Whether each is one of the text, and its seed; those of the tree come first."""
        number = rng.choice((1, 1, 1, 1, 2, 2, 3, 5))
        return sorted((rng.random() < 0.25, rng.random()) for _ in range(number))

    def _mutated(self, text: str, mutations: list[tuple[bool, float]]) -> str:
        if self.form in ("json", "yaml") and any(not of_text for of_text, _ in mutations):
            tree = tree_of(json.loads(text) if self.form == "json" else yaml12.parse(text)[0])
            for of_text, seed in mutations:
                if not of_text:
                    tree = mutate_tree(tree, random.Random(seed), OF_JSON if self.form == "json" else OF_YAML)
            text = to_json(tree) if self.form == "json" else to_yaml(tree)
            mutations = [mutation for mutation in mutations if mutation[0]]
        change = {"csv": mutate_csv, "words": mutate_words}.get(self.form, mutate_text)
        for _, seed in mutations:
            text = change(text, random.Random(seed))
        return text


def attempt(target: Target, text: str, folder: Path) -> Failure | None:
    """Read one input in an empty folder; None where it is accepted, and possible, or refused as it should be."""
    clear(folder)
    try:
        with within(folder), warnings.catch_warnings(), limited_cpu():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", RuntimeWarning)  # numpy's, of numbers that overflow
            target.read(text, folder)
    except MeshwrightError as error:
        return _of_message(str(error))
    except NonsenseError as error:
        return Failure("nonsense", str(error).partition(":")[0], str(error)[:2000])
    except Hang as error:
        return Failure("hang", _place(error), _told(error))
    except MemoryError as error:
        return Failure("memory", _place(error), _told(error))
    except Exception as error:
        return Failure("traceback", f"{type(error).__name__} in {_place(error)}", _told(error))
    return None


def clear(folder: Path) -> None:
    """Remove all that lies in a folder."""
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


@contextmanager
def within(folder: Path) -> Iterator[None]:
    """Work in a folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def shrunken(target: Target, seed: int, number: int, folder: Path) -> tuple[str, Failure]:
    """The smallest input that was found to fail as a case does, and how."""
    whole = target.case(seed, number)
    failure = attempt(target, whole, folder)
    assert failure is not None

    def fails(text: str) -> bool:
        found = attempt(target, text, folder)
        return found is not None and (found.kind, found.where) == (failure.kind, failure.where)

    kept = list(range(target.num_mutations(seed, number)))
    for place in list(kept):
        fewer = [other for other in kept if other != place]
        if fails(target.case(seed, number, fewer)):
            kept = fewer
    text = target.case(seed, number, kept)
    tries = 40 if failure.kind in ("hang", "memory") else NUM_TRIES
    for split in (lambda told: told.splitlines(keepends=True), list):
        text, tries = _smallest(text, split, fails, tries)
    found = attempt(target, text, folder)
    return text, found or failure


def _smallest(text: str, split: Callable[[str], list[str]], fails: Callable[[str], bool], tries: int) -> tuple[str, int]:
    """Leave out ever smaller runs of parts while what is left fails (delta debugging); returns the tries that are left.

    Source:
        Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002.
    """
    parts = split(text)
    size = len(parts) // 2
    while size >= 1 and tries > 0:
        start = 0
        while start < len(parts) and tries > 0:
            fewer = parts[:start] + parts[start + size :]
            tries -= 1
            if fewer and fails("".join(fewer)):
                parts = fewer
            else:
                start += size
        size //= 2
    return "".join(parts), tries


@contextmanager
def limited_cpu(seconds: float = MOST_CPU_S) -> Iterator[None]:
    """Raise `Hang` in a block that takes more CPU time; compiled code is left to its end, or to the limit of the process."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Hang(f"more than {seconds:g} s of CPU time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def limit_memory() -> None:
    """Make this process raise MemoryError where it wants more than `MOST_BYTES` beyond what it has."""
    held = next(int(line.split()[1]) * 1024 for line in Path("/proc/self/status").read_text().splitlines() if "VmData" in line)
    resource.setrlimit(resource.RLIMIT_DATA, (held + MOST_BYTES, resource.RLIM_INFINITY))


def limit_cpu_of_process(seconds: float) -> None:
    """Let the system end this process after so much more CPU time, whatever it is busy with."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _of_message(told: str) -> Failure | None:
    """What is wrong with the one line that says what is wrong."""
    if not told or "\n" in told or len(told) > MOST_MESSAGE:
        return Failure("message", "no line of a bearable length", told[:2000])
    if "Traceback" in told or "pydantic" in told:
        return Failure("message", "words of a library", told[:2000])
    return None


def _place(error: BaseException) -> str:
    """The innermost function of the project in a traceback, or the innermost of all."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "meshwright" in frame.filename and "/tests/" not in frame.filename]
    frame = (own or list(frames))[-1]
    return f"{Path(frame.filename).name}:{frame.name}"


def _told(error: BaseException) -> str:
    return "".join(traceback.format_exception(error, limit=-6))[-3000:]
