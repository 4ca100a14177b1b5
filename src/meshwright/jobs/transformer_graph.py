"""Transformers as job graphs: from a shape, a batch and a sequence length to ops with their costs.

An op is a unit of a layer that a training framework launches at once. The ops of a layer are norm, the joint query-key-value
projection, attention, its output projection with the residual added, norm, and the feed-forward layer. The last is two ops, or a
router and experts. Latent attention has two projections with a norm between. Element-wise work (activation, residual, rotary
positions, norms of heads) is fused into the next product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .builder import GraphBuilder
from .graph import JobGraph

if TYPE_CHECKING:
    from .transformer import TransformerShape


def assembled(shape: TransformerShape, layers: Sequence[TransformerShape], batch_size: int, length: int) -> JobGraph:
    """Return the ops of one step of a number of sequences, see `TransformerShape.graph`.

    Args:
        shape: the model.
        layers: the shape that each layer follows, in order.
        batch_size: sequences.
        length: tokens of each.
    """
    return _Assembly(shape, layers, batch_size, length).build()


class _Assembly:
    """One graph being put together; `_product` and `_norm` are the bricks."""

    def __init__(self, shape: TransformerShape, layers: Sequence[TransformerShape], batch_size: int, length: int) -> None:
        self.shape = shape
        self.layers = layers
        self.graph = GraphBuilder(shape.name, batch_size)
        self.batch_size = batch_size
        self.length = length
        self.tokens = batch_size * length

    def build(self) -> JobGraph:
        shape = self.shape
        rows = shape.vocabulary + shape.token_types + (shape.max_positions if shape.learned_positions else 0)
        rows += shape.norm_vectors if shape.is_encoder else 0  # BERT normalises its embeddings
        parameters = rows * shape.hidden + (shape.more_parameters or 0)
        x = self.graph.add("embedding", "embedding", [], output=self.tokens * shape.hidden, parameters=parameters)
        made: list[int] = []
        for number, layer in enumerate(self.layers):
            partner = len(self.layers) - 1 - number
            skips = [made[partner]] if partner < min(number - 1, shape.long_skips or 0) else []  # x is read anyway
            made.append(x := self._layer(f"layer{number}.", x, layer, skips))
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

    def _layer(self, prefix: str, x: int, shape: TransformerShape, skips: list[int]) -> int:
        if shape.is_encoder:
            x = self._norm(prefix + "attention_norm", self._attention(prefix, x, shape, residual=x))
            return self._norm(prefix + "mlp_norm", self._feed_forward(prefix + "mlp", [x, x], shape.feed_forward))
        residual = None if shape.has_output_norms else x
        attended = self._attention(prefix, self._norm(prefix + "attention_norm", x, *skips), shape, residual)
        x = self._closed(prefix + "attention_output_norm", attended, x)
        normed = self._norm(prefix + "mlp_norm", x)
        residuals = [] if shape.has_output_norms else [x]
        if shape.num_experts > 1:
            made = self._experts(prefix, normed, residuals, shape)
        else:
            made = self._feed_forward(prefix + "mlp", [normed, *residuals], shape.feed_forward)
        return self._closed(prefix + "mlp_output_norm", made, x)

    def _closed(self, name: str, x: int, residual: int) -> int:
        """Close half a layer: add its norm with the residual, if the shape has output norms."""
        return self._norm(name, x, residual) if self.shape.has_output_norms else x

    def _attention(self, prefix: str, x: int, shape: TransformerShape, residual: int | None) -> int:
        queries, context_width = shape.num_heads * shape.head_dim, shape.num_heads * shape.value_head_dim
        side, of_output = shape.side_weights or 0, 0
        if shape.window_form == "linear" and side < 0:  # each of the two products is as much narrower
            of_output = side * queries // (2 * queries + 2 * shape.num_key_value_heads * shape.head_dim)
        side -= of_output
        qkv = self._latent(prefix, x, side) if shape.latent is not None else self._joint(prefix, x, side)
        context = self.graph.add(
            prefix + "attention",
            "attention",
            [qkv],
            output=self.tokens * context_width,
            multiply_adds=self.tokens * shape.attention_multiply_adds(self.length),
            workspace_bytes=4 * self.tokens * queries,
        )
        inputs = [context] if residual is None else [context, residual]
        name = prefix + "attention_output"
        return self._product(name, inputs, context_width, shape.hidden, bias=shape.output_bias, side=of_output)

    def _joint(self, prefix: str, x: int, side: int) -> int:
        shape = self.shape
        joint = (shape.num_heads + 2 * shape.num_key_value_heads) * shape.head_dim
        norms = 2 * shape.norm_vectors * shape.head_dim if shape.has_head_norms else 0
        return self._product(prefix + "qkv", [x], shape.hidden, joint, bias=shape.qkv_bias, more=norms, side=side)

    def _latent(self, prefix: str, x: int, side: int) -> int:
        """Return narrow vectors of each token, their norm, and what all heads make of them."""
        shape, latent = self.shape, self.shape.latent
        assert latent is not None
        narrow, ranks = shape.narrow_width, (latent.query_rank or 0) + latent.key_value_rank
        down = self._product(prefix + "qkv_down", [x], shape.hidden, narrow, bias=shape.qkv_bias)
        normed = self.graph.add(
            prefix + "latent_norm", "norm", [down], output=self.tokens * narrow, parameters=shape.norm_vectors * ranks
        )
        weights = shape.query_key_value_weights - shape.hidden * narrow + side
        width = shape.num_heads * (2 * shape.head_dim + latent.value_head_dim)
        inputs = [normed] if latent.query_rank is not None else [normed, x]
        return self.graph.add(
            prefix + "qkv_up",
            "linear",
            inputs,
            output=self.tokens * width,
            parameters=weights,
            multiply_adds=self.tokens * weights,
        )

    def _feed_forward(self, name: str, inputs: list[int], inner: int) -> int:
        """Return a dense feed-forward layer of what comes first, with the residuals that come behind it."""
        shape, (x, *residuals) = self.shape, inputs
        halves = 2 if shape.is_gated else 1
        up = self._product(name + "_up", [x], shape.hidden, inner, bias=shape.mlp_bias, copies=halves)
        return self._product(name + "_down", [up, *residuals], inner, shape.hidden, bias=shape.mlp_bias)

    def _experts(self, prefix: str, x: int, residuals: list[int], shape: TransformerShape) -> int:
        halves = 2 if shape.is_gated else 1
        weights = shape.hidden * shape.feed_forward
        routed = self.tokens * shape.experts_per_token
        router = self._product(prefix + "router", [x], shape.hidden, shape.num_experts)
        if shape.shared_feed_forward is not None:
            residuals = [self._feed_forward(prefix + "shared_expert", [x, *residuals], shape.shared_feed_forward)]
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
            [up, router, *residuals],
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
        more: int = 0,
        side: int = 0,
    ) -> int:
        """Add a linear layer on every token.

        ``copies`` equal products are fused and give one output (a gate). ``more`` parameters belong to computations fused into
        it, ``side`` weights to products next to it.
        """
        weights = copies * rows * columns + side
        return self.graph.add(
            name,
            "linear",
            inputs,
            output=self.tokens * columns,
            parameters=(weights + copies * columns * bias + more) if owns_weights else 0,
            multiply_adds=self.tokens * weights,
        )

    def _norm(self, name: str, x: int, *residuals: int) -> int:
        hidden = self.shape.hidden
        parameters = self.shape.norm_vectors * hidden
        return self.graph.add(name, "norm", [x, *residuals], output=self.tokens * hidden, parameters=parameters)
