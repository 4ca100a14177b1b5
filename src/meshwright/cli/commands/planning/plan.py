"""``meshwright plan``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .... import files
from ....errors import MeshwrightError
from ... import output
from ...cost_options import CostOptions
from ...job_options import JobOptions
from ...occupied import LiveService, Occupied, StateFile, read_state
from ...options import (
    Batch,
    CollectivesTable,
    CostChanges,
    CostsFile,
    DeadlineS,
    ForFramework,
    GradientCodes,
    GraphsDir,
    JsonFile,
    KeepInputOps,
    ProfileBatch,
    SequenceLength,
    TrainingSteps,
    TrainingStrategies,
)
from ...plans import show_ranks, show_summary, write_plan
from .search import FRONT_ROWS, search_plans

if TYPE_CHECKING:
    from ....planning.plan import Planned


def plan_job(
    job: Annotated[
        str, typer.Option(metavar="JOB", help="zoo:NAME, a NAME of --graphs, or a path: graph.txt, JSON, config.json.")
    ],
    cluster: Annotated[
        str | None, typer.Option(metavar="CLUSTER", help="preset:NAME or a path to YAML; with --live the service's.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(metavar="POLICY", help="Who chooses; by default fastest-feasible, with a deadline cheapest-feasible."),
    ] = None,
    steps: TrainingSteps = 10_000,
    deadline_s: DeadlineS = None,
    max_degree: Annotated[
        int | None, typer.Option(metavar="N", help="Most ranks that the job may be cut into; 16 by default.")
    ] = None,
    state: StateFile = None,
    live: LiveService = None,
    graphs: GraphsDir = None,
    keep_input_ops: KeepInputOps = False,
    profile_batch: ProfileBatch = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write one step as a Chrome trace, which Perfetto opens; .html: as a page."),
    ] = None,
    collectives: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Algorithm of all collectives: of layouts calibrated by default, else auto."),
    ] = None,
    collectives_table: CollectivesTable = None,
    overlap_slowdown: Annotated[
        float | None, typer.Option(metavar="X", help="Factor on computing and sending at once; of layouts 1.126 by default.")
    ] = None,
    costs: CostsFile = None,
    changes: CostChanges = None,
    search: Annotated[
        bool, typer.Option("--search", help="Search all parallel layouts; the options below are for this.")
    ] = False,
    batch: Batch = None,
    sequence_length: SequenceLength = None,
    devices: Annotated[
        str | None, typer.Option(metavar="N", help="Devices to use, as 64 or 64,128 or 64-512; all by default.")
    ] = None,
    keep: Annotated[
        str | None, typer.Option(metavar="KEYS", help="Keep keys of the layout, as 'tp=4|8,schedule=1f1b|interleaved'.")
    ] = None,
    order: Annotated[
        str | None, typer.Option(metavar="AXES", help="The only rank order to try, as tp-cp-dp-pp; all by default.")
    ] = None,
    training: TrainingStrategies = None,
    compression: GradientCodes = None,
    arrange: Annotated[
        str | None, typer.Option(metavar="EFFORT", help="Order of hosts on an uneven network: none, fast (default), thorough.")
    ] = None,
    top: Annotated[int | None, typer.Option(metavar="N", help="Layouts to rank; 10 by default.")] = None,
    front: Annotated[int | None, typer.Option(metavar="N", help="Rows of the Pareto front; 10 by default, 0: none.")] = None,
    launcher: ForFramework = None,
    take: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Whose plan is written: fastest (default), plain, or a reference: recipe, default, 1f1b."
        ),
    ] = None,
    recipes: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Recipes of your own, as configs/recipes.yaml, in addition."),
    ] = None,
    whole: Annotated[
        Path | None, typer.Option("--all", metavar="FILE", help="Rank every layout that fits, and write all as .csv or .json.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw time over memory, the Pareto front marked, as .svg.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Choose a plan for one job on an empty cluster, or with --state beside others, with its predicted times and why.

    By a policy that cuts the job op by op, by one of a fleet that picks from a menu of layouts, or with --search among all
    parallel layouts: of a transformer, or of any other job by data parallelism and a pipeline of its ops.
    """
    ranking: dict[str, object] = {
        "--keep": keep,
        "--order": order,
        "--training": training,
        "--compression": compression,
        "--arrange": arrange,
        "--top": top,
        "--front": front,
        "--take": take,
        "--recipes": recipes,
        "--all": whole,
        "--plot": plot,
    }
    searching = {**ranking, "--keep-input-ops": keep_input_ops or None}
    pricing: dict[str, object] = {
        "--costs": costs,
        "--set": changes,
        "--collectives": collectives,
        "--collectives-table": collectives_table,
        "--overlap-slowdown": overlap_slowdown,
        "--graphs": graphs,
        "--profile-batch": profile_batch,
    }
    if live is not None:
        from ..live.planning import plan_live

        of_service = {"--cluster": cluster, "--policy": policy, "--state": state, "--trace": trace, "--search": search or None}
        output.refuse(of_service | pricing, "does not go with --live: the service says it")
        output.refuse(searching, "does not go with --live: a search by --search and --cluster takes it")
        asked = {"steps": steps, "deadline_s": deadline_s, "batch": batch, "sequence_length": sequence_length}
        plan_live(live, job, {**asked, "max_devices": max_degree, "framework": launcher}, devices, json_file)
        return
    if cluster is None:
        raise MeshwrightError("is missing: preset:NAME or a path to YAML, or --live URL", field="--cluster")
    if policy is not None and not search and _is_by_menu(policy):
        from ....plans.frameworks.table import framework
        from .menu import plan_by_menu

        output.refuse(searching, "does not go with a policy of a fleet: --search takes it")
        of_benchmark = {"--max-degree": max_degree, "--trace": trace, **pricing}
        output.refuse(of_benchmark, "does not go with a policy of a fleet, whose benchmark says it")
        occupied = read_state(state, cluster)
        name = None if launcher is None else framework(launcher).name
        plan_by_menu(job, cluster, policy, steps, deadline_s, batch, sequence_length, json_file, occupied, devices, name)
        return
    chosen = CostOptions(costs, tuple(changes or ()), collectives, collectives_table, overlap_slowdown)
    read = JobOptions(graphs, keep_input_ops, profile_batch)
    if search:
        from ....planners.layouts.request import SearchRequest

        of_policy = {"--policy": policy, "--deadline-s": deadline_s, "--max-degree": max_degree, "--trace": trace}
        output.refuse(of_policy, "does not go with --search")
        most, effort = 10 if top is None else top, arrange or "fast"
        if front is not None and front < 0:
            raise MeshwrightError("must be at least 0", field="--front", value=front)
        request = SearchRequest(
            *(batch, sequence_length, devices, keep or "", order, most, steps, training, compression, effort, launcher),
            take=take or "fastest",
            recipes=recipes,
        )
        shown = FRONT_ROWS if front is None else front
        search_plans(job, cluster, request, read, chosen, whole, plot, json_file, read_state(state, cluster), shown)
        return
    of_search = {"--batch": batch, "--sequence-length": sequence_length, "--devices": devices, "--for": launcher}
    output.refuse(of_search | ranking, "goes with --search only")
    output.check_file("--json", json_file)
    output.check_file("--trace", trace)
    from ....planning.plan import plan

    occupied = read_state(state, cluster)
    with output.progress() as bars, output.set_up(bars) as simulated:
        found = plan(
            job,
            cluster,
            policy_spec=policy,
            num_steps=steps,
            deadline_s=deadline_s,
            max_degree=16 if max_degree is None else max_degree,
            free_at_s=None if occupied is None else occupied.free_at_s,
            costs=chosen.settings(),
            progress=simulated,
            **read.arguments(),
        )
    _show(found, trace, json_file, occupied)


def _is_by_menu(policy: str) -> bool:
    """Whether a policy picks from a menu of layouts, as those of fleets do."""
    from ....planning.policies import is_by_menu

    return is_by_menu(policy)


def _write_trace(path: Path, chosen: Planned) -> None:
    """One step, as a page where the name ends in ``.html``."""
    graph, cluster = chosen.scenario.workload.graphs[0], chosen.scenario.cluster
    if path.suffix == ".html":
        from ....evaluation.report.drawing import step_page

        names = [cluster.device_name(int(device)) for device in chosen.plan.placement().devices]
        files.write_text(path, step_page(chosen.timeline(), graph, names))
    else:
        files.write_json(path, chosen.timeline().to_chrome_trace(graph))


def _show(chosen: Planned, trace: Path | None, json_file: str | None, occupied: Occupied | None) -> None:
    """Write what was asked for, and print the plan and the other candidates."""
    if trace is not None:
        _write_trace(trace, chosen)
    write_plan(json_file, chosen.plan)
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
    show_summary(out, chosen.plan)
    show_ranks(out, chosen.plan)
    if occupied is not None:
        occupied.show(out, json_file)
    output.print_written(out, json_file, trace)
