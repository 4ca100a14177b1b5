"""The command line: thin commands over the Python API.

Exit status: 0 done; 1 a check that was asked for failed; 2 the user's input is wrong (told in one line).
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its status."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit status; errors of the user are printed in one line."""
    import typer
    from typer.main import get_command

    from ..errors import MeshwrightError
    from .app import app

    try:
        status = get_command(app).main(arguments, prog_name="meshwright", standalone_mode=False)
    except MeshwrightError as error:
        return _refuse(str(error), error.exit_code)
    except typer.Exit as stop:
        return stop.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return _say("interrupted", 130)
    except BrokenPipeError:
        sys.stderr.close()
        return 141
    except Exception as error:
        message = _usage_message(error)
        if message is None:
            raise
        return _refuse(message, 2)
    return status if isinstance(status, int) else 0


def _refuse(message: str, status: int) -> int:
    return _say(f"error: {message}", status)


def _say(message: str, status: int) -> int:
    sys.stderr.write(f"meshwright: {message}\n")
    return status


def _usage_message(error: Exception) -> str | None:
    """What a wrong option or argument is told in, without the usage text around it; None for other errors."""
    format_message = getattr(error, "format_message", None)
    return " ".join(str(format_message()).split()) if callable(format_message) else None
