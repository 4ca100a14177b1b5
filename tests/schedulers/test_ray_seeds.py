"""Training seeds on a real Ray cluster of three nodes on this machine: the policies of one process, whoever dies."""

import importlib.util
import json
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from meshwright import settings
from meshwright.evaluation.workers.processes import Processes
from meshwright.evaluation.workers.ray_cluster import ray_workers
from meshwright.training.seeds import SeedRun, begin, seed_folder, train_seed
from meshwright.training.settings import TrainSettings

from ..training.conftest import TINY
from . import processes
from .ray_cluster import ancestors
from .test_ray_workers import lose, raylets

pytestmark = pytest.mark.scheduler("ray")

SEEDS = (0, 1, 2)
STEPS = 12_288
"""Some seconds each, in which there are 64 checkpoints."""


def runs_in(folder: Path) -> list[SeedRun]:
    for name, text in TINY.items():
        (folder / name).write_text(text.replace("FOLDER", "."))  # paths count against the folder of the command
    changes = [f"total_steps={STEPS}", "validate_every_steps=1024"]
    chosen = {seed: settings.load(TrainSettings, folder / "train.yaml", changes=[*changes, f"seed={seed}"]) for seed in SEEDS}
    runs = [SeedRun(chosen[seed], seed_folder(folder / "run", seed), None, folder) for seed in SEEDS]
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
    Processes(1).do(train_seed, runs, lambda run, curve: None)
    return policies(runs)


@pytest.fixture
def on_ray():
    if importlib.util.find_spec("ray") is None:
        pytest.skip(f"ray is not installed: {processes.why_absent('ray')}")
    with ray_workers("local:3") as workers:
        yield workers
    assert raylets() == []


def trainer_of(folder: Path) -> int | None:
    """The process that trains in a run folder: it holds it open."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if os.readlink(link) == str(folder):
                return int(link.parts[2])
    return None


def test_a_node_that_is_killed_in_the_middle_changes_no_policy(on_ray, trained_here, tmp_path):
    runs, alive, killed = runs_in(tmp_path), raylets(), []
    assert len(alive) == 4

    def kill() -> None:
        """End the node of the run that has been validated three times first."""
        until = time.monotonic() + 120
        while not killed and time.monotonic() < until:
            for run in runs:
                trainer = trainer_of(run.folder) if len(curve_of(run)) > 2 else None
                if trainer is not None:
                    (node,) = set(ancestors(trainer)) & set(alive)
                    lose(node)
                    killed.append((node, run, curve_of(run)))
                    return
            time.sleep(0.05)

    thread = threading.Thread(target=kill)
    thread.start()
    done = []
    on_ray.do(train_seed, runs, lambda run, curve: done.append((run.chosen.seed, curve[-1]["steps"])))
    thread.join()
    ((node, run, before),) = killed
    assert before[-1]["steps"] < STEPS
    assert curve_of(run)[: len(before) - 1] == before[:-1]  # seconds too: it went on, and was not begun again
    assert node not in raylets()
    assert done == [(seed, STEPS) for seed in SEEDS]
    assert policies(runs) == trained_here
