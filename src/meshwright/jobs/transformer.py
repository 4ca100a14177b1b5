"""Transformers as job graphs: from the shape of a model, a batch and a sequence length to ops with their costs.

An op is what a training framework launches as one unit of a layer: norm, the joint query-key-value projection,
attention, its output projection with the residual added, norm, and the two halves of the feed-forward layer (or
router and experts). Element-wise work (activation, residual, rotary positions) is fused into the product beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import quantities
from ..errors import GraphError
from .builder import GraphBuilder
from .graph import JobGraph

MAX_DEFAULT_SEQUENCE_LENGTH = 2048

MAX_LAYERS = 10_000
"""Every layer becomes ops of the graph, so a slip of the pen in their number must not fill the memory."""

MAX_SIZE = 2**40
"""Of anything else that is counted."""

_LAYERED = ("num_layers", "num_experts")
_COUNTED = (
    *("hidden", "num_heads", "num_key_value_heads", "head_dim", "feed_forward", "vocabulary", "max_positions", "token_types"),
    *("norm_vectors", "experts_per_token", "window"),
)


@dataclass(frozen=True)
class TransformerShape:
    """What a transformer is, as far as its cost goes.

    Attributes:
        name: of the model.
        num_layers: transformer layers.
        hidden: width of the residual stream.
        num_heads: query heads.
        num_key_value_heads: key and value heads; fewer than ``num_heads`` in grouped-query attention.
        head_dim: width of one head.
        feed_forward: width inside the feed-forward layer, of one expert where there are experts.
        vocabulary: tokens that the embedding knows.
        max_positions: longest sequence that the model is made for.
        learned_positions: whether positions have an embedding table, which then bounds the sequence.
        token_types: rows of the token-type embedding, 0 without one.
        is_encoder: the norms stand after the residuals, a pooler takes the head's place (BERT).
        is_gated: the feed-forward layer has a gate beside its first product (SwiGLU).
        qkv_bias, output_bias, mlp_bias: which products add a bias.
        norm_vectors: weight vectors of a norm: 2 for layer norm, 1 for root-mean-square norm.
        is_head_tied: the head shares the embedding's table, whose parameters then count once, in the embedding.
        num_experts: experts of each feed-forward layer; 1 means an ordinary dense layer without router.
        experts_per_token: experts that each token visits.
        window: tokens that a query looks back at most; None for all.
        is_parallel: attention and feed-forward layer read the same normed input and add to the same residual.
        has_dropout: whether attention scores and residuals go through dropout.

    Raises:
        GraphError: a number that no model has.
    """

    name: str
    num_layers: int
    hidden: int
    num_heads: int
    num_key_value_heads: int
    head_dim: int
    feed_forward: int
    vocabulary: int
    max_positions: int
    learned_positions: bool = False
    token_types: int = 0
    is_encoder: bool = False
    is_gated: bool = True
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    norm_vectors: int = 1
    is_head_tied: bool = False
    num_experts: int = 1
    experts_per_token: int = 1
    window: int | None = None
    is_parallel: bool = False
    has_dropout: bool = False

    def __post_init__(self) -> None:
        for names, most in ((_LAYERED, MAX_LAYERS), (_COUNTED, MAX_SIZE)):
            for field in names:
                value = getattr(self, field)
                if value is not None and value > most:
                    raise GraphError(f"must be {most} at most", field=field, value=value)

    @property
    def default_sequence_length(self) -> int:
        """The model's longest sequence, 2,048 tokens at most."""
        return min(self.max_positions, MAX_DEFAULT_SEQUENCE_LENGTH)

    def graph(self, batch_size: int, sequence_length: int | None = None) -> JobGraph:
        """The untimed job graph of one training step.

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
            Narayanan et al., "Efficient large-scale language model training on GPU clusters", 2021, appendix;
            Dao, "FlashAttention-2", 2023; Jiang et al., "Mixtral of experts", 2024.
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
        return _Assembly(self, batch_size, length).build()


class _Assembly:
    """One graph being put together; `_product` and `_norm` are the bricks."""

    def __init__(self, shape: TransformerShape, batch_size: int, length: int) -> None:
        self.shape = shape
        self.graph = GraphBuilder(shape.name, batch_size)
        self.batch_size = batch_size
        self.length = length
        self.tokens = batch_size * length

    def build(self) -> JobGraph:
        shape = self.shape
        rows = shape.vocabulary + shape.token_types + (shape.max_positions if shape.learned_positions else 0)
        rows += shape.norm_vectors if shape.is_encoder else 0  # BERT normalises its embeddings
        x = self.graph.add("embedding", "embedding", [], output=self.tokens * shape.hidden, parameters=rows * shape.hidden)
        for layer in range(shape.num_layers):
            x = self._layer(f"layer{layer}.", x)
        if shape.is_encoder:
            weights = shape.hidden**2
            pooled = self.graph.add(
                "pooler",
                "linear",
                [x],
                output=self.batch_size * shape.hidden,
                parameters=weights + shape.hidden,
                multiply_adds=self.batch_size * weights,
            )
            self.graph.add("loss", "loss", [pooled], output=self.batch_size)
            return self.graph.build()
        x = self._norm("final_norm", x)
        logits = self._product("lm_head", [x], shape.hidden, shape.vocabulary, owns_weights=not shape.is_head_tied)
        # Log-probabilities are float32 while the loss runs; one number per token stays.
        self.graph.add("loss", "loss", [logits], output=self.tokens, workspace_bytes=4 * self.tokens * shape.vocabulary)
        return self.graph.build()

    def _layer(self, prefix: str, x: int) -> int:
        if self.shape.is_encoder:
            x = self._norm(prefix + "attention_norm", self._attention(prefix, x, residual=x))
            return self._norm(prefix + "mlp_norm", self._feed_forward(prefix, x, residual=x))
        x = self._attention(prefix, self._norm(prefix + "attention_norm", x), residual=x)
        normed = self._norm(prefix + "mlp_norm", x)
        if self.shape.num_experts > 1:
            return self._experts(prefix, normed, residual=x)
        return self._feed_forward(prefix, normed, residual=x)

    def _attention(self, prefix: str, x: int, residual: int) -> int:
        shape = self.shape
        width = shape.num_heads * shape.head_dim
        joint = width + 2 * shape.num_key_value_heads * shape.head_dim
        qkv = self._product(prefix + "qkv", [x], shape.hidden, joint, bias=shape.qkv_bias)
        keys = self.length if shape.window is None else min(self.length, shape.window)
        context = self.graph.add(
            prefix + "attention",
            "attention",
            [qkv],
            output=self.tokens * width,
            multiply_adds=2 * self.tokens * keys * width,
            workspace_bytes=4 * self.tokens * width,
        )
        return self._product(prefix + "attention_output", [context, residual], width, shape.hidden, bias=shape.output_bias)

    def _feed_forward(self, prefix: str, x: int, residual: int) -> int:
        shape = self.shape
        halves = 2 if shape.is_gated else 1
        up = self._product(prefix + "mlp_up", [x], shape.hidden, shape.feed_forward, bias=shape.mlp_bias, copies=halves)
        return self._product(prefix + "mlp_down", [up, residual], shape.feed_forward, shape.hidden, bias=shape.mlp_bias)

    def _experts(self, prefix: str, x: int, residual: int) -> int:
        shape = self.shape
        halves = 2 if shape.is_gated else 1
        weights = shape.hidden * shape.feed_forward
        routed = self.tokens * shape.experts_per_token
        router = self._product(prefix + "router", [x], shape.hidden, shape.num_experts)
        up = self.graph.add(
            prefix + "experts_up",
            "experts",
            [x, router],
            output=routed * shape.feed_forward,
            parameters=shape.num_experts * halves * weights,
            multiply_adds=routed * halves * weights,
        )
        return self.graph.add(
            prefix + "experts_down",
            "experts",
            [up, router, residual],
            output=self.tokens * shape.hidden,
            parameters=shape.num_experts * weights,
            multiply_adds=routed * weights,
        )

    def _product(
        self,
        name: str,
        inputs: list[int],
        rows: int,
        columns: int,
        *,
        bias: bool = False,
        owns_weights: bool = True,
        copies: int = 1,
    ) -> int:
        """A linear layer on every token; ``copies`` equal products are fused and give one output (a gate)."""
        weights = copies * rows * columns
        return self.graph.add(
            name,
            "linear",
            inputs,
            output=self.tokens * columns,
            parameters=(weights + copies * columns * bias) if owns_weights else 0,
            multiply_adds=self.tokens * weights,
        )

    def _norm(self, name: str, x: int) -> int:
        hidden = self.shape.hidden
        return self.graph.add(name, "norm", [x], output=self.tokens * hidden, parameters=self.shape.norm_vectors * hidden)
