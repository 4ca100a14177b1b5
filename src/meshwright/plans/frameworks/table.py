"""Which layouts each training framework runs: the one table that searches are held to and that exports refuse by.

A framework is a list of limits. A limit names a key of the layout, the values that the key may have, and when the limit counts;
without values it is broken whenever it counts. The model and the length of its sequence count where they are known.

Sources:
    Megatron-LM: ``megatron/training/arguments.py`` and ``TransformerConfig`` of megatron-core 0.16.1.
    torchtitan: ``torchtitan/config/job_config.py``, ``parallelize.py`` of its Llama 3, and the schedules of
    torch.distributed.pipelining in PyTorch 2.13; of DualPipeV ``distributed/dual_pipe_v.py`` of 0.2.2 and
    ``distributed/pipeline_parallel.py`` of 0.3.0, read in November 2026.
    DeepSpeed: its tutorials on automatic tensor parallelism in training, Ulysses and mixture of experts, and the checks of
    ``PipelineEngine`` (ZeRO-2 and 3) and ``DeepSpeedEngine`` (``_configure_tensor_parallel_states``, experts under ZeRO-3) of
    0.19.8, read in November 2026.
    FSDP2: the documentation of ``torch.distributed.fsdp.fully_shard``.
"""

from __future__ import annotations

from typing import Any

from ...errors import PlanError
from ..partition import VOLUMES
from .defaults import BIDIRECTIONAL, EAGER, EVEN_STAGES
from .limits import Framework, LayoutOfModel, Limit
from .numbering import as_megatron, as_the_layout, by_hosts, in_any_order


def framework(name: str, *, field: str = "--for") -> Framework:
    """The framework of a name.

    Raises:
        PlanError: there is none.
    """
    own = _OTHER_NAMES.get(name.lower())
    if name not in FRAMEWORKS and own is not None:
        raise PlanError(f"unknown framework (got {name!r}); did you mean {own!r}?", field=field)
    if name not in FRAMEWORKS:
        raise PlanError("unknown framework", field=field, value=name, choices=FRAMEWORKS)
    return FRAMEWORKS[name]


def is_pipelined(asked: LayoutOfModel) -> bool:
    """Whether there are stages."""
    return asked.layout.pp > 1


def _one_grid(title: str) -> tuple[Limit, ...]:
    """Neither parts of volumes nor stages with meshes of their own."""

    def problem(asked: LayoutOfModel) -> str:
        layout = asked.layout
        nearest = f"the nearest plan is dp={layout.dp * layout.sp} with the same pp, where a sample fits a device"
        return f"{title} has no spatial parallelism; {nearest}"

    def meshed(asked: LayoutOfModel) -> str:
        nearest = f"the nearest plan that it can say has tp={asked.layout.tp} and dp={asked.layout.dp} on every stage"
        return f"{title} has one mesh for all stages; {nearest}"

    spatial = (Limit(key, problem, (1,)) for key in VOLUMES)
    return (*spatial, Limit("stage_meshes", meshed, when=lambda asked: asked.layout.is_meshed))


def _priced_as(title: str, name: str) -> Limit:
    """The values of ``framework``: a layout that is priced as another framework runs it has another framework's figures."""
    return Limit("framework", f"the layout is priced as another framework runs it; {title}'s is {name}", (None, name))


_UNWRITTEN: dict[str, tuple[Any, ...]] = {
    **{"recompute": ("none", "selective", "full"), "precision": ("bf16", "fp16", "fp32"), "compile": (None,)},
    **{"loss_chunks": (1,), "first_stage_less_layers": (0,), "last_stage_less_layers": (0,)},
}
"""Switches of PyTorch and torchtitan, by the values that other frameworks are told."""


_LAYERWISE: dict[str, tuple[Any, ...]] = {"recompute_method": ("uniform",), "recompute_num_layers": (1,)}
"""Which layers are computed again, where that is all of them, each by itself."""


def _without(whose: str, switches: dict[str, tuple[Any, ...]]) -> tuple[Limit, ...]:
    return tuple(Limit(key, f"is not among {whose} that are written here", values) for key, values in switches.items())


def _schedules(problem: str, *values: str) -> Limit:
    def told(asked: LayoutOfModel) -> str:
        nearest = {EAGER: "; schedule=1f1b with overlap_pp=false is the nearest plan that it can say"}
        if "interleaved" in values:
            folded = "schedule=dualpipev" if "dualpipev" in values else "schedule=interleaved with virtual_stages=2"
            nearest |= dict.fromkeys(BIDIRECTIONAL, f"; {folded} is the nearest plan that it can say")
        return problem + nearest.get(asked.layout.schedule, "")

    return Limit("schedule", told, values, is_pipelined)


def _key_value_heads(title: str) -> Limit:
    """Tensor parallelism that would copy heads of keys and values."""

    def counts(asked: LayoutOfModel) -> bool:
        shape = asked.shape
        return shape is not None and shape.latent is None and shape.num_key_value_heads % asked.layout.tp > 0

    def problem(asked: LayoutOfModel) -> str:
        return f"{title} wants tp to divide the {asked.shape.num_key_value_heads if asked.shape else 0} key-value heads"

    return Limit("tp", problem, when=counts)


def _halves(title: str) -> Limit:
    """Each rank of a ring has a piece of both halves of the sequence, so that a causal mask costs all of them alike."""

    def counts(asked: LayoutOfModel) -> bool:
        cp, length = asked.layout.cp, asked.sequence_length
        return cp > 1 and length is not None and length % (2 * cp) > 0

    return Limit("cp", lambda asked: f"{title} wants 2 cp to divide the sequence of {asked.sequence_length} tokens", when=counts)


def _is_interleaved(asked: LayoutOfModel) -> bool:
    return asked.layout.pp > 1 and asked.layout.schedule == "interleaved"


def _has_uneven_rounds(asked: LayoutOfModel) -> bool:
    """Whether the micro-batches of an interleaved schedule are no multiple of its rounds, as PyTorch counts them."""
    number = asked.layout.num_micro_batches
    return _is_interleaved(asked) and number % max(1, number // asked.layout.pp) > 0


def _tears_experts(asked: LayoutOfModel) -> bool:
    """Whether groups of experts are no runs of whole sequences inside the ranks that share one copy."""
    layout = asked.layout
    return layout.ep > 1 and (layout.ep % layout.cp > 0 or layout.num_shards % layout.ep > 0)


_MEGATRON = Framework(
    name="megatron",
    title="Megatron-LM",
    usual="megatron",
    numbering=as_megatron,
    needs_layers=True,
    zero_stages=(0, 1),
    limits=(
        *_one_grid("Megatron-LM"),
        _priced_as("Megatron-LM", "megatron"),
        *_without("Megatron's arguments", _UNWRITTEN),
        _schedules("Megatron runs 1f1b, and interleaved with virtual stages", "1f1b", "interleaved"),
        Limit("zero", "Megatron's distributed optimizer is ZeRO stage 1", (0, 1)),
        Limit(
            "overlap_tp",
            "Megatron hides it with sequence_parallel only",
            (False,),
            lambda asked: not asked.layout.sequence_parallel,
        ),
        Limit(
            "sequence_parallel",
            "Megatron wants it where there is both ep and tp",
            (True,),
            lambda asked: asked.layout.ep > 1 and asked.layout.tp > 1,
        ),
        Limit(
            "overlap_pp",
            "Megatron hides pipeline transfers in the interleaved schedule only",
            (False,),
            lambda asked: is_pipelined(asked) and asked.layout.virtual_stages == 1,
        ),
        Limit(
            "virtual_stages",
            lambda asked: (
                "Megatron interleaves no fewer micro-batches than stages, here "
                f"{asked.layout.num_micro_batches} of {asked.layout.pp}"
            ),
            (1,),
            lambda asked: asked.layout.num_micro_batches < asked.layout.pp,
        ),
        _key_value_heads("Megatron"),
        _halves("Megatron"),
    ),
)

_TORCHTITAN = Framework(
    name="torchtitan",
    title="torchtitan",
    usual="fsdp",
    numbering=by_hosts,
    needs_layers=True,
    zero_stages=(0, 2, 3),
    limits=(
        *_one_grid("torchtitan"),
        Limit("stage_layers", EVEN_STAGES, (None,)),
        _priced_as("torchtitan", "fsdp2"),
        Limit(
            "recompute",
            "torchtitan keeps attention and every second product (selective-ops), or recomputes all of a layer or nothing",
            ("none", "selective-ops", "full"),
        ),
        Limit(
            "recompute",
            "torchtitan hides experts' exchange under DualPipeV only where nothing is recomputed",
            ("none",),
            lambda asked: asked.layout.is_bidirectional and asked.layout.ep > 1,
        ),
        *_without("torchtitan's keys", _LAYERWISE),
        Limit("loss_chunks", "torchtitan computes the loss in one piece", (1,)),
        _schedules("torchtitan runs 1f1b, gpipe, interleaved and dualpipev", "1f1b", "gpipe", "interleaved", "dualpipev"),
        Limit(
            "schedule",
            lambda asked: (
                f"PyTorch's 1F1B wants no fewer micro-batches than stages, here {asked.layout.num_micro_batches} of "
                f"{asked.layout.pp}"
            ),
            ("gpipe", "interleaved", "dualpipev"),
            lambda asked: asked.layout.num_micro_batches < asked.layout.pp,
        ),
        Limit(
            "virtual_stages",
            lambda asked: (
                "PyTorch interleaves a multiple of "
                f"{max(1, asked.layout.num_micro_batches // asked.layout.pp)} micro-batches, here "
                f"{asked.layout.num_micro_batches}"
            ),
            when=_has_uneven_rounds,
        ),
        Limit("zero", "torchtitan shards by FSDP2, which is ZeRO stage 3, or 2 without resharding after a pass", (0, 2, 3)),
        Limit(
            "zero",
            "torchtitan keeps whole copies (DDP) only where there is no other axis than dp",
            (2, 3),
            lambda asked: asked.layout.copies > 1 and asked.layout.tp * asked.layout.cp * asked.layout.pp > 1,
        ),
        Limit(
            "sequence_parallel",
            "torchtitan's tensor parallelism cuts activations by sequence too",
            (True,),
            lambda asked: asked.layout.tp > 1,
        ),
        Limit(
            "context_parallel",
            "torchtitan passes keys and values round or gathers them",
            ("ring", "all-gather"),
            lambda asked: asked.layout.cp > 1,
        ),
        Limit(
            "shard_group",
            lambda asked: f"torchtitan shards over whole groups of cp, here {asked.layout.cp} ranks",
            when=lambda asked: bool(asked.layout.shard_group and asked.layout.shard_group % asked.layout.cp),
        ),
        Limit(
            "ep", "torchtitan wants cp to divide ep, and ep to divide the ranks that share one copy (FSDP)", when=_tears_experts
        ),
        Limit("precision", "torchtitan computes in bf16, fp32 or, products of layers, in fp8", ("bf16", "fp32", "fp8")),
        _key_value_heads("torchtitan"),
        _halves("torchtitan"),
    ),
)

_DEEPSPEED = Framework(
    name="deepspeed",
    title="DeepSpeed",
    usual="zero-3",
    numbering=as_the_layout,
    where_cut={"cp": {"context_parallel": "ulysses"}},
    limits=(
        *_one_grid("DeepSpeed"),
        Limit("stage_layers", EVEN_STAGES, (None,)),
        _priced_as("DeepSpeed", "deepspeed"),
        *_without("DeepSpeed's keys", _UNWRITTEN | _LAYERWISE),
        _schedules("DeepSpeed's pipeline runs 1f1b", "1f1b"),
        Limit("zero", "DeepSpeed's pipeline goes with ZeRO stage 1 at most", (0, 1), is_pipelined),
        Limit("zero", "DeepSpeed's experts go with ZeRO stage 2 at most", (0, 1, 2), lambda asked: asked.layout.ep > 1),
        Limit("context_parallel", "DeepSpeed cuts sequences as Ulysses does", ("ulysses",), lambda asked: asked.layout.cp > 1),
        Limit(
            "sequence_parallel",
            "Ulysses does not go with Megatron's sequence parallelism",
            (False,),
            lambda asked: asked.layout.cp > 1 and asked.layout.tp > 1,
        ),
        Limit("shard_group", "DeepSpeed's ZeRO shards over all replicas; its MiCS and hpZ are not known here", (None,)),
    ),
)

_FSDP2 = Framework(
    name="fsdp2",
    title="FSDP2",
    usual="fsdp",
    numbering=in_any_order,
    needs_layers=True,
    zero_stages=(2, 3),
    limits=(
        *_one_grid("FSDP2"),
        _priced_as("FSDP2", "fsdp2"),
        *(
            Limit(axis, "fully_shard cuts by data alone; torchtitan joins it with other axes", (1,))
            for axis in ("tp", "cp", "pp", "ep")
        ),
        Limit(
            "zero",
            "fully_shard is ZeRO stage 3, or 2 with reshard_after_forward=False",
            (2, 3),
            lambda asked: asked.layout.copies > 1,
        ),
    ),
)

FRAMEWORKS: dict[str, Framework] = {one.name: one for one in (_MEGATRON, _TORCHTITAN, _DEEPSPEED, _FSDP2)}
"""Every framework, by the name that ``--for`` takes."""

_OTHER_NAMES = {
    "megatron-lm": "megatron",
    "megatron-core": "megatron",
    "mcore": "megatron",
    "titan": "torchtitan",
    "fsdp": "fsdp2",
    "fully_shard": "fsdp2",
    "torch": "fsdp2",
    "ds": "deepspeed",
    "zero": "deepspeed",
}
