"""The arrays that the compiled dynamics read, made from settings, blocks and step times."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..decision_space.block_bits import block_bits
from ..decision_space.space import DecisionSpace
from ..decision_space.step_times import StepTimes
from .interruptions import interruptions
from .problem import QUEUE_ORDERS, RULE_NAMES, Problem, Published, Rule
from .scenario_settings import ScenarioSettings

# Alignment looks this many mean inter-arrival times ahead.
HORIZON = 16.0

DEADLINE_TOLERANCE = 1e-9
"""Share by which a completion time may exceed its limit, for rounding."""


def problem_of(
    settings: ScenarioSettings,
    space: DecisionSpace,
    times: StepTimes,
    sequential_step_s: NDArray[np.float64],
    mean_interarrival_s: float,
) -> Problem:
    """Return the arrays of a scenario, without any placement by the published rule.

    Args:
        settings: the rules of the game.
        space: the blocks.
        times: step time of each graph on each placement class.
        sequential_step_s: step time of each graph on one device, ``(g,)``.
        mean_interarrival_s: mean time between arrivals.
    """
    rules = [RULE_NAMES[name] for name in settings.placement_rules]
    one_each = [rule for rule in rules if rule != Rule.ALL_BLOCKS]
    listed = min(settings.max_listed_blocks, space.num_blocks) if Rule.ALL_BLOCKS in rules else 0
    num_degrees = len(space.degrees)
    return Problem(
        num_blocks=space.num_blocks,
        num_classes=len(space.representative),
        start=space.start,
        devices=space.devices,
        degree=space.degree,
        placement_class=space.placement_class,
        class_degree=space.degree[space.representative],
        neighbour_start=space.neighbours.start,
        neighbours=space.neighbours.blocks,
        bits=block_bits(space.degree, space.shape, space.neighbours),
        weight=degree_weights(space),
        degrees=np.array(space.degrees, np.int64),
        rules=np.array(one_each, np.int64),
        candidate_degree=np.concatenate([[-1], np.repeat(np.arange(num_degrees), len(one_each)), np.full(listed, -1)]),
        candidate_rule=np.concatenate([[-1], np.tile(one_each, num_degrees), np.full(listed, int(Rule.ALL_BLOCKS))]).astype(
            np.int64
        ),
        step_s=np.ascontiguousarray(times.step_s),
        communication_share=np.ascontiguousarray(times.communication_share),
        can_run=np.ascontiguousarray(times.can_run),
        sequential_step_s=sequential_step_s,
        horizon_s=horizon(mean_interarrival_s),
        deadline_tolerance=deadline_tolerance(settings),
        queue_capacity=settings.queue_capacity,
        queue_order=int(QUEUE_ORDERS[settings.queue_order]),
        is_keyed_by_degree=settings.defects.times_keyed_by_degree,
        last_reward_is_lost=settings.defects.last_reward_is_lost and settings.queue_capacity == 0,
        interruptions=interruptions(
            settings.failures, settings.preemption, space.start, space.devices, space.cluster.num_devices
        ),
        published=Published(
            is_on=False,
            part_start=np.zeros(1, np.int64),
            part_degree=np.zeros(0, np.int64),
            is_tight=np.zeros(0, np.bool_),
            slots=np.zeros(1, np.int64),
            keys=np.zeros((0, 1), np.int64),
            block=np.zeros(0, np.int64),
        ),
    )


def degree_weights(space: DecisionSpace) -> NDArray[np.float64]:
    """Return the weight of each block of a degree in best fit and alignment, so that every degree counts the same, ``(d,)``."""
    weights: NDArray[np.float64] = 1.0 / np.bincount(space.degree, minlength=len(space.degrees))
    return weights


def horizon(mean_interarrival_s: float) -> float:
    """Return how far ahead alignment looks, in seconds."""
    return HORIZON * mean_interarrival_s


def deadline_tolerance(settings: ScenarioSettings) -> float:
    """Return the share by which a completion time may exceed its limit, for rounding."""
    return 0.0 if settings.defects.strict_deadline else DEADLINE_TOLERANCE
