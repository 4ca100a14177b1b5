"""Updates of PPO on a core and on the GPU that torch sees, by size of the minibatch::

    python -m benchmarks.gpu.updates updates.json

Each learner collects its rollout once on each device and learns from it in minibatches of growing size; one pass is timed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from sb3_contrib import MaskablePPO

from meshwright import settings
from meshwright.envs.benchmark import load_benchmark
from meshwright.envs.fleet.benchmark import load_fleet_benchmark
from meshwright.packaged import config_path
from meshwright.training.fleet.settings import FleetTrainSettings
from meshwright.training.methods import train
from meshwright.training.settings import TrainSettings

SIZES = (256, 512, 1024, 2048, 4096, 8192, 16384)
DECISIONS = 16_384
COLLECTED = [f"total_steps={2 * DECISIONS}", f"validate_every_steps={8 * DECISIONS}", "num_validation_seeds=1", "ppo.epochs=1"]


def first_environment(device: str) -> None:
    """`quickstart`."""
    changes = [*COLLECTED, "ppo.num_envs=128", "ppo.rollout_steps=128", f"device={device}"]
    chosen = settings.load(TrainSettings, config_path("preset:quickstart"), changes=changes)
    with tempfile.TemporaryDirectory() as folder:
        train(chosen, Path(folder) / "run", scenario=load_benchmark("quickstart").build())


def fleet(device: str, benchmark: str = "llm-256") -> None:
    """A fleet's policy."""
    changes = [*COLLECTED, "ppo.num_envs=64", "ppo.rollout_steps=256", "imitation=null", f"device={device}"]
    chosen = settings.load(FleetTrainSettings, config_path(f"preset:{benchmark}"), changes=changes)
    built = load_fleet_benchmark(f"preset:{benchmark}").build()
    with tempfile.TemporaryDirectory() as folder:
        train(chosen, Path(folder) / "run", built={"fleet": built})


LEARNERS: dict[str, Callable[[str], None]] = {"quickstart": first_environment, "llm-256": fleet}


@contextmanager
def measured(device: str) -> Iterator[dict[str, float]]:
    """Seconds of the second rollout, and of one pass over it in minibatches of each size."""
    found: dict[str, float] = {}
    collect, update = MaskablePPO.collect_rollouts, MaskablePPO.train
    number = 0

    def wait() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def collecting(model: Any, *args: Any, **options: Any) -> Any:
        began = wait()
        done = collect(model, *args, **options)
        found["rollout"] = wait() - began
        return done

    def updating(model: Any) -> None:
        nonlocal number
        number += 1
        if number == 1:
            update(model)
            return
        for size in SIZES:
            model.batch_size = size
            update(model)  # the first of a size makes room for it
            began = wait()
            update(model)
            found[str(size)] = wait() - began

    MaskablePPO.collect_rollouts, MaskablePPO.train = collecting, updating  # type: ignore[method-assign]
    try:
        yield found
    finally:
        MaskablePPO.collect_rollouts, MaskablePPO.train = collect, update  # type: ignore[method-assign]


def main() -> None:
    """Write the seconds of all learners on all devices, and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    devices = ["cpu", *["cuda"] * torch.cuda.is_available()]
    about: dict[str, Any] = {"torch": torch.__version__, "decisions": DECISIONS}
    if torch.cuda.is_available():
        about |= {"gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
    for name, learn in LEARNERS.items():
        for device in devices:
            if chosen.only not in name:
                continue
            with measured(device) as found:
                learn(device)
            about.setdefault(name, {})[device] = found
            print(name, device, {key: round(value, 3) for key, value in found.items()}, flush=True)
            chosen.out.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
