"""Submitting a job: decide, export its plan, submit it to Slurm, and confirm.

After any failure no devices stay held for a job that nobody has. They are given back with the reason, and a job whose devices
were given back meanwhile is cancelled. A process that dies between ``sbatch`` and ``confirm`` leaves a job whose comment names
the decision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...errors import ConflictError, ExportError, MeshwrightError
from ...export import ExportOptions, export, write
from ...export.launchers.slurm import FILE_NAME
from ..client import Client
from ..controller import LISTINGS_TO_END, Controller
from ..decisions import JobRequest, KeptDecision
from ..sources import slurm as listing_source
from . import slurm

Decider = Controller | Client
"""Decides for jobs: in this process, or by a service elsewhere."""


@dataclass(frozen=True)
class Submitted:
    """The result of a request.

    Attributes:
        record: the decision.
        job: Slurm's id of the job; None where it was not handed over.
        folder: where the export lies; None where nothing was written now.
        remarks: for people.
    """

    record: KeptDecision
    job: str | None = None
    folder: Path | None = None
    remarks: tuple[str, ...] = ()


def submit(
    decider: Decider,
    request: JobRequest,
    folder: Callable[[str], Path],
    options: ExportOptions,
    *,
    key: str | None = None,
    sbatch: slurm.SbatchOptions | None = None,
) -> Submitted:
    """Decide for a job and, where it gets devices, export and submit it; a repeated request with its key does no more.

    Args:
        decider: who decides.
        request: the job.
        folder: where the export of a decision is written, by its id.
        options: of the export; ``sharing`` is the decision's, and ``time`` that of ``sbatch`` where it has one.
        key: of the request.
        sbatch: further options of ``sbatch``; None: the job is exported only.

    Raises:
        ConflictError: the key is another request's, or its devices were given back.
        MaybeSubmittedError: nobody knows whether Slurm has the job; its devices stay held.
        MeshwrightError: the job is wrong, its plan cannot be exported, or Slurm refuses it; then nothing is held.
    """
    record = decider.decide(request, key)
    name = record.decision.id
    if record.decision.outcome != "placed":
        return Submitted(record)
    last = decider.mentions(name)[-1]
    if last.status in ("confirmed", "running"):
        return Submitted(record, last.detail, remarks=(f"was submitted before, as job {last.detail}",))
    if last.status != "reserved":
        status = f"is {last.status}" + (f": {last.detail}" if last.detail else "")
        raise ConflictError(f"{status}; submit it anew under another key", field=f"decision {name}")
    where = folder(name)
    try:
        if sbatch is not None and sbatch.time_minutes is not None:
            least = math.ceil(record.decision.predicted["completion_s"] / 60)
            if sbatch.time_minutes < least:  # it would be ended before its end, and is not started again
                problem = f"the plan is predicted to run longer than that; {least} would do"
                raise ExportError(problem, field="--set time_minutes", value=sbatch.time_minutes)
            options = options.model_copy(update={"time": str(sbatch.time_minutes)})
        plan, inputs = decider.whole_plan(record.decision), record.decision.inputs
        assert plan is not None and inputs is not None, "it was placed"  # noqa: PT018
        sharing = "hosts" if inputs.whole_hosts else "devices"
        write(export(plan, "slurm", options.model_copy(update={"sharing": sharing, "decision": name})), where)
        if sbatch is None:
            return Submitted(record, folder=where)
        job = slurm.submit(where / FILE_NAME, name, sbatch)
    except slurm.MaybeSubmittedError as error:
        problem = f"{error.problem}; Slurm may have the job: its devices stay held for the decision {name}"
        raise slurm.MaybeSubmittedError(problem, file=error.file, value=error.value) from None
    except (MeshwrightError, OSError) as error:
        decider.release(name, f"not submitted: {error}"[:1000])
        raise
    return Submitted(record, job, where, _confirm(decider, name, job))


def look(controller: Controller, ask: Callable[[], str] = lambda: listing_source.ask(slurm.OTHERWISE)) -> tuple[str, ...]:
    """Read Slurm's listing as the truth, a second time where it does not know a job that was just submitted.

    Returns:
        Contradictions to the known state, decisions whose devices were given back, and gaps of the listing, for people.

    Raises:
        MeshwrightError: there is no answer, or it cannot be understood; the state is as the last good one says.
    """
    remarks: list[str] = []
    for _ in range(LISTINGS_TO_END):
        handed = controller.handed_over()
        text = ask()
        try:
            listing = listing_source.read(text, controller.store.last()[1])
            drift, released = controller.take(listing, handed)
        except MeshwrightError as error:
            raise error.at(file=listing_source.PROGRAM) from None
        remarks += [f"not as it was known: {one}" for one in drift]
        remarks += [f"given back: the devices of {one}" for one in released] + list(listing.remarks)
        if not set(handed) & set(controller.handed_over()) - set(listing.waiting):
            break
    return tuple(dict.fromkeys(remarks))


def _confirm(decider: Decider, name: str, job: str) -> tuple[str, ...]:
    """Say that a job was handed over; remarks.

    Raises:
        ConflictError: its devices were given back meanwhile; it is cancelled.
    """
    try:
        decider.confirm(name, job)
    except ConflictError as error:
        slurm.cancel(job)
        raise ConflictError(f"{error.problem}; job {job} is cancelled", field=error.field) from None
    except MeshwrightError as error:
        return (f"not confirmed, which the next listing does by the job's comment: {error}",)
    return ()
