"""The training config: what is learned on, by which network, with which PPO constants, and when it is validated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from .. import settings
from ..models.settings import NetworkSettings
from .hooks.names import LogName, RunSettings
from .linear.settings import SearchSettings


class PPOSettings(settings.Settings):
    """Constants of PPO.

    Attributes:
        learning_rate: Adam's step size at the start.
        final_learning_rate: the same at the end; in between it falls linearly.
        num_envs: episodes stepped side by side.
        rollout_steps: decisions of each episode between two updates.
        minibatch: decisions of one gradient step.
        epochs: passes over the decisions of one update.
        discount: of later rewards, per decision.
        gae_lambda: of generalised advantage estimation.
        clip: largest change of a choice's probability that is still rewarded, as a ratio.
        entropy: weight of the entropy bonus.
        value: weight of the value loss.
        max_grad_norm: gradients are scaled down to this norm.

    Source:
        Schulman et al., "Proximal policy optimization algorithms", 2017.
    """

    learning_rate: float = Field(default=1e-3, gt=0)
    final_learning_rate: float = Field(default=1e-4, gt=0)
    num_envs: int = Field(default=16, ge=1, le=4096)
    rollout_steps: int = Field(default=128, ge=2, le=65_536)
    minibatch: int = Field(default=512, ge=2)
    epochs: int = Field(default=4, ge=1, le=100)
    discount: float = Field(default=0.99, ge=0, le=1)
    gae_lambda: float = Field(default=0.9, ge=0, le=1)
    clip: float = Field(default=0.2, gt=0, lt=1)
    entropy: float = Field(default=0.003, ge=0)
    value: float = Field(default=0.5, ge=0)
    max_grad_norm: float = Field(default=0.5, gt=0)

    @model_validator(mode="after")
    def _minibatches_fit(self) -> Self:
        if self.update_steps % self.minibatch:
            raise ValueError(f"num_envs x rollout_steps ({self.update_steps}) must be a multiple of minibatch ({self.minibatch})")
        return self

    @property
    def update_steps(self) -> int:
        """Decisions between two updates."""
        return self.num_envs * self.rollout_steps


class PriorSearch(SearchSettings):
    """A search for linear scores that a network begins with.

    Attributes:
        sharpness: factor on the scores in the logits at the start; PPO learns it.
    """

    sharpness: float = Field(default=2.0, gt=0)


class TrainSettings(RunSettings):
    """A training run.

    Attributes:
        total_steps: decisions to learn from.
        validate_every_steps: decisions between two validations.
        num_validation_seeds: validation episodes (seeds 100, 101, ...); the best policy on them is kept.
        checkpoint_every_steps: decisions between two checkpoints.
        num_threads: threads of torch; one is fastest while another core steps something else.
        device: ``cpu``, ``cuda`` or ``auto`` (a GPU where there is one).
        log: writers of the validations (see `training.hooks.names`); ``tensorboard`` writes PPO's own figures too.
        search: for linear scores, with which PPO's first policy plays; null: PPO begins with a random network.
        ppo: constants of PPO.
        network: widths of the network.
    """

    total_steps: int = Field(ge=1)
    validate_every_steps: int = Field(default=50_000, ge=1)
    num_validation_seeds: int = Field(default=4, ge=1, le=100)
    checkpoint_every_steps: int = Field(default=50_000, ge=1)
    num_threads: int = Field(default=1, ge=1, le=256)
    device: Literal["auto", "cpu", "cuda"] = "cpu"
    log: tuple[LogName, ...] = ("tensorboard",)
    search: PriorSearch | None = None
    ppo: PPOSettings = PPOSettings()
    network: NetworkSettings = NetworkSettings()


def load_train_settings(path: str | Path, changes: Sequence[str] = ()) -> TrainSettings:
    """Read a training config; see `load_with_paths`."""
    return load_with_paths(TrainSettings, path, changes)


def load_with_paths(kind: type[settings.AnySettings], path: str | Path, changes: Sequence[str] = ()) -> settings.AnySettings:
    """Read a training config of any method.

    Paths of benchmarks, traces and policies, and those in its ``changes``, refer to the folder of the config, or else to the
    current one. Paths in ``changes`` of this call refer to the current folder. All are made absolute, so that a run can be
    resumed from anywhere.

    Args:
        kind: of the config.
        path: the YAML file.
        changes: ``key=value`` texts, applied in order.

    Raises:
        InputFileError: the file is missing or unreadable.
        ConfigError: bad YAML, a key twice, an unknown key or an impossible value.
    """
    config = settings.load(kind, path, changes=changes)
    from ..envs.benchmark import named_in_config  # takes a while, and a wrong config is to be refused at once

    changed = {change.partition("=")[0].strip() for change in changes}

    def found(value: Any, key: str) -> Any:
        if isinstance(value, str):
            return named_in_config(value, path, is_changed=bool({key, key.partition(".")[0]} & changed))
        if isinstance(value, tuple):
            return tuple(found(one, key) for one in value)
        if isinstance(value, settings.Settings) and hasattr(value, "start"):
            return value.model_copy(update={"start": found(value.start, f"{key}.start")})
        return value

    keys = [key for key in ("benchmark", "mixed", "trace", "search", "start") if key in kind.model_fields]
    update: dict[str, Any] = {key: found(getattr(config, key), key) for key in keys}
    if "changes" not in changed:
        update["changes"] = tuple(_change_from(text, Path(path).parent) for text in config.changes)  # type: ignore[attr-defined]
    return config.model_copy(update=update)


def _change_from(text: str, folder: Path) -> str:
    key, _, value = text.partition("=")
    place = folder / value.strip()
    return f"{key}={place.resolve()}" if ("/" in value or place.suffix) and place.exists() else text
