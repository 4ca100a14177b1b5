"""The chunks into which a pipeline cuts a model, and which layers of which kind each of them holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby

from ...jobs.transformer import LayerKind, layer_kinds

Parts = tuple[tuple[str, int], ...]
"""Names of blocks, and how many of each."""


@dataclass(frozen=True)
class ChunkWork:
    """One model chunk.

    Attributes:
        stage: pipeline stage that holds it.
        place: its number among the chunks of the stage; chunk ``place * pp + stage`` of the model.
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
        """Its blocks and how many of each, kind by kind; chunks with the same parts take as long."""
        counts: dict[str, int] = {}
        for name, number in sorted(self.runs):
            counts[name] = counts.get(name, 0) + number
        ends = (("embedding", self.has_embedding), ("head", self.has_head))
        return (*counts.items(), *((name, 1) for name, is_held in ends if is_held))


def block_name(kind: int) -> str:
    """What a kind of layers is called among blocks."""
    return f"layer kind {kind}" if kind else "layer"


@lru_cache(maxsize=1024)
def spread(
    num_layers: int, other_layers: tuple[LayerKind, ...] | None, pp: int, virtual_stages: int
) -> tuple[tuple[ChunkWork, ...], tuple[Mapping[str, int], ...]]:
    """The chunks in model order, and the layers of each stage by the name of their block; equal ones are the same object.

    Layers are spread evenly; what is left over goes to chunks from the middle outwards, away from embedding and head.
    """
    count = pp * virtual_stages
    each, left = divmod(num_layers, count)
    by_distance = sorted(range(count), key=lambda chunk: (abs(2 * chunk - (count - 1)), chunk))
    longer = set(by_distance[:left])
    names, chunks, first = [block_name(kind) for kind in layer_kinds(num_layers, other_layers)], [], 0
    held: list[dict[str, int]] = [{} for _ in range(pp)]
    for chunk in range(count):
        number = each + (chunk in longer)
        runs = tuple((name, len(list(run))) for name, run in groupby(names[first : first + number]))
        chunks.append(ChunkWork(chunk % pp, chunk // pp, number, chunk == 0, chunk == count - 1, runs))
        for name, of_run in runs:
            held[chunk % pp][name] = held[chunk % pp].get(name, 0) + of_run
        first += number
    known: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}
    return tuple(chunks), tuple(known.setdefault(tuple(sorted(layers.items())), layers) for layers in held)
