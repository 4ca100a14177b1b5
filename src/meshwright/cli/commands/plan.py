"""``meshwright plan``."""

from __future__ import annotations

from pathlib import Path

from ... import files
from .. import output
from ..cost_options import CostOptions
from ..job_options import JobOptions


def plan_job(
    job: str,
    cluster: str,
    policy: str | None,
    steps: int,
    deadline_s: float | None,
    max_degree: int,
    read: JobOptions,
    costs: CostOptions,
    trace: Path | None,
    json_file: str | None,
) -> None:
    """Choose a plan, write what was asked for, and show the plan beside the other candidates."""
    output.check_file("--json", json_file)
    output.check_file("--trace", trace)
    from ...planning.plan import plan

    with output.progress() as bars, output.set_up(bars) as simulated:
        chosen = plan(
            job,
            cluster,
            policy_spec=policy,
            num_steps=steps,
            deadline_s=deadline_s,
            max_degree=max_degree,
            costs=costs.settings(),
            progress=simulated,
            **read.arguments(),
        )
    if trace is not None:
        files.write_json(trace, chosen.timeline().to_chrome_trace(chosen.scenario.workload.graphs[0]))
    if json_file == "-":
        output.write_json(json_file, chosen.plan.model_dump(mode="json", exclude_none=True))
    elif json_file is not None:
        chosen.plan.save(json_file)
    out = output.console(json_file)
    rows = [
        [
            "->" if row["is_chosen"] else "",
            str(row["degree"]),
            row["shape"],
            row["rule"],
            f"{1000 * row['step_s']:.3f}",
            f"{row['completion_s']:,.1f}",
            f"{row['device_seconds']:,.0f}",
            f"{100 * row['communication_share']:.1f}",
        ]
        for row in chosen.candidates
        if row["is_offered"]
    ]
    columns = ["", "ranks", "block", "rule", "step ms", "completion s", "device-seconds", "not computing %"]
    output.table(out, f"Candidates for {chosen.plan.job.name} on {chosen.scenario.cluster.name}", columns, rows, numbers_from=4)
    summary = [[label, value, provenance] for label, value, provenance in chosen.plan.summary_rows()]
    output.table(out, "Plan", ["", "", "provenance"], summary, numbers_from=3)
    ranks = [[str(row["rank"]), str(row["host"]), str(row["local_rank"])] for row in chosen.plan.rank_rows()]
    output.table(out, "Ranks in order", ["rank", "host", "device of the host"], ranks, numbers_from=3)
    output.print_written(out, json_file, trace)
