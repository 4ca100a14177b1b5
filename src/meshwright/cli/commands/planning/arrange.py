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

    Args:
        matrix: JSON of the network.
        solver: chain, annealing, genetic, structured, best, or a policy.
        budget_s: of a search.
        changes: of `StageKeys`.
        json_file: to write.
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
        request = ArrangementRequest(budget_s, seed, name)
        return partial(arrange, request=request) if name in SOLVERS else _policy(name, seed)

    place, given_way = (placer(solver), ()) if solver in SOLVERS else decided(solver, placer)[1:]
    data = keys.model_dump(include={"num_stages", "gradient_bytes", "activation_bytes"})
    try:
        instance = read_tasklets(matrix, **data)
    except ClusterError as error:
        of_keys = error.field in data and data[error.field] is not None
        field = f"--set {error.field}" if of_keys else error.field
        raise ClusterError(error.problem, file=error.file, field=field, value=error.value) from None
    result = place(instance)
    if json_file is not None:
        output.write_json(json_file, _data(instance, result))
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


def _policy(solver: str, seed: int) -> Callable[[TaskletInstance], TaskletPlacement]:
    """A learned policy that groups the devices of a network.

    Raises:
        PolicyError: no such solver, file or shipped policy, or no such way to ask it.
        CheckpointError: the file holds no policy of tasklets.
    """
    from ....models.graph.saved_graph_policy import load_graph_player  # takes a while, and searches need no network
    from ....worlds.tasklets.world import TaskletWorld

    player, mode = load_graph_player(solver, TaskletWorld(), TaskletWorld.rules, "--policy")
    return lambda instance: player.place(instance, mode, seed)


def _data(instance: TaskletInstance, placement: TaskletPlacement) -> dict[str, object]:
    return {
        "name": instance.name,
        "num_stages": instance.num_stages,
        "num_replicas": instance.num_replicas,
        "value_s": placement.value_s,
        "data_parallel_s": placement.data_parallel_s,
        "pipeline_parallel_s": placement.pipeline_parallel_s,
        "device_of": placement.device_of.tolist(),
        "num_valued": placement.num_valued,
        "note": placement.note,
    }
