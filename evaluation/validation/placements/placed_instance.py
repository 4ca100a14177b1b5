"""Every form of the value of one instance of operator placement: of a given placement, or of what each planner finds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .... import files
from ....errors import InputFileError, PlanError, PolicyError
from ....jobs.readers.pipedream import load_profile, without_inputs
from ....planners.operators.place import PLACEMENT_PLANNERS, place
from ....planners.operators.request import PlacementRequest
from ....planners.operators.stages.pipedream import MachineLevel, pipedream
from ....planners.operators.stages.piper import piper, stage_seconds
from ....simulation.operators.contiguous import contiguous_value_s
from ....simulation.operators.forms import FORMS, form_value_s, pipedream_stages_s
from ....simulation.operators.instance import OperatorInstance
from ....simulation.operators.instance_files import load_instance
from ....simulation.operators.json_fields import JsonFields
from ....simulation.operators.piper_files import load_piper
from ....simulation.operators.placement import OBJECTIVES, OperatorPlacement, lower_bound, placed
from ....simulation.operators.published_files import is_published, load_split

BANDWIDTH_BYTES_PER_S = 1e9
"""Of PipeDream's profiles, which name none."""
IN_ORDER = "in the order of the file"
_CONTIGUOUS = "contiguous-accelerator"
_IN_PIECES = "an accelerator would wait for itself, so it runs in pieces"


class InstanceValue(NamedTuple):
    """One value.

    Attributes:
        objective: latency or throughput.
        form: which form of it.
        planner: whose placement.
        value_s: seconds; None where none was found, the note says why.
        note: what else a reader should know.
    """

    objective: str
    form: str
    planner: str
    value_s: float | None
    note: str


def values_of(path: Path, placement: Path | None, search_s: float) -> tuple[str, list[InstanceValue]]:
    """Return the values of an instance: of dnn-partitioning, of Piper, a profile of PipeDream, or the project's own.

    Args:
        path: its file.
        placement: the device of each op. A list of device names or numbers, an object of op names and those, or a split of
            dnn-partitioning. Or an object of such ``device_of`` and perhaps the ``order`` of the ops; of Piper and PipeDream
            ``stages`` (see `given_stages`). None: the placement by each planner.
        search_s: seconds for each search.

    Returns:
        The instance's name, and every form of the value that it has figures for. A form that is impossible for a placement has
        the reason. Without a placement the default form of each objective by every planner, and of the best of them the others.

    Raises:
        MeshwrightError: a file is missing or malformed, or the placement is not legal.
    """
    data = files.read_json(path) if path.suffix == ".json" else None
    if data is None:
        return _pipedream(path, placement)
    if isinstance(data, dict) and "maxMemoryPerDevice" in data:
        return _piper(path, placement)
    instance = load_instance(path)
    if placement is not None:
        device_of = _device_of(placement, path, instance)
        order, results = _order(placement, instance), []
        for objective in OBJECTIVES:
            made = placed(instance, device_of, objective, "given")
            results.append(InstanceValue(objective, FORMS[objective][0], "given", made.value_s, ""))
            if order is not None and objective == "latency":
                made = placed(instance, device_of, objective, "given", order=order)
                results.append(InstanceValue(objective, FORMS[objective][0], "given", made.value_s, IN_ORDER))
            results += other_forms(instance, made, "given", IN_ORDER if order is not None else "")
    else:
        results = []
        for objective in OBJECTIVES:
            best: OperatorPlacement | None = None
            for name, planner in PLACEMENT_PLANNERS.items():
                if objective in planner.objectives:
                    try:
                        made = place(instance, name, PlacementRequest(objective, budget_s=search_s))
                    except PlanError as error:
                        results.append(InstanceValue(objective, FORMS[objective][0], name, None, error.problem))
                        continue
                    results.append(InstanceValue(objective, FORMS[objective][0], name, made.value_s, made.note))
                    best = made if best is None or made.value_s < best.value_s else best
            if best is not None:
                results += other_forms(instance, best, best.planner, "")
    bounds = [
        InstanceValue(each, FORMS[each][0], "lower bound", lower_bound(instance, each), "no placement is better")
        for each in OBJECTIVES
    ]
    return instance.name, [*results, *bounds]


def other_forms(instance: OperatorInstance, made: OperatorPlacement, by: str, in_order: str) -> list[InstanceValue]:
    """Return a placement's value in all forms of its objective but the default one, of latency in the published form too.

    Args:
        instance: what is placed.
        made: where, and in which order.
        by: whose placement.
        in_order: for the note of forms that depend on the order of the ops, where that is not the best known.
    """
    result = []
    for form in (*FORMS[made.objective][1:], *((_CONTIGUOUS,) if made.objective == "latency" else ())):
        try:
            if form == _CONTIGUOUS:
                value_s, in_pieces = contiguous_value_s(instance, made.device_of)
                note = _IN_PIECES if in_pieces else ""
            else:
                value_s, note = form_value_s(instance, made, form), in_order
            result.append(InstanceValue(made.objective, form, by, value_s, note))
        except PlanError as error:
            result.append(InstanceValue(made.objective, form, by, None, error.problem))
    return result


def _piper(path: Path, placement: Path | None) -> tuple[str, list[InstanceValue]]:
    instance = load_piper(path)
    stages_given = None if placement is None else given_stages(placement, instance.op_names)
    results = []
    for recomputes in (True, False):
        form, note = "piper", "" if recomputes else "without recomputation"
        try:
            if stages_given is not None:
                value_s, stages, by = max(stage_seconds(instance, stages_given, recomputes=recomputes)), stages_given, "given"
            else:
                plan = piper(instance, recomputes=recomputes)
                value_s, by = plan.value_s, "piper"
                stages = [(stage.has_op, stage.num_replicas, stage.tensor_degree) for stage in plan.stages]
        except (PlanError, PolicyError) as error:
            if stages_given is not None and recomputes:
                raise
            results.append(InstanceValue("throughput", form, "piper" if stages_given is None else "given", None, error.problem))
            continue
        degrees = " ".join(f"{replicas}x{tensor}" for _, replicas, tensor in stages)
        words = f"replicas x tensor degree of each stage: {degrees}"
        results.append(InstanceValue("throughput", form, by, value_s, "; ".join([*([note] if note else []), words])))
    return instance.name, results


def _pipedream(path: Path, placement: Path | None) -> tuple[str, list[InstanceValue]]:
    graph = without_inputs(load_profile(path))
    if placement is not None:
        stages = [(ops, replicas) for ops, replicas, _ in given_stages(placement, graph.op_names, has_tensors=False)]
        value_s = pipedream_stages_s(graph, stages, BANDWIDTH_BYTES_PER_S)
        note = f"{sum(replicas for _, replicas in stages)} machines at 1 GB/s, replicas {_joined(r for _, r in stages)}"
        return graph.name, [InstanceValue("throughput", "pipedream", "given", value_s, note)]
    results = []
    for number in (1, 4, 8, 16):
        made = pipedream(graph, [MachineLevel(number, BANDWIDTH_BYTES_PER_S)])
        note = f"{number} machines at 1 GB/s, replicas {_joined(made.replicas)}"
        results.append(InstanceValue("throughput", "pipedream", "pipedream", made.value_s, note))
    return graph.name, results


def given_stages(path: Path, op_names: Sequence[str], *, has_tensors: bool = True) -> list[tuple[NDArray[np.bool_], int, int]]:
    """Return the ops ``(n,)``, replicas and tensor degree of each stage of a file.

    The file has ``{"stages": [{"ops": [NAME, ...], "replicas": 2, "tensor_degree": 1}, ...]}``; both numbers are 1 if absent.

    Args:
        path: the file.
        op_names: of the instance.
        has_tensors: whether stages may have a tensor degree.

    Raises:
        InputFileError: not of this form, or an op that is not there.
    """
    numbers = {name: op for op, name in enumerate(op_names)}
    result = []
    for stage in JsonFields(files.read_json(path), path).objects("stages"):
        for key in stage.data:
            known = ("ops", "replicas", "tensor_degree") if has_tensors else ("ops", "replicas")
            if key not in known:
                raise InputFileError("unknown key", file=path, field=f"{stage.field}.{key}", value=key, choices=known)
        has_op = np.zeros(len(op_names), np.bool_)
        for name in stage.items("ops"):
            if not isinstance(name, str) or name not in numbers:
                raise InputFileError("no such op", file=path, field=f"{stage.field}.ops", value=name, choices=op_names)
            has_op[numbers[name]] = True
        if not has_op.any():
            raise stage.error("a stage has an op or more", "ops")
        replicas, degree = (
            stage.whole(key, least=1, most=10_000) if key in stage.data else 1 for key in ("replicas", "tensor_degree")
        )
        result.append((has_op, replicas, degree))
    if not result:
        raise InputFileError("has no stage", file=path, field="stages")
    return result


def _joined(replicas: Iterable[int]) -> str:
    return ":".join(map(str, replicas))


def _order(path: Path, instance: OperatorInstance) -> NDArray[np.int64] | None:
    """Return the order of the ops in a placement's file, a topological one; None where it has none."""
    data = files.read_json(path)
    given_order = data.get("order") if isinstance(data, dict) and "device_of" in data else None
    if given_order is None:
        return None
    numbers = {name: op for op, name in enumerate(instance.op_names)}
    wrong = (
        [each for each in given_order if not (isinstance(each, str) and each in numbers)]
        if isinstance(given_order, list)
        else [given_order]
    )
    if wrong:
        raise InputFileError("no such op", file=path, field="order", value=wrong[0], choices=instance.op_names)
    order = np.array([numbers[each] for each in given_order], np.int64)
    if sorted(given_order) != sorted(instance.op_names):
        raise InputFileError(
            f"must name each of the {instance.num_ops} ops once", file=path, field="order", value=len(given_order)
        )
    place = np.argsort(order)
    late = np.flatnonzero(place[instance.edges[:, 0]] >= place[instance.edges[:, 1]])
    if late.size:
        source, reader = (instance.op_names[op] for op in instance.edges[late[0]])
        raise InputFileError(f"has {reader} before {source}, whose output it reads", file=path, field="order", value=reader)
    return order


def _device_of(path: Path, instance_path: Path, instance: OperatorInstance) -> NDArray[np.int64]:
    data = files.read_json(path)
    if isinstance(data, dict) and "fpgas" in data:
        if not is_published(files.read_json(instance_path)):
            raise InputFileError("a split of dnn-partitioning is for one of its instances", file=path)
        return load_split(path, instance_path, instance)
    if isinstance(data, dict) and "device_of" in data:
        data = data["device_of"]
    if isinstance(data, dict):
        for name in data:
            if name not in instance.op_names:
                raise InputFileError("no such op", file=path, field=name, value=name, choices=instance.op_names)
        absent = [name for name in instance.op_names if name not in data]
        if absent:
            raise InputFileError("no device is given to this op", file=path, field=absent[0])
        data = [data[name] for name in instance.op_names]
    if not isinstance(data, list) or len(data) != instance.num_ops:
        raise InputFileError(f"must give a device to each of the {instance.num_ops} ops", file=path)
    numbers = {name: device for device, name in enumerate(instance.device_names)}
    results = []
    for op, device in zip(instance.op_names, data, strict=True):
        if isinstance(device, str) and device in numbers:
            results.append(numbers[device])
        elif isinstance(device, int) and not isinstance(device, bool) and 0 <= device < instance.num_devices:
            results.append(device)
        else:
            raise InputFileError("no such device", file=path, field=op, value=device, choices=instance.device_names)
    return np.array(results, np.int64)
