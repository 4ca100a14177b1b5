"""Runs that are interrupted and go on, and whether two runs are the same."""

import json
import shutil

import pytest
import torch

from meshwright.models.policy_files import VERDICT
from meshwright.models.tensor_file import load_tensors
from meshwright.training import train as training
from meshwright.training.train import train

VALUES = "pretraining={kind: values, steps: 512, rollout_steps: 16, minibatch: 32, epochs: 1, explore: 0.2}"

APART = {"elapsed_s", "digest", VERDICT}
"""Keys that say how long a run took, or are a hash of that too; and what the command alone writes into a policy."""


class InterruptionError(Exception):
    """Stands in for whatever ends a run between two updates."""


def interrupted_at(steps):
    def progress(now):
        if now.steps >= steps:
            raise InterruptionError

    return progress


def copied_at_each_update(folder, copies, also=lambda now: None, counted_by="steps"):
    """A progress display that copies the run folder as it lies on the disk then, which is what a run killed there leaves.

    Each copy is named after its number of decisions, or of what else is counted.
    """

    def progress(now):
        shutil.copytree(folder, copies / str(getattr(now, counted_by)), dirs_exist_ok=True)
        also(now)

    return progress


def go_on(chosen, folder, scenario, **options):
    """Resume a run that was begun a while ago."""
    begun_earlier(folder)
    return train(chosen, folder, scenario=scenario, resume=True, **options)


def begun_earlier(folder):
    """Let all event files be ten seconds older: one that is made in the same second as them has to wait for the next."""
    for path in [*(folder / "tensorboard").rglob("events.*")]:
        start, kind, kept, second, *rest = path.name.split(".")
        path.rename(path.with_name(".".join((start, kind, kept, f"{int(second) - 10:010d}", *rest))))


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
    return [{key: value for key, value in row.items() if key != "elapsed_s"} for row in rows]


def scalars(folder, part=""):
    """What TensorBoard shows of a run, or of its pretraining: steps and values by tag."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard" / part), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def shown(folder):
    """The same without seconds and without what counts updates since the process began."""
    parts = [part for part in ("", "pretraining") if (folder / "tensorboard" / part).exists()]
    return {(part, tag): values for part in parts for tag, values in scalars(folder, part).items() if not tag.startswith("time/")}


def same_run(ours, theirs):
    assert curve(ours) == curve(theirs)
    for name in ("policy.pt", "checkpoint.pt", "pretrained.pt"):
        assert (ours / name).exists() == (theirs / name).exists()
        assert not (ours / name).exists() or equal(load_tensors(ours / name), load_tensors(theirs / name))
    assert shown(ours) == shown(theirs)


def at_the_beginning_of_ppo(monkeypatch, chosen, folder, **options):
    """The model as PPO takes it over."""
    models = []

    def stop(model, *_):
        models.append(model)
        raise InterruptionError

    monkeypatch.setattr(training, "_learn_by_ppo", stop)
    with pytest.raises(InterruptionError):
        train(chosen, folder, **options)
    return models[0]


class First(torch.nn.Module):
    """Scores the first candidate that is offered after the rejection highest."""

    def __init__(self):
        super().__init__()
        self.observed = lambda seen: seen.current()
        self.unused = torch.nn.Parameter(torch.zeros(1))

    def forward(self, observation):
        mask = observation["action_mask"].float()
        return mask * torch.arange(mask.shape[1], 0, -1) * (torch.arange(mask.shape[1]) > 0), None
