"""Elastic applications and workloads without measurements: step times by the cost model, progress by gradient noise.

A step computes forward and backward passes of a model of the zoo on A100. Gradients are summed by a ring, whose slowest link is
that of a host or of its network card. Ranks wait for the part that the backward pass does not hide. The gradient noise scale
rises linearly over the epochs, in multiples of the smallest batch. Sizes, noise scales and durations are assumptions.

Source:
    McCandlish, Kaplan and Amodei, "An empirical model of large-batch training", 2018, for the noise scale.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

from ...costs.formulas import ring_all_reduce_s
from ...jobs.load import load_graph
from ...jobs.readers.elastic import ElasticApplication, ElasticWorkload, MeasuredSteps
from ...simulation.elastic.measured import MAX_HOSTS, placement_key
from ...simulation.elastic.simulation import ElasticSimulation
from ...simulation.elastic.workload_draws import NUM_HOURS, requests

HOST_BYTES_PER_S, CARD_BYTES_PER_S = 12.5e9, 6.25e9
"""Of the links in a host (PCIe 3.0 x16, less overheads), and of its card of 50 Gbit/s."""
LATENCY_S, LAUNCH_S = 1e-5, 1e-2
"""Of a message, and of the host for a step."""
SYNC_S = 5e-4
"""Least wait for gradients in a step."""
MOST_PLACED = 4
"""Steps have a time for each placement on up to so many hosts."""


class ModelledApplication(NamedTuple):
    """A model and its training.

    Attributes:
        job: model of the zoo.
        batch: smallest global batch; others are twice, four times, ... as large.
        doublings: of the smallest batch up to the largest.
        local: fewest and most samples of a rank.
        epochs: to the target quality.
        hours: on one device with the smallest batch.
        noise: scale in the first and the last epoch, in smallest batches.
        weight: how often it is drawn.
    """

    job: str
    batch: int
    doublings: int
    local: tuple[int, int]
    epochs: int
    hours: float
    noise: tuple[float, float]
    weight: float


APPLICATIONS = (
    ModelledApplication("alexnet", 128, 5, (32, 1024), 40, 0.2, (1.0, 8.0), 0.40),
    ModelledApplication("bert-base", 16, 4, (4, 32), 4, 1.0, (2.0, 6.0), 0.15),
    ModelledApplication("gpt2-small", 16, 5, (4, 16), 20, 7.0, (2.0, 20.0), 0.10),
    ModelledApplication("resnet18", 128, 5, (32, 512), 60, 0.6, (1.0, 10.0), 0.30),
    ModelledApplication("resnet50", 256, 5, (32, 256), 90, 28.0, (1.0, 12.0), 0.05),
)


def modelled_applications(devices_per_node: int) -> tuple[ElasticApplication, ...]:
    """Return `APPLICATIONS` on hosts of so many devices, by name."""
    counts = range(1, max(2, devices_per_node) + 1)
    keys = {int(placement_key(np.array(at), len(at))) for n in range(1, MOST_PLACED + 1) for at in product(counts, repeat=n)}
    placed = [(key, len(str(key)), sum(map(int, str(key)))) for key in sorted(keys)]
    apart = [(0, n, n * each) for n in (6, 8, 12, MAX_HOSTS) for each in counts]
    return tuple(_application(each, placed, apart) for each in APPLICATIONS)


def _application(
    application: ModelledApplication, placed: list[tuple[int, int, int]], apart: list[tuple[int, int, int]]
) -> ElasticApplication:
    graph = load_graph(f"zoo:{application.job}")
    assert graph.samples_per_step is not None, "each model of the zoo has a batch"
    forward_s = float(graph.forward_s.sum()) / graph.samples_per_step
    backward_s = float(graph.backward_s.sum()) / graph.samples_per_step
    parameter_bytes = float(graph.parameter_bytes.sum())

    def steps(at: list[tuple[int, int, int]]) -> MeasuredSteps:
        key, hosts, ranks, local = np.array([(*where, local) for where in at for local in _doubled(*application.local)]).T
        bandwidth = np.where(hosts > 1, CARD_BYTES_PER_S, HOST_BYTES_PER_S)
        ring_s = np.array(
            [ring_all_reduce_s(parameter_bytes, n, each, LATENCY_S) for n, each in zip(ranks.tolist(), bandwidth, strict=True)]
        )
        sync_s = np.where(ranks > 1, SYNC_S, 0.0) + np.maximum(ring_s - backward_s * local, 0.0)
        return MeasuredSteps(key, hosts, ranks, local, LAUNCH_S + (forward_s + backward_s) * local + sync_s, sync_s)

    batch = np.array(_doubled(application.batch, application.batch << application.doublings))
    noise = np.broadcast_to(np.linspace(*application.noise, application.epochs), (len(batch), application.epochs))
    passes = -(-application.batch // application.local[1])
    step_s = passes * (LAUNCH_S + (forward_s + backward_s) * application.batch / passes)
    num_steps = application.hours * 3600 / application.epochs / step_s
    progress = np.broadcast_to(num_steps * np.arange(1, application.epochs + 1), noise.shape)
    gain = (noise + 1) / (noise / (batch / application.batch)[:, None] + 1)
    ones = np.ones(noise.shape)
    return ElasticApplication(
        application.job,
        steps(placed),
        steps(apart),
        batch,
        progress,
        (num_steps / gain).cumsum(axis=1),
        ones,
        ones * noise,
        application.local[1],
    )


def _doubled(least: int, most: int) -> list[int]:
    return [least << n for n in range((most // least).bit_length())]


class ModelledDraws:
    """A source of workloads of `APPLICATIONS`, which arrive at random in eight hours.

    Args:
        simulation: of these applications.
    """

    def __init__(self, simulation: ElasticSimulation) -> None:
        per_node = simulation.cluster.devices_per_node
        self._requests = [requests(simulation.apps, each, a, per_node) for a, each in enumerate(simulation.applications)]

    def draw(self, seed: int, num_jobs: int = 160) -> ElasticWorkload:
        """Return a workload; the same seed gives the same one."""
        rng = np.random.default_rng(seed)
        kind = rng.choice(len(APPLICATIONS), num_jobs, p=[each.weight for each in APPLICATIONS])
        request = np.array([self._requests[a][rng.integers(len(self._requests[a]))] for a in kind.tolist()])
        names = tuple(f"{APPLICATIONS[a].job}-{number}" for number, a in enumerate(kind.tolist()))
        return ElasticWorkload(
            f"modelled-{seed}", names, np.sort(rng.integers(NUM_HOURS * 3600, size=num_jobs)), kind, request[:, 0], request[:, 1]
        )
