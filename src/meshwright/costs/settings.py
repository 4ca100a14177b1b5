"""The cost model: one choice per layer, from YAML, with a digest that keys everything computed from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from .. import files, settings
from ..packaged import path_in_folder

LAYOUT_DEFAULTS: dict[str, Any] = {"collectives": "calibrated", "overlap_slowdown": 1.126}
"""Keys of `CostSettings` whose default is another one where layouts are priced (`estimate`, `search_layouts`). ``calibrated``
are NCCL's measured times in place of formulas at nominal rates. The slowdown applies while a rank computes and sends at once.
It is that of the profiles of two hosts of eight GPUs in Galvatron's repository (PKU-DAIR/Hetu-Galvatron). The other defaults
are those of the recorded results of jobs that are split op by op.
"""


Collectives = Literal[
    "auto",
    "ring",
    "tree",
    "halving-doubling",
    "hierarchical",
    "rail",
    "joint",
    "joint-split",
    "in-network",
    "synthesised",
    "ramp",
    "circuits",
    "nccl",
    "measured",
    "calibrated",
]
"""Algorithms of collectives, and the ways to choose among them; see `CostSettings`."""


class CostSettings(settings.Settings):
    """One choice per layer.

    Attributes:
        compute: ``auto``, ``profiled`` or ``roofline`` (see `costs.compute`).
        collectives: ``auto`` or one algorithm (see `costs.collectives`). ``auto`` is the fastest per size and group of
            ``ring``, ``tree``, ``halving-doubling``, ``hierarchical`` and ``ramp``, each a latency and the links' nominal
            bandwidth. ``rail`` and ``joint`` are stages along rails, one after another or in chunks. ``joint-split`` also
            sends part of each message between hosts over cards that idle. ``in-network`` reduces in switches. ``synthesised``
            are trees that fill the links of devices that are joined pair by pair. ``circuits`` is for optical clusters, where
            ``auto`` takes it. ``nccl`` is the library's own choice by its tuner's constants. ``measured`` takes tables where
            there are some, ``nccl`` elsewhere. ``calibrated`` takes lines fitted to measurements inside hosts of switched
            links, and a measured share of the cards' rate between them; ``auto`` on other clusters.
        collectives_table: a system with measured collectives, by name or file, for ``measured``; by default that of the
            cluster's device type.
        kernels: constants of the kernels of a transformer's layouts, by name (``a100``, ``h100``, ``v100``, ``any``) or file
            (see `costs.training_step.kernels`). By default those of the cluster's device type.
        software: the framework that runs a transformer's layouts, where the constants of kernels know its steps
            (``megatron-lm`` on an A100). The uncertainty is then smaller, since frameworks differ. No price changes.
        in_network_trees: groups whose collectives switches reduce at the same time, for ``in-network``; the others take rings
            on the rails.
        in_network_slots: packets that a switch keeps of each tree; fewer than are under way up the tree and down bound its
            rate. None: enough.
        circuits: for ``collectives: circuits``, whether they are set up ``once`` for a job, changed ``per-phase``, or the
            faster for each size and group (``auto``).
        flows: ``cut-through`` or ``store-and-forward`` (see `costs.flows`).
        routing: which of the paths of equal cost a message takes (see `costs.routing`). ``shortest-path``: the topology's own,
            one for each pair of devices. ``ecmp``: one of all by a hash of the two devices. ``spread``: all, an equal part
            each.
        routing_seed: of that hash.
        contention: ``independent`` (no two messages disturb each other) or ``serialised`` (one message at a time on each
            rank's communication stream). Or ``fair``: all messages at once, and flows share every link max-min fairly (see
            `simulation.contention.concurrent_jobs`).
        overlap_slowdown: factor by which computing and sending both take longer while a rank does both at once; 1 is no
            slowdown.
        priority: order of ready tasks on one stream. ``fifo``: as the model defines them. ``shortest-first``.
            ``first-consumer``: the message whose result is needed first; gradients for the next step go last, those of its
            first ops before the others. ``deadline``: the message whose consumer would start first in a run without contention
            (see `simulation.step.deadlines`).
        flows_priority: under ``contention: fair``, which flows get the links first. ``fair``: max-min among all. ``priority``:
            those of the more urgent messages by ``priority``, max-min among equally urgent ones, the rest for the others.
            ``edf``: the same by deadlines.
        gradient_bucket_bytes: gradients are merged, in the order in which they are ready, into buckets. A bucket is reduced
            once it holds so many bytes (PyTorch's DDP: 25 MiB). By default each op's, or layer's, by itself.
        message_chunk_bytes: larger messages are cut into equal chunks of at most so many bytes. An urgent message then need
            not wait for the end of a long one. By default messages are not cut.
        file_system_gbytes_per_s: rate at which each rank reads its samples' volumes from the file system, before its first
            layer. By default reading is not counted. Read for networks on volumes.
        host_adam_gbytes_per_s: what the processors of one host together read and write of its memory while they update weights,
            for ``offload`` of a layout: 11.6 billion parameters in 8.2 s (deepspeedai/DeepSpeed, pull request 735), at 28 bytes
            each. Hosts with memory of a later generation may reach twice as much.
        gradient_bytes_per_parameter_byte: size of what is reduced for each byte of parameters.
        resharding: how a micro-batch is brought to a stage whose mesh is another (``stage_meshes``). ``send-recv``: every rank
            by itself. ``all-gather``: a part to each and the rest inside hosts. ``broadcast``: each slice once, through all
            ranks that need it.
        resharding_order: which replica broadcasts a slice, and in which order slices go. ``none``: the first replica, in the
            given order. ``size``: the least loaded one. ``order``: the best order that is found (see
            `costs.resharding.sender_order`).
        pipeline_skips: how an output gets past stages of a pipeline of any job graph that do not read it. ``relayed``: from
            stage to stage, as Megatron-LM and PipeDream pass it on. ``direct``: once out of its stage and once into each stage
            that reads it, as torch.distributed.pipelining sends it. ``direct`` is for GPipe and 1F1B that do not compute while
            they send.
        straggler_sigma: standard deviation of the logarithm of the replicas' times for a step, drawn with mean 1.

    Where layouts are priced, keys that were not given take `LAYOUT_DEFAULTS`, see `of_layouts`.
    """

    compute: Literal["auto", "profiled", "roofline"] = "auto"
    collectives: Collectives = "auto"
    collectives_table: str | None = None
    # Left out of dumps where there is none, so that no digest of earlier choices changes.
    kernels: str | None = Field(default=None, exclude_if=lambda kernels: kernels is None)
    software: str | None = Field(default=None, exclude_if=lambda software: software is None)
    in_network_trees: int = Field(default=2, ge=0, le=1_000_000)
    in_network_slots: int | None = Field(default=None, ge=1, le=1_000_000_000, exclude_if=lambda slots: slots is None)
    circuits: Literal["auto", "once", "per-phase"] = Field(default="auto", exclude_if=lambda value: value == "auto")
    flows: Literal["cut-through", "store-and-forward"] = "cut-through"
    routing: Literal["shortest-path", "ecmp", "spread"] = "shortest-path"
    routing_seed: int = Field(default=0, ge=0, lt=2**63)
    contention: Literal["independent", "serialised", "fair"] = "serialised"
    overlap_slowdown: float = Field(default=1.0, ge=1, le=1000)
    priority: Literal["fifo", "shortest-first", "first-consumer", "deadline"] = "fifo"
    flows_priority: Literal["fair", "priority", "edf"] = Field(default="fair", exclude_if=lambda value: value == "fair")
    gradient_bucket_bytes: float | None = Field(default=None, gt=0)
    message_chunk_bytes: float | None = Field(default=None, ge=65_536)
    file_system_gbytes_per_s: float | None = Field(default=None, gt=0, le=1e6, exclude_if=lambda rate: rate is None)
    host_adam_gbytes_per_s: float = Field(default=40.0, gt=0, le=1e6, exclude_if=lambda rate: rate == 40.0)
    gradient_bytes_per_parameter_byte: float = Field(default=1.0, gt=0)
    pipeline_skips: Literal["relayed", "direct"] = Field(default="relayed", exclude_if=lambda skips: skips == "relayed")
    resharding: Literal["send-recv", "all-gather", "broadcast"] = Field(
        default="broadcast", exclude_if=lambda value: value == "broadcast"
    )
    resharding_order: Literal["none", "size", "order"] = Field(default="order", exclude_if=lambda value: value == "order")
    straggler_sigma: float = Field(default=0.0, ge=0, le=3, exclude_if=lambda sigma: sigma == 0)

    @model_validator(mode="after")
    def _go_together(self) -> CostSettings:
        is_fair, stores, spreads = self.contention == "fair", self.flows == "store-and-forward", self.routing == "spread"
        has_order, has_table = self.flows_priority != "fair", self.collectives_table is not None
        unordered = f"flows that share no links have no order: flows_priority {self.flows_priority} wants contention fair"
        stored = "a message that is spread over paths is not stored as a whole: routing spread wants flows cut-through"
        for bad, problem in (
            (
                is_fair and stores,
                "flows that share links fairly do not store and forward: contention fair wants flows cut-through",
            ),
            (has_order and not is_fair, unordered),
            (spreads and stores, stored),
            (has_table and self.collectives != "measured", "a collectives_table wants collectives: measured"),
        ):
            if bad:
                raise ValueError(problem)
        return self

    def relative_to(self, folder: Path) -> CostSettings:
        """Return the same with paths of tables and constants found from the folder of the file that names them."""
        named = {key: value for key in ("collectives_table", "kernels") if (value := getattr(self, key)) is not None}
        return self.model_copy(update={key: path_in_folder(value, folder) for key, value in named.items()}) if named else self

    @property
    def of_layouts(self) -> CostSettings:
        """These choices where layouts are priced: what was not given as in `LAYOUT_DEFAULTS`."""
        left = {key: value for key, value in LAYOUT_DEFAULTS.items() if key not in self.model_fields_set}
        return self.model_copy(update=left) if left else self

    @property
    def digest(self) -> str:
        """A hash of every choice, and of the tables and constants that it reads."""
        read = []
        if self.collectives == "measured":
            from .collectives.libraries import tables  # which stand above the settings

            read.append(tables.content(self.collectives_table))
        if self.kernels is not None:
            from .training_step import kernels  # which stand above the settings

            read.append(kernels.CONSTANTS.text(self.kernels))
        return files.digest(self.model_dump(), *read)
