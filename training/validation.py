"""How many jobs a network blocks in the validation episodes, which are played side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ..envs.batch import EpisodeBatch
from ..jobs.seeds import validation_seeds
from ..models.linear_prior import KEY as PRIOR
from ..models.linear_prior import LinearPrior
from ..models.network import CandidateNetwork
from ..planners.linear import LinearWeights
from ..simulation.cluster.scenario import Scenario


def blocking_rate(
    network: CandidateNetwork, scenarios: Scenario | Sequence[Scenario], num_seeds: int, prior: LinearWeights | None = None
) -> float:
    """Return the mean share of counted jobs turned away, with best-scored candidates taken, seeds from 100 on.

    Of several scenarios, the mean over all of them, with the same network. ``prior`` is the linear scorer of a network that has
    one.
    """
    several = [scenarios] if isinstance(scenarios, Scenario) else scenarios
    return float(np.mean([_blocking_rate(network, scenario, num_seeds, prior) for scenario in several]))


def _blocking_rate(network: CandidateNetwork, scenario: Scenario, num_seeds: int, prior: LinearWeights | None) -> float:
    batch = EpisodeBatch(scenario, num_seeds)
    for e, seed in enumerate(validation_seeds(num_seeds)):
        batch.reset(e, np.random.default_rng(seed))
    device = next(network.parameters()).device
    scorer = None if prior is None else LinearPrior(prior, scenario)
    while not batch.is_over.all():
        seen = network.observed(batch.observations)
        if scorer is not None:
            seen = {**seen, PRIOR: scorer.of_episodes(batch.episodes)}
        observation = {key: torch.as_tensor(value, device=device) for key, value in seen.items()}
        with torch.no_grad():
            scores = network(observation)[0]
        batch.step(scores.argmax(dim=1).cpu().numpy(), ~batch.is_over)
    return float(np.mean([batch.record(e).blocking_rate(scenario.settings.counted) for e in range(num_seeds)]))
