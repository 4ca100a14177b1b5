"""The scripts that Slurm calls: ``job_submit.lua``, ``PrologSlurmctld`` and ``EpilogSlurmctld``.

They post to the service and fail open. After two seconds without a good answer the job continues unchanged, and a line says so.
A user's text, such as a job's name or comment, reaches the shell only inside a quoted JSON text without quotation marks. From
an answer only letters of a fixed set are taken. The Lua runs under slurmctld's locks, hence the short limit; it acts on jobs
alone whose comment begins with ``mw:auto``.
"""

from __future__ import annotations

import re
from importlib.resources import files as resources

from ... import files
from ...errors import InputFileError
from ...export.writer import MANIFEST
from ..sources.connections import UNIX
from .slurm_hooks import AUTO

LIMIT_S = 2
"""Longest wait for an answer."""

_URL = re.compile(r"https?://[A-Za-z0-9.\[\]:-]+(?:/[A-Za-z0-9._~/-]*)?")
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9._/@%+=-]+")

_CURL = (
    f"curl --disable --silent --show-error --fail --noproxy '*' --max-time {LIMIT_S} --header 'Content-Type: application/json'"
)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ABOUT = "Written by `meshwright serve hooks`; a service that is slow or gone stops no job."

_README = """\
job_submit.lua goes next to slurm.conf on the machine of slurmctld, which needs curl, and Slurm's lua plugin for the first line:
    JobSubmitPlugins=lua
    PrologSlurmctld=@FOLDER@/prolog_slurmctld.sh
    EpilogSlurmctld=@FOLDER@/epilog_slurmctld.sh
Restart slurmctld. Only jobs that ask for it are planned: sbatch --comment='mw:auto job=zoo:gpt2-small steps=2000 batch=64' ...
"""


def hook_files(folder: str, *, server: str, header_file: str | None = None) -> dict[str, str | bytes]:
    """Return the scripts by name, and what goes into ``slurm.conf``.

    Args:
        folder: where they will lie, as ``slurm.conf`` names it.
        server: address of the service: a URL, or ``unix:PATH`` of its socket file.
        header_file: of a line for the head of each request, with the token where the service wants one.

    Raises:
        InputFileError: no such address, or letters in one that are not taken to a shell.
    """
    is_socket = server.startswith(UNIX)
    socket = server.removeprefix(UNIX)
    if not is_socket and not _URL.fullmatch(server):
        raise InputFileError("is no http://HOST:PORT or unix:PATH", field="--server", value=server)
    if is_socket and not _PLAIN_PATH.fullmatch(socket):
        raise InputFileError("is no absolute path of plain letters", field="--server", value=server)
    if header_file is not None and not _PLAIN_PATH.fullmatch(header_file):
        raise InputFileError("is no absolute path of plain letters", field="--header-file", value=header_file)
    curl = f"{_CURL} --unix-socket {socket}" if is_socket else _CURL
    values = {
        "CURL": curl if header_file is None else f"{curl} --header @{header_file}",
        "URL": "http://localhost" if is_socket else server.rstrip("/"),
        "PATH": _PATH,
        "ABOUT": _ABOUT,
        "AUTO": AUTO,
        "LIMIT": f"{LIMIT_S}",
        "FOLDER": folder,
    }
    prolog = {"NAME": "prolog_slurmctld.sh", "WHAT": "starts", "END": "prolog", "MORE": "", "VALUES": ""}
    prolog["GOES_ON"] = "its start was not reported to meshwright"
    epilog = {"NAME": "epilog_slurmctld.sh", "WHAT": "has ended", "END": "epilog", "MORE": ',"exit_code":%s'}
    epilog["VALUES"] = ' "$(text "${SLURM_JOB_EXIT_CODE2:-}")"'
    epilog["GOES_ON"] = "its end was not reported to meshwright"
    made: dict[str, str | bytes] = {
        "job_submit.lua": _filled(_text("job_submit.lua"), values),
        "prolog_slurmctld.sh": _filled(_text("slurmctld.sh"), values | prolog),
        "epilog_slurmctld.sh": _filled(_text("slurmctld.sh"), values | epilog),
        "README": _filled(_README, values),
    }
    return {**made, MANIFEST: files.json_text({"format": "slurm-hooks", "files": sorted([*made, MANIFEST])}) + "\n"}


def _text(name: str) -> str:
    return resources(__package__).joinpath(name).read_text(encoding="utf-8")


def _filled(text: str, values: dict[str, str]) -> str:
    """Return a script with ``@NAME@`` replaced."""
    return re.sub(r"@([A-Z_]+)@", lambda result: values[result[1]], text)
