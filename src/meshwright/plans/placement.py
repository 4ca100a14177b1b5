"""The device of each rank, in order.

The order is the decision: collective libraries build their rings from it, so nothing here sorts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import PlanError

if TYPE_CHECKING:
    from ..clusters.cluster import Cluster


@dataclass(frozen=True, eq=False)
class Placement:
    """A placement of ranks on devices.

    Attributes:
        devices: the cluster's device id of each rank, ``(num_ranks,)``, in rank order.

    Raises:
        PlanError: no rank, an id that is negative or not whole, or a device twice; the rank is named.
    """

    devices: NDArray[np.int64]

    def __post_init__(self) -> None:
        values = np.asarray(self.devices)
        if values.ndim != 1 or values.size == 0:
            raise PlanError(f"one device for each rank is wanted, not an array of shape {values.shape}", field="placement")
        if values.dtype.kind not in "iu":
            raise PlanError("device ids are whole numbers", field="placement", value=str(values.dtype))
        for rank in np.flatnonzero(values < 0)[:1].tolist():
            raise PlanError("there is no such device", field=f"rank {rank}", value=int(values[rank]))
        seen: dict[int, int] = {}
        for rank, device in enumerate(values.tolist()):
            first = seen.setdefault(device, rank)
            if first != rank:
                raise PlanError(f"rank {first} has this device already", field=f"rank {rank}", value=device)
        devices = values.astype(np.int64)
        devices.flags.writeable = False
        object.__setattr__(self, "devices", devices)

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return len(self.devices)


def place(cluster: Cluster, devices: Sequence[int] | NDArray[np.int64]) -> Placement:
    """Return a placement on a cluster, for example one row of `meshwright.clusters.blocks.Blocks.devices`.

    Raises:
        PlanError: as `Placement`, or a device that the cluster does not have; the rank is named.
    """
    placement = Placement(np.asarray(devices))
    for rank in np.flatnonzero(placement.devices >= cluster.num_devices)[:1].tolist():
        raise PlanError(
            f"cluster {cluster.name} has devices 0..{cluster.num_devices - 1}",
            field=f"rank {rank}",
            value=int(placement.devices[rank]),
        )
    return placement
