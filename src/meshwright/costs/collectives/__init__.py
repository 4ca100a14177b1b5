"""The collective layer: which algorithm, over which ranks, how long it takes, and where that figure comes from.

`price` answers for any ranks of a network, `Fabric.seconds` for regular groups at a planner's speed. `algorithm_named` gives an
algorithm by its name in YAML, for those who also want its flows.
"""

from .algorithm import Algorithm, Ranks
from .choice import ALGORITHMS, UNTAKEN, algorithm_named, algorithm_of
from .fastest import AUTOMATIC, Fastest
from .groups import Fabric, Group, price
from .prices import OPERATIONS, Operation, Price, Provenance, wire_factor

__all__ = [
    "ALGORITHMS",
    "AUTOMATIC",
    "OPERATIONS",
    "UNTAKEN",
    "Algorithm",
    "Fabric",
    "Fastest",
    "Group",
    "Operation",
    "Price",
    "Provenance",
    "Ranks",
    "algorithm_named",
    "algorithm_of",
    "price",
    "wire_factor",
]
