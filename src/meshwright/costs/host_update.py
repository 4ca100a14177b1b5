"""Adam on the processors of hosts: bytes in a host's memory, and the time of one update.

Gradients go to the host, its processors update float32 weights and both moments for all its devices at once, and the weights
come back. These three follow each other. None is hidden, though DeepSpeed may hide gradients of its last micro-batch, and
Megatron-LM copies behind updates (``--overlap-cpu-optimizer-d2h-h2d``).

Published updates on which nothing is fitted took .91, .96 and .50 of the price. They are Qwen2.5-1.5B and -3B on two A100
(DeepSpeed, blogs/zenflow-corebinding), and 106 billion parameters on four hosts of H100 (THUDM/slime, issue 1139).

Source:
    deepspeedai/DeepSpeed, csrc/includes/cpu_adam.h and runtime/zero/stage_1_and_2.py
    (``async_inplace_copy_grad_to_fp32_buffer_from_gpu``, ``step``).
    NVIDIA/Megatron-LM, megatron/core/optimizer/cpu_offloading/hybrid_optimizer.py (``param_copy_back_gpu_hook``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..clusters.cluster import Cluster
from ..devices import GIB, DeviceType
from ..errors import PlanError
from ..plans.partition import Layout
from ..plans.rank_order import stages
from .settings import CostSettings

if TYPE_CHECKING:
    from .work.work import LayoutWork

MOVED_BYTES = 28
"""Of a parameter through the host's memory in an update: a gradient is read, weight and moments are read and written."""

KEPT_BYTES = 16
"""Of a parameter in the host's memory: weight, gradient and both moments in float32."""

LINK_SHARE = 0.825
"""Share of a link that a copy from or to pinned memory reaches: 26 of the 31.5 GB/s of PCIe 4.0 x16 (NVIDIA/nvbandwidth,
README, ``host_to_device_memcpy_ce``)."""


@dataclass(frozen=True)
class HostProcessors:
    """The processors and the memory of each host.

    Attributes:
        num_devices: of a host, at most.
        bytes_per_s: what its processors read and write together in an update.
        memory_bytes: of a host; infinite where it is not stated.
    """

    num_devices: int = 8
    bytes_per_s: float = 1e9 * CostSettings().host_adam_gbytes_per_s
    memory_bytes: float = np.inf

    @classmethod
    def of(cls, cluster: Cluster, costs: CostSettings) -> HostProcessors:
        """Those of a cluster."""
        memory = cluster.settings.host_memory_gib
        most = int(np.bincount(cluster.device_host).max())
        return cls(most, 1e9 * costs.host_adam_gbytes_per_s, np.inf if memory is None else memory * GIB)

    def update_s(self, parameters: float, layout: Layout, device: DeviceType) -> float:
        """Return seconds in which all ranks of a full host update a number of parameters each."""
        back = 4 if layout.framework == "megatron" or layout.precision == "autocast" else layout.number_bytes
        link_s = parameters * (4 + back) / (LINK_SHARE * device.host_link_bytes_per_s)
        return link_s + min(self.num_devices, layout.world) * parameters * MOVED_BYTES / self.bytes_per_s

    def check_fits(self, kept_bytes: float) -> None:
        """Refuse what a host has no room for.

        Raises:
            PlanError: with what its ranks keep there, and what it has.
        """
        if kept_bytes > self.memory_bytes:
            problem = f"keeps {kept_bytes / 1e9:.1f} GB in the memory of a host, which has {self.memory_bytes / 1e9:.1f} GB"
            raise PlanError(problem, field="layout.offload", value="optimizer")


EIGHT_DEVICES = HostProcessors()
"""A host where a cluster's is not known."""


def kept_bytes(work: LayoutWork, order: str, hosts: Sequence[int] | None) -> float:
    """Return bytes that the ranks of the fullest host keep in its memory.

    Args:
        work: of a layout.
        order: of its ranks.
        hosts: of each rank, and perhaps of further ones; None where nothing bounds their memory.
    """
    if work.layout.offload == "none" or hosts is None:
        return 0.0
    parameters = np.array([stage.optimizer_parameters for stage in work.stages])[stages(work.layout, order)]
    return KEPT_BYTES * float(np.bincount(hosts[: work.layout.world], parameters).max())
