"""Transformers as job graphs: from the shape of a model, a batch and a sequence length to ops with their costs.

An op is what a training framework launches as one unit of a layer: norm, the joint query-key-value projection,
attention, its output projection with the residual added, norm, and the two halves of the feed-forward layer (or
router and experts). Element-wise work (activation, residual, rotary positions) is fused into the product beside it.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from .. import quantities, settings
from ..errors import GraphError
from ..settings import Count, Index, Switch
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


class TransformerKeys(settings.Settings):
    """What a transformer is, as far as its cost goes, whatever it is called.

    ``num_key_value_heads`` is less than ``num_heads`` in grouped-query attention, ``norm_vectors`` is 2 for layer norm and 1 for
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
    is_encoder: Switch = Field(default=False, description="whether norms stand after the residuals and a pooler at the end")
    is_gated: Switch = Field(default=True, description="whether the feed-forward layer has a gate")
    qkv_bias: Switch = Field(default=False, description="whether the query-key-value projection adds a bias")
    output_bias: Switch = Field(default=False, description="whether attention's output projection adds a bias")
    mlp_bias: Switch = Field(default=False, description="whether the feed-forward layer adds biases")
    norm_vectors: Count = Field(default=1, description="weight vectors of a norm")
    is_head_tied: Switch = Field(default=False, description="whether the head shares the embedding's table")
    num_experts: Count = Field(default=1, description="experts of each feed-forward layer; 1 is a dense layer")
    experts_per_token: Count = Field(default=1, description="experts that each token visits")
    window: Count | None = Field(default=None, description="tokens that a query looks back at most; absent: all")
    is_parallel: Switch = Field(default=False, description="whether attention and feed-forward layer stand side by side")
    has_dropout: Switch = Field(default=False, description="whether attention scores and residuals go through dropout")


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
