"""Lowering of a layout: one step or several as one execution graph of all ranks.

A rank goes through the passes of its stage in the order of the schedule (`costs.pipelines.schedules`). A pass is a run of entries
(see `pass_segments`); kernels between two messages are one task, whatever number of layers they belong to. Between stages each
rank sends to its counterpart; without ``overlap_pp`` it waits until the transfer is done. After its last backward pass it reduces
gradients, runs the optimizer and gathers parameters. With ``overlap_dp`` gradients go layer by layer while the backward passes of
the last micro-batch run on. The parameters of a layer are needed only by its first forward pass of the next step. A stage begins
its next step when its own optimizer is done.

All ranks are lowered. A step of ``m`` micro-batches has about ``2 m`` tasks for each rank and chunk, and twice as many for each
message of a layer. Eight stages of eight ranks with 16 micro-batches of 12 layers under tensor parallelism have 170,000 tasks,
without it 4,000.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...costs.network import RankNetwork
from ...costs.pipelines import schedules
from ...costs.pipelines.tasks import AHEAD, BACK, BACKWARD, FORWARD, NONE, WEIGHT
from ...costs.process_groups.group_network import placed_on
from ...costs.settings import CostSettings
from ...costs.tasks import gradient_order
from ...costs.work.operations import BETWEEN_STAGES
from ...errors import PlanError
from ..step.execution import ExecutionGraph
from .assembly import WITHIN, Assembly
from .axes import Axes
from .gradient_buckets import Piece, pieces
from .pass_segments import Entry, Template
from .stage_tasks import BlockRows, Row
from .step_model import StepModel

LAST = 1e9
"""Added for each step to the place of a task in the order of its stage, which no stage reaches."""


def _whole(template: Template) -> Template:
    return template


def _way(kind: int) -> int:
    """Return which of forward pass, backward pass of inputs and weight gradient a task is."""
    return kind if kind == WEIGHT else FORWARD if kind in (FORWARD, AHEAD) else BACKWARD


class MessageArrival(NamedTuple):
    """The input of a pass: a chunk's activations, or their gradients, of one micro-batch."""

    step: int
    chunk: int
    kind: int
    micro: int


@dataclass(frozen=True, eq=False)
class PassDone:
    """A pass of a chunk, where it went.

    Attributes:
        step, stage, chunk, kind, micro: which.
        starts, ends: rows of tasks with which it begins, and after which it is done.
    """

    step: int
    stage: int
    chunk: int
    kind: int
    micro: int
    starts: list[Row]
    ends: list[Row]


@dataclass(frozen=True, eq=False)
class Lowered:
    """A layout as an execution graph.

    Attributes:
        execution: the tasks of all ranks and steps; ``op`` is a place in ``op_names``.
        op_names: names of tasks.
        operations: of the messages of each op; empty for kernels.
        flops, moved_bytes: of kernels, ``(t,)``.
        passes: the place of each pass.
        optimizers: the task that ends each rank's step, ``(steps, ranks)``.
    """

    execution: ExecutionGraph
    op_names: tuple[str, ...]
    operations: tuple[str, ...]
    flops: NDArray[np.float64]
    moved_bytes: NDArray[np.float64]
    passes: tuple[PassDone, ...]
    optimizers: NDArray[np.int64]


def lower(step: StepModel, network: RankNetwork, costs: CostSettings, *, num_steps: int = 1) -> Lowered:
    """Return the execution graph of some steps of a layout.

    Args:
        step: the work of each stage.
        network: the device of each rank, in the layout's order.
        costs: one choice per layer; ``contention``, ``priority``, ``gradient_bucket_bytes`` and ``message_chunk_bytes`` are read
            here, ``collectives`` decides the flows of a message.
        num_steps: steps one after another.

    Raises:
        PlanError: another number of devices than ranks, or no step.
        ConfigError: the collectives do not run on the cluster.
    """
    if len(network.devices) != step.layout.world:
        raise PlanError(f"{step.layout.world} ranks for {len(network.devices)} devices", field="devices")
    if num_steps < 1:
        raise PlanError("must be at least 1", field="num_steps", value=num_steps)
    return _Lowering(step, network, costs).build(num_steps)


@dataclass
class _Stage:
    """The state of a stage while its step is assembled.

    Attributes:
        rows: after which its next task begins.
        released: blocks whose gradients are complete, in order: rows after which they are, block, place in the schedule.
        gates: rows of the gathered parameters that a block of the next step waits for.
    """

    rows: list[Row] = field(default_factory=list)
    released: list[tuple[list[Row], BlockRows, float]] = field(default_factory=list)
    gates: dict[str, list[Row]] = field(default_factory=dict)


class _Lowering:
    def __init__(self, step: StepModel, network: RankNetwork, costs: CostSettings) -> None:
        self.step, self.costs, self.layout = step, costs, step.layout
        self.axes = Axes(step.layout, network, placed_on(network, step.layout, costs))
        self.tasks = Assembly(self.axes, step.message_s, costs)
        self.last_kind = WEIGHT if self.layout.parts_gradients else BACKWARD
        self.stages = [_Stage() for _ in range(self.layout.pp)]
        self.passes: list[PassDone] = []
        self.optimizers: list[NDArray[np.int64]] = []
        self.arrivals: dict[MessageArrival, list[Row]] = {}
        self.awaited: list[tuple[MessageArrival, list[Row]]] = []
        self.order = self._orders()
        self.position = {
            (stage, _way(kind), place, micro): position
            for stage, tasks in enumerate(self.order)
            for position, (kind, place, micro) in enumerate(tasks)
        }

    def build(self, num_steps: int) -> Lowered:
        for step in range(num_steps):
            for stage in range(self.layout.pp):
                for position, (kind, place, micro) in enumerate(self.order[stage]):
                    self._pass(step, stage, position, kind, place, micro)
            self._synchronise(step)
        for arrival, rows in self.awaited:  # what a stage waits for may be put down after it
            self.tasks.link(self.arrivals[arrival], rows)
        flops, moved_bytes = self.tasks.work()
        return Lowered(
            self.tasks.execution(),
            self.tasks.op_names,
            self.tasks.operations,
            flops,
            moved_bytes,
            tuple(self.passes),
            np.stack(self.optimizers),
        )

    def _orders(self) -> list[list[tuple[int, int, int]]]:
        layout = self.layout
        # Without a pipeline every micro-batch is done with before the next one begins.
        schedule = layout.schedule if layout.pp > 1 else "1f1b"
        tasks = schedules.orders(schedule, layout.pp, layout.chunks_per_rank, layout.num_micro_batches)
        return [
            [(int(kind), int(place), int(micro)) for kind, place, micro in of_stage if kind != NONE]
            for of_stage in tasks.tolist()
        ]

    def _pass(self, step: int, stage: int, position: int, kind: int, place: int, micro: int) -> None:
        layout, held = self.layout, self.stages[stage]
        if kind == BACK:  # done with the forward pass that it overlaps
            return
        chunk = layout.chunk_at(stage, place)
        is_last = kind == self.last_kind and micro == layout.num_micro_batches - 1
        cut = layout.overlap_dp and (is_last or (kind == FORWARD and micro == 0 and bool(held.gates)))
        order, label = step * LAST + position, f", micro-batch {micro}"
        works_on = [MessageArrival(step, chunk, _way(kind), micro)]
        if kind == AHEAD:
            _, other, paired_micro = self.order[stage][position + 1]
            works_on.append(MessageArrival(step, layout.chunk_at(stage, other), BACKWARD, paired_micro))
        ready = [self._gathered(arrival, stage, order, label) for arrival in works_on]
        model = self.step.at(step)
        made = self.tasks.template(
            ("pass", chunk, kind, cut, id(model)),
            lambda: model.template(chunk, kind, cut=cut),
            stage,
            lambda: model.rank_seconds(chunk, kind, cut=cut),
        )
        starts, ends, first = self.tasks.put(made, order, label, is_backward=kind != FORWARD)
        self.tasks.link([*held.rows, *(row for rows in ready for row in rows)], starts)
        for arrival, rows in zip(works_on, ready, strict=True):
            if not rows and self._source(arrival.chunk, arrival.kind) is not None:
                self.awaited.append((arrival, starts))
        for block in made.blocks if cut else ():
            self.tasks.link(held.gates.get(block.name, []), self.tasks.rows(block.first, first))
            if is_last:
                held.released.append((self.tasks.rows(block.last, first), block, order + WITHIN * block.done))
        held.rows = ends
        for arrival in works_on:
            self.passes.append(PassDone(step, stage, arrival.chunk, arrival.kind, arrival.micro, starts, ends))
            self._send(arrival, stage, position)

    def _source(self, chunk: int, kind: int) -> int | None:
        """Chunk on another stage from which a pass gets its input."""
        source = chunk - 1 if kind == FORWARD else chunk + 1
        return source if kind != WEIGHT and self._are_joined(chunk, source) else None

    def _are_joined(self, chunk: int, other: int) -> bool:
        """Return whether a chunk and the one before or behind it belong to one model and are on two stages."""
        layout, last = self.layout, self.layout.pp * self.layout.chunks_per_rank - 1
        is_inside = layout.pp > 1 and 0 <= other <= last and not layout.is_border(min(chunk, other))
        return is_inside and layout.stage_of(chunk) != layout.stage_of(other)

    def _send(self, done: MessageArrival, stage: int, position: int) -> None:
        """Bring what a pass has made to the chunk that wants it."""
        layout, held = self.layout, self.stages[stage]
        step, chunk, kind, micro = done
        target = chunk + 1 if kind == FORWARD else chunk - 1
        if kind == WEIGHT or not self._are_joined(chunk, target):
            return
        arrival = MessageArrival(step, target, kind, micro)
        to = layout.stage_of(target)
        model = self.step.at(step)
        crossing = model.crossing(chunk, kind)
        if crossing is not None:
            sent = [self.tasks.crossing(crossing, stage, to)]
        else:
            sent = [self.tasks.transfer(message, stage, to) for message in model.boundary(chunk, kind)[:1]]
        self.arrivals[arrival] = held.rows
        required = self.position[to, kind, target // layout.pp, micro] - 0.5
        order = step * LAST + (required if self.costs.priority == "first-consumer" else position + WITHIN)
        for made in sent:
            starts, ends, first = self.tasks.put(made, order, f", micro-batch {micro}", is_backward=kind != FORWARD)
            self.tasks.link(held.rows, starts)
            self.arrivals[arrival] = ends
            if not layout.overlap_pp:
                held.rows = ends if made.held is None else self.tasks.rows(made.held, first)

    def _gathered(self, arrival: MessageArrival, stage: int, order: float, label: str) -> list[Row]:
        """Assemble the input on the ranks of the receiving stage; no rows where it came whole."""
        source = self._source(arrival.chunk, arrival.kind)
        ready: list[Row] = []
        model = self.step.at(arrival.step)
        is_whole = source is None or model.crossing(source, arrival.kind) is not None
        for message in () if source is None or is_whole else model.boundary(source, arrival.kind)[1:]:
            made = self.tasks.message(Piece(message, 1.0, ()), stage)
            if made is None:
                continue
            starts, ends, _ = self.tasks.put(made, order - 0.05, label, is_backward=arrival.kind != FORWARD)
            if ready:
                self.tasks.link(ready, starts)
            else:
                self.awaited.append((arrival, starts))
            if not self.layout.overlap_pp:
                self.tasks.link(self.stages[stage].rows, starts)
            ready = ends
        return ready

    def _synchronise(self, step: int) -> None:
        """Synchronise gradients, optimizer and parameters of every stage."""
        last = self.layout.pp - 1
        summed = [self._gradients(step, stage, held.rows) for stage, held in enumerate(self.stages)]
        model = self.step.at(step)
        for message in model.sync_at(0, step):
            for stage in (0,) if message.axis == "ends" else range((last + 1) // 2) if message.axis == "mirror" else ():
                other = last - stage
                counterpart = next(one for one in model.sync_at(stage, step) if one.axis == message.axis)
                made = self.tasks.transfer(counterpart, stage, other)
                starts, ends, _ = self.tasks.put(made, step * LAST + len(self.order[0]) + 1, "", is_backward=True)
                self.tasks.link([*summed[stage], *summed[other]], starts)
                summed[stage] = summed[other] = ends
        optimizers = np.empty(self.layout.world, np.int64)
        for stage, held in enumerate(self.stages):
            key = "optimizer", model.optimizer_s(stage)
            update = Template((Entry("optimizer", (), model.optimizer_s(stage)),), (0,), ())
            made = self.tasks.template(key, partial(_whole, update), stage, partial(model.rank_optimizer_s, stage))
            starts, held.rows, first = self.tasks.put(made, (step + 1) * LAST - 0.75, "", is_backward=False)
            self.tasks.link(summed[stage], starts)
            optimizers[self.axes.first(stage) : self.axes.first(stage + 1)] = first + np.arange(self.axes.width(stage))
            held.released = []
            self._parameters(step, stage)
        self.optimizers.append(optimizers)

    def _gradients(self, step: int, stage: int, rows: list[Row]) -> list[Row]:
        """Put down what sums gradients; gives the rows after which all are summed."""
        model = self.step.at(step)
        messages = [message for message in model.sync_at(stage, step) if message.axis not in BETWEEN_STAGES]
        encode_s, decode_s = model.codec_s(stage) if messages else (0.0, 0.0)
        if encode_s:
            rows = self._encoded(step, stage, rows, encode_s)
        released = self.stages[stage].released
        if not released:
            for message in messages:
                for piece in pieces(message, [1.0], self.costs):
                    rows = self._piece(piece, stage, self._gradient_order(step, stage, piece), rows)
            return self._codec(step, stage, "decode", decode_s, len(self.order[stage]), rows) if decode_s else rows
        # Parts of one message follow each other; the part of a block goes through the messages of its kind in turn.
        arrived = {(is_expert, n): rows for n, (rows, _, _) in enumerate(released) for is_expert in (False, True)}
        result = list(rows)
        for message in messages:
            is_expert = message.axis == "expert_dp"
            line: list[Row] = []
            later: dict[tuple[bool, int], list[Row]] = {}
            for piece in pieces(message, [b.experts if is_expert else b.dense for _, b, _ in released], self.costs):
                ready = [row for block in piece.blocks for row in arrived[is_expert, block]]
                unique = list({id(row): row for row in (*ready, *line)}.values())
                line = self._piece(piece, stage, self._gradient_order(step, stage, piece), unique)
                later |= {(is_expert, block): line for block in piece.blocks}
            arrived |= later
            result += line
        total = sum(block.dense for _, block, _ in released)
        for n, (_, block, _) in enumerate(released if decode_s and total else ()):
            share = block.dense / total
            result += (
                self._codec(step, stage, "decode", share * decode_s, len(self.order[stage]), arrived[False, n]) if share else []
            )
        return result

    def _encoded(self, step: int, stage: int, rows: list[Row], encode_s: float) -> list[Row]:
        """Put down what encodes gradients on the device; gives the rows after which all are encoded."""
        held, coded = self.stages[stage], []
        if not held.released:
            return self._codec(step, stage, "encode", encode_s, len(self.order[stage]), rows)
        total = sum(block.dense for _, block, _ in held.released)
        for done, block, order in held.released:
            share = block.dense / total if total else 0.0
            ends = self._codec(step, stage, "encode", share * encode_s, order - step * LAST, done) if share else done
            coded.append((ends, block, order))
            rows = [*rows, *ends] if share else rows
        held.released = coded
        return rows

    def _codec(self, step: int, stage: int, name: str, seconds: float, place: float, rows: list[Row]) -> list[Row]:
        """Put down coding on every rank of a stage, behind rows; gives the rows behind which it is done."""
        entry = Template((Entry(name, (), seconds),), (0,), ())
        made = self.tasks.template((name, seconds), partial(_whole, entry), stage)
        starts, ends, _ = self.tasks.put(made, step * LAST + place, "", is_backward=True)
        self.tasks.link(rows, starts)
        return ends

    def _gradient_order(self, step: int, stage: int, piece: Piece) -> float:
        """Return when it is there, or when the next step wants it: what is made last is wanted first."""
        released = self.stages[stage].released
        made = max((released[block][2] for block in piece.blocks if released), default=step * LAST + len(self.order[stage]))
        return gradient_order(made, (step + 1) * LAST - 1.0 - max(piece.blocks) / (len(released) + 1), self.costs)

    def _parameters(self, step: int, stage: int) -> None:
        """Put down what gathers parameters; with ``overlap_dp`` the next step's blocks wait for their own alone."""
        model = self.step.at(step)
        held, messages = self.stages[stage], model.gather(stage)
        held.gates = {}
        order = (step + 1) * LAST - 0.5
        if not self.layout.overlap_dp:
            for message in messages:
                for piece in pieces(message, [1.0], self.costs):
                    held.rows = self._piece(piece, stage, order, held.rows)
            return
        chunks = [self.layout.chunk_at(stage, place) for place in range(self.layout.chunks_per_rank)]
        blocks = [block for chunk in chunks for block in model.template(chunk, FORWARD, cut=True).blocks]
        for message in messages:
            line = held.rows
            for piece in pieces(message, [b.experts if message.axis == "expert_dp" else b.dense for b in blocks], self.costs):
                line = self._piece(piece, stage, order + min(piece.blocks) / (4 * len(blocks)), line)
                for block in piece.blocks:
                    held.gates.setdefault(blocks[block].name, []).extend(line)

    def _piece(self, piece: Piece, stage: int, order: float, rows: list[Row]) -> list[Row]:
        made = self.tasks.message(piece, stage)
        if made is None:
            return rows
        starts, ends, _ = self.tasks.put(made, order, "", is_backward=True)
        self.tasks.link(rows, starts)
        return ends
