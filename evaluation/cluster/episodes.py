"""Episodes of `JobPartitioning-v0`, as `evaluation.playing` plays them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ...envs.playing import play_episode
from ...models.policy_files import SHIPPED
from ...planning.policies import base_of, is_rollout, network_of, policy, trained_file
from ...simulation.cluster.records import EpisodeRecord
from ...simulation.cluster.scenario import Scenario
from ..playing import PlayedEpisodes
from ..workers import CarriedPolicies
from .bounds import beam_record, is_beam

Plays = Callable[[Scenario, int, list[float]], EpisodeRecord]
"""Plays the episode of a seed, and adds the seconds that each decision took; a beam search decides all at once and has none."""


def policy_carried(spec: str) -> tuple[str, Path] | None:
    """The part of a spelling that names the file of a trained policy, and that file; None for others and shipped ones."""
    if is_beam(spec):
        return None
    named = network_of(base_of(spec) if is_rollout(spec) else spec)
    file = None if named.startswith(SHIPPED) else trained_file(named)
    return None if file is None else (named, file)


def carried(specs: Sequence[str], scenario: Scenario) -> CarriedPolicies[Plays]:
    """Policies and beam searches by their spelling, each as something that plays an episode."""
    return CarriedPolicies(partial(_made, scenario), policy_carried, specs)


def play_episodes(scenario: Scenario, plays: Plays, seeds: Sequence[int]) -> PlayedEpisodes:
    """The records of some episodes and how long each decision took."""
    seconds: list[float] = []
    return PlayedEpisodes([plays(scenario, seed, seconds) for seed in seeds], seconds)


def _made(scenario: Scenario, spec: str) -> Plays:
    if is_beam(spec):
        return lambda scenario, seed, seconds: beam_record(spec, scenario, seed)
    return partial(play_episode, policy(spec, scenario))
