"""Tiny runs of every method, callbacks that copy, stop or record a run, and whether two runs are the same."""

import csv
import json
import shutil

import torch

from meshwright import settings
from meshwright.models.policy_files import VERDICT
from meshwright.models.tensor_file import load_tensors
from meshwright.training.elastic.settings import ElasticTrainSettings
from meshwright.training.fleet.settings import FleetTrainSettings
from meshwright.training.graph.settings import GraphTrainSettings
from meshwright.training.hooks.callback import TrainingCallback
from meshwright.training.linear.settings import LinearSettings

WITH_PRIOR = ("search={generations: 2, population: 4, elite: 2, num_episodes: 1, num_validation_seeds: 1}",)

FLEET = {
    "method": "fleet",
    "name": "tiny",
    "benchmark": "tiny.yaml",
    "total_steps": 128,
    "validate_every_steps": 64,
    "num_validation_seeds": 1,
    "imitation": {"rule": "sjf", "decisions": 1000, "epochs": 1, "minibatch": 200},
    "ppo": {"num_envs": 4, "rollout_steps": 16, "minibatch": 64, "epochs": 1},
    "network": {"width": 8, "rounds": 1},
}
SEARCH = {"generations": 4, "population": 6, "num_episodes": 2, "validate_every_generations": 2}
GRAPH = {
    "method": "graph",
    "name": "small",
    "benchmark": "preset:tasklets-64",
    "changes": ("tasklets.num_devices=[8]", "tasklets.num_stages=[2]", "num_validation_seeds=6"),
    "network": {"hidden": 8, "heads": 2, "rounds": 1},
    "ppo": {"num_envs": 8, "group": 4, "rollout_steps": 12, "minibatch": 24},
    "updates": 4,
    "validate_every_updates": 2,
}
IMITATION = {"instances": 4, "rounds": 1, "steps": 4, "minibatch": 2, "validate_every_steps": 2}
SCORER = {"generations": 3, "population": 6, "elite": 2, "num_episodes": 1, "num_validation_seeds": 2}

APART = {"elapsed_s", "cpu_s", "digest", VERDICT}
"""Keys that say how long a run took, or are a hash of that too; and what the command alone writes into a policy."""


def fleet_config(**changes):
    return settings.build_settings(FleetTrainSettings, {**FLEET, **changes})


def graph_config(**changes):
    return GraphTrainSettings.model_validate({**GRAPH, **changes})


def linear_config(benchmark, **changes):
    return LinearSettings(name="tiny", benchmark=benchmark, validate_every_generations=1, **{**SCORER, **changes})


def elastic_config(data, **changes):
    figures = {"changes": (f"elastic.data={data}", "elastic.cluster.num_nodes=3"), "generations": 3, "population": 4}
    figures |= {"validate_every_generations": 1, "num_jobs": (3,), "validation_num_jobs": (2,)}
    return ElasticTrainSettings(name="tiny", benchmark="preset:elastic-published-1.0", **{**figures, **changes})


class KilledError(Exception):
    """In place of whatever ends a run between two steps."""


class Recorder(TrainingCallback):
    """Keeps the records of a run; stops or kills it where asked to, and copies its folder at each update and part of a stage.

    Args:
        stops: of a record, whether to stop there.
        kills: the same, by an error.
        copies: folder of the copies, by their number.
    """

    def __init__(self, stops=lambda record: False, kills=lambda record: False, copies=None):
        self.told, self.num_copies = [], 0
        self._stops, self._kills, self._copies = stops, kills, copies

    def on_start(self, record):
        self.told.append(record)

    def on_end(self, record):
        self.told.append(record)

    def on_validation(self, record):
        self.told.append(record)
        return not self._stops(record)

    def on_update(self, record):
        self.told.append(record)
        if self._copies is not None:
            shutil.copytree(self.told[0].folder, self._copies / str(self.num_copies))
            self.num_copies += 1
        if self._kills(record):
            raise KilledError
        return not self._stops(record)

    on_stage = on_update

    def of(self, kind):
        return [each for each in self.told if type(each).__name__ == f"{kind}Record"]


def reaches(step):
    """Whether an update has come so far."""
    return lambda record: type(record).__name__ == "UpdateRecord" and record.step >= step


def equal(ours, theirs):
    """Whether two files of tensors hold the same, bit for bit, but for seconds and what is a hash of them too."""
    if isinstance(ours, torch.Tensor):
        return (ours.dtype, ours.shape, ours.numpy().tobytes()) == (theirs.dtype, theirs.shape, theirs.numpy().tobytes())
    if isinstance(ours, dict):
        return ours.keys() - APART == theirs.keys() - APART and all(equal(ours[k], theirs[k]) for k in ours.keys() - APART)
    if isinstance(ours, list | tuple):
        return len(ours) == len(theirs) and all(map(equal, ours, theirs))
    return ours == theirs


def curve(folder):
    """The learning curve of a run folder without its times."""
    rows = json.loads((folder / "learning_curve.json").read_text())
    return [{key: value for key, value in row.items() if key not in APART} for row in rows]


def content(path):
    """The content of a file of tensors or of JSON."""
    return load_tensors(path) if path.suffix == ".pt" else json.loads(path.read_text())


def begun_earlier(folder):
    """Let all event files be ten seconds older: one that is made in the same second as them has to wait for the next."""
    for path in [*(folder / "tensorboard").rglob("events.*")]:
        start, kind, stored, second, *rest = path.name.split(".")
        path.rename(path.with_name(".".join((start, kind, stored, f"{int(second) - 10:010d}", *rest))))


def scalars(folder):
    """TensorBoard's values of a run: steps and values by tag, without seconds."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    tags = [tag for tag in events.Tags()["scalars"] if not tag.startswith("time/")]
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in tags}


def logged(folder):
    """The rows of a run's log.csv without seconds."""
    rows = csv.DictReader((folder / "log.csv").read_text().splitlines())
    return [{**row, "elapsed_s": ""} for row in rows]


def same_run(ours, theirs):
    names = {path.name for path in theirs.iterdir()}
    assert {path.name for path in ours.iterdir()} == names
    for name in sorted(name for name in names if name.endswith((".pt", ".json"))):
        assert equal(content(ours / name), content(theirs / name)), name
    if "log.csv" in names:
        assert logged(ours) == logged(theirs)
    if (theirs / "tensorboard").is_dir():
        assert scalars(ours) == scalars(theirs)


class First(torch.nn.Module):
    """Scores the first candidate that is offered after the rejection highest."""

    def __init__(self):
        super().__init__()
        self.unused = torch.nn.Parameter(torch.zeros(1))

    def forward(self, observation):
        mask = observation["action_mask"].float()
        return mask * torch.arange(mask.shape[1], 0, -1) * (torch.arange(mask.shape[1]) > 0), None
