"""The analytic time of one step of a layout, and what it consists of: what transformers and other job graphs have in common.

The pipeline is played exactly (`steady_steps`), then gradients are synchronised and parameters updated. Where hosts or devices
differ, each lane is played by itself (`uneven_steps`). Each kind of job says how long passes take.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...devices import DeviceType
from ...plans.partition import Layout
from ...plans.rank_order import DEFAULT_ORDER
from ..collectives.libraries.calibrated import is_line_known
from ..collectives.prices import Provenance
from ..pipelines.steady_steps import PlayedPipeline, step_s
from ..pipelines.waits import waits
from ..process_groups.group_network import GroupNetwork, HostNetwork, PlacedNetwork, group_network, lanes_of, whole_lane
from ..process_groups.lanes import Lane, ProcessGroup
from ..settings import CostSettings
from ..work.operations import BETWEEN_STAGES, Message
from .gradient_overlap import Spans, exposed_s
from .passes import OVERLAP_SLOWDOWN
from .step_figures import StepTime
from .uncertainty import uncertainty_terms
from .uneven_steps import Passes, Tail, UnevenStep, uneven_step

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
        group: how its ranks are spread over hosts.
    """

    part: str
    message: Message
    times: int
    group: ProcessGroup


@dataclass(frozen=True)
class StepPricer(ABC):
    """Prices layouts on equal devices.

    Attributes:
        device: the accelerator.
        wires: prices messages.
        slowdown: factor on computing and sending that run side by side.
        order: how ranks are numbered, see `plans.rank_order`.
        counts_update: whether the update of the weights is behind the passes; else it is in them, or is not counted.
    """

    counts_update: ClassVar[bool] = True
    device: DeviceType
    wires: GroupNetwork
    slowdown: float = OVERLAP_SLOWDOWN
    order: str = DEFAULT_ORDER

    @classmethod
    def from_cluster(
        cls,
        cluster: Cluster,
        costs: CostSettings,
        wires: GroupNetwork | None = None,
        devices: NDArray[np.int64] | None = None,
    ) -> Self:
        """Make the pricer of layouts on a cluster.

        Args:
            cluster: whose devices and links they are.
            costs: choices of the cost model.
            wires: prices messages; by default those of ranks on the first devices.
            devices: the device of each rank, in rank order; by default the first ones. Read only where devices or hosts
                differ.

        Raises:
            InputFileError, ConfigError: the tables or constants that the costs name are missing, wrong, or of another device.
        """
        return cls(cluster.device_types[0], wires or group_network(cluster, costs, devices), costs.overlap_slowdown)

    def link_waits_s(self, layout: Layout, breakdown_s: Mapping[str, float]) -> dict[str, float]:
        """Return seconds of a step's waits for messages that its uncertainty names, see `uncertainty.uncertainty_terms`."""
        crossing_s = sum(breakdown_s.get(name, 0.0) for name in CROSSING)
        unknown_s = 0.0
        if isinstance(self.wires, HostNetwork) and not is_line_known(self.device.name):
            inside = (name for name in breakdown_s if name.startswith(("exposed ", "halo ")) and name not in CROSSING)
            unknown_s = sum(breakdown_s[name] for name in inside)
            unknown_s += crossing_s if layout.world <= self.wires.devices_per_host else 0.0
        return {"crossing_s": crossing_s, "unknown_links_s": unknown_s}

    def step_s(self, work: Any) -> float:
        """Return the seconds of one step of a described layout; what `price_work` says, without the breakdown."""
        lanes = self.lanes(work)
        if self.is_uneven(work, lanes):
            return self.placed(work).step_s
        passes = self.even_passes(work, lanes[0])
        return self.ended(work, lanes[0], PlayedPipeline.play(work.layout, passes.task_s, passes.send_s))[0]

    def price_work(self, work: Any) -> StepTime:
        """Return the time of one step of a described layout, and what it consists of."""
        lanes = self.lanes(work)
        ended = self.placed(work) if self.is_uneven(work, lanes) else self._even_step(work, lanes[0])
        busy_s, doubts = self.busy(work, ended, lanes[ended.lane])
        breakdown = {**busy_s, **ended.waiting_s, "gradient sync": ended.sync_s, "parameter gather": ended.gather_s}
        if self.counts_update:
            breakdown["optimizer"] = ended.optimizer_s
        (model_flops, hardware_flops), (amount, unit) = self.flops(work), work.amount
        return StepTime(
            step_s=ended.step_s,
            breakdown_s=breakdown,
            model_flops=model_flops,
            hardware_flops=hardware_flops,
            amount=amount,
            unit=unit,
            uncertainty_terms=uncertainty_terms(step_s=ended.step_s, **self.link_waits_s(work.layout, breakdown), **doubts),
            peak_flops_per_s=self.peak_flops_per_s(work.layout),
        )

    def lanes(self, work: Any) -> tuple[Lane, ...]:
        """Return the places of the groups of a layout, see `lanes`."""
        return lanes_of(self.wires, work.layout, self.order, pass_axes=work.pass_axes)

    def whole(self, layout: Layout) -> Lane:
        """Return all lanes as one, each stage on the slowest of its devices."""
        return whole_lane(self.wires, layout, self.order)

    @abstractmethod
    def is_uneven(self, work: Any, lanes: tuple[Lane, ...]) -> bool:
        """Return whether hosts or devices differ, so that each lane is played by itself."""

    @abstractmethod
    def passes(self, work: Any, lane: Lane) -> Passes:
        """Return the passes of a lane, with their transfers."""

    def even_passes(self, work: Any, lane: Lane) -> Passes:
        """Return the same where hosts are equal."""
        return self.passes(work, lane)

    @abstractmethod
    def busy(self, work: Any, ended: UnevenStep, lane: Lane) -> tuple[dict[str, float], dict[str, Any]]:
        """Return busy and waiting seconds of the stage that ends last, by part, and arguments of `uncertainty_terms`."""

    @abstractmethod
    def flops(self, work: Any) -> tuple[float, float]:
        """Return model and hardware FLOPs of a step over all ranks."""

    def peak_flops_per_s(self, layout: Layout) -> float:
        """Return the peaks of all ranks together."""
        return layout.world * self.device.peak_flops_per_s

    def placed(self, work: Any) -> UnevenStep:
        """Return the step where hosts or devices differ, and what the lane that ends last does in it."""
        lanes = self.lanes(work)
        passes = {id(lane): lane for lane in lanes}
        known = {key: self.passes(work, lane) for key, lane in passes.items()}
        return uneven_step(self, work, lanes, [known[id(lane)] for lane in lanes])

    def _even_step(self, work: Any, lane: Lane) -> UnevenStep:
        """Return the step of the slowest stage, where hosts are equal."""
        passes = self.even_passes(work, lane)
        seconds, last, tail = self.ended(work, lane, PlayedPipeline.play(work.layout, passes.task_s, passes.send_s))
        unsent = PlayedPipeline.play(work.layout, passes.computed_s, np.zeros_like(passes.send_s))
        waiting_s = waits(
            seconds - tail[0] - tail[1] - tail[2], self.unsent_span_s(work, unsent, last), unsent.played.busy_s, last
        )
        return UnevenStep(seconds, last, 0, waiting_s, *tail)

    def ended(self, work: Any, lane: Lane, pipeline: PlayedPipeline) -> tuple[float, int, Tail]:
        """Return the seconds of a step of a pipeline as played, the stage that decides, and what follows its passes."""
        tails = {stage: self.tail_s(work, stage, lane) for stage in self.deciding_stages(work, lane)}
        seconds, last = step_s(pipeline, {stage: sum(tail) for stage, tail in tails.items()}, work.partners)
        return seconds, last, tails[last]

    def deciding_stages(self, work: Any, lane: Lane) -> Iterable[int]:
        """Return stages that include the one that decides; each other one is a copy that ends no later."""
        return range(work.layout.pp)

    def unsent_span_s(self, work: Any, pipeline: PlayedPipeline, stage: int) -> float:
        """Return the seconds from the first to the last task of a stage of a pipeline whose transfers take no time."""
        return float(pipeline.late_spans_s[stage])

    def tail_s(self, work: Any, stage: int, lane: Lane) -> Tail:
        """Return exposed seconds of gradient synchronisation and of parameter gathering, and the optimizer's.

        With ``overlap_dp`` the gradients of a block are sent as soon as the last micro-batch's backward pass has made them. A
        block is a layer, the embedding, the head, or an op. A part of the parameters is needed when the first forward pass
        gets to it. Gradients that are made last and parameters that are needed first hide behind nothing. The two copies of a
        tied table are summed after all that.
        """
        layout, groups = work.layout, lane.at(stage)
        sync, gather = (
            [(str(m.axis), self.message_s(m, layout, groups[m.axis])) for m in items]
            for items in (work.sync(stage), work.gather(stage))
        )
        sync_s, gather_s = (sum(seconds for _, seconds in messages) for messages in (sync, gather))
        if layout.overlap_dp and sync_s > 0:
            by_block = [(axis, seconds) for axis, seconds in sync if axis not in BETWEEN_STAGES]
            last_s = sum(seconds for axis, seconds in sync if axis in BETWEEN_STAGES)
            sync_s = last_s + self.exposed_s(work, stage, lane, by_block, sync_s - last_s, is_backward=True)
        if layout.overlap_dp and gather_s > 0:
            gather_s = self.exposed_s(work, stage, lane, gather, gather_s, is_backward=False)
        return sync_s, gather_s, self.optimizer_s(work, stage, lane.kinds_at(stage))

    def exposed_s(
        self,
        work: Any,
        stage: int,
        lane: Lane,
        messages: list[tuple[str, float]],
        whole_s: float,
        *,
        is_backward: bool,
        way_s: float = 0.0,
    ) -> float:
        """Return the seconds of messages that go block by block: what passes do not hide, and what the rest slows them down.

        Args:
            work: the layout.
            stage: which.
            lane: whose passes.
            messages: axis and seconds of each.
            whole_s: seconds of all.
            is_backward: whether they follow the last backward passes, else the first forward ones wait for them.
            way_s: of a transfer between two chunks of the stage.
        """
        spans = self.spans(work, stage, lane, is_backward=is_backward, way_s=way_s)
        shown_s = exposed_s(spans, messages, is_backward=is_backward)
        return shown_s + (self.slowdown - 1) * max(0.0, whole_s - shown_s)

    @abstractmethod
    def spans(self, work: Any, stage: int, lane: Lane, *, is_backward: bool, way_s: float) -> Spans:
        """Return the blocks of a stage in its last backward or first forward pass, see `gradient_overlap` and `exposed_s`."""

    def chunk_gaps_s(self, work: Any, stage: int, messages_s: list[float], *, is_backward: bool) -> NDArray[np.float64] | None:
        """Return, of messages between chunks of a stage too, the lag or the wait of each chunk, see `steady_steps.ChunkTails`.

        None where chunks are not distinguished.
        """
        return None

    def hidden_tail_s(self, work: Any, stage: int, lane: Lane, tail_s: float) -> float:
        """Return seconds of gradients and parameters that a stage hides, given ``tail_s`` exposed ones."""
        if not work.layout.overlap_dp:
            return 0.0
        groups = lane.at(stage)
        whole_s = sum(self.message_s(m, work.layout, groups[m.axis]) for m in (*work.sync(stage), *work.gather(stage)))
        return max(0.0, whole_s - tail_s)

    @abstractmethod
    def passes_s(self, work: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the seconds of a micro-batch forward and backward through each stage, of one chunk, ``(p,)`` each."""

    @abstractmethod
    def backward_blocks(self, work: Any, stage: int) -> list[tuple[float, float]]:
        """Return the seconds and share of the stage's gradients of each block of its last backward pass, in its order."""

    def optimizer_s(self, work: Any, stage: int, kinds: Iterable[int] = (0,)) -> float:
        """Return seconds in which a rank of a stage updates what it holds, the slowest of some kinds; 0 where not counted."""
        return 0.0

    def update_s(self, work: Any, stage: int) -> float:
        """Return the same of the slowest device of the stage."""
        return self.optimizer_s(work, stage, self.whole(work.layout).kinds_at(stage))

    def coding_devices(self, work: Any, stage: int) -> tuple[DeviceType, ...]:
        """Return the types of the devices on which a stage's gradients are coded; the slowest counts."""
        return (self.device,)

    @abstractmethod
    def in_order(self, order: str, wires: GroupNetwork | None = None) -> Self:
        """Return the pricer for ranks that are numbered otherwise, or whose messages something else prices."""

    def messages(self, work: Any, lane: Lane) -> Iterator[PlacedMessage]:
        """Yield the communications of a step: those behind its passes, which each kind of job adds its own to."""
        for stage in range(work.layout.pp):
            for part, items in (("gradient sync", work.sync(stage)), ("parameter gather", work.gather(stage))):
                yield from (PlacedMessage(part, item, 1, lane.at(stage)[item.axis]) for item in items)

    def on(self, devices: NDArray[np.int64]) -> Self:
        """Return the pricer for ranks on these devices, in the layout's own numbering; itself on equal hosts."""
        if not isinstance(self.wires, PlacedNetwork):
            return self
        return self.in_order(DEFAULT_ORDER, self.wires.on(devices))

    def place(self, group: ProcessGroup, layout: Layout) -> object:
        """Return the part of a group's place on the hosts by which its messages are priced."""
        return group

    def message_s(self, message: Message, layout: Layout, group: ProcessGroup | None = None) -> float:
        """Return seconds of a message that has the links for itself.

        Where DeepSpeed's ZeRO-3 gathers over hosts, every rank is taken to fetch all by its own share of the cards. FSDP2
        calls the library's collectives.

        Args:
            message: what is sent.
            layout: how the job is cut.
            group: how the ranks are spread over hosts; by default as their order puts them there, on the first stage.

        Source:
            Wang et al., "ZeRO++: extremely efficient collective communication for giant model training", 2023, section 3. It
            counts ZeRO-3's traffic so: three times the parameters for each rank, across hosts.
        """
        group = group or whole_lane(self.wires, layout, self.order).at(0)[message.axis]
        if message.axis == "shard" and layout.zero >= 3 and not layout.is_fsdp2:
            return self.wires.flat_s(message.operation, message.payload_bytes, group)
        return self.wires.group_s(message.operation, message.payload_bytes, group)

    def provenance(self, work: Any) -> dict[str, Provenance]:
        """Return the provenance of each communication in the breakdown of a step, the least sure one where messages differ.

        What makes up less than `MINOR` of its seconds does not count.
        """
        seconds: dict[str, dict[Provenance, float]] = {}
        for name, item, times, group in self.messages(work, whole_lane(self.wires, work.layout, self.order)):
            if group.size > 1 and item.payload_bytes > 0:
                source = self.wires.provenance(item.operation, item.payload_bytes, group)
                part = seconds.setdefault(name, {})
                part[source] = part.get(source, 0.0) + times * self.message_s(item, work.layout, group)
        ranked: tuple[Provenance, ...] = get_args(Provenance)
        return {
            name: max((reported for reported, s in part.items() if s >= MINOR * sum(part.values())), key=ranked.index)
            for name, part in seconds.items()
        }
