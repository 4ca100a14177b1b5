"""Policies by their spelling, each as a policy that acts in a scenario.

- ``shipped:NAME``: a trained policy that comes with the package.
- a bare name: a baseline of `planners.rules`, or ``best-fixed``, the fixed degree that does best on validation episodes.
- ``rollout(BASE)``: a rollout planner over a base policy (see `planners.rollout`). The base is a fixed degree or a ladder,
  ``max``, ``min``, ``best-fixed`` or a linear scorer; ``rollout`` alone is ``rollout(best-fixed@best-fit)``.
- ``without-graph(NETWORK)``: a trained network to which all job graphs look the same.
- ``scores:POLICY``: the linear scores of a network that began with a search, alone.
- ``network:RUN``: the network of a run also where a rule was better (see `models.policy_files.decided`).
- ``python:MODULE:NAME``: the user's own, a callable that takes the scenario and returns a `planners.policy.Policy`.
- anything else: the path of a run folder, of its ``policy.pt``, or of the ``policy.json`` of a linear scorer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from .. import inputs
from ..envs import training_conditions
from ..envs.training_conditions import TrainingConditions
from ..errors import Names, PolicyError
from ..models.policy_files import NETWORK, POLICY_FILES, SHIPPED, shipped_folder, shipped_with
from ..planners.fleet.rules import BASES
from ..planners.linear import LinearScorer, LinearWeights
from ..planners.own_policy import OWN, own_policy
from ..planners.policy import Policy
from ..planners.policy_names import parsed
from ..planners.rollout import Ladder, Rollout
from ..planners.rules import DEFAULT_PLACEMENT, DEGREES, NAMES, rule_of_thumb
from ..simulation.cluster.scenario import Scenario

BEST_FIXED = "best-fixed"
ROLLOUT = "rollout"
WITHOUT_GRAPH = "without-graph"
SCORES = "scores:"
MENU_RULE = "menu:"
"""Begins a rule of fleets on the menu of one job alone, as ``menu:fastest-feasible``."""

OF_FLEET = ".fleet.pt"
OF_PLACEMENT = (".operators.pt", ".tasklets.pt")
OF_ONE_JOB = "decides on one job at a time, which fleet benchmarks do not support; use a rule (for example sjf) or a run folder"


def is_baseline(spec: str) -> bool:
    """Return whether a spelling is a baseline's bare name."""
    bare = parsed(spec).whole
    return bare in (*NAMES, BEST_FIXED) or re.fullmatch(DEGREES, bare) is not None


def is_untrained(spec: str) -> bool:
    """Return whether a spelling is a rule's, or a rollout planner's over one, without anything that was trained or tuned."""
    return is_baseline(base_of(spec) if is_rollout(spec) else spec) and not is_best_fixed(spec)


def is_rollout(spec: str) -> bool:
    """Return whether a spelling is a rollout planner's."""
    return spec == ROLLOUT or re.fullmatch(rf"{ROLLOUT}\(.+\)", spec) is not None


def base_of(spec: str) -> str:
    """Return the spelling of a rollout planner's base policy."""
    return spec[len(ROLLOUT) + 1 : -1] or f"{BEST_FIXED}@best-fit"


def is_blind(spec: str) -> bool:
    """Return whether a name is that of a network to which all job graphs look the same."""
    return re.fullmatch(rf"{WITHOUT_GRAPH}\(.+\)", spec) is not None


def network_of(spec: str) -> str:
    """Return the spelling of the network that such a policy is; any other spelling as it is."""
    return spec[len(WITHOUT_GRAPH) + 1 : -1] if is_blind(spec) else spec.removeprefix(SCORES).removeprefix(NETWORK)


def is_best_fixed(spec: str) -> bool:
    """Return whether a spelling is ``best-fixed``, with a placement rule or without, or a rollout planner over it."""
    named = base_of(spec) if is_rollout(spec) else spec
    return parsed(named).whole == BEST_FIXED


def each_fixed(spec: str, scenario: Scenario) -> dict[str, str]:
    """Return the fixed degrees among which a ``best-fixed`` chooses, and the name of the policy if that one is best."""
    named = base_of(spec) if is_rollout(spec) else spec
    names = fixed_names(scenario, named.removeprefix(BEST_FIXED))
    return {name: f"{ROLLOUT}({name})" if is_rollout(spec) else name for name in names}


def check_best_fixed(spec: str, scenario: Scenario) -> None:
    """Refuse a ``best-fixed`` whose placement rule is not among the scenario's, or that does not fit it as a base.

    Raises:
        PolicyError: so it is; the nearest placement rule is named.
    """
    try:
        policy(next(iter(each_fixed(spec, scenario).values())), scenario)
    except PolicyError as error:
        raise PolicyError(error.problem, field=spec, value=error.value, choices=error.choices) from None


def kind(spec: str) -> str:
    """Return the kind of a policy in a comparison: ``baseline``, ``learned``, a user's ``own`` or ``planner``.

    Verdicts compare what is learned or a user's own with the baselines.

    Raises:
        PolicyError: no shipped policy, file or run folder of that name.
    """
    if is_rollout(spec):
        return "planner"
    if spec.startswith(OWN):
        return "own"
    if is_baseline(spec):
        return "baseline"
    trained_file(spec)
    return "learned"


def policy_file(spec: str, baselines: Sequence[str] = (*NAMES, BEST_FIXED)) -> Path:
    """Return the file of a trained policy; ``baselines`` are the other valid spellings, for the advice in an error.

    Raises:
        PolicyError: no shipped policy, file or run folder of that name; the nearest valid spelling is named.
    """
    if spec.startswith(SHIPPED):
        name = spec.removeprefix(SHIPPED)
        if name in shipped_fleet_names():
            raise PolicyError(f"is of fleets, as preset:{name}, which decide on a queue of jobs", value=spec)
        if name not in shipped_names():
            raise PolicyError("no such shipped policy", value=name, choices=shipped_names())
        return next(path for path in (shipped_folder() / f"{name}.pt", shipped_folder() / f"{name}.json") if path.is_file())
    path = Path(spec)
    if path.is_dir():
        held = [path / name for name in POLICY_FILES if (path / name).is_file()]
        if not held:
            raise PolicyError("the run folder holds no policy.pt (was anything trained yet?)", file=path)
        return held[0]
    if path.suffix in (".yaml", ".yml") and path.is_file():
        problem = "is YAML; a policy is a run folder, its policy.pt or policy.json, and a benchmark goes with --benchmark"
        raise PolicyError(problem, file=path)
    if path.is_file():
        return path
    if "," in spec:
        raise PolicyError("names one policy; separate several by blanks", value=spec)
    if re.split("[:+@]", spec)[0] in BASES:
        raise PolicyError("is a rule of fleets, as preset:llm-256, which decide on a queue of jobs", value=spec)
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", spec):
        raise PolicyError(f"a policy of your own is spelled {OWN}MODULE:NAME", value=spec, choices=[OWN + spec])
    degree = re.fullmatch(r"fixed[ _-]?([0-9]{1,9})", spec)
    names = [*baselines, *(SHIPPED + name for name in shipped_names()), *([f"fixed-{degree[1]}"] if degree else [])]
    choices = Names("policies", names)
    raise PolicyError("no such policy, run folder or file", value=spec, choices=choices)


def note_files(specs: Sequence[str]) -> None:
    """Note the files of policies as inputs of the command (see `inputs`), long before they are read.

    Raises:
        InputFileError: one of them is an output.
    """
    for spec in specs:
        with suppress(PolicyError):  # whoever reads it tells it better
            file = trained_file(base_of(spec) if is_rollout(spec) else spec)
            if file is not None:
                inputs.note(file)


def trained_file(spec: str, baselines: Sequence[str] = (*NAMES, BEST_FIXED)) -> Path | None:
    """Return the file of a network or linear scorer, whose spelling a policy is; None for any other policy.

    Arguments and errors are those of `policy_file`.
    """
    named = network_of(spec)
    if is_baseline(named) or is_rollout(named) or named.startswith(OWN):
        return None
    return policy_file(named, baselines)


def shipped_names() -> list[str]:
    """Return the trained policies for benchmarks without a fleet that come with the package."""
    held = (path for path in shipped_folder().iterdir() if path.suffix in (".pt", ".json"))
    return Names("policies", sorted(path.stem for path in held if not path.name.endswith((OF_FLEET, *OF_PLACEMENT))))


def shipped_fleet_names() -> list[str]:
    """Return the trained policies of fleets that come with the package."""
    return shipped_with(OF_FLEET)


def fleet_policy_file(spec: str) -> Path:
    """Return the run folder or file of a fleet's trained policy, which need not exist; ``shipped:NAME`` is built in.

    Raises:
        PolicyError: no such shipped policy of a fleet.
    """
    if not spec.startswith(SHIPPED):
        return Path(spec)
    name = spec.removeprefix(SHIPPED)
    if name in shipped_names():
        raise PolicyError(OF_ONE_JOB, value=spec)
    if name not in shipped_fleet_names():
        choices = [SHIPPED + one for one in shipped_fleet_names()]
        raise PolicyError("no such shipped policy of a fleet", value=spec, choices=choices)
    return shipped_folder() / (name + OF_FLEET)


def is_by_menu(policy: str) -> bool:
    """Return whether a policy picks from a menu of layouts.

    Raises:
        CheckpointError, PolicyError: its file is damaged; no shipped policy of that name, of either kind.
    """
    policy = policy.removeprefix(NETWORK)
    if policy.startswith(MENU_RULE):
        return True
    if policy.startswith(SHIPPED):
        name, of_menus, others = policy.removeprefix(SHIPPED), shipped_fleet_names(), shipped_names()
        if name not in (*of_menus, *others):
            raise PolicyError("no such shipped policy", value=name, choices=[*of_menus, *others])
        return name in of_menus
    if not Path(policy).is_dir() and Path(policy).suffix != ".pt":
        return False
    from ..models.fleet.saved import is_of_fleet

    return is_of_fleet(policy)


def display_name(spec: str) -> str:
    """Return how a policy is called in tables."""
    if is_rollout(spec) and not is_baseline(base_of(spec)):
        return f"{ROLLOUT}({display_name(base_of(spec))})"
    if is_blind(spec):
        return f"{WITHOUT_GRAPH}({display_name(network_of(spec))})"
    if spec.startswith(SCORES):
        return SCORES + display_name(spec.removeprefix(SCORES))
    if is_baseline(spec) or is_rollout(spec) or spec.startswith(SHIPPED):
        return spec
    if spec.startswith(OWN):
        return spec.rpartition(":")[2]
    path = Path(spec)
    return path.parent.name if path.name in POLICY_FILES and path.parent.name else path.stem


def policy(spec: str, scenario: Scenario) -> Policy:
    """Return a policy ready to act.

    Raises:
        PolicyError: unknown, or its placement rule or degree is not among the scenario's.
        CheckpointError: the file is truncated or no policy.
    """
    if is_best_fixed(spec):
        check_best_fixed(spec, scenario)
        raise PolicyError("is chosen on the validation episodes of an evaluation; name a degree, as in fixed-4", value=spec)
    if is_baseline(spec):
        return rule_of_thumb(spec, degrees=scenario.space.degrees, placements=scenario.settings.placement_rules)
    if is_rollout(spec):
        return Rollout(display_name(spec), scenario, _base(base_of(spec), scenario))
    if spec.startswith(OWN):
        return own_policy(spec)(scenario)
    path = trained_file(spec, [*NAMES, BEST_FIXED, ROLLOUT, *fixed_names(scenario, "")])
    if path is None or (path.suffix == ".json" and is_blind(spec)):
        field = WITHOUT_GRAPH if is_blind(spec) else SCORES.rstrip(":")
        raise PolicyError("goes with a trained network alone", field=field, value=network_of(spec))
    if path.suffix == ".json":
        return LinearScorer(display_name(spec), LinearWeights.load(path), scenario)
    import torch

    from ..models.saved import NetworkPolicy, SavedNetwork

    torch.set_num_threads(1)
    saved = SavedNetwork.load(path)
    if not spec.startswith(SCORES):
        return NetworkPolicy(display_name(spec), saved, scenario, sees_graphs=not is_blind(spec))
    if saved.prior is None:
        raise PolicyError("was trained without a search, so that it has no linear scores", value=spec)
    return LinearScorer(display_name(spec), saved.prior, scenario)


def wanted_settings(spec: str, offered: Sequence[str]) -> dict[str, Any]:
    """Return the settings of a scenario that a trained network needs: what it observes, and rules where it knows none.

    Args:
        spec: a policy; other ones than networks need nothing.
        offered: placement rules that the scenario would have.

    Raises:
        CheckpointError: the file is truncated or no policy.
        PolicyError: no shipped policy, file or run folder of that name.
    """
    path = trained_file(spec)
    if path is None or path.suffix == ".json":
        return {}
    from ..models.saved import SavedNetwork

    trained = SavedNetwork.load(path).trained
    result = {name: trained[name] for name in ("arrivals_per_slot",) if name in trained}
    own = [rule for rule in trained.get("rules", ()) if rule != "published"]
    return result | ({"placement_rules": own} if own and not set(own) & set(offered) else {})


def known_conditions(spec: str) -> Sequence[TrainingConditions] | None:
    """Return the grounds on which a trained policy was trained and evaluated; None for others, which know any ground.

    Raises:
        CheckpointError: the file is truncated or no policy.
        PolicyError: no shipped policy, file or run folder of that name.
    """
    path = trained_file(base_of(spec) if is_rollout(spec) else spec)
    if path is None:
        return None
    if path.suffix == ".json":
        trained = LinearWeights.load(path).trained
    else:
        from ..models.saved import SavedNetwork

        trained = SavedNetwork.load(path).trained
    return training_conditions.read_conditions(trained.get(training_conditions.KEY), str(path))


def condition_changes(spec: str, here: TrainingConditions) -> str | None:
    """Return how a case differs from what a trained policy was trained and evaluated on, in a sentence; None where it does not.

    Args:
        spec: a policy; others than trained ones know any ground.
        here: where it is to act.

    Raises:
        CheckpointError: the file is truncated or no policy.
        PolicyError: no shipped policy, file or run folder of that name.
    """
    known = known_conditions(spec)
    return None if known is None else training_conditions.condition_changes(display_name(spec), known, here)


def fixed_names(scenario: Scenario, placement: str) -> list[str]:
    """Return every fixed degree of a scenario, with a placement rule (empty: the default)."""
    return [f"fixed-{degree}{placement}" for degree in scenario.space.degrees]


def _base(spec: str, scenario: Scenario) -> Ladder | LinearWeights:
    """Return the base policy of a rollout planner.

    Raises:
        PolicyError: unknown, or none that the planner can play on with.
    """
    bare, *_, placement = parsed(spec)
    if is_baseline(spec):
        policy(spec, scenario)  # refuses a degree or placement rule that the scenario does not have
        named = re.fullmatch(DEGREES, bare)
        degrees = {"max": scenario.space.degrees[::-1], "min": scenario.space.degrees}
        if named is None and bare not in degrees:
            choices = ["max", "min", BEST_FIXED, "fixed-K", "ladder-K-K"]
            raise PolicyError("cannot be the base of a rollout planner", field=ROLLOUT, value=bare, choices=choices)
        return Ladder(degrees[bare] if named is None else tuple(map(int, named[2].split("-"))), placement or DEFAULT_PLACEMENT)
    path = policy_file(spec, [*NAMES, BEST_FIXED, *fixed_names(scenario, "")])
    if path.suffix != ".json":
        raise PolicyError("the base of a rollout planner is a baseline or a linear scorer", field=ROLLOUT, value=spec)
    return LinearWeights.load(path)
