"""The state of a run that imitates a search and goes on by PPO, and how it goes on from a checkpoint."""

from __future__ import annotations

import copy
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import torch

from ... import files
from ...errors import CheckpointError
from ...models.policy_files import STAGES, stage
from ...models.tensor_file import save_tensors
from .. import checkpoint
from ..run_folder import AnyRunFolder
from .settings import PlacingTrainSettings

LEAST_RATE = 0.05
"""Share of Adam's first step size below which it does not fall."""

Policy = TypeVar("Policy", bound=torch.nn.Module)


class SavedPlacingPolicy(Protocol):
    """A policy that can be written."""

    def save(self, path: str | Path) -> None:
        """Write it, whole or not at all."""


class PlacingTrainer(ABC, Generic[Policy]):
    """Network, its running average, optimiser, generators and learning curve.

    Args:
        chosen: the config.
        policy: the network, initialised.
        learning_rate: Adam's first step size.
        most_gradient: longer gradients are shortened to this norm.

    Attributes:
        format_version: of checkpoints.
        update: steps of the imitation and updates of PPO done so far.
        curve: a row per validation.
        best: the least value of all validations.
        told: what the latest step or update tells.
    """

    format_version: ClassVar[int]

    def __init__(self, chosen: PlacingTrainSettings, policy: Policy, learning_rate: float, most_gradient: float) -> None:
        self._chosen, self.policy, self._most_gradient = chosen, policy, most_gradient
        self.average = copy.deepcopy(policy)
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=learning_rate)
        self.rng = np.random.default_rng([chosen.seed, 1])
        self.update, self.best = 0, np.inf
        self.curve: list[dict[str, Any]] = []
        self.told: dict[str, float] = {}
        self._began, self._cpu_began, self._before = time.perf_counter(), time.process_time(), (0.0, 0.0)

    @abstractmethod
    def imitate(self) -> None:
        """One step of the imitation."""

    @abstractmethod
    def improve(self) -> None:
        """One update of PPO."""

    @abstractmethod
    def validated(self) -> float:
        """The greedy result of the running average on the validation instances, relative to the reference."""

    @abstractmethod
    def saved(self, trained: dict[str, Any]) -> SavedPlacingPolicy:
        """The running average as it is kept, with how it came about."""

    @abstractmethod
    def search(self, folder: Path) -> None:
        """Find what is imitated, where a stage or round of imitation begins or was stopped, and keep it in the run's folder."""

    def generators(self) -> dict[str, Any]:
        """State of generators besides ``rng``; none here."""
        return {}

    def restore_generators(self, data: dict[str, Any]) -> None:
        """Go on with what `generators` gave."""

    @property
    def stage(self) -> str:
        """``imitation`` while it lasts, then ``ppo``."""
        return "imitation" if self.update < self._chosen.imitation_steps else "ppo"

    @property
    def is_validation_due(self) -> bool:
        """Whether the policy is to be looked at before the next update."""
        if self.curve and self.curve[-1]["update"] == self.update:
            return False
        chosen, imitated = self._chosen, self._chosen.imitated
        if imitated is not None and self.update < chosen.imitation_steps:
            return self.update % imitated.steps % imitated.validate_every_steps == 0
        is_due = (self.update - chosen.imitation_steps) % chosen.validate_every_updates == 0
        return is_due or self.update == chosen.total_updates

    @property
    def left(self) -> float:
        """Share of PPO that is left."""
        return 1.0 - (self.update - self._chosen.imitation_steps) / self._chosen.updates

    def learn(self) -> None:
        """One step of the imitation, or one update of PPO."""
        if self.stage == "imitation":
            self.imitate()
        else:
            self.improve()
        share = max(self._chosen.averaging, 1.0 / (self.update + 1.0))
        with torch.no_grad():
            for average, newest in zip(self.average.parameters(), self.policy.parameters(), strict=True):
                average.lerp_(newest, share)
        self.update += 1

    def set_learning_rate(self, most: float, left: float) -> None:
        """Adam's step size, which falls linearly to `LEAST_RATE` of ``most``."""
        for group in self.optimizer.param_groups:
            group["lr"] = most * max(LEAST_RATE, left)

    def descend(self, loss: torch.Tensor) -> None:
        """One gradient step."""
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self._most_gradient)
        self.optimizer.step()

    def look(self, run: AnyRunFolder[Any]) -> None:
        """Validate, keep the best policy and the imitated one, write the learning curve."""
        value = self.validated()
        seconds = self._before[0] + time.perf_counter() - self._began
        cpu_s = self._before[1] + time.process_time() - self._cpu_began
        row = {"update": self.update, "stage": self.stage, "validation": value, "elapsed_s": seconds, "cpu_s": cpu_s, **self.told}
        self.curve.append(row)
        chosen = self._chosen
        about = {"config": chosen.name, "seed": chosen.seed, "update": self.update, "validation": value, STAGES: self._stages()}
        saved = self.saved(about)
        if value < self.best:
            self.best = value
            saved.save(run.policy)
        if chosen.imitated is not None and self.update == chosen.imitation_steps:
            saved.save(run.imitated)
        files.write_json(run.learning_curve, self.curve)

    def _stages(self) -> list[dict[str, Any]]:
        """Return the stages that the weights went through, as policy files hold them."""
        imitated = min(self.update, self._chosen.imitation_steps)

        def last(is_of: bool) -> float | None:
            of = [row["validation"] for row in self.curve if (row["update"] <= self._chosen.imitation_steps) == is_of]
            return of[-1] if of else None

        done = [("imitation", imitated, "steps"), ("ppo", self.update - imitated, "updates")]
        return [stage(name, steps, unit, last(name == "imitation")) for name, steps, unit in done if steps > 0]

    def save(self, path: Path, key: str) -> None:
        """Write a checkpoint, which no GPU is needed to read."""
        data = {
            "format_version": self.format_version,
            "key": key,
            "update": self.update,
            "policy": checkpoint.on_cpu(self.policy.state_dict()),
            "average": checkpoint.on_cpu(self.average.state_dict()),
            "optimizer": checkpoint.on_cpu(self.optimizer.state_dict()),
            "numpy_generator": files.json_text(self.rng.bit_generator.state),
            "curve": self.curve,
            "best": self.best,
            **self.generators(),
        }
        save_tensors(path, {**data, checkpoint.DIGEST: checkpoint.digest_of(data)})

    @classmethod
    def checkpoint(cls, path: Path, key: str) -> dict[str, Any]:
        """What `save` wrote, for `restore`.

        Raises:
            CheckpointError: damaged, of another version, or of another run.
        """
        data = checkpoint.load(path, cls.format_version, ("numpy_generator",))
        if data["key"] != key:
            raise CheckpointError("belongs to another config or benchmark than this run's", file=path)
        return data

    def restore(self, data: dict[str, Any]) -> None:
        """Go on where a checkpoint was written."""
        self.update, self.curve, self.best = data["update"], data["curve"], data["best"]
        self.policy.load_state_dict(data["policy"])
        self.average.load_state_dict(data["average"])
        self.optimizer.load_state_dict(data["optimizer"])
        self.rng.bit_generator.state = files.parse_json(data["numpy_generator"])
        self.restore_generators(data)
        self._before = (self.curve[-1]["elapsed_s"], self.curve[-1]["cpu_s"])
