"""How a job is cut into ranks by a parallel layout; op splits are in `splitting.op_splits`.

Legend of shapes: ``world`` ranks of a layout.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from .. import settings
from ..errors import PlanError
from ..settings import Count, Index, Switch
from . import stage_meshes as meshes
from .frameworks.defaults import BIDIRECTIONAL, EAGER, HIDING, FrameworkName, framework_defaults, hidden_unrequested
from .frameworks.layout_words import layout_keys
from .frameworks.names import build_of_plan
from .pipelines.bidirectional import bidirectional_objection
from .strategies.trained_state import TrainedState

ZERO_BUBBLE = ("zb-h1", "zb-2p")
"""Schedules in which the gradients of weights are a pass of their own."""

VOLUMES = ("sp_d", "sp_h", "sp_w")
"""Keys of how volumes are cut."""


class Coordinates(settings.Settings):
    """The place of a rank in the grid of a layout; ``ep`` counts along ``tp / etp``, then ``cp`` and ``dp``."""

    pp: Index = Field(description="pipeline stage")
    dp: Index = Field(description="data-parallel replica")
    cp: Index = Field(description="context-parallel slice of the sequence")
    ep: Index = Field(description="expert-parallel slice of the experts")
    tp: Index = Field(description="tensor-parallel slice of each layer")
    sp: Index = Field(
        default=0,
        description="spatial part of the sample's volume: (d sp_h + h) sp_w + w; absent where volumes are not cut",
        exclude_if=lambda sp: sp == 0,
    )


class ParallelDegrees(settings.Settings):
    """Along which axes a job is cut, and into how many parts."""

    tp: Count = Field(default=1, description="tensor-parallel degree")
    pp: Count = Field(default=1, description="pipeline stages")
    dp: Count = Field(default=1, description="data-parallel replicas")
    cp: Count = Field(default=1, description="context-parallel degree")
    ep: Count = Field(default=1, description="expert-parallel degree; divides tp * cp * dp / etp")
    etp: Count | None = Field(default=None, description="tensor-parallel degree of experts; else tp", exclude_if=lambda n: not n)
    sp_d: Count = Field(default=1, description="parts of the depth of each sample's volume", exclude_if=lambda sp: sp == 1)
    sp_h: Count = Field(default=1, description="parts of the height of each sample's volume", exclude_if=lambda sp: sp == 1)
    sp_w: Count = Field(default=1, description="parts of the width of each sample's volume", exclude_if=lambda sp: sp == 1)

    @property
    def sp(self) -> int:
        """Ranks that share the volume of a sample."""
        return self.sp_d * self.sp_h * self.sp_w

    @property
    def slices(self) -> int:
        """Ranks of a stage among which the positions of a sample are divided: tokens by ``cp``, a volume by ``sp``."""
        return self.cp * self.sp

    @property
    def copies(self) -> int:
        """Ranks that hold the same dense weights, whose gradients are summed."""
        return self.dp * self.slices

    @property
    def expert_tp(self) -> int:
        """Ranks that share the matrices of each expert."""
        return self.tp if self.etp is None else self.etp

    @property
    def expert_copies(self) -> int:
        """Ranks that hold the same weights of experts, whose gradients are summed."""
        return self.tp * self.copies // (self.expert_tp * self.ep)

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.tp * self.slices * self.pp * self.dp


class Layout(ParallelDegrees, TrainedState):
    """A parallel layout of a layered model.

    World size is ``tp * cp * pp * dp * sp``, with ``sp = sp_d * sp_h * sp_w``. Ranks are numbered in Megatron's order: ``tp``
    fastest, then ``cp``, ``dp``, ``pp``. Groups of experts are ``ep`` ranks at a distance of ``etp``, in runs of ``etp * ep``.
    Parts of a volume have the place of slices of a sequence, ``sp_w`` fastest; a sample has one or the other.
    """

    virtual_stages: Count = Field(
        default=1, description="model chunks on each pipeline rank (interleaved schedule; two under dualpipev)"
    )
    schedule: Literal["none", "gpipe", "1f1b", "eager-1f1b", "interleaved", "zb-h1", "zb-2p", "dualpipe", "dualpipev"] = Field(
        default="1f1b", description="pipeline schedule; none is legal without a pipeline only"
    )
    micro_batch: Count = Field(description="samples of one micro-batch on one replica")
    global_batch: Count = Field(description="samples of one step over all replicas")
    sequence_parallel: Switch = Field(default=False, description="whether activations between tp regions are cut by sequence")
    recompute: Literal["none", "selective", "full", "selective-ops"] = Field(
        default="none",
        description="activation recomputation: of attention's inside (selective), of all but attention and every second product "
        "(selective-ops), of whole layers (full)",
    )
    recompute_method: Literal["uniform", "block"] = Field(
        default="uniform",
        description="which layers recompute=full computes again: all, in groups that keep their input alone (uniform), or the "
        "first of each model chunk (block)",
        exclude_if=lambda method: method == "uniform",
    )
    recompute_num_layers: Count = Field(
        default=1,
        description="layers of a group (uniform), or layers of each model chunk that are computed again (block)",
        exclude_if=lambda n: n == 1,
    )
    zero: Literal[0, 1, 2, 3] = Field(default=0, description="ZeRO stage")
    overlap_tp: Switch = Field(default=False, description="whether tensor-parallel communication hides behind computation")
    overlap_pp: Switch = Field(default=False, description="whether pipeline transfers hide behind computation")
    overlap_dp: Switch = Field(default=False, description="whether gradient synchronisation hides behind computation")
    context_parallel: Literal["ring", "all-gather", "ulysses"] = Field(
        default="ring", description="how the ranks of cp see the keys and values of the others"
    )
    shard_group: Count | None = Field(
        default=None, description="ranks that share one copy of what ZeRO shards (hybrid sharding); absent: all of dp x cp"
    )
    distributed_optimizer: Switch = Field(default=False, description="whether dp shards the optimizer, as ZeRO-1 does")
    precision: Literal["bf16", "fp16", "fp32", "fp8", "autocast"] = Field(
        default="bf16",
        description="of weights and activations; fp8: of products in layers, attention apart; autocast: all but float32 weights",
    )
    fp32_gradients: Switch = Field(default=True, description="whether gradients are summed in 4 bytes under mixed precision")
    attention: Literal["fused", "unfused"] = Field(
        default="fused", description="fused never stores the scores; unfused is how it was done before FlashAttention"
    )
    async_gradients: Switch = Field(
        default=True, description="whether input gradients are reduced over tp while weight gradients are computed"
    )
    fused_accumulation: Switch = Field(
        default=True, description="whether the product of a weight gradient adds to the sum by itself"
    )
    framework: FrameworkName | None = Field(
        default=None,
        description="framework that runs it; absent: kernels as Megatron-LM's, ZeRO as DeepSpeed's",
        exclude_if=lambda value: value is None,
    )
    compile: Switch | None = Field(
        default=None,
        description="whether element-wise work is fused (true) or each operator of PyTorch runs by itself (false); absent: as "
        "the framework does",
        exclude_if=lambda value: value is None,
    )
    loss_chunks: Count = Field(
        default=1, description="pieces in which logits and loss are computed one after the other", exclude_if=lambda n: n == 1
    )
    first_stage_less_layers: Index = Field(
        default=0, description="layers that the first model chunk has less than the others", exclude_if=lambda n: n == 0
    )
    last_stage_less_layers: Index = Field(
        default=0, description="layers that the last model chunk has less than the others", exclude_if=lambda n: n == 0
    )
    stage_meshes: meshes.StageMeshes = None
    stage_layers: meshes.StageLayers = None

    @model_validator(mode="after")
    def _check(self) -> Layout:
        if self.sp > 1 and self.tp * self.cp * self.ep > 1:
            raise ValueError("sp_d, sp_h and sp_w cut volumes; tp, cp and ep cut the layers of a transformer")
        self._cut_experts()
        if (problem := bidirectional_objection(self)) is not None:
            raise ValueError(problem)
        if self.virtual_stages > 1 and self.schedule not in ("interleaved", "dualpipev"):
            raise ValueError(f"virtual_stages={self.virtual_stages} needs schedule=interleaved, not {self.schedule}")
        if self.virtual_stages > 1 and self.pp == 1:
            raise ValueError(f"virtual_stages={self.virtual_stages} needs a pipeline, pp is 1")
        if self.schedule == "none" and self.pp > 1:
            raise ValueError(f"schedule=none leaves a pipeline of pp={self.pp} without an order")
        if self.schedule == EAGER and self.pp > 1 and not self.overlap_pp:
            raise ValueError("schedule=eager-1f1b needs overlap_pp=true: it is there to hide transfers")
        if (self.recompute_method == "block" or self.recompute_num_layers > 1) and self.recompute != "full":
            key = "recompute_method=block" if self.recompute_method == "block" else "recompute_num_layers"
            raise ValueError(f"{key} says which layers recompute=full computes again, not recompute={self.recompute}")
        if self.shard_group is not None and not self.shards_optimizer:
            raise ValueError(f"shard_group={self.shard_group} needs zero of at least 1 or the distributed optimizer")
        if self.shard_group is not None and self.copies % self.shard_group:
            what = "dp x sp" if self.sp > 1 else "dp x cp"
            raise ValueError(f"shard_group={self.shard_group} does not divide {what} = {self.copies}")
        if self.global_batch % (self.micro_batch * self.dp):
            raise ValueError(
                f"global_batch={self.global_batch} is not a multiple of micro_batch x dp = {self.micro_batch * self.dp}"
            )
        meshes.check(self)
        return self

    def _cut_experts(self) -> None:
        ranks = self.tp * self.copies
        if self.etp is None and self.stage_meshes is None and self.copies % self.ep:
            fitting = (n for n in range(1, self.tp) if self.tp % n == 0 == ranks % (n * self.ep))
            self.__dict__["etp"] = max(fitting, default=None)
        elif self.etp == self.tp:
            self.__dict__["etp"] = None
        if self.tp % self.expert_tp:
            raise ValueError(f"etp={self.etp} does not divide tp={self.tp}")
        if ranks % (self.expert_tp * self.ep):
            raise ValueError(f"ep={self.ep} does not divide tp x cp x dp / etp = {ranks // self.expert_tp}")

    @classmethod
    def parse(cls, text: str, *, samples_per_step: int | None = None, hides_unasked: bool = False) -> Layout:
        """Read a layout from a text such as ``tp=8,pp=8,dp=2,micro_batch=1,global_batch=64``.

        Args:
            text: ``key=value`` pairs with commas between. The first may be the path of a YAML file with keys under ``layout:``;
                pairs after it override the file. A key that is absent takes its default.
            samples_per_step: the job's own batch, taken where ``global_batch`` is absent.
            hides_unasked: whether absent ``overlap_*`` keys are as `hidden_unrequested` or the framework has them.

        Raises:
            PlanError: a key that is unknown, absent or twice, or values that do not go together.
        """
        data = layout_keys(text, cls.model_fields)
        if samples_per_step is not None:
            data.setdefault("global_batch", samples_per_step)
        chunks, schedule = data.get("virtual_stages", 1), data.get("schedule", "")
        unasked: dict[str, Any] = dict(hidden_unrequested(chunks, schedule) if hides_unasked or schedule in HIDING else {})
        if schedule == "dualpipev" and data.get("pp", 1) != 1:
            unasked["virtual_stages"] = 2
        if not hides_unasked:
            unasked.pop("overlap_dp", None)
        elif "framework" in data:
            unasked |= framework_defaults(data["framework"], data)
        return build_of_plan(cls, unasked | data, prefix="layout.")

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Layout:
        """Return the layout with other values of some keys; searches make hundreds of thousands, so that the rest is shared."""
        made = object.__new__(Layout)
        changed, fields = update or {}, self.__pydantic_fields_set__
        object.__setattr__(made, "__dict__", {**self.__dict__, **changed})
        object.__setattr__(made, "__pydantic_fields_set__", fields if changed.keys() <= fields else fields | changed.keys())
        object.__setattr__(made, "__pydantic_extra__", None)
        object.__setattr__(made, "__pydantic_private__", None)
        return made

    @property
    def shards_optimizer(self) -> bool:
        """Whether the ranks of a shard group keep a part of the optimizer's state each."""
        return self.zero >= 1 or self.distributed_optimizer

    @property
    def num_shards(self) -> int:
        """Ranks that share one copy of what is sharded; 1 where nothing is."""
        return (self.shard_group or self.copies) if self.shards_optimizer else 1

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches that each replica works through in one step."""
        return self.global_batch // (self.micro_batch * self.dp)

    @property
    def parts_gradients(self) -> bool:
        """Whether the gradients of weights are a pass of their own."""
        return self.schedule in ZERO_BUBBLE and self.pp > 1

    @property
    def is_bidirectional(self) -> bool:
        """Whether micro-batches enter the pipeline from both its ends, or go down and up it: DualPipe and DualPipeV."""
        return self.schedule in BIDIRECTIONAL and self.pp > 1

    @property
    def has_mirrored_stages(self) -> bool:
        """Whether each stage of the model is on two ranks of a pipeline, as far from one end as from the other: DualPipe."""
        return self.schedule == "dualpipe" and self.pp > 1

    @property
    def chunks_per_rank(self) -> int:
        """Chunks of the model that a rank works through, the second copy of a stage among them."""
        return 2 if self.is_bidirectional else self.virtual_stages

    @property
    def micro_batches_per_chunk(self) -> int:
        """Micro-batches that go through each of them in one step; of two directions each has half."""
        return self.num_micro_batches // (2 if self.has_mirrored_stages else 1)

    def stage_of(self, chunk: int) -> int:
        """Return the pipeline stage of a chunk. They are dealt in turn; there and back where the schedule is bidirectional."""
        return 2 * self.pp - 1 - chunk if self.is_bidirectional and chunk >= self.pp else chunk % self.pp

    def chunk_at(self, stage: int, place: int) -> int:
        """Return the chunk at a place of a stage; of DualPipe the chunks from ``pp`` on are the model's again, mirrored."""
        return 2 * self.pp - 1 - stage if self.is_bidirectional and place else place * self.pp + stage

    def is_border(self, chunk: int) -> bool:
        """Return whether the next chunk belongs to the other copy of the model."""
        return self.has_mirrored_stages and chunk == self.pp - 1

    @property
    def number_bytes(self) -> int:
        """Bytes of a weight or an activation."""
        return 4 if self.precision == "fp32" else 2

    @property
    def runs_operators(self) -> bool:
        """Whether element-wise work runs operator by operator: PyTorch's way where nothing is said, not Megatron-LM's."""
        return (self.framework == "fsdp2") if self.compile is None else not self.compile

    @property
    def gradient_bytes(self) -> int:
        """Bytes in which a gradient is summed."""
        return 4 if self.fp32_gradients or self.precision == "autocast" else self.number_bytes

    @property
    def is_fsdp2(self) -> bool:
        """Whether PyTorch's FSDP2 shards: float32 parameters without a copy in 16 bits, gathered once for a backward pass."""
        return self.framework == "fsdp2" and self.zero >= 1

    @property
    def keeps_fp8(self) -> bool:
        """Whether operands of fp8 are cast once for all their products and kept so, by Transformer Engine in Megatron-LM.

        PyTorch's torchao turns both operands of each of the three products of a layer into fp8 and keeps 16 bits.

        Source:
            NVIDIA/TransformerEngine, transformer_engine/pytorch/module/layernorm_linear.py (``ln_out.update_usage``);
            pytorch/ao, torchao/float8/float8_linear.py (``matmul_with_hp_or_float8_args``).
        """
        return self.precision == "fp8" and self.framework == "megatron"

    @property
    def keeps_gathered(self) -> bool:
        """Whether products keep their gathered input, as PyTorch's own do; Megatron-LM's and async tensor parallelism do not."""
        return self.framework == "fsdp2" and self.sequence_parallel and not (self.async_gradients or self.overlap_tp)

    @property
    def keeps_some_layers(self) -> bool:
        """Whether only some layers of each model chunk are computed again."""
        return self.recompute == "full" and self.recompute_method == "block"

    @property
    def reduces_in_passes(self) -> bool:
        """Whether ZeRO reduces gradients for every micro-batch: ZeRO-3, and ZeRO-2 without a pipeline."""
        return self.zero >= 3 or (self.zero == 2 and self.pp == 1)

    @property
    def is_meshed(self) -> bool:
        """Whether stages have unequal meshes, so that what goes between them is brought into other tiles."""
        return self.stage_meshes is not None and len(set(self.stage_meshes)) > 1

    @property
    def world(self) -> int:
        """Number of ranks, of all stages together."""
        return super().world if self.stage_meshes is None else meshes.first_ranks(self)[-1]

    def first_rank(self, stage: int) -> int:
        """Return the first rank of a stage; of ``pp`` the number of ranks."""
        return meshes.first_ranks(self)[stage]

    def stage_width(self, stage: int) -> int:
        """Return the ranks of a stage."""
        first, end = meshes.first_ranks(self)[stage : stage + 2]
        return end - first

    def stage_of_rank(self, rank: int) -> int:
        """Return the stage of a rank."""
        return bisect_right(meshes.first_ranks(self), rank) - 1

    @property
    def has_equal_stages(self) -> bool:
        """Whether every stage has as many ranks as any other one."""
        return self.stage_meshes is None or len({tp * dp for tp, dp in self.stage_meshes}) == 1

    def at(self, stage: int) -> Layout:
        """Return the layout all of whose stages have the mesh of this one; itself where they do."""
        return self if self.stage_meshes is None else meshes.of_stage(self, stage)

    def coordinates(self, rank: int) -> Coordinates:
        """Return the place of a rank in the grid.

        Raises:
            PlanError: no such rank.
        """
        if not 0 <= rank < self.world:
            raise PlanError(f"the layout has ranks 0..{self.world - 1}", field="rank", value=rank)
        if self.stage_meshes is not None:
            stage = self.stage_of_rank(rank)
            own = self.at(stage)
            return own.coordinates(rank - self.first_rank(stage) + own.first_rank(stage))
        rest, tp = divmod(rank, self.tp)
        pp, inner = divmod(rest, self.copies)
        dp, part = divmod(inner, self.slices)
        cp, sp = divmod(part, self.sp)
        ep = (inner * self.tp + tp) // self.expert_tp % self.ep
        return Coordinates(pp=pp, dp=dp, cp=cp, ep=ep, tp=tp, sp=sp)
