"""Readers of networks and checkpoints of runs: they need the packages of training, which are imported on first use."""

from __future__ import annotations

import json
import re
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from meshwright import files

from . import inputs
from .commands import answered
from .running import Target


def _bytes(text: str, folder: Path) -> None:
    from meshwright.models.saved import SavedNetwork

    (folder / "policy.pt").write_bytes(_with_bytes(text, SHIPPED.read_bytes()))
    SavedNetwork.load(folder / "policy.pt")


def _with_bytes(text: str, whole: bytes) -> bytes:
    """Bytes with what the text says added to some (``add PLACE VALUE``) or cut from the end (``cut NUMBER``)."""
    data = bytearray(whole)
    for line in text.splitlines():
        verb, *numbers = line.split(" ")
        if numbers and all(re.fullmatch("[0-9]{1,8}", number) for number in numbers):
            place, value = int(numbers[0]), int(numbers[-1])
            if verb == "add":
                data[place % len(data)] = (data[place % len(data)] + value) % 256
            elif verb == "cut":
                del data[len(data) - value % len(data) :]
    return bytes(data)


def _checkpoint_bytes(text: str, folder: Path) -> None:
    _resumed(folder, _begun(), "checkpoint.pt", _with_bytes(text, _begun()["checkpoint.pt"]))


def _tuning_checkpoint(text: str, folder: Path) -> None:
    """A tuning that resumes from a spoilt checkpoint with a right digest."""
    try:
        data = json.loads(text)
        if isinstance(data, dict) and "digest" in data:
            del data["digest"]
            text = json.dumps({**data, "digest": files.digest(data)})
    except (ValueError, RecursionError):
        pass
    _resumed(folder, _begun_tuning(), "checkpoint.json", text.encode(errors="surrogatepass"))


def _resumed(folder: Path, begun: dict[str, bytes], name: str, content: bytes) -> None:
    (folder / "run").mkdir()
    for held, bytes_ in (begun | {name: content}).items():
        (folder / "run" / held).write_bytes(bytes_)
    answered("train", "--resume", "run")


def _versions(text: str, folder: Path) -> None:
    """An evaluation into the folder of a training run, which its report shows."""
    (folder / "run").mkdir()
    for held, content in (_begun() | {"versions.json": text.encode(errors="surrogatepass")}).items():
        (folder / "run" / held).write_bytes(content)
    answered("evaluate", "run", "--benchmark", "toy", "--seeds", "1", "--set", "scenario.num_jobs=20", "--out", "run")


@cache
def _begun() -> dict[str, bytes]:
    """The files of a training run that was interrupted, by their names."""

    from meshwright.training.settings import load_train_settings

    smaller = ("total_steps=128", "validate_every_steps=64", "checkpoint_every_steps=32", "num_validation_seeds=1")
    smaller += ("ppo.num_envs=2", "ppo.rollout_steps=16", "ppo.minibatch=16", "ppo.epochs=1", "changes=[scenario.num_jobs=20]")
    config = load_train_settings(inputs.CONFIGS / "train" / "toy.yaml", smaller)
    return _interrupted(config, 64)


@cache
def _begun_tuning() -> dict[str, bytes]:
    """The same of a linear scorer."""

    from meshwright.training.linear.settings import LinearSettings
    from meshwright.training.settings import load_with_paths

    smaller = ("generations=3", "population=3", "elite=2", "num_episodes=1", "num_validation_seeds=1", "benchmark=preset:toy")
    smaller += ("validate_every_generations=1", "changes=[scenario.num_jobs=20]")
    choice = load_with_paths(LinearSettings, inputs.CONFIGS / "train" / "linear.yaml", smaller)
    return _interrupted(choice, 2)


def _interrupted(chosen: Any, step: int) -> dict[str, bytes]:
    """The files of a run that is interrupted after a step."""

    from meshwright.training.hooks.callback import TrainingCallback, UpdateRecord
    from meshwright.training.methods import train

    class Interrupts(TrainingCallback):
        def on_update(self, record: UpdateRecord) -> None:
            if record.step >= step:
                raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as place:
        with suppress(KeyboardInterrupt):
            train(chosen, Path(place) / "run", callbacks=[Interrupts()])
        return {path.name: path.read_bytes() for path in (Path(place) / "run").iterdir() if path.is_file()}


SHIPPED = inputs.ROOT / "models" / "shipped" / "quickstart.pt"

BYTES = "add 100 0\nadd 2000 0\nadd 30000 0\ncut 0\n"


TARGETS = (
    Target("network-bytes", "text", lambda: [BYTES], _bytes, is_quick=False),
    Target("checkpoint-bytes", "text", lambda: [BYTES], _checkpoint_bytes, is_quick=False),
    Target(
        "tuning-checkpoints", "json", lambda: [_begun_tuning()["checkpoint.json"].decode()], _tuning_checkpoint, is_quick=False
    ),
    Target("versions", "json", lambda: [_begun()["versions.json"].decode()], _versions, is_quick=False),
)
