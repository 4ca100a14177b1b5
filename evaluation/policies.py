"""From the spelling of a policy to a policy that acts in a scenario.

``shipped:NAME`` is a trained policy that comes with the package; a bare name is a baseline (see `planners.rules`,
and ``best-fixed``, which `evaluation.evaluate` turns into the fixed degree that does best on validation episodes);
anything else is the path of a run folder or of its ``policy.pt``.
"""

from __future__ import annotations

import re
from importlib.resources import files as resources
from pathlib import Path

from ..errors import PolicyError
from ..planners.policy import Policy
from ..planners.rules import NAMES, rule_of_thumb
from ..simulation.scenario import Scenario

BEST_FIXED = "best-fixed"


def is_baseline(spec: str) -> bool:
    """Whether a spelling is a baseline's bare name."""
    bare = spec.partition("@")[0]
    return bare in (*NAMES, BEST_FIXED) or re.fullmatch(r"fixed-[0-9]+", bare) is not None


def policy_file(spec: str) -> Path:
    """The file of a trained policy.

    Raises:
        PolicyError: no shipped policy, file or run folder of that name; the nearest valid spelling is named.
    """
    if spec.startswith("shipped:"):
        name = spec.removeprefix("shipped:")
        if name not in shipped_names():
            raise PolicyError("no such shipped policy", value=name, choices=shipped_names())
        return _shipped() / f"{name}.pt"
    path = Path(spec)
    if path.is_dir():
        if not (path / "policy.pt").is_file():
            raise PolicyError("the run folder holds no policy.pt (was anything trained yet?)", file=path)
        return path / "policy.pt"
    if path.is_file():
        return path
    choices = [*NAMES, BEST_FIXED, *(f"shipped:{name}" for name in shipped_names())]
    raise PolicyError("no such policy, run folder or file", value=spec, choices=choices)


def shipped_names() -> list[str]:
    """The trained policies that come with the package."""
    return sorted(p.name.removesuffix(".pt") for p in _shipped().iterdir() if p.name.endswith(".pt"))


def display_name(spec: str) -> str:
    """How a policy is called in tables."""
    if is_baseline(spec) or spec.startswith("shipped:"):
        return spec
    path = Path(spec)
    return path.parent.name if path.name == "policy.pt" and path.parent.name else path.stem


def policy(spec: str, scenario: Scenario) -> Policy:
    """A policy ready to act.

    Raises:
        PolicyError: unknown, or its placement rule or degree is not among the scenario's.
        CheckpointError: the file is truncated or no policy.
    """
    if is_baseline(spec):
        return rule_of_thumb(spec, degrees=scenario.space.degrees, placements=scenario.settings.placement_rules)
    path = policy_file(spec)
    import torch

    from ..models.saved import NetworkPolicy, SavedNetwork

    torch.set_num_threads(1)
    return NetworkPolicy(display_name(spec), SavedNetwork.load(path), scenario)


def fixed_names(scenario: Scenario, placement: str) -> list[str]:
    """Every fixed degree of a scenario, with a placement rule (empty: the default)."""
    return [f"fixed-{degree}{placement}" for degree in scenario.space.degrees]


def _shipped() -> Path:
    return Path(str(resources("meshwright.models"))) / "shipped"
