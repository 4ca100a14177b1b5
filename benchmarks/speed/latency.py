"""Latency of one decision of a network on 256 devices: candidates, observation, network, one decision at a time.

Seconds are those of one core (the thread's processor time), so that other programs on the machine do not count. The network
is untrained: its weights change what is decided, not how long that takes. A rule of thumb decides in its place, so that
the cluster is as full as at the benchmark's load; the first hundred decisions find it nearly empty and take longest.
"""

from __future__ import annotations

import time

import numpy as np

from .measure import BenchmarkFigure

BENCHMARKS = ("ramp-256", "clos-256-poisson")
FOLLOWED = "min@best-fit"
# Layers that estimate what the state after a candidate is worth; the other widths are the usual ones.
AFTER = (64, 32)
# Decisions that are not counted: the first ones load code and fill caches.
NUM_UNCOUNTED = 5


def latency_figures() -> list[BenchmarkFigure]:
    """Median and 99th percentile of a decision, and the share of the network in it."""
    return [figure for name in BENCHMARKS for figure in _figures(name)]


def _figures(name: str) -> list[BenchmarkFigure]:
    import torch

    from meshwright.envs.batch import EpisodeBatch
    from meshwright.envs.benchmark import load_benchmark
    from meshwright.envs.static_features import static_features
    from meshwright.models.network import CandidateNetwork
    from meshwright.models.saved import NetworkPolicy, SavedNetwork, scenario_metadata
    from meshwright.models.settings import NetworkSettings
    from meshwright.planning.policies import policy
    from meshwright.simulation.cluster.decision import decision

    torch.set_num_threads(1)
    scenario = load_benchmark(f"preset:{name}").build()
    torch.manual_seed(0)
    widths = NetworkSettings(after=AFTER)
    untrained = SavedNetwork.of(CandidateNetwork(widths, static_features(scenario)), scenario_metadata(scenario.settings))
    network, followed = NetworkPolicy("untrained", untrained, scenario), policy(FOLLOWED, scenario)
    batch = EpisodeBatch(scenario, 1)
    batch.reset(0, np.random.default_rng(0))
    network_s, step_s = [], []
    while not batch.is_over[0]:
        observation = {key: value[0] for key, value in batch.observations.current().items()}
        shown = decision(scenario, batch.episodes, 0)
        began = time.thread_time()
        network.choose(shown, observation)
        chosen = time.thread_time()
        action = np.array([followed.choose(shown, {})], np.int64)
        stepped = time.thread_time()
        batch.step(action)  # finds the candidates of the next job and observes them
        network_s.append(chosen - began)
        step_s.append(time.thread_time() - stepped)
    alone, rest = (np.array(seconds[NUM_UNCOUNTED:]) for seconds in (network_s, step_s))
    problem, shapes = scenario.problem, int(scenario.space.shape[-1]) + 1
    on = (
        f"{name}, {problem.num_candidates} candidates of {scenario.space.num_blocks:,} blocks, {shapes} shapes, untrained network"
    )
    return [
        BenchmarkFigure("decision on 256 devices, median", float(np.median(alone + rest)) * 1e3, "ms", on),
        BenchmarkFigure("decision on 256 devices, 99th percentile", float(np.percentile(alone + rest, 99)) * 1e3, "ms", on),
        BenchmarkFigure("of it candidates and observation, 99th percentile", float(np.percentile(rest, 99)) * 1e3, "ms", on),
    ]
