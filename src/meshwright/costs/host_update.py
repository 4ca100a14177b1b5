"""Adam on the processors of hosts: bytes in a host's memory, and the time of one update.

Gradients go to the host, its processors update float32 weights and both moments for all its devices at once, and the weights
come back. These three follow each other. None is hidden, though DeepSpeed may hide gradients of its last micro-batch, and
Megatron-LM copies behind updates (``--overlap-cpu-optimizer-d2h-h2d``). DeepSpeed sums micro-batches in the host's memory.
Its ZeRO-2 sends the sum there after each one, and fetches it before all but the first; ZeRO-3 does both each time.

Published updates on which nothing is fitted took .91, .96 and .50 of the price. They are Qwen2.5-1.5B and -3B on two A100
(DeepSpeed, blogs/zenflow-corebinding), and 106 billion parameters on four hosts of H100 (THUDM/slime, issue 1139).

Source:
    deepspeedai/DeepSpeed 0.19.6, csrc/includes/cpu_adam.h, runtime/zero/stage_1_and_2.py (``copy_grads_in_partition``,
    ``async_accumulate_grad_in_cpu_via_gpu``, ``param_buffer_of_bit16_for_cpu_offload_groups``, ``step``) and stage3.py
    (``grad_partitions_flat_buffer``, ``partition_grads``).
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
from ..plans.rank_order import DEFAULT_ORDER, stages
from .settings import CostSettings
from .work.memory import has_zero_of_deepspeed
from .work.stage_work import stored_bytes

if TYPE_CHECKING:
    from .work.work import LayoutWork

MOVED_BYTES = 28
"""Of a parameter through the host's memory in an update: a gradient is read, weight and moments are read and written."""

KEPT_BYTES = 16
"""Of a parameter in the host's memory: weight, gradient and both moments in float32. DeepSpeed keeps more."""

LINK_SHARE = 0.825
"""Share of a link that a copy from or to pinned memory reaches: 26 of the 31.5 GB/s of PCIe 4.0 x16 (NVIDIA/nvbandwidth,
README, ``host_to_device_memcpy_ce``)."""


@dataclass(frozen=True)
class HostProcessors:
    """The processors and the memory of each host; by default of one of eight devices.

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
        """Return those of a cluster."""
        memory = cluster.settings.host_memory_gib
        most = int(np.bincount(cluster.device_host).max())
        return cls(most, 1e9 * costs.host_adam_gbytes_per_s, np.inf if memory is None else memory * GIB)

    def update_s(self, parameters: float, shared: float, layout: Layout, device: DeviceType) -> float:
        """Return seconds in which a rank's parameters are updated, and with them those that `shared_parameters` counts."""
        link_s = parameters * _sent_and_kept(layout)[0] / (LINK_SHARE * device.host_link_bytes_per_s)
        return link_s + shared * MOVED_BYTES / self.bytes_per_s

    def check_fits(self, kept_bytes: float) -> None:
        """Refuse what a host has no room for.

        Raises:
            PlanError: with what its ranks keep there, and what it has.
        """
        if kept_bytes > self.memory_bytes:
            problem = f"keeps {kept_bytes / 1e9:.1f} GB in the memory of a host, which has {self.memory_bytes / 1e9:.1f} GB"
            raise PlanError(problem, field="layout.offload", value="optimizer")


def _sent_and_kept(layout: Layout) -> tuple[int, int]:
    """Return the bytes of a parameter over a device's link in a step, both ways together, and in the host's memory.

    Float32 gradients and weights are sent, and sums of micro-batches. DeepSpeed's ZeRO-1 sums on the device, and takes what is
    summed of several through the host once. ZeRO-3 keeps sums apart from gradients; the others the weights that they send.
    """
    weight, sums = stored_bytes(layout), layout.num_micro_batches
    if not has_zero_of_deepspeed(layout):
        return 4 + (4 if layout.framework == "megatron" else weight), KEPT_BYTES
    if layout.zero == 3:
        return 4 + weight + 2 * sums * layout.gradient_bytes, KEPT_BYTES + layout.gradient_bytes
    times = 0 if sums == 1 else 2 if layout.zero == 1 else 2 * sums - 1
    return 4 + weight + times * weight, KEPT_BYTES + (1 + (sums > 1)) * weight


def shared_parameters(work: LayoutWork, stage: int, order: str | None, per_host: int) -> float:
    """Return parameters that a host updates until those of a rank of a stage are done, on the host where they are most.

    Its processors give all of its ranks equal shares, so that those who have more count as the rank itself. With no order of
    ranks it is a number below which none is: the least on the host with the fewest ranks.
    """
    stage_of, own = stages(work.layout, order or DEFAULT_ORDER), np.array([one.optimizer_parameters for one in work.stages])
    counted = np.minimum(own, own[stage])[stage_of]
    if order is None:
        return float(np.sort(counted)[: len(counted) % per_host or per_host].sum())
    hosts = np.arange(len(counted)) // per_host
    return float(np.bincount(hosts, counted)[hosts[stage_of == stage]].max())


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
    return _sent_and_kept(work.layout)[1] * float(np.bincount(hosts[: work.layout.world], parameters).max())
