"""Slurm's own HTTP service: its nodes and jobs in the forms of `slurm_json`.

It says by itself which forms it writes (``/openapi/v3``); the latest that is known here is asked for. A socket file wants no
token where slurmrestd knows the user behind it (``rest_auth/local``); an address does. The token is read anew for each listing,
so that an expired one can be replaced. It comes from a file or the variable `TOKEN_VARIABLE`, goes into the head of a request,
and no message names it.
"""

from __future__ import annotations

import base64
import binascii
import getpass
import json
import os
import re
from pathlib import Path
from typing import Any

from ... import files
from ...errors import InputFileError, StateError
from .connections import UNIX, exchange
from .listings import plain
from .programs import WAIT_S
from .slurm_json import FORMS, FormError, problem_of

TOKEN_VARIABLE = "SLURM_JWT"  # noqa: S105 - where it is looked for
"""In which Slurm's own commands look for a token too."""

TOKEN_OPTION = "--set slurm_token_file"  # noqa: S105 - of its file
FORMS_PATH = "/openapi/v3"

_PATH = re.compile(r"(/slurm/(v[0-9]+\.[0-9]+\.[0-9]+)/(jobs|nodes))/?")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,16384}")


class Slurmrestd:
    """A slurmrestd that is polled.

    Args:
        url: as `connections.is_address` takes it.
        token_file: that holds the token; None: the variable `TOKEN_VARIABLE` does, where there is one.
        wait_s: longest wait for each answer.
    """

    def __init__(self, url: str, token_file: Path | None = None, *, wait_s: float = WAIT_S) -> None:
        self.url = url.rstrip("/")
        self._token_file = token_file
        self._wait_s = wait_s
        self._paths: tuple[str, ...] = ()

    def ask(self) -> str:
        """Return the answers of the server about all jobs and all nodes, one after the other.

        Raises:
            FormError: it writes JSON in forms that are not known.
            StateError: what it answers is no JSON.
            InputFileError: there is no token, or nobody answers, or not in time, or who does refuses.
        """
        headers = {"Accept": "application/json", **self._credentials()}
        try:
            if not self._paths:
                self._paths = self._known_paths(headers)
            return "".join(self._get(path, headers) for path in self._paths)
        except (InputFileError, StateError):
            self._paths = ()  # another release may run there by now
            raise

    def _known_paths(self, headers: dict[str, str]) -> tuple[str, str]:
        """Return the paths of jobs and nodes in the latest known form."""
        try:
            paths: Any = json.loads(self._get(FORMS_PATH, headers))["paths"]
            matches = [match for match in map(_PATH.fullmatch, paths) if match]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise StateError(f"{FORMS_PATH} holds no paths; is this slurmrestd?") from None
        offered = {result[2]: {one[3]: one[0] for one in matches if one[2] == result[2]} for result in matches}
        for name in reversed(FORMS):
            if len(offered.get(name, ())) == 2:
                return offered[name]["jobs"], offered[name]["nodes"]
        some = ", ".join(sorted(offered)) or "none"
        raise FormError(f"slurmrestd writes {some}, which are not known; known are {FORMS[0]} to {FORMS[-1]}")

    def _credentials(self) -> dict[str, str]:
        """Return the credentials in the head of a request; empty for a socket file without a token."""
        if self._token_file is not None:
            token = files.read_text(self._token_file).strip().removeprefix(f"{TOKEN_VARIABLE}=")
            source = str(self._token_file)
        else:
            token = os.environ.get(TOKEN_VARIABLE, "").strip()
            source = TOKEN_VARIABLE
        if not token and self._token_file is None:
            if self.url.startswith(UNIX):
                return {}
            raise InputFileError(
                f"an address wants a token, in {TOKEN_VARIABLE} or a file ({TOKEN_OPTION})", field=TOKEN_VARIABLE
            )
        if not _TOKEN.fullmatch(token):
            raise InputFileError("is no token, as `scontrol token` writes it", field=source)
        return {"X-SLURM-USER-NAME": _user_of(token), "X-SLURM-USER-TOKEN": token}

    def _get(self, path: str, headers: dict[str, str]) -> str:
        """Return an answer."""
        status, text = exchange(self.url, "GET", path, headers, wait_s=self._wait_s, server="slurmrestd")
        if status in (401, 403):
            raise InputFileError(f"refuses the token, or that there is none (status {status})", field=path)
        if status != 200:
            doubt = "; is its token good, and its time not over?" if status >= 500 and len(headers) > 1 else ""
            raise InputFileError(f"answers with status {status}: {_error_text(text)}{doubt}", field=path)
        return text


def _error_text(text: str) -> str:
    """Describe a problem in one line, in Slurm's own words where there are some."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    problem = problem_of(data) if isinstance(data, dict) else None
    return problem or plain(" ".join(text.split()), 120)


def _user_of(token: str) -> str:
    """Return whose token it is, as it says itself (``sun``); else who runs this."""
    try:
        body = token.split(".")[1]
        user = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))["sun"]
        if isinstance(user, str) and re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*\$?", user):
            return user
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
        pass
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        return "nobody"
