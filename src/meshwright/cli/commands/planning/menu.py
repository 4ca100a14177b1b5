"""``meshwright plan --policy`` with a policy of a fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import output
from ...occupied import Occupied
from ...plans import show_ranks, show_summary, write_plan

if TYPE_CHECKING:
    from ....plans.frameworks.defaults import LauncherName


def plan_by_menu(
    job: str,
    cluster: str,
    policy: str,
    steps: int,
    deadline_s: float | None,
    batch: int | None,
    sequence_length: int | None,
    json_file: str | None,
    occupied: Occupied | None = None,
    devices: int | None = None,
    framework: LauncherName | None = None,
) -> None:
    """Choose, write what was asked for, and show the plan and the entries that it was chosen from.

    The arguments are what the options of the command say; ``occupied`` is None where nobody holds devices.
    """
    from ....planners.menu.listed import listed_of_menu
    from ....planning.menu_plan import MenuPlanner

    with output.progress() as bars, output.set_up(bars) as priced:
        planner = MenuPlanner.from_job(
            job,
            cluster,
            policy,
            batch=batch,
            sequence_length=sequence_length,
            devices=devices,
            framework=framework,
            progress=priced,
        )
        result = planner.plan(steps, deadline_s, None if occupied is None else occupied.taken.is_free)
    write_plan(json_file, result.plan)
    out, plan = output.console(json_file), result.plan
    assert plan.cluster is not None, "the plan was made for a cluster"
    rows = [
        [
            "->" if row.is_chosen else "",
            str(row.degree),
            row.device,
            row.name,
            f"{1000 * row.step_s:,.1f}",
            f"{steps * row.step_s:,.0f}",
            f"{steps * row.step_s * row.degree:,.0f}",
            f"{row.memory_bytes / 1e9:.1f}" + " tight" * bool(row.tight),
        ]
        for row in result.rows
    ]
    columns = ["", "ranks", "device", "layout", "step ms", "completion s", "device-seconds", "memory GB"]
    output.table(out, f"Menu of {plan.job.name} on {plan.cluster.name}", columns, rows, numbers_from=4)
    output.print_remarks(out, [listed_of_menu(has_deadline=deadline_s is not None, framework=framework)])
    show_summary(out, plan)
    show_ranks(out, plan)
    output.print_remarks(out, list(result.remarks))
    if occupied is not None:
        occupied.show(out, json_file)
    output.print_written(out, json_file)
