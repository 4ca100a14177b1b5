"""An instance of tasklet placement: devices with links of any speed, and a model cut into stages with replicas.

A model of ``K`` stages is trained by ``P`` replicas. The tasklet of each stage and replica runs on a device of its own, so there
are ``n = K P`` devices. Replicas of a stage reduce gradients among themselves. Each hands activations to one replica of the next
stage. The problem is that of Yuan et al., "Decentralized training of foundation models in heterogeneous environments", 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ... import files
from ...errors import ClusterError
from ..operators.json_fields import JsonFields
from ..ragged import frozen

_BITS_PER_BYTE = 8
_GIGA = 1e9
MOST_STAGES = 128
"""Of a model; see `values.MOST_EXACT` for how their best order is found."""


@dataclass(frozen=True, eq=False)
class TaskletInstance:
    """Devices, and what tasklets send.

    Attributes:
        name: for tables and files.
        regions: where each device is; those of one name are near each other, length ``n``.
        latency_s: seconds before the first byte of one device is at another, ``(n, n)``.
        bandwidth_bytes_per_s: from one device to another, ``(n, n)``; its diagonal and that of latencies are not read.
        num_stages: stages of the model, ``K``; divides the number of devices, at most `MOST_STAGES`.
        gradient_bytes: gradients of one stage, reduced among its replicas once a step.
        activation_bytes: what one replica hands to the next stage in a step.

    Raises:
        ClusterError: arrays of unequal size, figures that are negative or not finite, a number of stages that does not fit.
    """

    name: str
    regions: tuple[str, ...]
    latency_s: NDArray[np.float64]
    bandwidth_bytes_per_s: NDArray[np.float64]
    num_stages: int
    gradient_bytes: float
    activation_bytes: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "regions", tuple(self.regions))
        n = len(self.regions)
        for name in ("latency_s", "bandwidth_bytes_per_s"):
            try:
                matrix = np.array(getattr(self, name), np.float64)
            except (TypeError, ValueError):
                raise ClusterError("holds something other than numbers", field=name) from None
            if matrix.shape != (n, n):
                raise ClusterError(f"must have the shape {(n, n)}", field=name, value=str(matrix.shape))
            matrix.flags.writeable = False
            object.__setattr__(self, name, matrix)
        apart = self._apart
        if not (np.isfinite(self.latency_s[apart]) & (self.latency_s[apart] >= 0)).all():
            raise ClusterError("must be 0 or more", field="latency_s")
        if not (self.bandwidth_bytes_per_s[apart] > 0).all():
            raise ClusterError("must be more than 0", field="bandwidth_bytes_per_s")
        for name in ("gradient_bytes", "activation_bytes"):
            figure = getattr(self, name)
            if not 0 <= figure < np.inf:
                raise ClusterError("must be 0 or more", field=name, value=figure)
        if not 1 <= self.num_stages <= MOST_STAGES or n % self.num_stages or not n:
            problem = f"must divide the number of devices, which is {n}, and be at most {MOST_STAGES}"
            raise ClusterError(problem, field="num_stages", value=self.num_stages)

    @property
    def num_devices(self) -> int:
        """Number of devices, ``n``."""
        return len(self.regions)

    @property
    def is_symmetric(self) -> bool:
        """Whether every link is equal in both directions."""
        return all(
            np.array_equal(each[self._apart], each.T[self._apart]) for each in (self.latency_s, self.bandwidth_bytes_per_s)
        )

    @property
    def num_replicas(self) -> int:
        """Devices of each stage, ``P``."""
        return self.num_devices // self.num_stages

    @cached_property
    def reduce_s(self) -> NDArray[np.float64]:
        """Seconds that each device needs for its part of a stage's gradients with each other one, both ways, ``(n, n)``.

        ``d + c / (P w)`` there and back, ``2 (d + c / (P w))`` of section 3.2 of the paper where both directions are equal; 0 on
        the diagonal.
        """
        seconds = self._sent_s(self.gradient_bytes, self.num_replicas)
        return frozen(seconds + seconds.T)

    @cached_property
    def hand_over_s(self) -> NDArray[np.float64]:
        """Seconds to send activations to another device or their gradient back, ``d + c / w``, ``(n, n)``.

        Each goes one way: where directions differ this is their mean, which a step takes twice.
        """
        seconds = self._sent_s(self.activation_bytes)
        return frozen((seconds + seconds.T) / 2)

    @property
    def _apart(self) -> NDArray[np.bool_]:
        """All pairs of devices but those of the diagonal, ``(n, n)``."""
        return ~np.eye(self.num_devices, dtype=np.bool_)

    def _sent_s(self, sent_bytes: float, parts: int = 1) -> NDArray[np.float64]:
        """Return seconds to send one of so many parts to each other device, 0 on the diagonal, ``(n, n)``."""
        seconds, apart = np.zeros(self.latency_s.shape), self._apart
        seconds[apart] = self.latency_s[apart] + sent_bytes / (parts * self.bandwidth_bytes_per_s[apart])
        return seconds


def read_tasklets(
    path: str | Path,
    *,
    num_stages: int | None = None,
    gradient_bytes: float | None = None,
    activation_bytes: float | None = None,
) -> TaskletInstance:
    """Return an instance from JSON: ``delay_ms`` and ``bandwidth_gbps`` (Gbit/s) matrices, ``regions``, ``constants``.

    Row ``v`` and column ``u`` are of what goes from device ``v`` to device ``u``. Constants: ``stages_way``,
    ``send_gradient_size_GB`` and ``send_activation_size_GB`` (10^9 bytes). Without ``regions`` all devices are of one.

    Args:
        path: the file.
        num_stages, gradient_bytes, activation_bytes: in place of the file's constants, see `TaskletInstance`.

    Raises:
        InputFileError: the file cannot be read, or a part is missing or no number.
        ClusterError: as `TaskletInstance`.
    """
    root = JsonFields(files.read_json(path), path)
    matrices = [_matrix(root, name) for name in ("delay_ms", "bandwidth_gbps")]
    regions = root.items("regions") if "regions" in root.data else ["all"] * len(matrices[0])

    def size(name: str, value: float | None, unit: float) -> float:
        return root.below("constants").number(name) * unit if value is None else value

    try:
        return TaskletInstance(
            name=str(root.data.get("case", Path(path).stem)),
            regions=tuple(str(each) for each in regions),
            latency_s=matrices[0] / 1e3,
            bandwidth_bytes_per_s=matrices[1] * _GIGA / _BITS_PER_BYTE,
            num_stages=int(size("stages_way", num_stages, 1)),
            gradient_bytes=size("send_gradient_size_GB", gradient_bytes, _GIGA),
            activation_bytes=size("send_activation_size_GB", activation_bytes, _GIGA),
        )
    except ClusterError as error:
        sizes = {"num_stages": num_stages, "gradient_bytes": gradient_bytes, "activation_bytes": activation_bytes}
        if sizes.get(error.field or "") is not None:
            raise
        raise ClusterError(
            error.problem, file=path, field=_IN_FILES.get(error.field or "", error.field), value=error.value
        ) from None


_IN_FILES = {
    "latency_s": "delay_ms",
    "bandwidth_bytes_per_s": "bandwidth_gbps",
    "num_stages": "constants.stages_way",
    "gradient_bytes": "constants.send_gradient_size_GB",
    "activation_bytes": "constants.send_activation_size_GB",
}


def _matrix(root: JsonFields, name: str) -> NDArray[np.float64]:
    rows = root.items(name)
    is_real = all(
        isinstance(row, list) and len(row) == len(rows) and all(type(each) in (int, float) and abs(each) < 1e300 for each in row)
        for row in rows
    )
    if not is_real:
        raise root.error("must be a square matrix of numbers", name)
    return np.array(rows, np.float64).reshape(len(rows), len(rows))
