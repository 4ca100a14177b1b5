"""The algorithms by name, and the one that settings choose."""

from __future__ import annotations

from ...errors import ConfigError
from ..settings import CostSettings
from .algorithm import Algorithm
from .circuits import Circuits
from .fastest import AUTOMATIC, Fastest
from .in_network import InNetwork
from .joint import Joint
from .joint_split import JointSplit
from .libraries.calibrated import Calibrated
from .libraries.library import Library, Measured
from .staged import RAIL
from .synthesised import Synthesised

ALGORITHMS: dict[str, Algorithm] = AUTOMATIC | {
    model.name: model for model in (Joint(), JointSplit(), RAIL, InNetwork(), Synthesised(), Library(), Measured(), Calibrated())
}

NOMINAL = "it is a formula at the links' nominal rates, which no measured collective reaches"
UNTAKEN = dict.fromkeys((*AUTOMATIC, "auto", "rail"), NOMINAL) | {
    "joint": "no library sends over a host's links and its cards at once",
    "joint-split": "no library sends one message over its own card and over cards that idle",
    "in-network": "it needs switches that reduce, and no cluster file says whether its switches do",
    "synthesised": "no library runs trees that were made for a network without being given them",
    "nccl": "it is what NCCL's tuner expects, which is made to choose and is not calibrated",
    "measured": "it reads tables of one system",
}
"""Why layouts, which take ``calibrated`` unless an algorithm is named, do not take another one that is faster."""


def algorithm_named(name: str) -> Algorithm:
    """Return the algorithm of a name, with the defaults of `CostSettings`.

    Raises:
        ConfigError: the name is unknown.
    """
    if name == "auto":
        return Fastest()
    if name not in ALGORITHMS:
        raise ConfigError("unknown collective algorithm", field="collectives", value=name, choices=["auto", *ALGORITHMS])
    return ALGORITHMS[name]


def algorithm_of(costs: CostSettings) -> Algorithm:
    """Return the algorithm that settings choose, with all that they say of it."""
    if costs.collectives == "in-network":
        return InNetwork(costs.in_network_trees, num_slots=costs.in_network_slots)
    if costs.collectives == "circuits":
        return Circuits(costs.circuits)
    if costs.collectives == "measured":
        return Measured(costs.collectives_table)
    return algorithm_named(costs.collectives)
