"""``meshwright arrange``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ....errors import ClusterError, ConfigError, PlanError
from ... import output
from ...options import JsonFile

if TYPE_CHECKING:
    from ....simulation.tasklets.instance import TaskletInstance
    from ....simulation.tasklets.placement import TaskletPlacement


OPTIONS = {"num_stages": "--stages", "gradient_bytes": "--dp-bytes", "activation_bytes": "--pp-bytes"}
"""By the fields of an instance."""

ONE_WAY = "Links differ by direction: gradients are exchanged both ways, activations go one way and their gradients the other."


def arrange_devices(
    matrix: Annotated[
        Path,
        typer.Argument(metavar="MATRIX", help="JSON: square delay_ms and bandwidth_gbps (Gbit/s), maybe regions, constants."),
    ],
    stages: Annotated[int | None, typer.Option(metavar="N", help="Stages of the pipeline; by default the file's.")] = None,
    replicas: Annotated[int | None, typer.Option(metavar="N", help="Replicas; by default as many as fill the devices.")] = None,
    dp_bytes: Annotated[
        float | None, typer.Option("--dp-bytes", metavar="N", help="Gradients of a stage; by default the file's.")
    ] = None,
    pp_bytes: Annotated[
        float | None,
        typer.Option("--pp-bytes", metavar="N", help="What a replica hands to the next stage; by default the file's."),
    ] = None,
    budget_s: Annotated[float, typer.Option("--budget-s", metavar="N", help="The search takes so long.")] = 10.0,
    seed: Annotated[int, typer.Option(metavar="N", help="Of what is drawn.")] = 0,
    solver: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="chain, annealing, genetic or structured; best: the better of the first two; or a policy: shipped:tasklets or a "
            "run folder, with @sample-K or @search-SECONDS, which keep their own time.",
        ),
    ] = "best",
    json_file: JsonFile = None,
) -> None:
    """Choose which device runs which stage and replica, for the least communication in a step.

    The slowest stage's exchange of gradients, and twice the shortest path of hand-overs through all stages.
    """
    from ....models.policy_files import decided
    from ....planners.arrangement.arrange import SOLVERS, ArrangementRequest, arrange
    from ....simulation.tasklets.instance import read_tasklets

    output.check_file("--json", json_file)
    if seed < 0:
        raise ConfigError("must be at least 0", field="--seed", value=seed)
    if not 0 < budget_s < float("inf"):
        raise ConfigError("must be a positive number of seconds", field="--budget-s", value=budget_s)

    def placer(name: str) -> Callable[[TaskletInstance], TaskletPlacement]:
        request = ArrangementRequest(budget_s, seed, name)
        return partial(arrange, request=request) if name in SOLVERS else _policy(name, seed)

    place, given_way = (placer(solver), ()) if solver in SOLVERS else decided(solver, placer)[1:]
    try:
        instance = read_tasklets(matrix, num_stages=stages, gradient_bytes=dp_bytes, activation_bytes=pp_bytes)
    except ClusterError as error:
        raise ClusterError(
            error.problem, file=error.file, field=OPTIONS.get(error.field or "", error.field), value=error.value
        ) from None
    if replicas not in (None, instance.num_replicas):
        problem = f"{instance.num_devices} devices in {instance.num_stages} stages are {instance.num_replicas} replicas"
        raise PlanError(problem, field="--replicas", value=replicas)
    found = place(instance)
    if json_file is not None:
        output.write_json(json_file, _data(instance, found))
    out = output.console(json_file)
    rows = [[str(stage), " ".join(map(str, devices))] for stage, devices in enumerate(found.device_of.tolist())]
    output.table(out, f"Devices of {instance.name}, replica by replica", ["stage", "devices"], rows, breaks_numbers=False)
    value = f"{found.value_s:.6f} s: {found.data_parallel_s:.6f} of gradients, {found.pipeline_parallel_s:.6f} along the pipeline"
    remarks = [] if instance.is_symmetric else [ONE_WAY]
    output.print_remarks(
        out,
        [value, *remarks, f"{found.num_valued:,} groupings and moves tried", *given_way, *([found.note] if found.note else [])],
    )
    output.print_written(out, json_file)


def _policy(solver: str, seed: int) -> Callable[[TaskletInstance], TaskletPlacement]:
    """A learned policy that groups the devices of a network.

    Raises:
        PolicyError: no such solver, file or shipped policy, or no such way to ask it.
        CheckpointError: the file holds no policy of tasklets.
    """
    from ....models.graph.saved_graph_policy import load_graph_player  # takes a while, and searches need no network
    from ....worlds.tasklets.world import TaskletWorld

    player, mode = load_graph_player(solver, TaskletWorld(), TaskletWorld.rules, "--solver")
    return lambda instance: player.place(instance, mode, seed)


def _data(instance: TaskletInstance, found: TaskletPlacement) -> dict[str, object]:
    return {
        "name": instance.name,
        "num_stages": instance.num_stages,
        "num_replicas": instance.num_replicas,
        "value_s": found.value_s,
        "data_parallel_s": found.data_parallel_s,
        "pipeline_parallel_s": found.pipeline_parallel_s,
        "device_of": found.device_of.tolist(),
        "num_valued": found.num_valued,
        "note": found.note,
    }
