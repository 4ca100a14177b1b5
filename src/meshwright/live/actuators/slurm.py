"""Slurm: ``sbatch`` for the export of a plan, and ``scancel``.

The job's comment, ``mw:ID``, is how a listing knows the decision again, also where whoever called ``sbatch`` died before
saying so. The job is not started again after its host has failed (``--no-requeue``): it is pinned to the plan's hosts, and wants
a new decision.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import Field

from ... import settings
from ...errors import InputFileError
from ..decisions import Word
from ..sources.programs import answer

SUBMIT, CANCEL = "sbatch", "scancel"

OTHERWISE = "; --to none decides and exports alone"
"""Remedy where Slurm is absent."""

COMMENT = "mw:"
"""Begins the comment of a job that came from a decision, before the decision's id."""

WAIT_S = 60.0
"""Longest wait for ``sbatch``."""

_JOB = re.compile(r"([0-9]{1,10})(?:;\S*)?\s*")
_UNKNOWN = ("no answer within", "timed out", "Unable to contact slurm controller")
"""Words of failures after which the job may be in the queue nevertheless."""


class SbatchOptions(settings.Settings):
    """The options of ``sbatch`` that are given in addition to the script.

    Attributes:
        time_minutes: limit of the job's run time; by default the partition's.
        partition, account, qos: by default the user's.
        work_dir: folder in which the job runs; by default the current one.
    """

    time_minutes: Annotated[int, Field(ge=1, le=10**7)] | None = None
    partition: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    work_dir: Path | None = None

    @property
    def words(self) -> list[str]:
        """The options as words of a command line, one each; no value can pass for another option."""
        names = {"time_minutes": "time", "work_dir": "chdir"}
        return [f"--{names.get(key, key)}={value}" for key, value in self if value is not None]


class MaybeSubmittedError(InputFileError):
    """``sbatch`` did not say whether Slurm has the job; a listing will."""


def submit(script: Path, decision: str, options: SbatchOptions) -> str:
    """Submit a job to Slurm; its id.

    Args:
        script: the batch script.
        decision: id of the decision.
        options: further options of ``sbatch``.

    Raises:
        MaybeSubmittedError: nobody knows whether Slurm has the job.
        InputFileError: ``sbatch`` is not there, or refuses.
    """
    call = [SUBMIT, "--parsable", "--no-requeue", f"--comment={COMMENT}{decision}", *options.words, "--", str(script.absolute())]
    try:
        printed = answer(call, wait_s=WAIT_S, otherwise=OTHERWISE)
    except InputFileError as error:
        if any(words in error.problem for words in _UNKNOWN):
            raise MaybeSubmittedError(error.problem, file=error.file) from None
        raise
    lines = printed.splitlines()
    match = _JOB.fullmatch(lines[-1]) if lines else None
    if match is None:
        raise MaybeSubmittedError("its answer names no job", file=SUBMIT, value=printed[:200])
    return match[1]


def cancel(job: str) -> None:
    """End a job of Slurm, or take it out of the queue.

    Raises:
        InputFileError: ``scancel`` is not there, or refuses.
    """
    answer([CANCEL, "--", job], otherwise="")
