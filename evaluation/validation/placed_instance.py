"""Every form of the value of one instance of operator placement: of a given placement, or of what each planner finds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import files
from ...errors import InputFileError, MeshwrightError, PlanError
from ...jobs.readers.pipedream import load_profile, without_inputs
from ...planners.operators.place import PLACEMENT_PLANNERS, place
from ...planners.operators.request import PlacementRequest
from ...planners.operators.stages.pipedream import MachineLevel, pipedream
from ...planners.operators.stages.piper import piper
from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.instance_files import load_instance
from ...simulation.operators.piper_files import load_piper
from ...simulation.operators.placement import OperatorObjective, lower_bound, placed
from ...simulation.operators.published_files import is_published, load_split

OBJECTIVES: tuple[OperatorObjective, ...] = ("latency", "throughput")


@dataclass(frozen=True)
class InstanceValue:
    """One value.

    Attributes:
        form: which form.
        planner: whose placement.
        value_s: seconds; None where none was found, the note says why.
        note: what else a reader should know.
    """

    form: str
    planner: str
    value_s: float | None
    note: str


@dataclass(frozen=True)
class InstanceValues:
    """All values of an instance."""

    name: str
    values: tuple[InstanceValue, ...]

    def to_data(self) -> dict[str, Any]:
        """Plain data."""
        return {"name": self.name, "values": [asdict(each) for each in self.values]}


def values_of(path: Path, placement: Path | None, search_s: float) -> InstanceValues:
    """Values of an instance: of dnn-partitioning, of Piper, a profile of PipeDream, or the project's own.

    Args:
        path: its file.
        placement: the device of each op: a list of device names or numbers, an object of op names and those, an object of such
            ``device_of`` and perhaps the ``order`` of the ops, or a split of dnn-partitioning; None: what each planner finds.
        search_s: seconds for each search.

    Raises:
        MeshwrightError: a file is missing or malformed, or the placement is not legal.
    """
    data = files.read_json(path) if path.suffix == ".json" else None
    is_piper = isinstance(data, dict) and "maxMemoryPerDevice" in data
    if data is None or is_piper:
        if placement is not None:
            raise InputFileError("a placement is of ops on devices, this instance is cut into stages", field="--placement")
        return _piper(path) if is_piper else _pipedream(path)
    instance = load_instance(path)
    if placement is not None:
        device_of = _device_of(placement, path, instance)
        given = [placed(instance, device_of, objective, "given") for objective in OBJECTIVES]
        found = [InstanceValue(each.objective, each.planner, each.value_s, "") for each in given]
        order = _order(placement, instance)
        if order is not None:
            ordered_s = placed(instance, device_of, "latency", "given", order=order).value_s
            found.insert(1, InstanceValue("latency", "given", ordered_s, "in the order of the file"))
    else:
        found = []
        for objective in OBJECTIVES:
            for name, planner in PLACEMENT_PLANNERS.items():
                if objective in planner.objectives:
                    found += _tried(instance, name, objective, search_s)
    bounds = [InstanceValue(each, "lower bound", lower_bound(instance, each), "no placement is better") for each in OBJECTIVES]
    return InstanceValues(instance.name, (*found, *bounds))


def _tried(instance: OperatorInstance, name: str, objective: OperatorObjective, search_s: float) -> list[InstanceValue]:
    try:
        made = place(instance, name, PlacementRequest(objective, budget_s=search_s))
    except PlanError as error:
        return [InstanceValue(objective, name, None, error.problem)]
    return [InstanceValue(objective, name, made.value_s, made.note)]


def _piper(path: Path) -> InstanceValues:
    instance = load_piper(path)
    found = []
    for recomputes in (True, False):
        form = "piper" if recomputes else "piper, no recomputation"
        try:
            plan = piper(instance, recomputes=recomputes)
        except MeshwrightError as error:
            found.append(InstanceValue(form, "piper", None, error.problem))
            continue
        stages = " ".join(f"{stage.num_replicas}x{stage.tensor_degree}" for stage in plan.stages)
        found.append(InstanceValue(form, "piper", plan.value_s, f"replicas x tensor degree of each stage: {stages}"))
    return InstanceValues(instance.name, tuple(found))


def _pipedream(path: Path) -> InstanceValues:
    graph = without_inputs(load_profile(path))
    found = []
    for number in (1, 4, 8, 16):
        made = pipedream(graph, [MachineLevel(number, 1e9)])
        note = f"{number} machines at 1 GB/s, replicas {':'.join(map(str, made.replicas))}"
        found.append(InstanceValue("pipedream", "pipedream", made.value_s, note))
    return InstanceValues(graph.name, tuple(found))


def _order(path: Path, instance: OperatorInstance) -> NDArray[np.int64] | None:
    """The order of the ops in a placement's file, a topological one; None where it has none."""
    data = files.read_json(path)
    told = data.get("order") if isinstance(data, dict) and "device_of" in data else None
    if told is None:
        return None
    numbers = {name: op for op, name in enumerate(instance.op_names)}
    if not isinstance(told, list) or any(not isinstance(each, str) or each not in numbers for each in told):
        wrong = next((each for each in told if each not in numbers), None) if isinstance(told, list) else told
        raise InputFileError("no such op", file=path, field="order", value=wrong, choices=instance.op_names)
    order = np.array([numbers[each] for each in told], np.int64)
    if sorted(told) != sorted(instance.op_names):
        raise InputFileError(f"must name each of the {instance.num_ops} ops once", file=path, field="order", value=len(told))
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
    found = []
    for op, device in zip(instance.op_names, data, strict=True):
        if isinstance(device, str) and device in numbers:
            found.append(numbers[device])
        elif isinstance(device, int) and not isinstance(device, bool) and 0 <= device < instance.num_devices:
            found.append(device)
        else:
            raise InputFileError("no such device", file=path, field=op, value=device, choices=instance.device_names)
    return np.array(found, np.int64)
