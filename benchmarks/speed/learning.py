"""PPO end to end on three benchmarks, beside itself without what makes it fast; the trained weights are the same.

Processor seconds are told beside wall time, because other programs slow the latter down.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer

from meshwright.cli.commands.training.train import config_path
from meshwright.envs.benchmark import load_benchmark
from meshwright.models import encoders
from meshwright.models.tensor_file import load_tensors
from meshwright.training import ppo
from meshwright.training.settings import load_train_settings
from meshwright.training.train import train

from .measure import BenchmarkFigure
from .policy import BACKWARD, FORWARD, ROLLOUT, STEP, UPDATE, timed

NUM_STEPS = 8_192
BENCHMARKS = ("quickstart", "pacml-compat-D", "ramp-256")


def learning_figures() -> Iterator[BenchmarkFigure]:
    """Decisions a second of processor and of wall time, before and after, and shares of the time."""
    torch.set_num_threads(1)
    for name in BENCHMARKS:
        changes = [f"benchmark=preset:{name}", f"total_steps={NUM_STEPS}", "num_validation_seeds=1"]
        chosen = load_train_settings(config_path("preset:quickstart"), changes)
        scenario = load_benchmark(chosen.benchmark).build()

        def run(chosen=chosen, scenario=scenario) -> tuple[float, float, dict[str, torch.Tensor]]:  # type: ignore[no-untyped-def]
            with tempfile.TemporaryDirectory() as folder:
                began, began_cpu = time.perf_counter(), time.process_time()
                made = train(chosen, Path(folder) / "run", scenario=scenario)
                spent = time.perf_counter() - began, time.process_time() - began_cpu
                return *spent, load_tensors(made.checkpoint)["policy"]

        run()
        pairs = []
        for _ in range(3):  # in turn, so that what else the machine does slows both down
            with _before():
                slow = run()
            pairs.append((slow, run()))
        assert all(torch.equal(slow[2][key], fast[2][key]) for slow, fast in pairs for key in slow[2])
        slow_cpu_s, fast_cpu_s = (min(pair[i][1] for pair in pairs) for i in (0, 1))
        slow_s, fast_s = (min(pair[i][0] for pair in pairs) for i in (0, 1))
        on = f"{name}, {NUM_STEPS:,} decisions, one thread, best of 3"
        yield BenchmarkFigure("PPO before, a second of processor", NUM_STEPS / slow_cpu_s, "decisions/s", on)
        yield BenchmarkFigure("PPO, a second of processor", NUM_STEPS / fast_cpu_s, "decisions/s", on)
        yield BenchmarkFigure("PPO against before, processor", slow_cpu_s / fast_cpu_s, "x", on)
        yield BenchmarkFigure("PPO, wall time", NUM_STEPS / fast_s, "decisions/s", on)
        yield BenchmarkFigure("PPO against before, wall time", slow_s / fast_s, "x", on)
        with timed() as spent_s:
            whole_s = run()[0]
        parts = {
            "updates, backward passes": spent_s[BACKWARD],
            "updates, the rest": spent_s[UPDATE] - spent_s[BACKWARD],
            "rollouts, stepping the environments": spent_s[STEP],
            "rollouts, forward passes": spent_s[FORWARD],
            "rollouts, the rest": spent_s[ROLLOUT] - spent_s[STEP] - spent_s[FORWARD],
            "validation, checkpoints, set-up": whole_s - spent_s[ROLLOUT] - spent_s[UPDATE],
        }
        for part, seconds in parts.items():
            yield BenchmarkFigure(f"PPO, share of the time: {part}", 100 * seconds / whole_s, "%", on)


@contextmanager
def _before() -> Iterator[None]:
    """sb3-contrib's own buffer, and torch's own operations for pooling."""

    def plain(figures: torch.Tensor) -> torch.Tensor:
        lifted = torch.relu(figures)
        return torch.cat([lifted.mean(dim=0), lifted.amax(dim=0)], dim=1)

    kept = ppo.TensorRolloutBuffer, encoders.pooled
    ppo.TensorRolloutBuffer, encoders.pooled = MaskableDictRolloutBuffer, plain  # type: ignore[misc,assignment]
    try:
        yield
    finally:
        ppo.TensorRolloutBuffer, encoders.pooled = kept  # type: ignore[misc]
