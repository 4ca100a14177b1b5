"""Commands in this process, asked for JSON on standard output."""

import io
import shlex
from contextlib import redirect_stderr, redirect_stdout

from meshwright.cli import run_command_line
from meshwright.errors import MeshwrightError

from .possible import checked_json


def answered(*arguments: str, has_json: bool = True) -> str:
    """Return the output of a command, after a check that the numbers in its JSON are possible.

    Raises:
        MeshwrightError: the command refuses, with its message.
        MemoryError: it says that there is not enough.
        NonsenseError: a number that cannot be.
    """
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        status = run_command_line([*arguments, *(("--json", "-") if has_json else ())])
    if status == 2:
        reported = errors.getvalue()
        if "not enough memory" in reported:
            raise MemoryError(reported)
        assert reported.count("\n") == 1
        assert reported.startswith("meshwright: error: ")
        raise MeshwrightError(reported.removeprefix("meshwright: error: "))
    assert status in (0, 1)
    if has_json:
        checked_json(out.getvalue())
    return out.getvalue()


def words(text: str) -> list[str]:
    """A command line's words; where its quotation marks do not match, by blanks."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split(" ")
