"""Exact planners of operators on devices: pipelines over all downsets of a graph, and PipeDream's recurrence; and decisions a
second of the environment in which ops get devices one after another.

The graphs are made here, so that no reference data is needed: branches side by side have as many downsets as the product of
their lengths.
"""

from __future__ import annotations

import time

import numpy as np

from meshwright.envs.world_env import WorldVectorEnv
from meshwright.jobs import load_graph
from meshwright.planners.operators.request import PlacementRequest
from meshwright.planners.operators.stages.ideals import ideals, linear, num_downsets
from meshwright.planners.operators.stages.pipedream import MachineLevel, pipedream
from meshwright.simulation.operators.instance import OperatorInstance
from meshwright.worlds.operators.world import load_operator_world

from .measure import BenchmarkFigure, median_s

NUM_MACHINES = 16
NUM_EPISODES, NUM_OPS, NUM_DEVICES = 16, 100, 8


def placement_figures() -> list[BenchmarkFigure]:
    """Seconds of `ideals` and `linear` at some 40,000 downsets, and of PipeDream's recurrence on 16 machines."""
    request = PlacementRequest("throughput")
    instance = branches()
    began = time.perf_counter()
    ideals(instance, request)
    first_s = time.perf_counter() - began
    on = f"{instance.num_ops} ops, {num_downsets(instance):,} downsets, 6 accelerators and a host"
    graph = load_graph("zoo:resnet18")
    machines = f"{graph.num_ops} ops, {NUM_MACHINES} machines"
    levels = [MachineLevel(NUM_MACHINES, 1e9)]
    return [
        BenchmarkFigure("best stages over all downsets", median_s(lambda: ideals(instance, request)), "s", on),
        BenchmarkFigure("best stages over all downsets, first call", first_s, "s", on),
        BenchmarkFigure("best stages along a few orders", median_s(lambda: linear(instance, request)), "s", on),
        BenchmarkFigure("PipeDream's recurrence", median_s(lambda: pipedream(graph, levels)), "s", machines),
        *decision_figures(),
    ]


def decision_figures() -> list[BenchmarkFigure]:
    """Decisions a second of drawn devices that may be chosen, with what each device would make of the next op, and observed."""
    changes = [f"placement.instances.num_ops=[{NUM_OPS}]", f"placement.devices.num_devices=[{NUM_DEVICES}]"]
    world, rng = load_operator_world("preset:latency-tight", changes=changes), np.random.default_rng(0)
    batch = world.batch(NUM_EPISODES, NUM_EPISODES)
    batch.restart([world.instance("test", seed) for seed in range(NUM_EPISODES)])
    env = WorldVectorEnv(NUM_EPISODES, world, num_instances=NUM_EPISODES)

    def decide() -> None:
        for e in range(NUM_EPISODES):
            batch.begin(e, e)
        while batch.is_live.any():
            batch.step((rng.random(batch.decisions.mask.shape) * batch.decisions.mask).argmax(axis=1))

    def observe() -> None:
        env.reset(seed=list(range(NUM_EPISODES)))
        for _ in range(NUM_OPS - 1):
            env.step((rng.random((NUM_EPISODES, NUM_DEVICES)) * env.action_masks()).argmax(axis=1))

    on, made = f"{NUM_OPS} ops, {NUM_DEVICES} devices, {NUM_EPISODES} episodes", NUM_EPISODES * NUM_OPS
    return [
        BenchmarkFigure("ops get devices", made / median_s(decide), "decisions/s", on),
        BenchmarkFigure("ops get devices, observed", (made - NUM_EPISODES) / median_s(observe), "decisions/s", on),
    ]


def branches(num_blocks: int = 23, length: int = 11) -> OperatorInstance:
    """Blocks in a row, each of three branches side by side between two ops; times and outputs are drawn."""
    edges: list[tuple[int, int]] = []
    end = 0
    for _ in range(num_blocks):
        begin, tails = end, []
        for branch in range(3):
            first = begin + 1 + branch * length
            edges += [(begin, first), *((op, op + 1) for op in range(first, first + length - 1))]
            tails.append(first + length - 1)
        end = begin + 3 * length + 1
        edges += [(tail, end) for tail in tails]
    rng = np.random.default_rng(0)
    n = end + 1
    times_s = rng.uniform(1.0, 2.0, (n, 1)) * np.array([1.0] * 6 + [10.0])
    is_host = np.arange(7) == 6
    return OperatorInstance.of_outputs(
        "branches", times_s, edges, rng.uniform(0.0, 0.5, n), bandwidth_bytes_per_s=1.0, is_host=is_host
    )
