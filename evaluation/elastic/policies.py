"""Schedulers of elastic jobs by their spelling.

A bare name is one of `BASELINES`; ``shipped:NAME`` comes with the package; anything else is the path of a run folder or of its
``policy.json`` (see `planners.elastic.saved_shares`).
"""

from __future__ import annotations

from pathlib import Path

from ... import inputs
from ...errors import PolicyError
from ...models.policy_files import SHIPPED
from ...planners.elastic.goodput_shares import GoodputShares
from ...planners.elastic.saved_shares import SHARE_RULES, SavedShares
from ...planners.elastic.scheduler import PUBLISHED, ElasticScheduler
from ...planning.policies import display_name, policy_file

BASELINES = (*PUBLISHED, "pollux", *SHARE_RULES)


def policy_kind(spec: str) -> str:
    """What a policy counts as: ``baseline`` or ``learned``."""
    return "baseline" if spec in BASELINES else "learned"


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
    file = policy_file(spec, BASELINES)
    if file.suffix != ".json":
        raise PolicyError("is no policy of elastic jobs; such a one is a run folder or its policy.json", file=file)
    inputs.note(file)
    return SavedShares.load(file).scheduler()


def trained_file(spec: str) -> Path | None:
    """Return the file of a trained policy; None for others."""
    return None if spec in BASELINES else policy_file(spec, BASELINES)


def carried_file(spec: str) -> tuple[str, Path] | None:
    """The part of a spelling that names the file of a trained policy, and that file; None for others and shipped ones."""
    return None if spec in BASELINES or spec.startswith(SHIPPED) else (spec, policy_file(spec, BASELINES))
