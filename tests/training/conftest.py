"""A benchmark and a training config that take a second or two."""

import os
from pathlib import Path

import pytest
import torch

from meshwright import settings
from meshwright.envs.benchmark import load_benchmark
from meshwright.training.settings import TrainSettings
from tests.tiny_fleet import tiny_fleet

# Matrices are small: a second thread costs more than it does, most of all where another core is busy.
torch.set_num_threads(1)

TINY = {
    "tiny.yaml": """
name: tiny
scenario: {cluster: preset:host-8, workload: workload.yaml, num_jobs: 30, num_warmup_jobs: 4, max_degree: 4}
reward: {slack: 0.5}
""",
    "workload.yaml": """
graphs: [zoo:squeezenet, zoo:alexnet]
steps: {kind: sequential_time, low_s: 500.0, high_s: 4000.0}
arrivals: {kind: poisson, mean_interarrival_s: 200.0}
deadline: {kind: uniform, low: 0.2, high: 1.0}
""",
    "train.yaml": """
name: tiny
benchmark: FOLDER/tiny.yaml
seed: 3
total_steps: 768
validate_every_steps: 128
num_validation_seeds: 2
checkpoint_every_steps: 192
ppo: {num_envs: 4, rollout_steps: 16, minibatch: 32, epochs: 2}
network: {graph_hidden: 4, graph_embedding: 3, graph_rounds: 1, slot_hidden: 4, device_hidden: 3, hidden: 8}
""",
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    return tiny_fleet(tmp_path_factory.mktemp("fleet"), num_jobs=20)


@pytest.fixture(scope="session")
def config(tmp_path_factory):
    """The path of the tiny training config."""
    folder = tmp_path_factory.mktemp("tiny")
    for name, text in TINY.items():
        (folder / name).write_text(text.replace("FOLDER", str(folder)))
    return folder / "train.yaml"


@pytest.fixture(scope="session")
def chosen(config):
    return settings.load(TrainSettings, config)


@pytest.fixture(scope="session")
def tiny(chosen):
    return load_benchmark(chosen.benchmark)


@pytest.fixture(scope="session")
def scenario(tiny):
    return tiny.build()


@pytest.fixture(scope="session")
def content_of():
    """Every file below a folder with its bytes and time of change."""

    def read(folder):
        result = {}
        for root, _, names in os.walk(folder):
            for name in names:
                path = Path(root) / name
                result[str(path.relative_to(folder))] = (path.read_bytes(), path.stat().st_mtime_ns)
        return result

    return read
