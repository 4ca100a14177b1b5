"""One case and what becomes of it, within limits; hypothesis draws the cases and finds the smallest input that still fails."""

import re
import resource
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Literal

import hypothesis
from hypothesis import strategies as st

from meshwright.errors import MeshwrightError

from .mutations import mutated

MOST_CPU_S = 10.0
"""Of one reading; the valid inputs take hundredths of it."""

MOST_BYTES = 2_000_000_000
"""That one reading may ask for beyond what the process holds."""

MOST_MESSAGE = 4_000
"""Letters of the line with the error."""


class NonsenseError(Exception):
    """Something was accepted that no machine, job or run can be."""


class Hang(BaseException):
    """More than `MOST_CPU_S` of CPU time; no reader catches it."""


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

    def spoilt(self) -> st.SearchStrategy[str]:
        """Valid inputs with a few mutations."""
        return st.sampled_from(self.inputs).flatmap(lambda text: mutated(self.form, text))


def play(target: Target, num_cases: int, seed: int, before_each: Callable[[str], object] = len) -> None:
    """Attempt so many spoilt inputs of a reader.

    Args:
        target: the reader.
        num_cases: that are drawn.
        seed: of the random generator; another one, other cases.
        before_each: called with each input before it is read.

    Raises:
        Exception: of the smallest input that fails, which hypothesis prints; a group of them where causes differ.
    """

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=num_cases,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(text=target.spoilt())
    def is_read_or_refused(text: str) -> None:
        before_each(text)
        attempt(target, text)

    is_read_or_refused()


def attempt(target: Target, text: str) -> None:
    """Read one input in an empty folder.

    Raises:
        Exception: it is neither accepted, and possible, nor refused in one line.
    """
    try:
        with warnings.catch_warnings(), limited_cpu():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", RuntimeWarning)  # numpy's, of numbers that overflow
            accept(target, text)
    except MeshwrightError as error:
        message = str(error)
        assert 0 < len(message) <= MOST_MESSAGE, f"no bearable length: {message[:2000]}"
        assert not re.search("\n|Traceback|pydantic", message), f"several lines, or words of a library: {message}"
    except Hang as error:
        raise TimeoutError(str(error)) from error


def accept(target: Target, text: str) -> None:
    """Read one input in an empty folder, where whatever the reader raises goes up."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        target.read(text, Path(folder))


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
