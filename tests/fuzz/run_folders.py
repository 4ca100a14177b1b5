"""Readers of what runs leave behind that take the packages of training, which are imported when they are wanted: networks,
checkpoints that a run resumes from.
"""

from __future__ import annotations

import io
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


def _network(text: str, folder: Path) -> None:
    """A network whose file holds, in place of tensors, what the JSON says of their shapes and types."""

    import torch

    from meshwright.models.saved import SavedNetwork

    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return
    torch.save(_with_tensors(data), folder / "policy.pt")
    saved = SavedNetwork.load(folder / "policy.pt")
    saved.save(folder / "again.pt")


def _bytes(text: str, folder: Path) -> None:
    from meshwright.models.saved import SavedNetwork

    (folder / "policy.pt").write_bytes(_with_bytes(text, _network_file()))
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


def _checkpoint(text: str, folder: Path) -> None:
    """A run that goes on from a checkpoint whose tensors are its own where the JSON leaves them."""

    import torch

    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return
    content = io.BytesIO()
    torch.save(_with_tensors(data, _tensors_of(_begun()["checkpoint.pt"])), content)
    _resumed(folder, _begun(), "checkpoint.pt", content.getvalue())


def _checkpoint_bytes(text: str, folder: Path) -> None:
    _resumed(folder, _begun(), "checkpoint.pt", _with_bytes(text, _begun()["checkpoint.pt"]))


def _tuning_checkpoint(text: str, folder: Path) -> None:
    """A tuning that goes on from a checkpoint whose digest is right, however spoilt it is."""
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
    chosen = load_train_settings(inputs.CONFIGS / "train" / "toy.yaml", smaller)
    return _interrupted(chosen, 64)


@cache
def _begun_tuning() -> dict[str, bytes]:
    """The same of a linear scorer."""

    from meshwright.training.linear.settings import LinearSettings
    from meshwright.training.settings import load_with_paths

    smaller = ("generations=3", "population=3", "elite=2", "num_episodes=1", "num_validation_seeds=1", "benchmark=preset:toy")
    smaller += ("validate_every_generations=1", "changes=[scenario.num_jobs=20]")
    chosen = load_with_paths(LinearSettings, inputs.CONFIGS / "train" / "linear.yaml", smaller)
    return _interrupted(chosen, 2)


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


def _tensors_of(content: bytes) -> Any:
    """What bytes of a file of tensors hold."""

    import torch

    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


@cache
def _shipped() -> dict[str, Any]:
    from meshwright.models.tensor_file import load_tensors

    data: dict[str, Any] = load_tensors(inputs.ROOT / "models" / "shipped" / "quickstart.pt")
    return data


@cache
def _network_file() -> bytes:
    import torch

    buffer = io.BytesIO()
    torch.save(_shipped(), buffer)
    return buffer.getvalue()


def _with_tensors(data: Any, like: Any = None) -> Any:
    """Data with tensors of zeros where their shapes and types stand, or those of ``like`` where they are the same."""

    import torch

    if isinstance(data, dict) and set(data) == {"shape", "dtype"}:
        if isinstance(like, torch.Tensor) and data == _without_tensors(like):
            return like
        dtype = getattr(torch, data["dtype"], None) if isinstance(data["dtype"], str) else None
        shape = data["shape"] if isinstance(data["shape"], list) and all(type(n) is int for n in data["shape"]) else []
        small = [n for n in shape if 0 <= n < 512][:3]
        return torch.zeros(small, dtype=dtype if isinstance(dtype, torch.dtype) else torch.float32)
    if isinstance(data, dict):
        held = {str(key): key for key in like} if isinstance(like, dict) else {}  # JSON has no keys that are numbers
        return {held.get(key, key): _with_tensors(value, like[held[key]] if key in held else None) for key, value in data.items()}
    if not isinstance(data, list):
        return data
    beside = like if isinstance(like, list | tuple) and len(like) == len(data) else [None] * len(data)
    return [_with_tensors(item, other) for item, other in zip(data, beside, strict=True)]


def _without_tensors(data: Any) -> Any:
    import torch

    if isinstance(data, torch.Tensor):
        return {"shape": list(data.shape), "dtype": str(data.dtype).removeprefix("torch.")}
    if isinstance(data, dict):
        return {key: _without_tensors(value) for key, value in data.items()}
    return [_without_tensors(item) for item in data] if isinstance(data, list | tuple) else data


BYTES = "add 100 0\nadd 2000 0\nadd 30000 0\ncut 0\n"


TARGETS = (
    Target("networks", "json", lambda: [json.dumps(_without_tensors(_shipped()))], _network, is_quick=False),
    Target("network-bytes", "text", lambda: [BYTES], _bytes, is_quick=False),
    Target(
        "checkpoints",
        "json",
        lambda: [json.dumps(_without_tensors(_tensors_of(_begun()["checkpoint.pt"])))],
        _checkpoint,
        is_quick=False,
    ),
    Target("checkpoint-bytes", "text", lambda: [BYTES], _checkpoint_bytes, is_quick=False),
    Target(
        "tuning-checkpoints", "json", lambda: [_begun_tuning()["checkpoint.json"].decode()], _tuning_checkpoint, is_quick=False
    ),
    Target("versions", "json", lambda: [_begun()["versions.json"].decode()], _versions, is_quick=False),
)
