"""The analytic time of one step of a layout, and what it consists of.

Passes are priced once for each block (`passes`), chunks are sums of blocks, the pipeline is played exactly
(`steady_steps`), then gradients are synchronised and parameters updated. Everything that layouts share is kept, so that
a search over thousands of layouts prices each in well under a millisecond.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from ...devices import DeviceType
from ...jobs.transformer import TransformerShape
from ...plans.partition import Layout
from ...plans.rank_order import DEFAULT_ORDER
from ..collectives.prices import Provenance
from .doubts import RUN_UNCERTAINTY, doubts, fused_attention_s, operations, per_step, uncertainty
from .items import Message, Pass, input_part, weight_part
from .kernels import KernelModel, kernel_model
from .passes import OVERLAP_SLOWDOWN, PassTime, pass_time
from .spans import exposed_after, exposed_before, stage_spans
from .steady_steps import PlayedPipeline, ends_s, step_s
from .waits import waits
from .wires import Group, Wiring, boundary_groups, group_of, groups_of
from .work import ZERO_BUBBLE, LayoutWork, describe

MINOR = 0.05
"""Share of a communication's seconds below which a message does not decide where it is said to come from."""


@dataclass(frozen=True)
class StepTime:
    """One step.

    Attributes:
        step_s: the whole.
        breakdown_s: what the busiest stage does: ``compute``, ``recompute``, ``exposed tp`` and other axes,
            ``pipeline transfers``, ``bubble``, ``imbalance`` (see `waits`), ``gradient sync``, ``parameter gather``,
            ``optimizer``, ``host``; sums to ``step_s``.
        model_flops: of one step over all ranks, without recomputation; attention counts in full.
        hardware_flops: with recomputation.
        tokens: of one step.
        doubts: what the uncertainty is made of, see `doubts.doubts`.
        peak_flops_per_s: of all devices together.
    """

    step_s: float
    breakdown_s: dict[str, float]
    model_flops: float
    hardware_flops: float
    tokens: int
    doubts: dict[str, float]
    peak_flops_per_s: float

    @property
    def uncertainty(self) -> float:
        """Relative, one standard deviation."""
        return uncertainty(self.doubts)

    @property
    def tokens_per_s(self) -> float:
        """Tokens in a second over all ranks."""
        return self.tokens / self.step_s

    @property
    def mfu(self) -> float:
        """Model FLOPs utilisation."""
        return self.model_flops / self.step_s / self.peak_flops_per_s

    @property
    def hfu(self) -> float:
        """Hardware FLOPs utilisation."""
        return self.hardware_flops / self.step_s / self.peak_flops_per_s


class _Times(NamedTuple):
    """Times of the passes of a block or chunk; ``backward`` holds the weight gradients where the schedule does not part them."""

    forward: PassTime
    recompute: PassTime
    backward: PassTime
    weight: PassTime

    def task_s(self) -> tuple[float, float, float]:
        """Seconds of the tasks of a schedule, of one block."""
        return self.forward.seconds, (self.recompute + self.backward).seconds, self.weight.seconds


class _Run(NamedTuple):
    """A pipeline as played, the times of the chunks of each stage and of their tasks, and those of the blocks."""

    pipeline: PlayedPipeline
    of_stage: list[list[tuple[_Times, tuple[float, float, float]]]]
    blocks: dict[str, _Times]


@dataclass(frozen=True)
class Pricer:
    """Prices layouts of any model on equal devices; what layouts share is worked out once.

    Attributes:
        device: the accelerator.
        wires: prices messages.
        slowdown: factor on kernels and messages that run side by side.
        kernels: prices kernels; by default by the device's own constants.
        order: how ranks are numbered, see `plans.rank_order`.
    """

    device: DeviceType
    wires: Wiring
    slowdown: float = OVERLAP_SLOWDOWN
    kernels: KernelModel | None = None
    order: str = DEFAULT_ORDER
    _blocks: dict[object, dict[str, _Times]] = field(default_factory=dict, repr=False, compare=False)
    _chunks: dict[object, tuple[_Times, tuple[float, float, float]]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def model(self) -> KernelModel:
        """What prices kernels."""
        return self.kernels or kernel_model(self.device)

    def price(self, shape: TransformerShape, layout: Layout, sequence_length: int | None = None) -> StepTime:
        """The time of one step, and what it consists of.

        Raises:
            PlanError: the model cannot be cut so.
        """
        return self.price_work(describe(shape, layout, sequence_length))

    def step_s(self, work: LayoutWork) -> float:
        """Seconds of one step of a described layout; what `price_work` says, without the breakdown."""
        return self._step(work, self._run(work))[0]

    def price_work(self, work: LayoutWork) -> StepTime:
        """The time of one step of a described layout, and what it consists of."""
        run = self._run(work)
        layout, m = work.layout, work.layout.num_micro_batches
        step_s, last = self._step(work, run)
        sync_s, gather_s, optimizer_s = self._tail(work, last, run.blocks)
        total = {"compute": 0.0, "recompute": 0.0}
        issued_s = tasks_s = 0.0
        for times, task_s in run.of_stage[last]:
            for name, one in zip(("compute", "recompute", "compute", "compute"), times, strict=True):
                total[name] += m * one.kernels_s
                for axis, seconds in one.exposed_s.items():
                    total[f"exposed {axis}"] = total.get(f"exposed {axis}", 0.0) + m * seconds
                issued_s -= m * one.device_s
            tasks_s += m * sum(task_s)
        unsent = run.pipeline.unsent
        unsent_s = ends_s(unsent, {last: 0.0}, is_tied=_is_tied(work))[last]
        total |= {
            "host": issued_s + tasks_s,
            **waits(step_s - sync_s - gather_s - optimizer_s, unsent_s, unsent.busy_s, last),
            "gradient sync": sync_s,
            "parameter gather": gather_s,
            "optimizer": optimizer_s,
        }
        model_flops, hardware_flops = _flops(work)
        return StepTime(
            step_s=step_s,
            breakdown_s=total,
            model_flops=model_flops,
            hardware_flops=hardware_flops,
            tokens=layout.global_batch * work.sequence_length,
            doubts=doubts(
                kernels=self.model.constants.uncertainty,
                step_s=step_s,
                crossing_s=total["pipeline transfers"] + sync_s + gather_s + total.get("exposed shard", 0.0),
                fused_attention_s=per_step(work, last, lambda items: fused_attention_s(items, self.model)),
                hidden_s=self._hidden_s(work, last, [times for times, _ in run.of_stage[last]], sync_s + gather_s),
                utilisation=per_step(work, last, operations) / (step_s * self.device.peak_flops_per_s),
                runs=RUN_UNCERTAINTY,
            ),
            peak_flops_per_s=layout.world * self.device.peak_flops_per_s,
        )

    def message_s(self, message: Message, layout: Layout, group: Group | None = None) -> float:
        """Seconds of a message that has the links for itself.

        Where ZeRO-3 gathers over hosts, every rank is taken to fetch all by its own share of the cards.

        Args:
            message: what is sent.
            layout: how the model is cut.
            group: how the ranks stand on hosts; by default as their order puts them there.

        Source:
            Wang et al., "ZeRO++: extremely efficient collective communication for giant model training", 2023, section 3,
            which counts ZeRO-3's traffic so: three times the parameters for each rank, across hosts.
        """
        stands = group or group_of(message.axis, layout, self.wires.devices_per_host, self.order)
        if message.axis == "shard" and layout.zero >= 3:
            return self.wires.flat_s(message.operation, message.payload_bytes, stands)
        return self.wires.group_s(message.operation, message.payload_bytes, stands)

    def provenance(self, work: LayoutWork) -> dict[str, Provenance]:
        """Of each communication in the breakdown of a step: that of its messages, the least sure one where they differ.

        What makes up less than `MINOR` of its seconds does not count.
        """
        groups = groups_of(work.layout, self.wires.devices_per_host, self.order)
        seconds: dict[str, dict[Provenance, float]] = {}
        for name, item, times in _messages(work):
            group = groups[item.axis]
            if group.size > 1 and item.payload_bytes > 0:
                told = self.wires.provenance(item.operation, item.payload_bytes, group)
                part = seconds.setdefault(name, {})
                part[told] = part.get(told, 0.0) + times * self.message_s(item, work.layout, group)
        ranked: tuple[Provenance, ...] = get_args(Provenance)
        return {
            name: max((told for told, s in part.items() if s >= MINOR * sum(part.values())), key=ranked.index)
            for name, part in seconds.items()
        }

    def optimizer_s(self, work: LayoutWork, stage: int) -> float:
        """Seconds in which a rank of a stage updates what it holds."""
        gradient_bytes = 4 if work.key.fp32_gradients else work.key.element_bytes
        return self.model.optimizer_s(work.stages[stage].optimizer_parameters, gradient_bytes)

    def _step(self, work: LayoutWork, run: _Run) -> tuple[float, int]:
        """Seconds of a step, and the stage that decides.

        Of the stages the first, the second and the last are looked at; each other one is a copy that ends no later. The first
        and the last of a model with a tied table wait for each other before they sum it.
        """
        last = work.layout.pp - 1
        tails_s = {stage: sum(self._tail(work, stage, run.blocks)) for stage in sorted({0, min(1, last), last})}
        return step_s(run.pipeline, tails_s, is_tied=_is_tied(work))

    def _run(self, work: LayoutWork) -> _Run:
        """The pipeline as it is played."""
        layout = work.layout
        blocks = self._block_times(work)
        v = layout.virtual_stages
        task_s = np.empty((layout.pp, v, 3))
        of_stage: list[list[tuple[_Times, tuple[float, float, float]]]] = [[] for _ in range(layout.pp)]
        known: dict[tuple[int, bool, bool], tuple[_Times, tuple[float, float, float]]] = {}
        for chunk in work.chunks:
            kind = (chunk.num_layers, chunk.has_embedding, chunk.has_head)
            if kind not in known:
                known[kind] = self._chunk_times(blocks, *kind)
            of_stage[chunk.stage].append(known[kind])
            task_s[chunk.stage, chunk.place] = known[kind][1]
        return _Run(PlayedPipeline.of(layout, task_s, self._sends(work)), of_stage, blocks)

    def _sends(self, work: LayoutWork) -> NDArray[np.float64]:
        """Seconds of a transfer between each chunk of the model and the next one, ``(p v,)``."""
        layout, total = work.layout, np.zeros(work.layout.pp)
        groups = boundary_groups(layout, self.wires.devices_per_host, self.order)
        for item in work.boundary:
            if isinstance(item, Message):
                known = {group: self.message_s(item, layout, group) for group in set(groups)} if item.axis == "pp" else {}
                total += [known[group] for group in groups] if known else self.message_s(item, layout)
        return np.tile(total, layout.virtual_stages)

    def _chunk_times(
        self, blocks: dict[str, _Times], num_layers: int, has_embedding: bool, has_head: bool
    ) -> tuple[_Times, tuple[float, float, float]]:
        key = (id(blocks), num_layers, has_embedding, has_head)  # the blocks stay in `_blocks`, so that the id stays theirs
        if key not in self._chunks:
            parts = [(blocks["layer"], num_layers)]
            parts += [(blocks["embedding"], 1)] * has_embedding + [(blocks["head"], 1)] * has_head
            times = _Times(*(_total([(part[kind], times) for part, times in parts]) for kind in range(4)))
            seconds = [[count * one for one in part.task_s()] for part, count in parts]
            forward_s, backward_s, weight_s = map(sum, zip(*seconds, strict=True))
            self._chunks[key] = (times, (forward_s, backward_s, weight_s))
        return self._chunks[key]

    def _block_times(self, work: LayoutWork) -> dict[str, _Times]:
        layout = work.layout
        parts = layout.schedule in ZERO_BUBBLE and layout.pp > 1
        # Besides the work itself the groups' places on the hosts decide.
        groups = groups_of(layout, self.wires.devices_per_host, self.order)
        sends_weights = work.key.gathers_parameters or work.key.reduces_gradients
        weights = (groups["shard"], groups["expert_dp"]) if sends_weights else ()
        key = (work.shape, work.key, parts, groups["tp"], groups["cp"], groups["ep"], *weights)
        if key not in self._blocks:
            width = work.key.element_bytes

            def time(items: Pass) -> PassTime:
                return pass_time(items, self.model, lambda item: self.message_s(item, layout), width, self.slowdown)

            made = {}
            for name, block in (("layer", work.layer), ("embedding", work.embedding), ("head", work.head)):
                backward = (input_part(block.backward), weight_part(block.backward)) if parts else (block.backward, ())
                made[name] = _Times(time(block.forward), time(block.recompute), time(backward[0]), time(backward[1]))
            self._blocks[key] = made
        return self._blocks[key]

    def _tail(self, work: LayoutWork, stage: int, blocks: dict[str, _Times]) -> tuple[float, float, float]:
        """Exposed seconds of gradient synchronisation and of parameter gathering, and the optimizer's.

        With ``overlap_dp`` the gradients of a layer, of the embedding or of the head go as soon as the last micro-batch's
        backward pass has made them, and a part of the parameters is wanted when the first forward pass gets there: what is
        made last, or wanted first, hides behind nothing. The two copies of a tied table are summed when all that is done.
        """
        layout, held = work.layout, work.stages[stage]
        sync = [(item, self.message_s(item, layout)) for item in held.sync if isinstance(item, Message)]
        gather = [(item, self.message_s(item, layout)) for item in held.gather if isinstance(item, Message)]
        sync_s, gather_s = (sum(seconds for _, seconds in messages) for messages in (sync, gather))
        if layout.overlap_dp and sync_s > 0:
            last_s = sum(seconds for item, seconds in sync if item.axis == "ends")
            kind = 2 if layout.schedule in ZERO_BUBBLE and layout.pp > 1 else 1
            spans = stage_spans(work, stage, {name: times.task_s()[kind] for name, times in blocks.items()}, is_backward=True)
            seconds = exposed_after(spans, [(item.axis, s) for item, s in sync if item.axis != "ends"])
            sync_s = last_s + self._with_slowdown(sync_s - last_s, seconds)
        if layout.overlap_dp and gather_s > 0:
            spans = stage_spans(work, stage, {name: times.task_s()[0] for name, times in blocks.items()}, is_backward=False)
            gather_s = self._with_slowdown(gather_s, exposed_before(spans, [(item.axis, s) for item, s in gather]))
        return sync_s, gather_s, self.optimizer_s(work, stage)

    def _hidden_s(self, work: LayoutWork, stage: int, chunks: list[_Times], tail_s: float) -> float:
        """Seconds of communication in a step that a stage is taken to hide, as no run did that was predicted.

        Those of input gradients beside weight gradients were hidden in such runs; they do not count.
        """
        layout, held, m = work.layout, work.stages[stage], work.layout.num_micro_batches
        hidden_s = 0.0
        for times in chunks:
            for one in times:
                hidden_s += m * sum(s for axis, s in one.hidden_s.items() if axis != "tp" or layout.overlap_tp)
        if layout.overlap_pp and layout.pp > 1:
            sends = 2 * layout.virtual_stages - (stage == 0) - (stage == layout.pp - 1)
            hidden_s += m * sends * float(self._sends(work).mean())
        if layout.overlap_dp:
            whole_s = sum(self.message_s(item, layout) for item in (*held.sync, *held.gather) if isinstance(item, Message))
            hidden_s += max(0.0, whole_s - tail_s)
        return hidden_s

    def _with_slowdown(self, whole_s: float, exposed_s: float) -> float:
        """What is exposed, and what the rest slows down."""
        return exposed_s + (self.slowdown - 1) * max(0.0, whole_s - exposed_s)


def _messages(work: LayoutWork) -> Iterator[tuple[str, Message, int]]:
    """The communications of a step: under which name of the breakdown, what, and how often for each micro-batch."""
    for block, times in ((work.layer, work.shape.num_layers), (work.embedding, 1), (work.head, 1)):
        for items in (block.forward, block.recompute, block.backward):
            yield from ((f"exposed {item.axis}", item, times) for item in items if isinstance(item, Message))
    yield from (("pipeline transfers", item, 1) for item in work.boundary if isinstance(item, Message))
    for held in work.stages:
        yield from (("gradient sync", item, 1) for item in held.sync if isinstance(item, Message))
        yield from (("parameter gather", item, 1) for item in held.gather if isinstance(item, Message))


def _is_tied(work: LayoutWork) -> bool:
    """Whether the first and the last stage sum the two copies of a table."""
    return any(isinstance(item, Message) and item.axis == "ends" for item in work.stages[0].sync)


def _total(parts: list[tuple[PassTime, int]]) -> PassTime:
    total = PassTime()
    for part, times in parts:
        total = total + (part if times == 1 else part * times)
    return total


def _flops(work: LayoutWork) -> tuple[float, float]:
    """Model and hardware FLOPs of a step over all ranks.

    Attention counts every pair of query and key that is within the window, as the published utilisations do, also where a
    causal kernel skips half of them.

    Source:
        Narayanan et al., 2021, appendix; Korthikanti et al., 2022, appendix A.
    """
    shape, layout = work.shape, work.layout
    length = work.sequence_length
    tokens = float(layout.global_batch * length)
    width = shape.num_heads * shape.head_dim
    key_values = shape.num_key_value_heads * shape.head_dim
    halves = 3 if shape.is_gated else 2
    experts = shape.experts_per_token if shape.num_experts > 1 else 1
    linear = 2 * shape.hidden * (2 * width + 2 * key_values + halves * experts * shape.feed_forward)
    attention = 4 * width * min(length, shape.window or length)
    logits = 2 * shape.hidden * shape.vocabulary
    forward = tokens * (shape.num_layers * (linear + attention) + logits)
    again = {"none": 0.0, "selective": attention if layout.attention == "unfused" else 0.0, "full": linear + attention}
    return 3 * forward, 3 * forward + tokens * shape.num_layers * again[layout.recompute]
