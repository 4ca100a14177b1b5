"""The cost model: one choice per layer, from YAML, with a digest that keys everything computed from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from .. import files, settings
from ..packaged import beside

LAYOUT_DEFAULTS: dict[str, Any] = {"collectives": "calibrated", "overlap_slowdown": 1.126}
"""Keys of `CostSettings` whose default is another one where layouts are priced (`estimate`, `search_layouts`). What NCCL was
measured to take, in place of formulas at nominal rates; and, while a rank computes and sends at once, what the profiles of
two hosts of eight GPUs in Galvatron's repository (PKU-DAIR/Hetu-Galvatron) say. The other defaults are those of the results
that were recorded for jobs that are split op by op."""


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
        collectives: ``auto`` (fastest per size and group of ``ring``, ``tree``, ``halving-doubling``, ``hierarchical``
            and ``ramp``, each a latency and the links' nominal bandwidth), one of these, ``rail``, ``joint``,
            ``joint-split`` (the same, and between hosts part of each message over cards that idle), ``in-network``,
            ``synthesised`` (trees that fill the links of devices that are joined pair by pair), ``circuits`` (on optical
            clusters, where ``auto`` takes it), ``nccl`` (the
            library's own choice by its tuner's constants), ``measured`` (tables where there are some, ``nccl`` elsewhere) or
            ``calibrated`` (lines fitted to measurements inside hosts of switched links, and a measured share of what cards
            carry between them; ``auto`` on other clusters); see `costs.collectives`.
        collectives_table: a system with measured collectives, by name or file, for ``measured``; none given: that of the
            cluster's device type.
        kernels: what kernels of a transformer's layouts reach of the devices' peaks, by name (``a100``, ``h100``, ``v100``,
            ``any``) or file (see `costs.training_step.kernels`); none given: that of the cluster's device type.
        software: the framework that runs a transformer's layouts, where the constants of kernels know its steps
            (``megatron-lm`` on an A100): less is then told for what one framework differs by from another. No price changes.
        in_network_trees: groups whose collectives switches reduce at the same time, for ``in-network``; the others take
            rings on the rails.
        in_network_slots: packets that a switch keeps of each tree; fewer than are under way up the tree and down bound its rate.
            None: enough.
        circuits: for ``collectives: circuits``, whether they are set up ``once`` for a job, changed ``per-phase``, or as is
            faster for each size and group (``auto``).
        flows: ``cut-through`` or ``store-and-forward`` (see `costs.flows`).
        routing: which of the paths of equal cost a message takes (see `costs.routing`): ``shortest-path``, the topology's
            own, one for each pair of devices; ``ecmp``, one of all by a hash of the two devices; ``spread``, all, an equal
            part each.
        routing_seed: of that hash.
        contention: ``independent`` (no two messages disturb each other), ``serialised`` (one message at a time
            on each rank's communication stream) or ``fair`` (all messages at once, and every link is shared max-min
            fairly by the flows that cross it, see `simulation.contention.concurrent_jobs`).
        overlap_slowdown: factor by which computing and sending both take longer while a rank does both at once; 1 is no
            slowdown.
        priority: order of ready tasks that want the same stream: ``fifo`` (as the model defines them), ``shortest-first`` or
            ``first-consumer`` (the message whose result is wanted first; gradients that the next step wants go last, those
            of its first ops before the others) or ``deadline`` (the message whose consumer would start first in a run without
            contention, see `simulation.step.deadlines`).
        flows_priority: under ``contention: fair``, which flows get the links first: ``fair`` (max-min among all), ``priority``
            (those of the more urgent messages by ``priority``, max-min among equally urgent ones, what is left for the others)
            or ``edf`` (the same by deadlines).
        gradient_bucket_bytes: gradients are merged, in the order in which they are there, into buckets that are reduced once
            they hold so many bytes (PyTorch's DDP: 25 MiB); none given: each op's, or layer's, by itself.
        message_chunk_bytes: larger messages are cut into equal chunks of at most so many bytes, so that an urgent one need
            not wait for the end of a long one; none given: not cut.
        file_system_gbytes_per_s: what each rank reads of its samples' volumes from the file system, before its first layer; none
            given: reading is not counted. Read for networks on volumes.
        host_adam_gbytes_per_s: what the processors of one host together read and write of its memory while they update weights,
            for ``offload`` of a layout: 11.6 billion parameters in 8.2 s (deepspeedai/DeepSpeed, pull request 735), at 28 bytes
            each. Hosts with memory of a later generation may reach twice as much.
        gradient_bytes_per_parameter_byte: size of what is reduced for each byte of parameters.
        resharding: how a micro-batch is brought to a stage whose mesh is another (``stage_meshes``): ``send-recv`` every rank by
            itself, ``all-gather`` a part to each and the rest inside hosts, ``broadcast`` each slice once, through all who want
            it.
        resharding_order: which replica broadcasts a slice, and in which order they go: ``none`` the first one as they stand,
            ``size`` the least loaded one, ``order`` the best order that is found (see `costs.resharding.sender_order`).
        pipeline_skips: how an output gets past stages of a pipeline of any job graph that do not read it: ``relayed`` from stage
            to stage, as Megatron-LM and PipeDream pass it on, or ``direct``, once out of its stage and once into each stage that
            reads it, as torch.distributed.pipelining sends it; for GPipe and 1F1B that do not compute while they send.

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
    circuits: Literal["auto", "once", "per-phase"] = Field(default="auto", exclude_if=lambda chosen: chosen == "auto")
    flows: Literal["cut-through", "store-and-forward"] = "cut-through"
    routing: Literal["shortest-path", "ecmp", "spread"] = "shortest-path"
    routing_seed: int = Field(default=0, ge=0, lt=2**63)
    contention: Literal["independent", "serialised", "fair"] = "serialised"
    overlap_slowdown: float = Field(default=1.0, ge=1, le=1000)
    priority: Literal["fifo", "shortest-first", "first-consumer", "deadline"] = "fifo"
    flows_priority: Literal["fair", "priority", "edf"] = Field(default="fair", exclude_if=lambda chosen: chosen == "fair")
    gradient_bucket_bytes: float | None = Field(default=None, gt=0)
    message_chunk_bytes: float | None = Field(default=None, ge=65_536)
    file_system_gbytes_per_s: float | None = Field(default=None, gt=0, le=1e6, exclude_if=lambda rate: rate is None)
    host_adam_gbytes_per_s: float = Field(default=40.0, gt=0, le=1e6, exclude_if=lambda rate: rate == 40.0)
    gradient_bytes_per_parameter_byte: float = Field(default=1.0, gt=0)
    pipeline_skips: Literal["relayed", "direct"] = Field(default="relayed", exclude_if=lambda skips: skips == "relayed")
    resharding: Literal["send-recv", "all-gather", "broadcast"] = Field(
        default="broadcast", exclude_if=lambda chosen: chosen == "broadcast"
    )
    resharding_order: Literal["none", "size", "order"] = Field(default="order", exclude_if=lambda chosen: chosen == "order")
    straggler_sigma: float = Field(default=0.0, ge=0, le=3, exclude_if=lambda sigma: sigma == 0)

    @model_validator(mode="after")
    def _fluids_cut_through(self) -> CostSettings:
        if self.contention == "fair" and self.flows == "store-and-forward":
            raise ValueError("flows that share links fairly do not store and forward: contention fair wants flows cut-through")
        return self

    @model_validator(mode="after")
    def _flows_share(self) -> CostSettings:
        if self.flows_priority != "fair" and self.contention != "fair":
            raise ValueError(
                f"flows that share no links have no order: flows_priority {self.flows_priority} wants contention fair"
            )
        return self

    @model_validator(mode="after")
    def _parts_cut_through(self) -> CostSettings:
        if self.routing == "spread" and self.flows == "store-and-forward":
            raise ValueError(
                "a message that is spread over paths is not stored as a whole: routing spread wants flows cut-through"
            )
        return self

    @model_validator(mode="after")
    def _tables_are_measured(self) -> CostSettings:
        if self.collectives_table is not None and self.collectives != "measured":
            raise ValueError("a collectives_table wants collectives: measured")
        return self

    def relative_to(self, folder: Path) -> CostSettings:
        """The same with paths of tables and constants found from the folder of the file that names them."""
        named = {key: value for key in ("collectives_table", "kernels") if (value := getattr(self, key)) is not None}
        return self.model_copy(update={key: beside(value, folder) for key, value in named.items()}) if named else self

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
