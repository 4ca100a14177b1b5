"""Episodes of `JobPartitioning-v0` as `evaluation.playing` plays them, with clairvoyant references.

References are results with all arrivals of an episode known in advance; no policies, no baselines. ``linear-programme`` is a
bound that no policy can pass (see `planners.bounds.linear_program`). ``clairvoyant-beam``, with a width as in
``clairvoyant-beam-256`` or without, is the result of a search with real placements (see `planners.bounds.beam_search`). Their
rows carry the kind ``reference`` and enter no verdict.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ...envs.job_partitioning import play_episode
from ...errors import PolicyError
from ...models.policy_files import SHIPPED
from ...planners.bounds import known_episode
from ...planners.bounds.beam_search import WIDTH, decide, replay
from ...planning.policies import base_of, is_rollout, network_of, policy, trained_file
from ...simulation.cluster.records import EpisodeRecord
from ...simulation.cluster.scenario import Scenario
from ..playing import PlayedEpisodes
from ..workers import CarriedPolicies

LINEAR_PROGRAMME, BEAM = "linear-programme", "clairvoyant-beam"
NAMES = (LINEAR_PROGRAMME, BEAM)
MAX_WIDTH = 65_536
# What a beam keeps: states times blocks. Above this it takes gigabytes.
MAX_CELLS = 2**28


Plays = Callable[[Scenario, int, list[float]], EpisodeRecord]
"""Plays the episode of a seed, and adds the seconds that each decision took; a beam search decides all at once and has none."""


def is_beam(spec: str) -> bool:
    """Return whether a spelling is a beam search."""
    return re.fullmatch(rf"{BEAM}(-[0-9]{{1,6}})?", spec) is not None


def is_reference(spec: str) -> bool:
    """Return whether a spelling is a reference."""
    return spec == LINEAR_PROGRAMME or spec.startswith(BEAM)


def check(spec: str, scenario: Scenario) -> None:
    """Refuse what is no reference, or none for this scenario.

    Raises:
        PolicyError: unknown, too wide, or jobs wait or are interrupted.
    """
    if spec != LINEAR_PROGRAMME and not is_beam(spec):
        raise PolicyError("no such reference", field="POLICY", value=spec, choices=NAMES)
    if is_beam(spec) and not 1 <= _width(spec) <= MAX_WIDTH:
        raise PolicyError(f"a width is 1 to {MAX_WIDTH}", field="POLICY", value=spec)
    if is_beam(spec) and _width(spec) * scenario.space.num_blocks > MAX_CELLS:
        most = MAX_CELLS // scenario.space.num_blocks
        problem = f"the cluster has {scenario.space.num_blocks:,} blocks, so a width is at most {most:,}"
        raise PolicyError(problem, field="POLICY", value=spec)
    known_episode.check(scenario)


def _width(spec: str) -> int:
    return int(spec.removeprefix(BEAM).lstrip("-") or WIDTH)


def policy_carried(spec: str) -> tuple[str, Path] | None:
    """Return the part of a spelling that names the file of a trained policy, and that file; None for others and shipped ones."""
    if is_beam(spec):
        return None
    named = network_of(base_of(spec) if is_rollout(spec) else spec)
    file = None if named.startswith(SHIPPED) else trained_file(named)
    return None if file is None else (named, file)


def carried(specs: Sequence[str], scenario: Scenario) -> CarriedPolicies[Plays]:
    """Return the policies and beam searches by their spelling, each as something that plays an episode."""
    return CarriedPolicies(partial(_made, scenario), policy_carried, specs)


def play_episodes(scenario: Scenario, plays: Plays, seeds: Sequence[int]) -> PlayedEpisodes:
    """Return the records of some episodes and how long each decision took."""
    seconds: list[float] = []
    return PlayedEpisodes([plays(scenario, seed, seconds) for seed in seeds], seconds)


def _made(scenario: Scenario, spec: str) -> Plays:
    if not is_beam(spec):
        return partial(play_episode, policy(spec, scenario))

    def play(scenario: Scenario, seed: int, seconds: list[float]) -> EpisodeRecord:
        episode = known_episode.draw(scenario, seed)
        return replay(episode, decide(episode, _width(spec)).block)

    return play
