"""The chunks into which a pipeline cuts a model, their layers by kind, and how a model cannot be cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import groupby

from ...errors import PlanError
from ...jobs.transformer import LayerKind, TransformerShape, layer_kinds
from ...plans.partition import Layout
from ...plans.pipelines.layers import chunk_sizes, layers_of_chunks, least_layers, less_layers

Parts = tuple[tuple[str, int], ...]
"""Names of blocks, and how many of each."""

KEPT = ", kept"
"""Behind the names of layers that are not computed again, where others of their kind are."""

_LAYERS: dict[tuple[Parts, ...], tuple[Mapping[str, int], ...]] = {}


@dataclass(frozen=True)
class ChunkWork:
    """One model chunk.

    Attributes:
        stage: pipeline stage that holds it.
        place: its number among the chunks of the stage, see `Layout.chunk_at`.
        num_layers: transformer layers.
        has_embedding, has_head: whether it is the model's first, its last.
        runs: layers of one kind that follow each other: name of the kind's block, and how many.
    """

    stage: int
    place: int
    num_layers: int
    has_embedding: bool
    has_head: bool
    runs: Parts

    @cached_property
    def parts(self) -> Parts:
        """The kinds of blocks of the chunk and how many of each; chunks with the same parts take the same time."""
        counts: dict[str, int] = {}
        for name, number in sorted(self.runs):
            counts[name] = counts.get(name, 0) + number
        ends = (("embedding", self.has_embedding), ("head", self.has_head))
        return (*counts.items(), *((name, 1) for name, is_held in ends if is_held))


def block_name(kind: int, *, is_kept: bool = False) -> str:
    """Return the name of a kind of layers among blocks, or of those that are kept where others are computed again."""
    return (f"layer kind {kind}" if kind else "layer") + (KEPT if is_kept else "")


@lru_cache(maxsize=1024)
def spread(
    num_layers: int,
    other_layers: tuple[LayerKind, ...] | None,
    pp: int,
    virtual_stages: int,
    less: tuple[int, int] = (0, 0),
    again: int | None = None,
    sizes: tuple[int, ...] | None = None,
) -> tuple[tuple[ChunkWork, ...], tuple[Mapping[str, int], ...]]:
    """Return the chunks in model order, and the layers of each stage by the name of their block; equal ones are the same object.

    Layers are spread evenly; what is left over goes to chunks from the middle outwards, away from embedding and head. The first
    and the last chunk may be given fewer, as if embedding and head were layers too. Where only the first ``again`` layers of a
    chunk are computed again, as Megatron-LM's method ``block`` does, the others are `KEPT`. ``sizes`` says the layers of each
    chunk where they are not spread evenly.
    """
    count = pp * virtual_stages
    sizes = chunk_sizes(num_layers, count, less) if sizes is None else sizes
    names, chunks, first = [block_name(kind) for kind in layer_kinds(num_layers, other_layers)], [], 0
    held: list[dict[str, int]] = [{} for _ in range(pp)]
    for chunk in range(count):
        number = sizes[chunk]
        own = names[first : first + number]
        if again is not None:
            own[again:] = [name + KEPT for name in own[again:]]
        runs = tuple((name, len(list(run))) for name, run in groupby(own))
        chunks.append(ChunkWork(chunk % pp, chunk // pp, number, chunk == 0, chunk == count - 1, runs))
        for name, of_run in runs:
            held[chunk % pp][name] = held[chunk % pp].get(name, 0) + of_run
        first += number
    return tuple(chunks), _same(held)


@lru_cache(maxsize=1024)
def forward_and_backward(
    schedule: str, pp: int, chunks_of: tuple[object, ...]
) -> tuple[tuple[ChunkWork, ...], tuple[Mapping[str, int], ...]]:
    """Return the chunks of a bidirectional schedule and the layers of each stage, as `spread` returns them.

    Args:
        schedule: which; the chunks of DualPipe follow once more, on the mirrored stages.
        pp: stages.
        chunks_of: what `spread` makes the chunks of.
    """
    chunks = spread(*chunks_of)[0]
    every = [*chunks, *chunks] if schedule == "dualpipe" else chunks
    placed = [replace(one, stage=2 * pp - 1 - n if n >= pp else n, place=n // pp) for n, one in enumerate(every)]
    held: list[Counter[str]] = [Counter() for _ in range(pp)]
    for one in placed:
        held[one.stage].update(dict(one.parts))
    layers = [{name: n for name, n in of_stage.items() if name not in ("embedding", "head")} for of_stage in held]
    return tuple(placed), _same(layers)


def _same(layers: Sequence[dict[str, int]]) -> tuple[Mapping[str, int], ...]:
    """Return the layers of stages, of equal ones the same object; of all stages too."""
    known: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}
    result = tuple(known.setdefault(tuple(sorted(layer.items())), layer) for layer in layers)
    return _LAYERS.setdefault(tuple(tuple(one.items()) for one in result), result)


def end_stages(layout: Layout) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the stages that hold the embedding, and those that hold the head."""
    last = layout.pp - 1
    if layout.is_bidirectional:
        return ((0, last), (0, last)) if layout.has_mirrored_stages else ((0,), (0,))
    return (0,), (last,)


def has_table_copy(layout: Layout) -> bool:
    """Return whether the head is on another stage than the embedding, and keeps a copy of a table that both have."""
    return layout.pp > 1 and not layout.is_bidirectional


def check(shape: TransformerShape, layout: Layout, sequence_length: int) -> None:
    """Refuse a layout into which the model cannot be cut.

    Raises:
        PlanError: naming the key of the layout, or a sequence without tokens.
    """
    if sequence_length < 1:
        raise PlanError("a sequence has at least one token", field="sequence_length", value=sequence_length)
    for bad, field, problem in _objections(shape, layout, sequence_length):
        if bad:
            value = getattr(layout, field)
            spelled = "/".join(map(str, value)) if isinstance(value, tuple) else value
            raise PlanError(problem, field=f"layout.{field}", value=spelled)


def is_legal(shape: TransformerShape, layout: Layout, sequence_length: int) -> bool:
    """Return whether `check` has nothing to say."""
    return not any(bad for bad, *_ in _objections(shape, layout, sequence_length))


def _objections(shape: TransformerShape, layout: Layout, length: int) -> list[tuple[bool, str, str]]:
    """Return, for each way in which a model cannot be cut, whether the layout has it, its key, and the problem."""
    tp, cp, pp, ep, v = layout.tp, layout.cp, layout.pp, layout.ep, layout.virtual_stages
    name, chunks, has_adapters = shape.name, pp * v, layout.lora_rank is not None
    heads = shape.num_heads // tp if shape.num_heads % tp == 0 else 0
    widths = {
        width: cut
        for kind in shape.kinds
        for width, cut in (
            (kind.feed_forward, layout.expert_tp if kind.num_experts > 1 else tp),
            (kind.shared_feed_forward or 0, tp),
        )
    }
    inner = next((width for width, cut in widths.items() if width % cut), 0)
    experts = next(
        (kind.num_experts for kind in shape.kinds if kind.num_experts > 1 and kind.num_experts % ep), shape.num_experts
    )
    key_heads, has_experts = shape.num_key_value_heads, any(kind.num_experts > 1 for kind in shape.kinds)
    is_uneven = layout.schedule == "interleaved" and v > 1
    counted = shape.num_layers + layout.first_stage_less_layers + layout.last_stage_less_layers
    num_given, less = sum(layout.stage_layers or ()), less_layers(layout)
    volume = next((key for key in ("sp_d", "sp_h", "sp_w") if getattr(layout, key) > 1), "sp_d")
    splits_tokens, is_ulysses = layout.sequence_parallel and tp > 1, cp > 1 and layout.context_parallel == "ulysses"
    by_ops, is_autocast = layout.recompute == "selective-ops", layout.precision == "autocast"
    is_plain = shape.num_experts <= 1 and shape.latent is None and not shape.other_layers
    again = layout.recompute_num_layers
    autocast = "is of whole float32 weights that are all trained: zero=0 or 1, trainable=all"
    interleaved = (
        f"an interleaved schedule needs pp x virtual_stages = {chunks} to divide the {counted} layers of {name}; "
        f"first_stage_less_layers and last_stage_less_layers, {-counted % chunks} more together, make them so many"
    )
    offloaded = "leaves weights on the device, where FSDP2's CPUOffloadPolicy takes them to the host with the optimizer"
    adapted = "counts products without adapters; none, selective and full go with trainable=lora"
    unfused = "keeps what fused attention makes; attention=unfused goes with recompute=selective"
    return [
        (has_adapters and shape.latent is not None, "trainable", f"has no price of {name}'s latent attention"),
        (has_adapters and layout.precision == "fp8", "trainable", "has no price with precision=fp8"),
        (is_autocast and (layout.zero >= 2 or has_adapters), "precision", autocast),
        (layout.offload == "optimizer" and layout.framework == "fsdp2", "offload", offloaded),
        (layout.sp > 1, volume, f"cuts volumes, and {name} has none"),
        (heads == 0, "tp", f"does not divide the {shape.num_heads} heads of {name}"),
        (inner != 0, "tp", f"does not divide the feed-forward width {inner} of {name}"),
        (max(key_heads, tp) % min(key_heads, tp) != 0, "tp", f"does not go with the {key_heads} key-value heads of {name}"),
        (length % cp != 0, "cp", f"does not divide the sequence of {length} tokens"),
        (
            is_ulysses and (heads == 0 or heads % cp != 0),
            "cp",
            f"ulysses needs cp to divide the {heads} heads of a tensor-parallel rank",
        ),
        (
            splits_tokens and (length // cp * layout.micro_batch) % tp != 0,
            "tp",
            "sequence parallelism needs tp to divide the tokens of a micro-batch",
        ),
        (layout.etp is not None and not has_experts, "etp", f"cuts experts, and {name} has none"),
        (ep > 1 and experts % ep != 0, "ep", f"does not divide the {experts} expert(s) of {name}"),
        (chunks > counted, "pp", f"{chunks} model chunks are more than the {counted} layers of {name}"),
        (is_uneven and counted % chunks != 0, "virtual_stages", interleaved),
        (
            layout.precision == "fp32" and layout.attention == "fused",
            "attention",
            "the fused kernel computes in 16 bits; precision=fp32 wants attention=unfused",
        ),
        (by_ops and not is_plain, "recompute", f"counts the products of dense layers, and {name} has others"),
        (by_ops and has_adapters, "recompute", adapted),
        (by_ops and layout.attention == "unfused", "recompute", unfused),
        (layout.is_bidirectional and shape.long_skips is not None, "schedule", f"leaves no way to {name}'s skips"),
        (num_given not in (0, shape.num_layers), "stage_layers", f"are {num_given} layers, {name} has {shape.num_layers}"),
        (
            again > 1 and again > max(layers_of_chunks(shape.num_layers, layout)),
            "recompute_num_layers",
            f"is more than any model chunk of {name} has layers",
        ),
        (
            any(less) and least_layers(shape.num_layers, layout) < (v == 1),
            "first_stage_less_layers" if less[0] else "last_stage_less_layers",
            f"leaves a stage of {name} no layers, or a chunk less than none",
        ),
    ]
