"""A fleet's network on disk, and as a policy that plays many episodes at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ... import files
from ...envs.fleet.batch import FleetBatch
from ...envs.fleet.features import CANDIDATE, CONTEXT, ENTRY, HOST, OFFER, RUNNING, TRUNK
from ...envs.fleet.fleet import Fleet
from ...errors import CheckpointError
from ..policy_files import with_weights
from ..saved_policy import READS, SavedPolicy, policy_file
from ..settings import FleetNetworkSettings
from ..tensor_file import load_tensors
from .linear_head import direct_weights
from .network import FleetActor

KIND = "fleet"
FORMAT_VERSION = 1
TIE = 1e-5
"""Scores that differ by less are equal: hosts that look the same differ by rounding."""
FEATURES = files.digest([HOST, TRUNK, RUNNING, OFFER, CONTEXT, ENTRY, CANDIDATE])


class SavedFleetNetwork(SavedPolicy):
    """A fleet's network as it lies on disk; ``trained`` also has its candidate features and `Fleet.conditions`."""

    head: ClassVar = {"format_version": FORMAT_VERSION, "kind": KIND, READS: FEATURES}
    refused = f"is no policy of a fleet of version {FORMAT_VERSION}"
    widths = FleetNetworkSettings

    def linear_scores(self, file: str | Path = "policy") -> NDArray[np.float64]:
        """Return the weights of its linear scores, ``(x,)`` (see `planners.fleet.linear_scores`).

        Raises:
            CheckpointError: it has none.
        """
        if "linear.direct" not in self.weights:
            raise CheckpointError("has no linear scores: it was trained without network.linear", file=file)
        return direct_weights(self.weights["linear.direct"])

    def price_weights(self, file: str | Path = "policy") -> NDArray[np.float64]:
        """Return the weights by which its prices are linear, ``(3, x)`` (see `planners.fleet.linear_prices`).

        Raises:
            CheckpointError: it has none.
        """
        if "prices.direct.weight" not in self.weights:
            raise CheckpointError("has no prices: it was trained without network.prices", file=file)
        return direct_weights(self.weights["prices.direct.weight"])

    def network(self, fleet: Fleet, file: str | Path = "policy") -> FleetActor:
        """Return the network, ready to play a fleet.

        Raises:
            CheckpointError: weights of other shapes than the settings make, or other candidate features than the fleet's.
        """
        target = self.trained.get("candidate_features")
        if target is not None and target != fleet.settings.candidate_features:
            problem = "was trained with other candidate features; say --set fleet.candidate_features=" + str(target)
            raise CheckpointError(problem, file=file, value=fleet.settings.candidate_features)
        result = FleetActor(self.settings, fleet, refuses=any(name.startswith("refusal_score.") for name in self.weights))
        own = self.weights.get("of_candidate.weight")
        if own is not None and own.shape[1] != result.of_candidate.in_features:
            problem = "was trained on other figures of a menu, which has entries with names or has none, or by an earlier version"
            raise CheckpointError(problem, file=file, field="fleet.menu.entries")
        return with_weights(result, self.weights, file)


def is_of_fleet(path: str | Path) -> bool:
    """Return whether a file, or the ``policy.pt`` of a run folder, holds a policy of a fleet.

    Raises:
        CheckpointError: it is damaged.
    """
    file = policy_file(path)
    if not file.is_file():
        return False
    data = load_tensors(file)
    return isinstance(data, dict) and data.get("kind") == KIND


def load_fleet_policy(path: str | Path, fleet: Fleet) -> Callable[[FleetBatch], NDArray[np.int64]]:
    """Return a saved network as a function from a batch to the action of each of its episodes.

    Raises:
        CheckpointError: as `SavedFleetNetwork.load` and `network` say.
    """
    return player(SavedFleetNetwork.load(path).network(fleet, path))


def player(network: FleetActor) -> Callable[[FleetBatch], NDArray[np.int64]]:
    """Return a function from a batch to the network's best action in each episode; 0 for an episode that is over.

    Of hosts with equal scores one is drawn, from the state of the episode alone. Their numbers would show where they are, and no
    network reads these. Of other actions with equal scores the first is taken, as compiled rules do.
    """

    device = next(network.parameters()).device

    def best(batch: FleetBatch) -> NDArray[np.int64]:
        with torch.no_grad():
            scores, _ = network(
                {name: torch.as_tensor(seen, device=device) for name, seen in batch.observations._asdict().items()}
            )
        is_best = (scores >= scores.max(dim=1, keepdim=True).values - TIE).cpu().numpy()
        drawn = np.where(is_best, _drawn(batch, is_best.shape[1]), -1.0).argmax(axis=1)
        actions = np.where(batch.state.building >= 0, drawn, is_best.argmax(axis=1))
        return np.where(batch.state.is_over, 0, actions)

    return best


def _drawn(batch: FleetBatch, num_actions: int) -> NDArray[np.float64]:
    """Return the numbers from 0 to 1 that look random, the same for the same state of an episode, ``(e, a)``.

    Source:
        Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014 (the mixing function).
    """
    state = batch.state
    key = state.now_s.view(np.uint64) ^ (state.arrival_s[:, -1].view(np.uint64) << np.uint64(1))
    key = key + state.num_built.astype(np.uint64) * np.uint64(0xD1342543DE82EF95)
    mixed = key[:, None] + np.arange(1, num_actions + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    result: NDArray[np.float64] = (mixed ^ (mixed >> np.uint64(31))) / 2.0**64
    return result
