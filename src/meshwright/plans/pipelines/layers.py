"""How many layers each chunk of a model has."""

from __future__ import annotations

from ..partition import Layout


def chunk_sizes(num_layers: int, num_chunks: int, less: tuple[int, int]) -> tuple[int, ...]:
    """Return the layers of each chunk; less than none where the first or the last is to have too few.

    They are spread evenly; what is left over goes to chunks from the middle outwards, away from embedding and head.

    Args:
        num_layers: of the model.
        num_chunks: of the model.
        less: layers that the first and the last chunk have less than the others.
    """
    each, left = divmod(num_layers + sum(less), num_chunks)
    by_distance = sorted(range(num_chunks), key=lambda chunk: (abs(2 * chunk - (num_chunks - 1)), chunk))
    sizes = [each] * num_chunks
    for chunk in by_distance[:left]:
        sizes[chunk] += 1
    sizes[0] -= less[0]
    sizes[-1] -= less[1]
    return tuple(sizes)


def less_layers(layout: Layout) -> tuple[int, int]:
    """Return the layers that the first and the last chunk of a layout have less than the others."""
    return layout.first_stage_less_layers, layout.last_stage_less_layers


def least_layers(num_layers: int, layout: Layout) -> int:
    """Return the layers of the smallest chunk of a layout, or less than none."""
    return min(chunk_sizes(num_layers, layout.pp * layout.virtual_stages, less_layers(layout)))


def layers_of_chunks(num_layers: int, layout: Layout) -> tuple[int, ...]:
    """Return the layers of each chunk of a layout, in the model's order: those that it says, or as `chunk_sizes` spreads them."""
    return layout.stage_layers or chunk_sizes(num_layers, layout.pp * layout.virtual_stages, less_layers(layout))
