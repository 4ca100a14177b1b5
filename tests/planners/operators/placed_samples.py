"""Random instances whose figures differ all, so that no tie decides, and ones with memory and groups."""

from __future__ import annotations

import numpy as np

from meshwright.simulation.operators.instance import OperatorInstance


def drawn(
    seed: int, *, most_ops: int = 8, most_devices: int = 3, is_tight: bool = False, is_grouped: bool = False
) -> OperatorInstance:
    """An instance of a seed; tight ones have devices of just enough memory, found by giving every group a device at random."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, most_ops + 1)), int(rng.integers(1, most_devices + 1))
    edges = [(a, b) for a in range(n) for b in range(a + 1, n) if rng.random() < 3.0 / n]
    group = rng.integers(0, max(1, 2 * n // 3), n) if is_grouped else np.arange(n)
    resident, workspace = rng.uniform(0.0, 2.0, n), rng.uniform(0.0, 1.0, n)
    memory = np.full(m, np.inf)
    if is_tight:
        home = rng.integers(0, m, n)[group]
        memory = np.array([resident[home == j].sum() + workspace[home == j].max(initial=0.0) for j in range(m)]) * 1.05
    return OperatorInstance.of_outputs(
        f"drawn-{seed}",
        rng.lognormal(0.0, 1.0, (n, m)),
        edges,
        rng.lognormal(0.0, 1.0, n),
        latency_s=rng.uniform(0.0, 0.1, (m, m)),
        bandwidth_bytes_per_s=rng.lognormal(0.0, 1.0, (m, m)),
        memory_bytes=memory,
        resident_bytes=resident,
        workspace_bytes=workspace,
        group=group,
    )
