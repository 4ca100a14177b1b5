"""The command line: thin commands over the Python API.

Exit status:

- 0: done;
- 1: a requested check failed, or a benchmark gives nothing to learn;
- 2: the user's input is wrong, or the system refuses a request (one line of error);
- 130: interrupted by Ctrl-C;
- 141: the reader of the output has closed it;
- 143: ended by SIGTERM.
"""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Event
from typing import Any

INTERRUPTED = 130
NOBODY_READS = 141
is_at_once = Event()
"""Set by commands that end with more objects than can be freed one by one in less than seconds, such as a large search."""


def main() -> None:
    """Run the command line and end the process with its status, see `is_at_once`."""
    gc.set_threshold(100_000, 50, 50)  # commands make many objects that stay, and few that refer to themselves
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller closed it
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - open until the process ends
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a name that the terminal cannot show
    status = run_command_line(sys.argv[1:])
    if is_at_once.is_set():
        with suppress(OSError):  # `guarded` has flushed the other one
            sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def run_command_line(arguments: list[str]) -> int:
    """Run one command and return its exit status; errors of the user are printed in one line."""
    return guarded(lambda: _dispatch(arguments))


def guarded(action: Callable[[], int]) -> int:
    """Return the exit status of an action; errors of user and system, Ctrl-C and warnings are printed in one line each."""
    from .. import inputs
    from ..errors import MeshwrightError
    from .interrupts import InterruptedRunError

    try:
        with inputs.protected(), _printed_warnings():
            status = action()
        sys.stdout.flush()
    except MeshwrightError as error:
        return _refuse(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _say("interrupted", INTERRUPTED)
    except InterruptedRunError as interrupt:
        return _say("; ".join(["interrupted", *map(str, interrupt.args)]), INTERRUPTED)
    except (BrokenPipeError, SystemExit):  # rich leaves by SystemExit where a pipe is broken, and so does typer
        _abandon_output()
        return NOBODY_READS
    except OSError as error:
        _abandon_output()
        about = "" if error.filename is None else f"{error.filename}: "
        return _refuse(f"{about}the system refuses: {error.strerror or error}", 2)
    except MemoryError as error:
        return _refuse(f"not enough memory: {error}".rstrip(": "), 2)
    return _say("interrupted", INTERRUPTED) if status == INTERRUPTED else status


def _dispatch(arguments: list[str]) -> int:
    from ..compiling import watched
    from . import output, usage
    from .aliases import renamed

    arguments, remark = renamed(arguments)
    if remark is not None:
        _say(remark, 0)
    usage.check_not_empty(arguments, _command())
    try:
        with watched(output.say_once_compiling()):
            status = _command().main(arguments, prog_name="meshwright", standalone_mode=False)
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # without its arguments; the text of the error is the help
            sys.stdout.write(f"{error}\n")
            return 0
        ours = usage.as_our_error(error)
        if ours is None:
            raise
        raise ours from None
    return status if isinstance(status, int) else 0


@cache
def _command() -> Any:
    """Return all commands and options; typer makes them out of annotations, which takes longer than most refusals."""
    from typer.main import get_command

    from .app import app

    return get_command(app)


@contextmanager
def _printed_warnings() -> Iterator[None]:
    """Print our own warnings on standard error, a line each and each once; those of others as they are."""
    from ..errors import MeshwrightWarning

    printed: set[str] = set()
    with warnings.catch_warnings():
        show = warnings.showwarning

        def print_once(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if not issubclass(category, MeshwrightWarning):
                show(message, category, *place, **more)
            elif str(message) not in printed:
                printed.add(str(message))
                _say(f"warning: {message}", 0)

        warnings.simplefilter("always", MeshwrightWarning)
        warnings.showwarning = print_once
        yield


def _refuse(message: str, status: int) -> int:
    return _say(f"error: {message}", status)


def _say(message: str, status: int) -> int:
    """Print one line on standard error, with the control characters of quoted names escaped."""
    line = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in message)
    sys.stderr.write(f"meshwright: {line}\n")
    return status


def _abandon_output() -> None:
    """Send what is left for standard output nowhere, so that the interpreter does not trip over it when it ends."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # a stream that is no file
        return
