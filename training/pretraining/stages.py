"""What happens before PPO: the worth of states is learned, and a linear scorer added to it, or a baseline is imitated."""

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
    """Tune the linear scorer that is added to worth and let network and observations have it; nothing where there is none.

    Args:
        network: its worth learned.
        env: of one scenario.
        rewards: what its decisions pay.
        chosen: the config.
        after: called with the search after every generation.
        begun: the state of a search that goes on.
    """
    pretraining = chosen.pretraining
    if not isinstance(pretraining, ValuePretraining) or pretraining.linear is None:
        return
    search = LinearSearch(pretraining.linear, CorrectedTrial(network, env.scenario, rewards), chosen.seed, start={})
    if begun is not None:
        search.restore(begun)
    search.run(lambda: after(search))
    env.show_prior(search.weights({"config": chosen.name, "benchmark": chosen.benchmark}))
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
        network: as it was made.
        env: the episodes; they begin anew.
        chosen: the config, with a pretraining.
        look: called after each update with the number of decisions so far and with what can be gone on with, if it can.
        begun: the state of a `ValueLearning` that goes on; network and environment are put back already.

    Raises:
        PolicyError: the baseline that is to be imitated is unknown or not among the scenario's.
    """
    if isinstance(chosen.pretraining, ValuePretraining):
        learning = ValueLearning(network, env, chosen.pretraining, chosen.ppo.discount, chosen.seed)
        if begun is not None:
            learning.restore(begun)
        learning.run(lambda steps: look(steps, learning))
    elif isinstance(chosen.pretraining, RulePretraining):
        env.show_worth_by(network)
        clone(network, env, chosen.pretraining, chosen.seed, lambda steps: look(steps, None))


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
