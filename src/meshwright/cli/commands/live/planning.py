"""``meshwright plan --state URL``."""

from __future__ import annotations

from typing import Any

from ... import output
from ...plans import show_ranks, show_summary, write_plan
from .services import service_client
from .submit import job_request


def plan_live(url: str, job: str, asked: dict[str, Any], devices: str | None, json_file: str | None) -> None:
    """Ask a service what it would decide for a job now, and show the plan.

    Args:
        url: of the service.
        job: as the command line spells it.
        asked: fields of `decisions.JobRequest`, the devices apart.
        devices: the only number that will do.
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
        raise MeshwrightError("one number is wanted", field="--devices", value=devices) from None
    request = job_request(job, {**asked, "devices": number}, {"max_devices": "--set max_degree"})
    plan, why = service_client(url).try_plan(request)
    if plan is None:
        raise PlanError(f"the service gives it no devices now: {why}", field="--state", value=url)
    write_plan(json_file, plan)
    out = output.console(json_file)
    show_summary(out, plan, f"Plan by {url}; nothing is held")
    show_ranks(out, plan)
    output.print_written(out, json_file)
