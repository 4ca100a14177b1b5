"""Ask a program of a scheduler: its whole answer within a time, or one line that says why there is none."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

from ...errors import InputFileError

WAIT_S = 60.0
"""Longest wait for an answer; the programs' own time limits are shorter."""

MOST_BYTES = 256 * 2**20
"""Of an answer: fifty times that of 2,000 jobs and 512 hosts."""

OR_A_FILE = "; --from FILE reads its answer from a file"
"""Remedy where a program is absent."""

MOST_TOLD = 16_384
"""Bytes that are read of what it says on standard error; its last line is shown."""


def answer(
    words: Sequence[str],
    *,
    variables: Mapping[str, str] | None = None,
    said: str | None = None,
    wait_s: float = WAIT_S,
    otherwise: str = OR_A_FILE,
) -> str:
    """Run a program and return its output; letters that are no UTF-8, as in the name of a job, are replaced.

    Args:
        words: the program and its arguments; no shell sees them.
        variables: of its environment, in addition to those of this process.
        said: its standard input; None: empty.
        wait_s: longest wait; then it is ended, with what it started.
        otherwise: remedy where the program is absent, appended to the error.

    Raises:
        InputFileError: it is not there, fails, prints too much or takes too long.
    """
    program = words[0]
    with tempfile.TemporaryFile() as stderr_file, tempfile.TemporaryFile() as read:
        read.write((said or "").encode())
        read.seek(0)
        try:
            process = subprocess.Popen(  # noqa: S603 - a list of words, no shell
                words,
                env={**os.environ, **(variables or {})},
                stdin=subprocess.DEVNULL if said is None else read,
                stdout=subprocess.PIPE,
                stderr=stderr_file,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise InputFileError(f"no such program on this machine{otherwise}", file=program) from None
        except OSError as error:
            raise InputFileError(f"cannot be started ({error.strerror})", file=program) from None
        late = threading.Event()

        def stop() -> None:
            late.set()
            _end(process)

        timer = threading.Timer(wait_s, stop)
        timer.start()
        try:
            assert process.stdout is not None
            with process.stdout:
                printed = process.stdout.read(MOST_BYTES + 1)
            if len(printed) > MOST_BYTES:
                raise InputFileError(f"the answer is longer than {MOST_BYTES >> 20} MiB", file=program)
            status = process.wait()
        finally:
            timer.cancel()
            _end(process)
            process.wait()
        stderr_file.seek(0)
        lines = stderr_file.read(MOST_TOLD).decode(errors="replace").strip().splitlines()
    if late.is_set():
        raise InputFileError(f"no answer within {wait_s:g} s", file=program)
    if status != 0:
        raise InputFileError(f"ended with status {status}" + (f": {lines[-1]}" if lines else ""), file=program)
    return printed.decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program that runs, and what it started."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
