"""``meshwright plan``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .... import files, quantities
from ....errors import MeshwrightError, PlanError
from ... import output
from ...help import COSTS, takes_keys
from ...keys import cost_settings, own_keys, split_keys
from ...occupied import Occupied, is_service, read_state
from ...options import (
    Batch,
    CostChanges,
    DeadlineS,
    ForFramework,
    JsonFile,
    SequenceLength,
    TrainingSteps,
    TrainingStrategies,
    argument,
    file_option,
    option,
)
from ...plans import show_ranks, show_summary, write_plan
from ..live.ledgers import service_client
from ..live.submit import job_request
from .arrange import arrange_devices
from .place import place_ops
from .search import search_plans

if TYPE_CHECKING:
    from ....planning.plan import Planned

_COMMON = {"--job", "--json"}
_JOB_ON_CLUSTER = _COMMON | {"--cluster", "--state", "--batch", "--sequence-length", "--devices", "--for"}
TAKES: dict[str, set[str]] = {
    "a service as --state": _JOB_ON_CLUSTER - {"--cluster"} | {"--deadline-s", "--set"},
    "--search": _JOB_ON_CLUSTER | {"--keep", "--take", "--all", "--training", "--set", "--plot"},
    "--ops": _COMMON
    | {"--cluster", "--policy", "--batch", "--devices", "--objective", "--budget-s", "--set", "--plot", "--trace"},
    "--stages": {"MATRIX", "--policy", "--budget-s", "--set", "--json"},
    "a policy of a fleet": _JOB_ON_CLUSTER | {"--policy", "--deadline-s"},
    "a policy": _COMMON | {"--cluster", "--policy", "--state", "--deadline-s", "--set", "--trace"},
}
"""By mode the options that it takes, but for --steps, which all but --stages take."""

WHY = {
    "a service as --state": "does not go with {}: the service says it",
    "a policy of a fleet": "does not go with {}, whose benchmark says it; --search takes it",
}
"""By mode the reason why it takes no other option."""

_OF_A_GRAPH = "; a job graph has a batch and lengths of its own, --search takes both for a transformer"
REMEDY = {"--batch": _OF_A_GRAPH, "--sequence-length": _OF_A_GRAPH, "--devices": "; --set max_degree=N sets the most"}
"""By option the remedy where a policy is to plan, which does not take it."""


@takes_keys(
    ("PolicyKeys", "a policy"),
    ("SearchKeys", "--search"),
    ("OpKeys", "--ops"),
    ("StageKeys", "--stages"),
    COSTS,
)
def plan_job(
    context: typer.Context,
    matrix: Annotated[
        Path | None, argument("MATRIX", "With --stages: JSON of square delay_ms and bandwidth_gbps (Gbit/s).")
    ] = None,
    job: Annotated[str | None, option("JOB", "zoo:NAME, or a path: config.json, graph.txt or JSON.")] = None,
    cluster: Annotated[str | None, option("CLUSTER", "preset:NAME or a path to YAML.")] = None,
    policy: Annotated[
        str | None, option("POLICY", "A policy; with --ops a planner, with --stages a solver; see list policies.")
    ] = None,
    search: Annotated[bool, typer.Option("--search", help="Search all parallel layouts.")] = False,
    ops: Annotated[bool, typer.Option("--ops", help="Place each op of the job on a device.")] = False,
    stages: Annotated[bool, typer.Option("--stages", help="Choose devices of stages on an uneven network.")] = False,
    batch: Batch = None,
    sequence_length: SequenceLength = None,
    steps: TrainingSteps = 10_000,
    deadline_s: DeadlineS = None,
    devices: Annotated[str | None, option("N", "Devices to use, as 64 or 64,128 or 64-512; all by default.", hidden=True)] = None,
    state: Annotated[
        str | None, option("FILE|URL", "Who holds which devices: a file of `meshwright state`, or a service.")
    ] = None,
    keep: Annotated[str | None, option("KEYS", "Layouts with these keys, as 'tp=4|8,schedule=1f1b'.", hidden=True)] = None,
    launcher: ForFramework = None,
    take: Annotated[
        str | None,
        option("NAME", "Whose plan is written: fastest (default), plain, or a reference: recipe, default, 1f1b.", hidden=True),
    ] = None,
    whole: Annotated[
        Path | None, file_option("Rank every layout that fits, and write all as .csv or .json.", "--all", hidden=True)
    ] = None,
    training: TrainingStrategies = None,
    objective: Annotated[
        str | None, option("NAME", "Of --ops: latency (default) of one step, or throughput of a pipeline.", hidden=True)
    ] = None,
    budget_s: Annotated[
        float | None, option("SECONDS", "Time of a search by --ops (5 by default) or --stages (10).", hidden=True)
    ] = None,
    changes: CostChanges = None,
    plot: Annotated[
        Path | None, file_option("Draw layouts (--search) or placed ops (--ops) as .svg or .html.", "--plot", hidden=True)
    ] = None,
    trace: Annotated[
        Path | None, file_option("Write one step as a Chrome trace for Perfetto; .html: as a page.", "--trace", hidden=True)
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Choose a plan for one job on a cluster, with its predicted times and the reason.

    By default a policy chooses: fastest-feasible, or with a deadline cheapest-feasible. --search ranks all parallel layouts,
    --ops places single ops, --stages arranges a pipeline on distant devices.

    Examples:
      meshwright plan --job zoo:vgg16 --cluster preset:host-8 --json plan.json
      meshwright plan --search --job zoo:gpt2-xl --cluster preset:dgx-a100-8x8
      meshwright plan --ops --job zoo:gnmt --cluster preset:host-8
    """
    modes = [name for name, is_on in (("--search", search), ("--ops", ops), ("--stages", stages)) if is_on]
    if len(modes) > 1:
        raise MeshwrightError(f"does not go with {modes[0]}", field=modes[1])
    if modes != ["--stages"] and job is None:
        raise MeshwrightError("the option is missing", field="--job")
    is_live = state is not None and is_service(state)
    if is_live:
        modes = [*modes, "a service as --state"]
        if len(modes) > 1:
            raise MeshwrightError("does not go with a service as --state: name a file or a cluster", field=modes[0])
    elif not modes and policy is not None:
        from ....planning.policies import is_by_menu

        modes = ["a policy of a fleet"] if is_by_menu(policy) else []
    mode = modes[0] if modes else "a policy"
    _refuse_others(mode, context)
    if mode == "--stages":
        arrange_devices(matrix, policy or "best", 10.0 if budget_s is None else budget_s, changes, json_file)
        return
    assert job is not None, "it was checked"
    from ...key_models import LiveKeys, PolicyKeys, SearchKeys

    if is_live:
        assert state is not None, "it is the address of a service"
        most, number = own_keys(LiveKeys, changes).max_degree, _one_number(devices)
        requested: dict[str, Any] = {"steps": steps, "deadline_s": deadline_s, "batch": batch, "framework": launcher}
        requested |= {"sequence_length": sequence_length, "max_devices": most, "devices": number}
        request = job_request(job, requested, {"max_devices": "--set max_degree"})
        tried, why = service_client(state).try_plan(request)
        if tried is None:
            raise PlanError(f"the service gives it no devices now: {why}", field="--state", value=state)
        write_plan(json_file, tried)
        out = output.console(json_file)
        show_summary(out, tried, f"Plan by {state}; nothing is held")
        show_ranks(out, tried)
        output.print_written(out, json_file)
        return
    if cluster is None:
        raise MeshwrightError("is missing: preset:NAME or a path to YAML, or a service by --state URL", field="--cluster")
    if mode == "--ops":
        limit_s = 5.0 if budget_s is None else budget_s
        number, aim = _one_number(devices), objective or "latency"
        place_ops(job, cluster, aim, policy or "best", limit_s, number, batch, steps, changes, trace, plot, json_file)
        return
    occupied_file = None if state is None else Path(state)
    if mode == "a policy of a fleet":
        from ....plans.frameworks.table import framework
        from .menu import plan_by_menu

        assert policy is not None, "it is one of a fleet"
        occupied = read_state(occupied_file, cluster)
        name = None if launcher is None else framework(launcher).name
        number = _one_number(devices)
        plan_by_menu(job, cluster, policy, steps, deadline_s, batch, sequence_length, json_file, occupied, number, name)
        return
    if mode == "--search":
        from ....planners.layouts.request import SearchRequest

        searching, priced = split_keys(SearchKeys, changes)
        wanted = SearchRequest(
            *(batch, sequence_length, devices, keep or "", searching.order, searching.top, steps, training),
            *(searching.compression, searching.arrange, launcher),
            take=take or "fastest",
            recipes=searching.recipes,
        )
        occupied = read_state(occupied_file, cluster)
        search_plans(job, cluster, wanted, searching, cost_settings(priced), whole, plot, json_file, occupied)
        return
    from ....planning.plan import plan

    keys, priced = split_keys(PolicyKeys, changes)
    occupied = read_state(occupied_file, cluster)
    with output.progress() as bars, output.set_up(bars) as simulated:
        result = plan(
            job,
            cluster,
            policy_spec=policy,
            num_steps=steps,
            deadline_s=deadline_s,
            max_degree=16 if keys.max_degree is None else keys.max_degree,
            free_at_s=None if occupied is None else occupied.taken.free_at_s(occupied.state),
            costs=cost_settings(priced),
            progress=simulated,
            **keys.arguments(),
        )
    _show(result, trace, json_file, occupied)


def _refuse_others(mode: str, context: typer.Context) -> None:
    """Refuse an option that the mode does not take.

    Raises:
        MeshwrightError: it names the modes that take the option.
    """
    parameters: list[Any] = context.command.params
    for parameter in parameters:
        option = parameter.opts[0] if parameter.param_type_name == "option" else str(parameter.metavar)
        takers = [name for name, options in TAKES.items() if option in options]
        if takers and mode not in takers and context.params[parameter.name] not in (None, [], ()):
            takers = [name for name in takers if name.startswith("--")]
            only = f"goes with {' or '.join(takers)} only{REMEDY.get(option, '')}"
            plain = only if mode == "a policy" and takers else f"does not go with {mode}"
            raise MeshwrightError(WHY.get(mode, plain).format(mode), field=option)


def _one_number(devices: str | None) -> int | None:
    """Return the number of devices, where a mode takes only one.

    Raises:
        MeshwrightError: it is none.
    """
    try:
        return None if devices is None else quantities.whole(devices)
    except ValueError:
        raise MeshwrightError("one number is wanted", field="--devices", value=devices) from None


def _show(planned_job: Planned, trace: Path | None, json_file: str | None, occupied: Occupied | None) -> None:
    """Write what was asked for, and print the plan and the other candidates."""
    graph, cluster = planned_job.scenario.workload.graphs[0], planned_job.scenario.cluster
    if trace is not None and trace.suffix == ".html":
        from ....evaluation.report.drawing import step_page

        names = [cluster.device_name(int(device)) for device in planned_job.plan.placement().devices]
        files.write_text(trace, step_page(planned_job.timeline(), graph, names))
    elif trace is not None:
        files.write_json(trace, planned_job.timeline().to_chrome_trace(graph))
    write_plan(json_file, planned_job.plan)
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
        for row in planned_job.candidates
        if row["is_offered"]
    ]
    columns = ["", "ranks", "block", "rule", "step ms", "completion s", "device-seconds", "not computing %"]
    output.table(out, f"Candidates for {planned_job.plan.job.name} on {cluster.name}", columns, rows, numbers_from=4)
    show_summary(out, planned_job.plan)
    show_ranks(out, planned_job.plan)
    if occupied is not None:
        occupied.show(out, json_file)
    output.print_written(out, json_file, trace)
