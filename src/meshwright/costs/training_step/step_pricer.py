"""What the prices of transformers and of other job graphs have in common: that of each message, and where it is from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...devices import DeviceType
from ...plans.partition import Layout
from ...plans.rank_order import DEFAULT_ORDER
from ..collectives.libraries.calibrated import is_line_known
from ..collectives.prices import Provenance
from ..process_groups.group_network import GroupNetwork, HostNetwork, PlacedNetwork, group_network, whole_lane
from ..process_groups.lanes import Lane, Stand
from ..settings import CostSettings
from ..work.operations import Message
from .passes import OVERLAP_SLOWDOWN
from .step_figures import StepTime

MINOR = 0.05
"""Share of a communication's seconds below which a message does not decide where it is said to come from."""


CROSSING = ("pipeline transfers", "gradient sync", "parameter gather", "exposed shard")
"""Parts of a breakdown whose messages cross hosts, unless one holds all ranks."""


class PlacedMessage(NamedTuple):
    """A communication of a step.

    Attributes:
        part: its name in the breakdown.
        message: what is sent.
        times: how often for each micro-batch.
        group: how its ranks stand on hosts.
    """

    part: str
    message: Message
    times: int
    group: Stand


@dataclass(frozen=True)
class StepPricer(ABC):
    """Prices layouts on equal devices.

    Attributes:
        device: the accelerator.
        wires: prices messages.
        slowdown: factor on computing and sending that run side by side.
        order: how ranks are numbered, see `plans.rank_order`.
    """

    device: DeviceType
    wires: GroupNetwork
    slowdown: float = OVERLAP_SLOWDOWN
    order: str = DEFAULT_ORDER

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        costs: CostSettings,
        wires: GroupNetwork | None = None,
        devices: NDArray[np.int64] | None = None,
    ) -> Self:
        """What prices layouts on a cluster.

        Args:
            cluster: whose devices and links they are.
            costs: choices of the cost model.
            wires: prices messages; by default those of ranks on the first devices.
            devices: the device of each rank, in rank order; by default the first ones. Read only where devices or hosts differ.

        Raises:
            InputFileError, ConfigError: the tables or constants that the costs name are missing, wrong, or of another device.
        """
        return cls(cluster.device_types[0], wires or group_network(cluster, costs, devices), costs.overlap_slowdown)

    def link_waits_s(self, layout: Layout, breakdown_s: Mapping[str, float]) -> dict[str, float]:
        """Seconds of a step's waits for messages that its uncertainty names, see `uncertainty.uncertainty_terms`."""
        crossing_s = sum(breakdown_s.get(name, 0.0) for name in CROSSING)
        unknown_s = 0.0
        if isinstance(self.wires, HostNetwork) and not is_line_known(self.device.name):
            inside = (name for name in breakdown_s if name.startswith(("exposed ", "halo ")) and name not in CROSSING)
            unknown_s = sum(breakdown_s[name] for name in inside)
            unknown_s += crossing_s if layout.world <= self.wires.devices_per_host else 0.0
        return {"crossing_s": crossing_s, "unknown_links_s": unknown_s}

    @abstractmethod
    def step_s(self, work: Any) -> float:
        """Seconds of one step of a described layout; what `price_work` says, without the breakdown."""

    @abstractmethod
    def price_work(self, work: Any) -> StepTime:
        """The time of one step of a described layout, and what it consists of."""

    @abstractmethod
    def passes_s(self, work: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Seconds of a micro-batch forward and backward through each stage, of one chunk, ``(p,)`` each."""

    @abstractmethod
    def backward_blocks(self, work: Any, stage: int) -> list[tuple[float, float]]:
        """Seconds and share of the stage's gradients of each block of its last backward pass, in its order."""

    def update_s(self, work: Any, stage: int) -> float:
        """Seconds in which a rank of a stage updates what it holds; nothing where that is in the passes."""
        return 0.0

    def coding_devices(self, work: Any, stage: int) -> tuple[DeviceType, ...]:
        """Types of the devices on which a stage's gradients are coded; the slowest counts."""
        return (self.device,)

    @abstractmethod
    def in_order(self, order: str, wires: GroupNetwork | None = None) -> Self:
        """The pricer for ranks that are numbered otherwise, or whose messages something else prices."""

    @abstractmethod
    def messages(self, work: Any, lane: Lane) -> Iterator[PlacedMessage]:
        """The communications of a step."""

    def on(self, devices: NDArray[np.int64]) -> Self:
        """The pricer for ranks on these devices, in the layout's own numbering; itself where hosts are alike."""
        if not isinstance(self.wires, PlacedNetwork):
            return self
        return self.in_order(DEFAULT_ORDER, self.wires.on(devices))

    def place(self, group: Stand) -> object:
        """The part of a group's place on the hosts by which its messages are priced."""
        return group

    def message_s(self, message: Message, layout: Layout, group: Stand | None = None) -> float:
        """Seconds of a message that has the links for itself.

        Where DeepSpeed's ZeRO-3 gathers over hosts, every rank is taken to fetch all by its own share of the cards; FSDP2 calls
        the library's collectives.

        Args:
            message: what is sent.
            layout: how the job is cut.
            group: how the ranks stand on hosts; by default as their order puts them there, on the first stage.

        Source:
            Wang et al., "ZeRO++: extremely efficient collective communication for giant model training", 2023, section 3,
            which counts ZeRO-3's traffic so: three times the parameters for each rank, across hosts.
        """
        stands = group or whole_lane(self.wires, layout, self.order).at(0)[message.axis]
        if message.axis == "shard" and layout.zero >= 3 and not layout.is_fsdp2:
            return self.wires.flat_s(message.operation, message.payload_bytes, stands)
        return self.wires.group_s(message.operation, message.payload_bytes, stands)

    def provenance(self, work: Any) -> dict[str, Provenance]:
        """Provenance of each communication in the breakdown of a step, the least sure one where messages differ.

        What makes up less than `MINOR` of its seconds does not count.
        """
        seconds: dict[str, dict[Provenance, float]] = {}
        for name, item, times, group in self.messages(work, whole_lane(self.wires, work.layout, self.order)):
            if group.size > 1 and item.payload_bytes > 0:
                told = self.wires.provenance(item.operation, item.payload_bytes, group)
                part = seconds.setdefault(name, {})
                part[told] = part.get(told, 0.0) + times * self.message_s(item, work.layout, group)
        ranked: tuple[Provenance, ...] = get_args(Provenance)
        return {
            name: max((told for told, s in part.items() if s >= MINOR * sum(part.values())), key=ranked.index)
            for name, part in seconds.items()
        }
