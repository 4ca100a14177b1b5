"""The shape of a transformer: the sizes on which its cost depends, whatever the model is called.

Layers may differ. Those of the main kind follow the shape's own keys. Each other kind lists its layers and their own keys.
Examples are dense layers before those with experts, and layers that look back over the whole sequence.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from .. import quantities, settings
from ..errors import GraphError
from ..settings import Count, Index, Switch
from .graph import JobGraph
from .transformer_graph import assembled

MAX_DEFAULT_SEQUENCE_LENGTH = 2048

MAX_LAYERS = 10_000
"""Every layer becomes ops of the graph, so a slip of the pen in their number must not fill the memory."""

MAX_SIZE = 2**40
"""Of anything else that is counted."""

_LAYERED = ("num_layers", "num_experts")
_COUNTED = (
    *("hidden", "num_heads", "num_key_value_heads", "head_dim", "feed_forward", "vocabulary", "max_positions", "token_types"),
    *("norm_vectors", "experts_per_token", "window", "shared_feed_forward"),
)


def is_absent(value: object) -> bool:
    """Return whether a key is left out where a shape is written: shapes without it then read as before it was known."""
    return value is None


class RotaryScaling(settings.Settings):
    """How rotary positions are changed for sequences longer than those of the first training."""

    kind: str = Field(min_length=1, description="rule, as Hugging Face names it: llama3, linear, yarn, ...")
    factor: float | None = Field(default=None, gt=0, exclude_if=is_absent, description="how many times longer")
    low_frequency_factor: float | None = Field(default=None, gt=0, exclude_if=is_absent, description="of llama3")
    high_frequency_factor: float | None = Field(default=None, gt=0, exclude_if=is_absent, description="of llama3")
    original_positions: Count | None = Field(default=None, exclude_if=is_absent, description="length of the first training")


class ModelConstants(settings.Settings):
    """The constants of a model; what is absent is not known."""

    rotary_base: float | None = Field(default=None, gt=0, exclude_if=is_absent, description="base of rotary positions")
    rotary_share: float | None = Field(default=None, gt=0, le=1, exclude_if=is_absent, description="part of a head that turns")
    rotary_scaling: RotaryScaling | None = Field(default=None, exclude_if=is_absent, description="absent: none")
    norm_epsilon: float | None = Field(default=None, gt=0, exclude_if=is_absent, description="added to a norm's variance")
    activation: str | None = Field(default=None, exclude_if=is_absent, description="of the feed-forward layer or its gate")


class LatentAttention(settings.Settings):
    """Multi-head latent attention: queries, keys and values are made from narrow vectors, one of each token for all heads.

    A head's queries and keys have ``rope_head_dim`` numbers of ``head_dim`` for positions, and the heads share those of the keys.

    Source:
        DeepSeek-AI, "DeepSeek-V2: a strong, economical, and efficient mixture-of-experts language model", 2024, section 2.1.
    """

    query_rank: Count | None = Field(default=None, description="width of the narrow vector of queries; absent: made directly")
    key_value_rank: Count = Field(description="width of the narrow vector of keys and values")
    rope_head_dim: Count = Field(description="part of a head's width that carries positions; less than head_dim")
    value_head_dim: Count = Field(description="width of a head's values")


SideWeights = Annotated[
    int | None,
    Field(strict=True, exclude_if=is_absent, description="weights of a layer besides those of the other keys, as of gates"),
]
"""Gates and indexers of attention, biases of experts, wide norms of heads; below 0 where a layer has fewer than its keys say."""

WindowForm = Annotated[
    Literal["chunks", "linear"] | None,
    Field(exclude_if=is_absent, description="whether window is a chunk's, or as much work as linear attention; absent: neither"),
]
"""Chunks do not see each other; linear attention costs the same for each token, however long the sequence."""


class LayerKind(settings.Settings):
    """Layers that differ from the main kind; what is absent here they do not have."""

    layers: tuple[Index, ...] = Field(min_length=1, description="which layers of the model, from 0")
    feed_forward: Count = Field(description="width inside the feed-forward layer, of one expert where there are experts")
    num_experts: Count = Field(default=1, description="experts of each feed-forward layer; 1 is a dense layer")
    experts_per_token: Count = Field(default=1, description="experts that each token visits")
    shared_feed_forward: Count | None = Field(default=None, description="width of the experts that every token visits, together")
    window: Count | None = Field(default=None, description="tokens that a query looks back at most; absent: all")
    window_form: WindowForm = None
    side_weights: SideWeights = None


class TransformerKeys(settings.Settings):
    """Sizes and switches of a transformer that decide its cost.

    ``num_key_value_heads`` is less than ``num_heads`` in grouped-query attention. ``norm_vectors`` is 2 for layer norm and 1 for
    root-mean-square norm, ``is_encoder`` is BERT's form and ``is_gated`` SwiGLU's. A table of positions bounds the sequence. The
    parameters of a tied head count once, in the embedding. A layer of one expert has no router.
    """

    num_layers: Count = Field(description="transformer layers")
    hidden: Count = Field(description="width of the residual stream")
    num_heads: Count = Field(description="query heads")
    num_key_value_heads: Count = Field(description="key and value heads")
    head_dim: Count = Field(description="width of one head")
    feed_forward: Count = Field(description="width inside the feed-forward layer, of one expert where there are experts")
    vocabulary: Count = Field(description="tokens that the embedding knows")
    max_positions: Count = Field(description="longest sequence that the model is made for")
    learned_positions: Switch = Field(default=False, description="whether positions have an embedding table")
    token_types: Index = Field(default=0, description="rows of the token-type embedding")
    is_encoder: Switch = Field(default=False, description="whether norms come after the residuals and a pooler at the end")
    is_gated: Switch = Field(default=True, description="whether the feed-forward layer has a gate")
    qkv_bias: Switch = Field(default=False, description="whether the query-key-value projection adds a bias")
    output_bias: Switch = Field(default=False, description="whether attention's output projection adds a bias")
    mlp_bias: Switch = Field(default=False, description="whether the feed-forward layer adds biases")
    norm_vectors: Count = Field(default=1, description="weight vectors of a norm")
    is_head_tied: Switch = Field(default=False, description="whether the head shares the embedding's table")
    num_experts: Count = Field(default=1, description="experts of each feed-forward layer; 1 is a dense layer")
    experts_per_token: Count = Field(default=1, description="experts that each token visits")
    window: Count | None = Field(default=None, description="tokens that a query looks back at most; absent: all")
    window_form: WindowForm = None
    indexer_width: Count | None = Field(
        default=None, exclude_if=is_absent, description="of all heads together that score every token to choose a window's"
    )
    is_parallel: Switch = Field(default=False, description="whether attention and feed-forward layer run side by side")
    has_dropout: Switch = Field(default=False, description="whether attention scores and residuals go through dropout")
    has_output_norms: Switch | None = Field(
        default=None, exclude_if=is_absent, description="whether norms come behind attention and feed-forward layer too"
    )
    has_head_norms: Switch | None = Field(
        default=None, exclude_if=is_absent, description="whether queries and keys of each head are normalised"
    )
    shared_feed_forward: Count | None = Field(
        default=None, exclude_if=is_absent, description="width of the experts that every token visits, together"
    )
    long_skips: Count | None = Field(
        default=None,
        exclude_if=is_absent,
        description="first layers whose outputs as many last ones add to their inputs, the first one's in the last; absent: none",
    )
    latent: LatentAttention | None = Field(
        default=None, exclude_if=is_absent, description="multi-head latent attention, where the model has it"
    )
    side_weights: SideWeights = None
    more_parameters: int | None = Field(
        default=None, strict=True, exclude_if=is_absent, description="outside of layers, besides those of the other keys"
    )
    other_layers: tuple[LayerKind, ...] | None = Field(
        default=None, exclude_if=is_absent, description="kinds of layers that differ from the keys above; absent: all are equal"
    )
    constants: ModelConstants | None = Field(
        default=None,
        exclude_if=is_absent,
        description="constants of its computation besides its sizes; absent: not known",
    )


class TransformerShape(TransformerKeys):
    """A transformer.

    Raises:
        GraphError: a number that no model has.
    """

    name: str = Field(description="of the model")

    @model_validator(mode="before")
    @classmethod
    def _check(cls, data: dict[str, Any]) -> dict[str, Any]:
        for names, most in ((_LAYERED, MAX_LAYERS), (_COUNTED, MAX_SIZE)):
            for field in names:
                if (value := data.get(field)) is not None and value > most:
                    raise GraphError(f"must be {most} at most", field=field, value=value)
        return data

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        latent, named = self.latent, [layer for kind in self.other_layers or () for layer in kind.layers]
        if latent is not None and latent.rope_head_dim >= self.head_dim:
            raise GraphError(
                f"must be less than head_dim {self.head_dim}", field="latent.rope_head_dim", value=latent.rope_head_dim
            )
        is_mixed = self.is_encoder and self.other_layers
        if (self.is_encoder or self.is_parallel) and (self.has_output_norms or self.latent or is_mixed):
            raise GraphError("only layers of a decoder whose halves follow each other are known so", field="is_parallel")
        if self.long_skips is not None and (2 * self.long_skips > self.num_layers or self.is_encoder):
            problem = f"join first layers of a decoder with last ones, {self.num_layers // 2} at most"
            raise GraphError(problem, field="long_skips", value=self.long_skips)
        if len(set(named)) != len(named) or len(named) >= self.num_layers or max(named, default=0) >= self.num_layers:
            problem = f"names each of the {self.num_layers} layers once at most, and leaves some to the main kind"
            raise GraphError(problem, field="other_layers", value=sorted(named)[:8])
        return self

    def __hash__(self) -> int:
        """Return a hash of the name and the depth, since searches look shapes up hundreds of thousands of times."""
        return hash((self.name, self.num_layers))

    @property
    def has_gelu_of_operators(self) -> bool:
        """Whether GELU is made of operators of its own, as ``gelu_new`` of transformers is."""
        return not self.is_gated and self.constants is not None and self.constants.activation == "gelu_new"

    @property
    def kinds(self) -> tuple[TransformerShape, ...]:
        """The model with all layers of one kind, for each kind; the main one first."""
        return _kinds(self) if self.other_layers else (self,)

    @property
    def kind_counts(self) -> tuple[int, ...]:
        """Layers of each kind."""
        others = tuple(len(kind.layers) for kind in self.other_layers or ())
        return (self.num_layers - sum(others), *others)

    def skips_behind(self, num_layers: int) -> int:
        """Return the number of long skips that go past a layer, without the output of the last of them."""
        return max(0, min(self.long_skips or 0, num_layers - 1, self.num_layers - num_layers))

    @property
    def value_head_dim(self) -> int:
        """Width of a head's values."""
        return self.head_dim if self.latent is None else self.latent.value_head_dim

    @property
    def narrow_width(self) -> int:
        """Numbers of a token from which latent attention makes queries, keys and values; 0 without it."""
        latent = self.latent
        return 0 if latent is None else (latent.query_rank or 0) + latent.key_value_rank + latent.rope_head_dim

    @property
    def query_key_value_weights(self) -> int:
        """Weights of the products that make queries, keys and values in a layer."""
        queries, latent = self.num_heads * self.head_dim, self.latent
        if latent is None:
            return self.hidden * (queries + 2 * self.num_key_value_heads * self.head_dim)
        keys_and_values = self.num_heads * (self.head_dim - latent.rope_head_dim + latent.value_head_dim)
        made = queries * (latent.query_rank or self.hidden) + keys_and_values * latent.key_value_rank
        return self.hidden * self.narrow_width + made

    def attention_multiply_adds(self, length: int) -> int:
        """Return multiply-adds of a token inside attention, all of its window counted; an indexer scores the whole sequence."""
        keys = length if self.window is None else self.window if self.window_form == "linear" else min(length, self.window)
        return keys * self.num_heads * (self.head_dim + self.value_head_dim) + length * (self.indexer_width or 0)

    @property
    def default_sequence_length(self) -> int:
        """The model's longest sequence, 2,048 tokens at most."""
        return min(self.max_positions, MAX_DEFAULT_SEQUENCE_LENGTH)

    def graph(self, batch_size: int, sequence_length: int | None = None) -> JobGraph:
        """Return the untimed job graph of one training step.

        A product of ``m x k`` by ``k x n`` costs ``2 m n k`` operations forward and twice that backward. Attention
        over ``s`` tokens costs ``4 b s^2 h`` forward (scores and context); the causal mask is *not* taken as halving
        it. It is one fused kernel that never stores the scores (FlashAttention); its workspace is the float32
        accumulator of the queries' gradient. Recomputation inside that kernel is not counted. Experts compute what
        the routed tokens need and hold the parameters of all.

        Args:
            batch_size: sequences of one step.
            sequence_length: tokens of each sequence; by default `default_sequence_length`.

        Raises:
            GraphError: a batch or sequence without tokens, or a sequence longer than the table of positions.

        Source:
            Narayanan et al., "Efficient large-scale language model training on GPU clusters", 2021, appendix. Dao,
            "FlashAttention-2", 2023. Jiang et al., "Mixtral of experts", 2024; DeepSeek-AI, "DeepSeek-V2", 2024.
        """
        length = self.default_sequence_length if sequence_length is None else sequence_length
        if batch_size < 1:
            raise GraphError("must be at least 1", field="batch_size", value=batch_size)
        if length < 1:
            raise GraphError("must be at least 1", field="sequence_length", value=length)
        if self.learned_positions and length > self.max_positions:
            raise GraphError(f"{self.name} has only {self.max_positions} positions", field="sequence_length", value=length)
        for field, value in (("samples_per_step", batch_size), ("sequence_length", length)):
            if (problem := quantities.problem(field, value)) is not None:
                raise GraphError(problem, field=field.replace("samples_per_step", "batch_size"), value=value)
        kinds = self.kinds
        layers = [kinds[kind] for kind in layer_kinds(self.num_layers, self.other_layers)]
        return assembled(self, layers, batch_size, length)


def layer_kinds(num_layers: int, other_layers: tuple[LayerKind, ...] | None) -> list[int]:
    """Return the kind of each layer, a number of `TransformerShape.kinds`."""
    numbers = [0] * num_layers
    for number, kind in enumerate(other_layers or (), start=1):
        for layer in kind.layers:
            numbers[layer] = number
    return numbers


@lru_cache(maxsize=256)
def _kinds(shape: TransformerShape) -> tuple[TransformerShape, ...]:
    main = shape.model_copy(update={"other_layers": None})
    varied = [{key: value for key, value in kind if key != "layers"} for kind in shape.other_layers or ()]
    return (main, *(main.model_copy(update=keys) for keys in varied))
