"""The shape of a transformer as a plan embeds it.

A job graph knows ops and bytes, not heads and experts; what the ranks of a layout exchange inside a layer follows from the
shape alone.
"""

from __future__ import annotations

from pydantic import Field

from .. import settings
from ..errors import GraphError, PlanError
from ..jobs.graph import JobGraph
from ..jobs.transformer import TransformerShape
from .partition import Count, Index, Switch


class PlannedTransformer(settings.Settings):
    """The keys of `TransformerShape` but its name, which is the job's, and the length of a sequence."""

    sequence_length: Count = Field(description="tokens of a sequence")
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

    @classmethod
    def of(cls, shape: TransformerShape, sequence_length: int | None = None) -> PlannedTransformer:
        """A shape as a plan embeds it; the length is the model's default one unless it is given."""
        length = shape.default_sequence_length if sequence_length is None else sequence_length
        named = {name: getattr(shape, name) for name in cls.model_fields if name != "sequence_length"}
        return cls(sequence_length=length, **named)

    def shape(self, name: str) -> TransformerShape:
        """The shape of a job of that name."""
        return TransformerShape(name=name, **self.model_dump(exclude={"sequence_length"}))

    def check(self, graph: JobGraph) -> None:
        """Refuse a shape that does not give a job graph.

        Raises:
            PlanError: its ops, dependencies, parameters or operations are others.
        """
        # Layers have many ops each: a shape with more layers than the graph has ops is not worth building.
        if self.num_layers <= graph.num_ops and graph.samples_per_step is not None:
            try:
                same = self.shape(graph.name).graph(graph.samples_per_step, self.sequence_length)
            except GraphError as error:
                raise PlanError(error.problem, field="job.transformer", value=error.value) from None
            if gives(same, graph):
                return
        raise PlanError("does not give the job graph that the plan embeds", field="job.transformer", value=graph.name)


def gives(made: JobGraph, graph: JobGraph) -> bool:
    """Whether a graph made from a shape is a job's: same ops, dependencies, parameters and operations; times may differ."""
    return made.op_names == graph.op_names and all(
        bool((getattr(made, of).shape == getattr(graph, of).shape) and (getattr(made, of) == getattr(graph, of)).all())
        for of in ("parameter_bytes", "forward_flops", "activation_bytes", "edges")
    )
