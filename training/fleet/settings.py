"""The config of a run that trains a policy of a fleet: ``method: fleet``."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from ... import settings
from ...models.settings import FleetNetworkSettings
from ..hooks.names import RunSettings
from ..settings import PPOSettings

SEARCHED = "searched"
"""Name of the linear scores that a search has found, among the rules that are imitated."""


class ImitationSettings(settings.Settings):
    """The first stage: the network learns to act as a rule does, and to predict its costs.

    Attributes:
        rule: by name, see `planners.fleet.rules`. Several share the episodes equally: the network learns how often they take each
            action, and PPO begins with a choice between what sensible rules do. ``searched``: the linear scores that the
            search has found; of these alone the network imitates only where hosts are picked.
        decisions: of the rule that are learned from.
        epochs: passes over them.
        minibatch: decisions of one gradient step.
        learning_rate: Adam's step size at the start; it falls linearly.
        smoothing: share of each target that all possible actions have together, so that PPO has something to try.
        corrections: rounds after that in which the network plays as many decisions and learns the rule's action in each. It
            learns from all earlier data as well.
        alike: whether every host that looks the same as the rule's pick is as right (see `imitation.right_actions`).
        value_weight: of the critic's squared error, relative to the cross-entropy of actions. null: one over the variance of the
            sums that it predicts, so that neither dominates at any scale of rewards.
    """

    rule: str | tuple[str, ...] = Field(default="sjf:fixed-16", min_length=1)
    decisions: int = Field(default=60_000, ge=1_000)
    epochs: int = Field(default=4, ge=1, le=100)
    minibatch: int = Field(default=512, ge=2)
    learning_rate: float = Field(default=2e-3, gt=0)
    smoothing: float = Field(default=0.3, ge=0, lt=1)
    corrections: int = Field(default=0, ge=0, le=20)
    alike: settings.Switch = Field(default=False, exclude_if=lambda value: not value)
    value_weight: float | None = Field(default=1.0, ge=0)

    @property
    def rules(self) -> tuple[str, ...]:
        """Names of the rules that are imitated."""
        return (self.rule,) if isinstance(self.rule, str) else self.rule


class WeightSearchSettings(settings.Settings):
    """A stage before all others: direct weights of prices or of linear scores are searched for by CMA-ES.

    Attributes:
        generations: how often a population is drawn; 0: the weights of ``start`` are taken, as for an ablation of later stages.
        population: sets of weights of each.
        num_episodes: new training episodes of each generation, of each benchmark, the same for its whole population.
        spread: standard deviation of each weight at the start.
        validate_every_generations: generations between two validations of the mean.
        hosts: rule by which hosts are picked one by one, where the benchmark asks for that; of linear scores.
        start: a policy with whose weights the search begins; null: with those of no preference.
    """

    generations: int = Field(default=60, ge=0, le=10_000)
    population: int = Field(default=20, ge=4, le=1_000)
    num_episodes: int = Field(default=24, ge=1, le=1_000)
    spread: float = Field(default=0.3, gt=0, le=10)
    validate_every_generations: int = Field(default=5, ge=1)
    hosts: str = "fifo"
    start: str | None = Field(default=None, exclude_if=lambda start: start is None)

    @model_validator(mode="after")
    def _has_weights(self) -> Self:
        if self.generations == 0 and self.start is None:
            raise ValueError("generations: 0 takes the weights of a policy; name it by start")
        return self


class FleetTrainSettings(RunSettings):
    """A training run of a fleet's policy: benchmark, network, constants and validation.

    Attributes:
        method: ``fleet``.
        mixed: further benchmarks that a search plays as often, and which validation counts equally; they have the same objective.
        total_steps: decisions of PPO.
        validate_every_steps: decisions between two validations.
        num_validation_seeds: episodes of one.
        num_threads: threads of torch.
        device: ``cpu``, ``cuda`` or ``auto`` (a GPU where there is one); of imitation and PPO, the search plays on a CPU.
        reward_scale: factor on the benchmark's rewards, so that values are about 1.
        reward_most: scaled rewards beyond this are cut to it.
        search: a stage before imitation, in which weights of prices or of linear scores are searched for; null: none.
        imitation: the stage before PPO; null: none.
        ppo: constants of the second stage.
        discounted_by: whether its ``discount`` and ``gae_lambda`` are per mean time between two arrivals (see
            `vec_env.TimedRolloutBuffer`), or per decision.
        group: episodes that meet the same arrivals and continue from the same state after each update. From each advantage the
            mean of the others' at the same time is subtracted (see `training.ppo`). 1: none.
        spread_starts: whether training begins at places spread over an episode, or with empty clusters.
        network: widths.
    """

    method: Literal["fleet"]
    mixed: tuple[str, ...] = Field(default=(), exclude_if=lambda others: not others)
    total_steps: int = Field(ge=0)
    validate_every_steps: int = Field(default=50_000, ge=1)
    num_validation_seeds: int = Field(default=20, ge=1, le=100)
    num_threads: int = Field(default=1, ge=1, le=256)
    device: Literal["auto", "cpu", "cuda"] = "cpu"
    reward_scale: float = Field(default=0.02, gt=0)
    reward_most: float = Field(default=3.0, gt=0)
    search: WeightSearchSettings | None = None
    imitation: ImitationSettings | None = ImitationSettings()
    ppo: PPOSettings = PPOSettings()
    discounted_by: Literal["time", "decision"] = "time"
    group: int = Field(default=1, ge=1, le=256, exclude_if=lambda group: group == 1)
    spread_starts: bool = True
    network: FleetNetworkSettings = FleetNetworkSettings()

    @model_validator(mode="after")
    def _searches_what_there_is(self) -> Self:
        if self.search is not None and not self.network.prices and not self.network.linear:
            raise ValueError("search looks for weights of network.prices or network.linear, and both are false")
        imitates_it = self.imitation is not None and SEARCHED in self.imitation.rules
        if imitates_it and (self.search is None or not self.network.linear):
            raise ValueError(f"imitation.rule: {SEARCHED} wants a search, and network.linear: true")
        return self

    @model_validator(mode="after")
    def _groups_fit(self) -> Self:
        if self.ppo.num_envs % self.group:
            raise ValueError(f"group must divide ppo.num_envs, which is {self.ppo.num_envs}")
        return self

    @model_validator(mode="after")
    def _plays_one_fleet_after_the_search(self) -> Self:
        if self.mixed and (self.search is None or self.imitation is not None or self.total_steps > 0):
            problem = "several benchmarks are played by a search alone; give search, imitation: null and total_steps: 0"
            raise ValueError(f"mixed: {problem}")
        if len(set(self.benchmarks)) < len(self.benchmarks):
            raise ValueError("mixed: must name benchmarks other than benchmark, each once")
        return self

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """All benchmarks that are played."""
        return (self.benchmark, *self.mixed)
