"""Episodes of operator placement on one instance, and the op that they ask for."""

from __future__ import annotations

from meshwright.simulation.operators.instance import OperatorInstance
from meshwright.simulation.operators.placement import OperatorObjective
from meshwright.worlds.operators.episodes import OperatorEpisodes
from meshwright.worlds.operators.world import OperatorWorld


def episodes_on(instance: OperatorInstance, objective: OperatorObjective) -> OperatorEpisodes:
    world = OperatorWorld(objective)
    batch = world.batch(1, 1, world.sizes_of(instance))
    batch.put(0, instance)
    batch.begin(0, 0)
    return batch


def next_op(batch: OperatorEpisodes) -> int:
    return int(batch.decisions.nodes[0, :, 0].max())
