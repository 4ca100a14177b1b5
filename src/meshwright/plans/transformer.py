"""The shape of a transformer as a plan embeds it.

A job graph has ops and bytes, not heads and experts. The messages between ranks inside a layer follow from the shape alone.
"""

from __future__ import annotations

from pydantic import Field

from .. import settings
from ..errors import GraphError, PlanError
from ..jobs.graph import JobGraph
from ..jobs.transformer import TransformerKeys, TransformerShape
from ..settings import Count


class _Sequence(settings.Settings):
    sequence_length: Count = Field(description="tokens of a sequence")


class PlannedTransformer(TransformerKeys, _Sequence):  # so that the length is the first key
    """The keys of `TransformerShape` but its name, which is the job's, and the length of a sequence."""

    @classmethod
    def from_shape(cls, shape: TransformerShape, sequence_length: int | None = None) -> PlannedTransformer:
        """Return a shape as a plan embeds it; the length is the model's default one unless it is given."""
        length = shape.default_sequence_length if sequence_length is None else sequence_length
        return cls(sequence_length=length, **shape.model_dump(exclude={"name"}))

    def shape(self, name: str) -> TransformerShape:
        """Return the shape of a job of that name."""
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
    """Return whether a graph made from a shape is a job's: same ops, dependencies, parameters and operations, if not times."""
    return made.op_names == graph.op_names and all(
        bool((getattr(made, of).shape == getattr(graph, of).shape) and (getattr(made, of) == getattr(graph, of)).all())
        for of in ("parameter_bytes", "forward_flops", "activation_bytes", "edges")
    )
