"""The fastest formula for each size and group: what ``auto`` means."""

from __future__ import annotations

from ..network import RankNetwork
from ..phases import Phases
from .algorithm import Algorithm, Pricer, Ranks
from .circuits import Circuits
from .direct import HALVING_DOUBLING, RING, TREE
from .prices import Operation
from .ramp import Ramp
from .staged import HIERARCHICAL

AUTOMATIC: dict[str, Algorithm] = {
    model.name: model for model in (RING, TREE, HALVING_DOUBLING, HIERARCHICAL, Ramp(), Circuits())
}
"""Algorithms that ``auto`` chooses from: those that need nothing but links."""


class Fastest(Algorithm):
    """The fastest of `AUTOMATIC` for each size and group, as a collective library's tuner chooses.

    On a RAMP cluster, and where ports are joined by circuits, the network's own algorithm is always taken: its circuits are set
    up for it.
    """

    name = "auto"

    def pricer(self, network: RankNetwork, ranks: Ranks, operation: Operation) -> Pricer:
        """Return the least of all algorithms that run on the network."""
        pricers = [model.pricer(network, ranks, operation) for model in self._running(network, operation)]
        return lambda payload_bytes: min(pricer(payload_bytes) for pricer in pricers)

    def phases(self, network: RankNetwork, ranks: Ranks, payload_bytes: float, operation: Operation = "all_reduce") -> Phases:
        """Return the flows of the algorithm that takes the least time by its formula, ties by the order of `AUTOMATIC`."""
        return self.best(network, ranks, payload_bytes, operation).phases(network, ranks, payload_bytes, operation)

    def best(self, network: RankNetwork, ranks: Ranks, payload_bytes: float, operation: Operation) -> Algorithm:
        """Return the algorithm that is taken."""
        return min(self._running(network, operation), key=lambda m: m.time_s(network, ranks, payload_bytes, operation))

    @staticmethod
    def _running(network: RankNetwork, operation: Operation) -> list[Algorithm]:
        own = next((AUTOMATIC[name] for name in ("ramp", "circuits") if AUTOMATIC[name].runs_on(network)), None)
        return [own] if own is not None else [m for m in AUTOMATIC.values() if m.runs_on(network) and m.offers(operation)]
