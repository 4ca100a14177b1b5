"""What happens before PPO: a linear scorer is tuned, the worth of states is learned, or a baseline is imitated."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from ..models.network import CandidateNetwork
from ..planners.linear_trial import LinearTrial
from ..simulation.scenario import Scenario
from .cloning import clone, teacher
from .linear_search import LinearSearch
from .pretraining_settings import MIXTURES, RulePretraining, ValuePretraining
from .settings import TrainSettings
from .temporal_difference import pretrain_values
from .vec_env import JobPartitioningVecEnv


def check_pretraining(chosen: TrainSettings, scenarios: Sequence[Scenario]) -> None:
    """Refuse a baseline that cannot be imitated, before anything is written.

    Raises:
        PolicyError: it is unknown or not among a scenario's.
    """
    if isinstance(chosen.pretraining, RulePretraining):
        for scenario in scenarios:
            teacher(chosen.pretraining.rule, scenario)


def tune_prior(env: JobPartitioningVecEnv, chosen: TrainSettings, after: Callable[[LinearSearch], None]) -> None:
    """Let observations hold the scores of a linear scorer that is tuned as a config says; nothing where it asks for none.

    Args:
        env: of one scenario.
        chosen: the config.
        after: called with the search after every generation.
    """
    pretraining = chosen.pretraining
    if isinstance(pretraining, ValuePretraining) and pretraining.linear is not None:
        trial = LinearTrial.only(env.scenario, [rule for rule in env.scenario.settings.placement_rules if rule != "published"])
        search = LinearSearch(pretraining.linear, trial, chosen.seed)
        search.run(lambda: after(search))
        env.show_prior(search.weights({"config": chosen.name, "benchmark": chosen.benchmark}))


def mix(network: CandidateNetwork, env: JobPartitioningVecEnv, look: Callable[[], None]) -> None:
    """Try mixtures of worth and the linear scorer's scores; nothing where there is no such scorer.

    Args:
        network: with its worth learned; left with the last mixture.
        env: with its linear scorer.
        look: called with each mixture in the network.
    """
    if env.prior is None:
        return
    for worth, prior in MIXTURES:
        with torch.no_grad():
            network.log_sharpness.fill_(math.log(worth))
            network.prior_sharpness.fill_(prior)
        look()


def pretrain(network: CandidateNetwork, env: JobPartitioningVecEnv, chosen: TrainSettings, look: Callable[[int], None]) -> None:
    """Prepare a network as a config says.

    Args:
        network: as it was made.
        env: the episodes; they begin anew.
        chosen: the config, with a pretraining.
        look: called with the number of decisions so far, after each update.

    Raises:
        PolicyError: the baseline that is to be imitated is unknown or not among the scenario's.
    """
    if isinstance(chosen.pretraining, ValuePretraining):
        pretrain_values(network, env, chosen.pretraining, chosen.ppo.discount, chosen.seed, look)
    elif isinstance(chosen.pretraining, RulePretraining):
        env.show_worth_by(network)
        clone(network, env, chosen.pretraining, chosen.seed, look)


def finish_pretraining(network: CandidateNetwork, env: JobPartitioningVecEnv, chosen: TrainSettings) -> None:
    """Set how sharply PPO's first policy prefers what is worth more, and in which unit PPO is paid; show it worth."""
    env.show_worth_by(network)
    if isinstance(chosen.pretraining, ValuePretraining):
        env.reward_scale = chosen.pretraining.reward_scale
        with torch.no_grad():
            network.log_sharpness.sub_(math.log(chosen.pretraining.temperature))
            if network.settings.prior:
                network.prior_sharpness.div_(chosen.pretraining.temperature)
            network.value_scale.fill_(chosen.pretraining.reward_scale)
