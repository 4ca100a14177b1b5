"""Operations of the collective layer, and the form of a price.

A payload is what nccl-tests calls the size: the buffer that a rank holds in full. That is its own buffer for all-reduce,
all-to-all, broadcast and send, and the *gathered* size for all-gather and reduce-scatter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Operation = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"]
Provenance = Literal["measured", "interpolated", "estimated"]

OPERATIONS: tuple[Operation, ...] = get_args(Operation)


@dataclass(frozen=True)
class Price:
    """The time of one collective, and its origin.

    Attributes:
        seconds: of one collective that has the links for itself.
        provenance: ``measured`` at a size of a table, ``interpolated`` between two of them, else ``estimated``.
        uncertainty: one standard deviation, relative.
        algorithm: the algorithm that runs; not the requested one where that does not offer the operation.
        protocol: ``LL``, ``LL128`` or ``Simple`` where the library's protocols are distinguished.
    """

    seconds: float
    provenance: Provenance
    uncertainty: float
    algorithm: str
    protocol: str | None = None


def wire_factor(kind: Operation, num_ranks: int) -> float:
    """Return payloads that cross the busiest link in one direction if ring or pairwise: bus bandwidth over payload rate.

    Source:
        NVIDIA/nccl-tests, doc/PERFORMANCE.md.
    """
    if num_ranks <= 1:
        return 0.0
    if kind == "all_reduce":
        return 2.0 * (num_ranks - 1) / num_ranks
    if kind in ("all_gather", "reduce_scatter", "all_to_all"):
        return (num_ranks - 1) / num_ranks
    return 1.0
