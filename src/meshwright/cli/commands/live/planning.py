"""``meshwright plan --live``."""

from __future__ import annotations

from ... import output
from ...plans import show_ranks, show_summary, write_plan
from .services import service_client
from .submit import job_request


def plan_live(
    url: str,
    job: str,
    steps: int,
    deadline_s: float | None,
    batch: int | None,
    sequence_length: int | None,
    devices: str | None,
    max_degree: int | None,
    framework: str | None,
    json_file: str | None,
) -> None:
    """Ask a service what it would decide for a job now, and show the plan.

    Args:
        url: of the service.
        job, steps, deadline_s, batch, sequence_length: as of `decisions.JobRequest`.
        devices: the only number that will do.
        max_degree: most devices.
        framework: what is to run the layout.
        json_file: where the plan goes.

    Raises:
        PlanError: the job gets no devices now.
        MeshwrightError: the job is missing or wrong, or nobody answers.
    """
    from .... import quantities
    from ....errors import MeshwrightError, PlanError

    output.check_file("--json", json_file)
    try:
        number = None if devices is None else quantities.whole(devices)
    except ValueError:
        raise MeshwrightError("with --live one number is wanted", field="--devices", value=devices) from None
    fields = {
        "steps": steps,
        "deadline_s": deadline_s,
        "batch": batch,
        "sequence_length": sequence_length,
        "framework": framework,
    }
    request = job_request(
        job, {**fields, "devices": number, "max_devices": max_degree, "name": None}, {"max_devices": "--max-degree"}
    )
    plan, why = service_client(url, "--live").try_plan(request)
    if plan is None:
        raise PlanError(f"the service gives it no devices now: {why}", field="--live", value=url)
    write_plan(json_file, plan)
    out = output.console(json_file)
    show_summary(out, plan, f"Plan by {url}; nothing is held")
    show_ranks(out, plan)
    output.print_written(out, json_file)
