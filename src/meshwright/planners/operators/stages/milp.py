"""The largest load as a mixed integer program, solved by HiGHS, over all placements or those with contiguous devices.

Variable x is whether a unit is on a device, w the largest workspace of a device, T the largest load. Variable y is whether a
tensor crosses a device's port. It does if some of its maker and readers are on the device and some are not. A device is
contiguous if no way leads out of it and back in. Then z of a unit is 1 on the device, does not rise along edges, and is 0
behind an edge that leaves the device. See Tarnawski et al. 2020, "Efficient algorithms for device placement of DNN graph
operators". `ideals` asks a little more: its stages are also in one order. HiGHS takes no initial placement here, so the value
of `linear` bounds T. If time ends before a better one, that placement is the result.

Legend of shapes: ``u`` units, ``m`` devices, ``k`` tensors between units.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult
from scipy.optimize import milp as solve
from scipy.sparse import csr_array

from ....errors import PlanError
from ....simulation.operators.instance import OperatorInstance, bytes_by_part
from ....simulation.operators.placement import OperatorPlacement, lower_bound, placed, port_s
from ..request import PlacementRequest
from .ideals import linear
from .units import Units, tensor_units

MOST_VARIABLES = 500_000

Row = dict[int, float]


def milp(instance: OperatorInstance, request: PlacementRequest) -> OperatorPlacement:
    """Return the least largest load over all placements.

    Raises:
        PlanError: no placement fits, or the program is too large.
    """
    return _placed(instance, request, instance.group, None, "milp")


def milp_contiguous(instance: OperatorInstance, request: PlacementRequest) -> OperatorPlacement:
    """Return the least largest load over placements in which the forward ops of each device are contiguous.

    Raises:
        PlanError: no placement fits, or the program is too large.
    """
    units = Units.from_instance(instance)
    return _placed(instance, request, units.of_op, units, "milp-contiguous")


def _placed(
    instance: OperatorInstance, request: PlacementRequest, unit: NDArray[np.int64], units: Units | None, planner: str
) -> OperatorPlacement:
    family = "placements with contiguous devices" if units is not None else "all placements"
    try:
        known: OperatorPlacement | None = linear(instance, request)
    except PlanError:
        known = None
    bound_s = lower_bound(instance, "throughput")
    if known is not None and known.value_s <= bound_s * (1 + 1e-12):
        return placed(instance, known.device_of, "throughput", planner, is_optimal=True, note=f"best of {family}")
    program = _Program(instance, unit, units)
    result = program.solve(known.value_s if known is not None else None, bound_s, request.budget_s)
    best = known
    if result.x is not None:
        device_of = program.device_of(np.asarray(result.x))[unit]
        made = placed(instance, device_of, "throughput", planner)
        best = made if best is None or made.value_s < best.value_s else best
    if best is None:
        raise PlanError(
            "no placement fits the devices" if result.status == 2 else "no placement was found in the time given",
            value=instance.name,
        )
    is_optimal = result.status == 0
    dual = getattr(result, "mip_dual_bound", None)
    if dual is not None and np.isfinite(dual):
        bound_s = max(bound_s, min(float(dual) * program.scale_s, best.value_s))
    note = f"best of {family}" if is_optimal else f"{family}; the time ended with a gap of {1 - bound_s / best.value_s:.2%}"
    return placed(instance, best.device_of, "throughput", planner, lower_bound_s=bound_s, is_optimal=is_optimal, note=note)


class _Program:
    """The program, row by row; loads are in units of the mean load, or more where that is next to nothing."""

    def __init__(self, instance: OperatorInstance, unit: NDArray[np.int64], units: Units | None) -> None:
        self.u, self.m = int(unit.max()) + 1, instance.num_devices
        tensors, self.members = tensor_units(instance, unit)
        self.k = len(tensors)
        u, m = self.u, self.m
        self.times_s = np.zeros((u, m))
        np.add.at(self.times_s, unit, instance.times_s)
        resident, workspace = bytes_by_part(unit, u, instance.resident_bytes, instance.workspace_bytes)
        self.can_run = np.isfinite(self.times_s) & ((resident + workspace)[:, None] <= instance.memory_bytes)
        self.times_s = np.where(np.isfinite(self.times_s), self.times_s, 0.0)
        self.seconds = np.where(instance.is_host, 0.0, port_s(instance, instance.tensor_bytes[tensors])).reshape(self.k, m)
        most_s = float(self.times_s.max(axis=1).sum() + self.seconds.sum())
        self.scale_s = max(float(self.times_s.min(axis=1).sum()) / m, most_s / 1000, 1e-30)
        self.first_y, self.first_z = u * m, u * m + self.k * m
        num_z = u * m if units is not None else 0
        self.first_w = self.first_z + num_z
        self.load = self.first_w + m
        if self.load > MOST_VARIABLES:
            raise PlanError(f"the program has {self.load:,} variables, and at most {MOST_VARIABLES:,} are solved for")
        self.rows: list[tuple[float, Row, float]] = []
        self.most_w = float(workspace.max())
        self._add_placing(instance, resident, workspace)
        if units is not None:
            self._add_contiguity(units)

    def solve(self, known_s: float | None, bound_s: float, budget_s: float | None) -> OptimizeResult:
        """Return the solution that HiGHS gives; T is bounded from both sides."""
        size = self.load + 1
        upper = np.ones(size)
        upper[: self.first_y] = self.can_run.ravel()
        upper[self.first_w : self.load] = 1.0
        lower = np.zeros(size)
        lower[self.load] = bound_s / self.scale_s * (1 - 1e-9)
        upper[self.load] = np.inf if known_s is None else known_s / self.scale_s * (1 + 1e-7)
        cost = np.zeros(size)
        cost[self.load] = 1.0
        integral = np.zeros(size, np.int64)
        integral[: self.first_y] = 1
        at = [(number, column, value) for number, (_, row, _) in enumerate(self.rows) for column, value in row.items()]
        numbers, columns, values = zip(*at, strict=True)
        matrix = csr_array((values, (numbers, columns)), shape=(len(self.rows), size))
        limits = [low for low, _, _ in self.rows], [high for _, _, high in self.rows]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category=RuntimeWarning)  # scipy's, of options that it hands on to HiGHS
            return solve(
                cost,
                integrality=integral,
                bounds=Bounds(lower, upper),
                constraints=LinearConstraint(matrix, *limits),
                options={"mip_rel_gap": 1e-7, "time_limit": np.inf if budget_s is None else budget_s},
            )

    def device_of(self, x: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the device of each unit in a solution, ``(u,)``."""
        return np.asarray(x[: self.first_y].reshape(self.u, self.m).argmax(axis=1))

    def _add(self, row: Row, low: float = -np.inf, high: float = 0.0) -> None:
        self.rows.append((low, row, high))

    def _x(self, unit: int, device: int) -> int:
        return unit * self.m + device

    def _add_placing(self, instance: OperatorInstance, resident: NDArray[np.float64], workspace: NDArray[np.float64]) -> None:
        for unit in range(self.u):
            self._add({self._x(unit, device): 1.0 for device in range(self.m)}, 1.0, 1.0)
        for device in range(self.m):
            load: Row = {self.load: -1.0}
            for unit in range(self.u):
                load[self._x(unit, device)] = self.times_s[unit, device] / self.scale_s
            for tensor in range(self.k):
                if self.seconds[tensor, device] > 0:
                    crossing = self.first_y + tensor * self.m + device
                    load[crossing] = self.seconds[tensor, device] / self.scale_s
                    hub, *others = self.members[tensor]
                    for other in others:
                        for a, b in ((hub, other), (other, hub)):
                            self._add({self._x(a, device): 1.0, self._x(b, device): -1.0, crossing: -1.0})
            self._add(load)
            memory = instance.memory_bytes[device]
            if resident.sum() + self.most_w > memory:
                held: Row = {self._x(unit, device): resident[unit] / memory for unit in range(self.u)}
                if self.most_w > 0:
                    held[self.first_w + device] = self.most_w / memory
                    for unit in np.flatnonzero(workspace > 0).tolist():
                        self._add({self._x(unit, device): workspace[unit] / self.most_w, self.first_w + device: -1.0})
                self._add(held, high=1.0)

    def _add_contiguity(self, units: Units) -> None:
        def z(unit: int, device: int) -> int:
            return self.first_z + unit * self.m + device

        for device in range(self.m):
            for unit in range(self.u):
                self._add({self._x(unit, device): 1.0, z(unit, device): -1.0})
            for after, before in enumerate(units.before):
                for unit in before:
                    self._add({z(after, device): 1.0, z(unit, device): -1.0})
                    self._add({z(after, device): 1.0, self._x(after, device): -1.0, self._x(unit, device): 1.0}, high=1.0)
