"""Ctrl-C that is not lost: a library's callback or destructor may swallow the exception, but not the memory of it."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


@contextmanager
def remembered() -> Iterator[Callable[[], None]]:
    """Remember interrupts inside the block; yield a check that raises KeyboardInterrupt again where one was swallowed.

    Does nothing outside the main thread, or where the process was started to ignore interrupts.
    """
    was_asked = False
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal was_asked
        was_asked = True
        raise KeyboardInterrupt

    def check() -> None:
        if was_asked:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread() or before in (signal.SIG_IGN, None):
        yield check
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)


class InterruptedRunError(Exception):
    """A KeyboardInterrupt that has something to say, which typer lets through."""


def to_resume(begun: Sequence[Path], *words: str) -> InterruptedRunError:
    """Return an interrupt that says by which command run folders go on, where one of them was begun.

    Args:
        begun: the run folders.
        words: of the command, behind ``meshwright train``.
    """
    has_begun = any((folder / "config.yaml").is_file() for folder in begun)
    return InterruptedRunError(*([f"to resume: meshwright train {shlex.join(words)}"] if has_begun else []))
