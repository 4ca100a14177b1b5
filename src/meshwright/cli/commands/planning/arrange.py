"""``meshwright plan --stages``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ....errors import ClusterError, ConfigError, MeshwrightError
from ... import output
from ...keys import own_keys

if TYPE_CHECKING:
    from ....simulation.tasklets.instance import TaskletInstance
    from ....simulation.tasklets.placement import TaskletPlacement


ONE_WAY = "Links differ by direction: gradients are exchanged both ways, activations go one way and their gradients the other."


def arrange_devices(
    matrix: Path | None, solver: str, budget_s: float, changes: Sequence[str] | None, json_file: str | None
) -> None:
    """Choose which device runs which stage and replica, for the least communication in a step.

    The slowest stage's exchange of gradients, and twice the shortest path of hand-overs through all stages.

    The arguments are what the options of the command say.
    """
    from ....models.policy_files import decided
    from ....planners.arrangement.arrange import SOLVERS, ArrangementRequest, arrange
    from ....simulation.tasklets.instance import read_tasklets

    if matrix is None:
        raise MeshwrightError("name the JSON of the network", field="MATRIX")
    if not 0 < budget_s < float("inf"):
        raise ConfigError("must be a positive number of seconds", field="--budget-s", value=budget_s)
    from ...key_models import StageKeys

    keys = own_keys(StageKeys, changes)
    seed = keys.seed

    def placer(name: str) -> Callable[[TaskletInstance], TaskletPlacement]:
        if name in SOLVERS:
            return partial(arrange, request=ArrangementRequest(budget_s, seed, name))
        from ....models.graph.saved_graph_policy import load_graph_player  # takes a while, and searches need no network
        from ....worlds.tasklets.world import TaskletWorld

        player, mode = load_graph_player(name, TaskletWorld(), TaskletWorld.rules, "--policy")
        return lambda instance: player.place(instance, mode, seed)

    place, given_way = (placer(solver), ()) if solver in SOLVERS else decided(solver, placer)[1:]
    given = keys.model_dump(include={"num_stages", "gradient_bytes", "activation_bytes"})
    try:
        instance = read_tasklets(matrix, **given)
    except ClusterError as error:
        of_keys = error.field in given and given[error.field] is not None
        field = f"--set {error.field}" if of_keys else error.field
        raise ClusterError(error.problem, file=error.file, field=field, value=error.value) from None
    result = place(instance)
    data = {
        "name": instance.name,
        "num_stages": instance.num_stages,
        "num_replicas": instance.num_replicas,
        "value_s": result.value_s,
        "data_parallel_s": result.data_parallel_s,
        "pipeline_parallel_s": result.pipeline_parallel_s,
        "device_of": result.device_of.tolist(),
        "num_valued": result.num_valued,
        "note": result.note,
    }
    output.write_json(json_file, data)
    out = output.console(json_file)
    rows = [[str(stage), " ".join(map(str, devices))] for stage, devices in enumerate(result.device_of.tolist())]
    output.table(out, f"Devices of {instance.name}, replica by replica", ["stage", "devices"], rows, breaks_numbers=False)
    value = (
        f"{result.value_s:.6f} s: {result.data_parallel_s:.6f} of gradients, {result.pipeline_parallel_s:.6f} along the pipeline"
    )
    remarks = [] if instance.is_symmetric else [ONE_WAY]
    output.print_remarks(
        out,
        [
            value,
            *remarks,
            f"groupings and moves tried: {result.num_valued:,}",
            *given_way,
            *([result.note] if result.note else []),
        ],
    )
    output.print_written(out, json_file)
