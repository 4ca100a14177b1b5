"""Training seeds on a real Ray cluster of several nodes on this machine: the policies of one process, whatever dies."""

import json
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from meshwright import settings
from meshwright.evaluation.workers import Workers
from meshwright.training.seeds import SeedRun, begin, seed_folder, train_seed
from meshwright.training.settings import TrainSettings

from ..training.conftest import TINY
from .ray_cluster import ancestors
from .test_ray_workers import GPUS, lose, on_ray  # noqa: F401 - the cluster, and a fixture

pytestmark = pytest.mark.scheduler("ray")

SEEDS = (0, 1, 2)
STEPS = 6_144
"""Some seconds each, in which there are 32 checkpoints."""


def runs_in(folder: Path) -> list[SeedRun]:
    for name, text in TINY.items():
        (folder / name).write_text(text.replace("FOLDER", "."))  # paths count against the folder of the command
    changes = [f"total_steps={STEPS}", "validate_every_steps=512"]
    options = {seed: settings.load(TrainSettings, folder / "train.yaml", changes=[*changes, f"seed={seed}"]) for seed in SEEDS}
    runs = [SeedRun(options[seed], seed_folder(folder / "run", seed), None, folder) for seed in SEEDS]
    begin(runs, ["test"])
    return runs


def curve_of(run: SeedRun) -> list[dict]:
    path = run.folder / "learning_curve.json"
    return json.loads(path.read_text()) if path.exists() else []


def policies(runs):
    return [(run.folder / "policy.pt").read_bytes() for run in runs]


@pytest.fixture(scope="module")
def trained_here(tmp_path_factory):
    runs = runs_in(tmp_path_factory.mktemp("here"))
    Workers().do(train_seed, runs, lambda run, curve: None)
    return policies(runs)


def trainer_of(folder: Path) -> int | None:
    """The process that trains in a run folder: it holds it open."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if os.readlink(link) == str(folder):
                return int(link.parts[2])
    return None


def test_a_node_that_is_killed_in_the_middle_changes_no_policy(loopback_ray, on_ray, trained_here, tmp_path):  # noqa: F811
    runs, nodes, killed = runs_in(tmp_path), set(loopback_ray.raylets.values()), []

    def kill() -> None:
        """End the node of the first run that has been validated three times there, on another node than the head."""
        until = time.monotonic() + 120
        while not killed and time.monotonic() < until:
            for run in runs:
                trainer = trainer_of(run.folder) if len(curve_of(run)) > 2 else None
                for node in set() if trainer is None else set(ancestors(trainer)) & nodes:
                    lose(node)
                    killed.append((run, curve_of(run)))
                    return
            time.sleep(0.05)

    thread = threading.Thread(target=kill)
    thread.start()
    done = []
    on_ray.do(train_seed, runs, lambda run, curve: done.append((run.settings.seed, curve[-1]["steps"])))
    thread.join()
    ((run, before),) = killed
    assert before[-1]["steps"] < STEPS
    assert curve_of(run)[: len(before) - 1] == before[:-1]  # seconds too: it went on, and was not begun again
    assert done == [(seed, STEPS) for seed in SEEDS]
    assert policies(runs) == trained_here
