"""Schedulers of elastic jobs by their spelling.

A bare name is one of `BASELINES`; ``shipped:NAME`` comes with the package; ``python:MODULE:NAME`` is a user's own; anything else
is the path of a run folder or of its ``policy.json`` (see `planners.elastic.saved_shares`).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ... import inputs
from ...envs.elastic.observation import Spans
from ...envs.elastic.round import ElasticRound
from ...errors import PolicyError
from ...models.policy_files import SHIPPED
from ...planners.elastic.goodput_shares import GoodputShares
from ...planners.elastic.known_curves import known_curves, rank_choices
from ...planners.elastic.saved_shares import SHARE_RULES, SavedShares
from ...planners.elastic.scheduler import PUBLISHED, ElasticScheduler
from ...planners.own_policy import OWN, own_policy, possible_choice
from ...planners.policy import Policy
from ...planning.policies import display_name, policy_file
from ...simulation.elastic.simulation import ElasticSimulation
from ...simulation.elastic.state import BatchRule

BASELINES = (*PUBLISHED, "pollux", *SHARE_RULES)


def policy_kind(spec: str) -> str:
    """What a policy counts as: ``baseline``, ``learned`` or a user's ``own``."""
    return "baseline" if spec in BASELINES else "own" if spec.startswith(OWN) else "learned"


def policy_name(spec: str) -> str:
    """A policy in tables."""
    return spec if spec in BASELINES else display_name(spec)


def elastic_scheduler(spec: str) -> ElasticScheduler:
    """The scheduler of a policy's name; shares without saved weights have weights set by hand.

    Raises:
        PolicyError: there is none of this name.
        CheckpointError: the file is damaged or holds another kind of policy.
        InputFileError: the file is an output of the command.
    """
    if spec in PUBLISHED:
        return PUBLISHED[spec]()
    if spec in SHARE_RULES:
        rule = SHARE_RULES[spec]
        return rule.scheduler(rule.by_hand)
    if spec in BASELINES:
        return GoodputShares()
    if spec.startswith(OWN):
        return OwnShares(spec)
    file = policy_file(spec, BASELINES)
    if file.suffix != ".json":
        raise PolicyError("is no policy of elastic jobs; such a one is a run folder or its policy.json", file=file)
    inputs.note(file)
    return SavedShares.load(file).scheduler()


def trained_file(spec: str) -> Path | None:
    """Return the file of a trained policy; None for others."""
    return None if spec in BASELINES or spec.startswith(OWN) else policy_file(spec, BASELINES)


def carried_file(spec: str) -> tuple[str, Path] | None:
    """The part of a spelling that names the file of a trained policy, and that file; None for others and shipped ones."""
    return None if spec in BASELINES or spec.startswith((SHIPPED, OWN)) else (spec, policy_file(spec, BASELINES))


class OwnShares:
    """A user's policy as a scheduler: each episode has one of its own, and each round asks it for one job after another.

    Args:
        spec: its spelling.
    """

    batch_rule = BatchRule.KNOWN

    def __init__(self, spec: str) -> None:
        self._make = own_policy(spec)
        self._players: list[tuple[Policy, Spans]] = []

    def begin(self, simulation: ElasticSimulation) -> None:
        """See `ElasticScheduler`; the seed of an episode is its number."""
        self._num_ranks, curves = rank_choices(simulation.cluster.num_devices), known_curves(simulation)
        count = len(simulation.workloads)
        self._players = [(self._make(simulation), Spans(simulation, self._num_ranks, curves, e)) for e in range(count)]
        for e, (policy, _) in enumerate(self._players):
            policy.reset(e)

    def allocate(self, simulation: ElasticSimulation) -> NDArray[np.int16]:
        """See `ElasticScheduler`."""
        node_of_rank = simulation.jobs.node_of_rank.copy()
        num_jobs = simulation.is_job.shape[1]
        for e, (policy, spans) in enumerate(self._players):
            now = ElasticRound(simulation, e, self._num_ranks, spans)
            while not now.is_decided:
                now.take(possible_choice(policy, now.decision(), partial(now.observation, now.mask(), num_jobs)))
            now.give(node_of_rank)
        return node_of_rank
