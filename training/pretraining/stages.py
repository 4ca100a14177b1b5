"""What happens before PPO: values of afterstates are learned and a linear scorer is added to them, or a baseline is imitated."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...envs.reward import RewardSettings
from ...errors import PolicyError
from ...models.corrected_trial import CorrectedTrial
from ...models.network import CandidateNetwork
from ...simulation.cluster.scenario import Scenario
from ..linear.search import LinearSearch
from ..settings import TrainSettings
from ..vec_env import JobPartitioningVecEnv
from .cloning import clone, teacher
from .settings import RulePretraining, ValuePretraining
from .temporal_difference import ValueLearning


def check_pretraining(chosen: TrainSettings, scenarios: Sequence[Scenario]) -> None:
    """Refuse a baseline that cannot be imitated and a linear scorer that cannot be tuned, before anything is written.

    Raises:
        PolicyError: the baseline is unknown or not among a scenario's; candidates may hold several blocks.
    """
    if chosen.network.prior:
        for scenario in scenarios:
            if "published" in scenario.settings.placement_rules:
                problem = "a linear scorer can only be added to the worth of candidates of single blocks: leave this rule out"
                raise PolicyError(problem, field="placement_rules", value="published")
    if isinstance(chosen.pretraining, RulePretraining):
        for scenario in scenarios:
            teacher(chosen.pretraining.rule, scenario)


def tune_prior(
    network: CandidateNetwork,
    env: JobPartitioningVecEnv,
    rewards: RewardSettings,
    chosen: TrainSettings,
    after: Callable[[LinearSearch], None],
    begun: dict[str, Any] | None = None,
) -> None:
    """Tune the linear scorer that is added to values, and set it in network and observations, if the config has one.

    Args:
        network: with learned values.
        env: of one scenario.
        rewards: weights of its reward.
        chosen: the config.
        after: called with the search after every generation.
        begun: the state of a search that is resumed.
    """
    pretraining = chosen.pretraining
    if not isinstance(pretraining, ValuePretraining) or pretraining.linear is None:
        return
    search = LinearSearch(pretraining.linear, CorrectedTrial(network, env.scenario, rewards), chosen.seed, start={})
    if begun is not None:
        search.restore(begun)
    search.run(lambda: after(search))
    env.set_linear_prior(search.weights({"config": chosen.name, "benchmark": chosen.benchmark}))
    with torch.no_grad():
        network.prior_sharpness.fill_(1.0)


def pretrain(
    network: CandidateNetwork,
    env: JobPartitioningVecEnv,
    chosen: TrainSettings,
    look: Callable[[int, ValueLearning | None], None],
    begun: dict[str, Any] | None = None,
) -> None:
    """Prepare a network as a config says.

    Args:
        network: freshly initialised.
        env: the episodes; they are restarted.
        chosen: the config, with a pretraining.
        look: called after each update with the number of decisions so far and with the state to resume from, if there is one.
        begun: the state of a `ValueLearning` that is resumed; network and environment are restored already.

    Raises:
        PolicyError: the baseline to imitate is unknown or not among the scenario's.
    """
    if isinstance(chosen.pretraining, ValuePretraining):
        learning = ValueLearning(network, env, chosen.pretraining, chosen.ppo.discount, chosen.seed)
        if begun is not None:
            learning.restore(begun)
        learning.run(lambda steps: look(steps, learning))
    elif isinstance(chosen.pretraining, RulePretraining):
        env.set_value_network(network)
        clone(network, env, chosen.pretraining, chosen.seed, lambda steps: look(steps, None))


def finish_pretraining(network: CandidateNetwork, env: JobPartitioningVecEnv, chosen: TrainSettings) -> None:
    """Set the temperature of PPO's first policy and the scale of its rewards, and put values into the observations."""
    env.set_value_network(network)
    if isinstance(chosen.pretraining, ValuePretraining):
        env.reward_scale = chosen.pretraining.reward_scale
        with torch.no_grad():
            network.log_sharpness.sub_(math.log(chosen.pretraining.temperature))
            if network.settings.prior:
                network.prior_sharpness.div_(chosen.pretraining.temperature)
            network.value_scale.fill_(chosen.pretraining.reward_scale)
