"""Policies of fleets by their spelling, each as something that plays episodes.

- A rule by its name (see `planners.fleet.rules`), or ``random``.
- ``rollout:RULE``: a rollout planner over a rule (see `planners.fleet.rollout`).
- ``synchronous-only:POLICY``: the same policy with all inexact entries masked; ``synchronous-only`` is that of
  ``best-fixed-entry``.
- ``best-fixed-entry``, ``best-goodput-shares``, ``best-priced`` and ``best-refusal``, in place of ``fixed-N``,
  ``goodput-shares-N``, ``priced-W`` and ``refuse-N`` in the name of a rule: `evaluation.evaluate` takes the number that is best
  on validation episodes.
- ``shipped:NAME``: a trained policy that comes with the package.
- ``scores:POLICY``: the linear scores of a trained policy without its network; a rule packs the hosts.
- ``python:MODULE:NAME``: a user's own (see `planners.own_policy`).
- Anything else: the path of a run folder or of its policy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import inputs
from ...envs.fleet.batch import FleetBatch
from ...envs.fleet.features import observed_links, with_links
from ...envs.fleet.fleet import Fleet, synchronous_only
from ...envs.fleet.reward import reward_weights
from ...errors import PolicyError, nearest
from ...models.policy_files import POLICY_FILES, SHIPPED
from ...planners.fleet.linear_scores import FleetScores, choose_by_scores, linear_scorer, play_by_scores
from ...planners.fleet.rollout import FleetRollout, choose_at_random, play_at_random, play_rule
from ...planners.fleet.rule import FleetRule
from ...planners.fleet.rule_kernel import choose
from ...planners.fleet.rules import BEST_FIXED_ENTRY, BEST_PRICED, BEST_REFUSAL, BEST_SHARES, fleet_rule, nearest_rule
from ...planners.own_policy import OWN, own_policy, possible_choice
from ...planners.policy import Policy
from ...planners.policy_names import parsed
from ...planners.rules import NAMES
from ...planning.policies import OF_ONE_JOB, SCORES, display_name, fleet_policy_file
from ...simulation.fleet import dynamics
from ...simulation.fleet.state import Total
from .action_table import fleet_decision
from .bounds import BOUND

REFUSALS = (0, 1, 2, 3, 4, 6, 8, 12, 16)
"""Percentages of jobs with most work among which ``best-refusal`` chooses."""

WEIGHTS = (0, 1, 2, 4, 8, 16)
"""How often a waiting job may count, among which ``best-priced`` chooses."""

RANDOM = "random"
ROLLOUT = "rollout:"
SYNCHRONOUS_ONLY = "synchronous-only"
EXACT = f"{SYNCHRONOUS_ONLY}:"
PACKS = "fifo"
"""The rule that picks hosts for the scores of a trained policy."""


class FleetPlayer(ABC):
    """A policy that plays episodes of a batch to their end.

    Attributes:
        observes: whether the batch must write observations.
    """

    observes = False

    def plays_on(self, fleet: Fleet) -> Fleet:
        """Return the fleet as this policy meets it: the jobs are those of ``fleet``, and so are the numbers of its entries."""
        return fleet

    def play(self, batch: FleetBatch, seeds: Sequence[int]) -> int:
        """Play every episode of a batch, which have begun with these seeds; the number of decisions."""
        count = 0
        for e, seed in enumerate(seeds):
            choose_next = self.chooser(batch, seed, e)
            while not batch.state.is_over[e]:
                dynamics.act(batch.fleet.problem, batch.state, e, choose_next())
                count += 1
        return count

    @abstractmethod
    def chooser(self, batch: FleetBatch, seed: int, e: int = 0) -> Callable[[], int]:
        """Return a function that gives, call by call, the next action of an episode of a batch, which has begun with this seed.

        The caller carries it out on the batch's state; observations need not be up to date.
        """


@dataclass(frozen=True)
class RulePlayer(FleetPlayer):
    """Plays by a rule or by linear scores.

    Attributes:
        rule: which.
    """

    rule: FleetRule | FleetScores

    def play(self, batch: FleetBatch, seeds: Sequence[int]) -> int:
        """See `FleetPlayer.play`."""
        plays = play_by_scores if isinstance(self.rule, FleetScores) else play_rule
        return sum(plays(batch.fleet.problem, batch.state, e, self.rule) for e in range(batch.num_episodes))

    def chooser(self, batch: FleetBatch, seed: int, e: int = 0) -> Callable[[], int]:
        """See `FleetPlayer.chooser`."""
        chooses = choose_by_scores if isinstance(self.rule, FleetScores) else choose
        return lambda: int(chooses(batch.fleet.problem, batch.state, e, self.rule))


class RandomPlayer(FleetPlayer):
    """Takes each possible action as often as any other."""

    def play(self, batch: FleetBatch, seeds: Sequence[int]) -> int:
        """See `FleetPlayer.play`; the choices follow from the seeds."""
        return sum(play_at_random(batch.fleet.problem, batch.state, e, _rng(seed)) for e, seed in enumerate(seeds))

    def chooser(self, batch: FleetBatch, seed: int, e: int = 0) -> Callable[[], int]:
        """See `FleetPlayer.chooser`."""
        rng = _rng(seed)
        return lambda: int(choose_at_random(batch.state, e, rng))


@dataclass(frozen=True)
class RolloutPlayer(FleetPlayer):
    """Plays by a rollout planner.

    Attributes:
        planner: which.
    """

    planner: FleetRollout

    def chooser(self, batch: FleetBatch, seed: int, e: int = 0) -> Callable[[], int]:
        """See `FleetPlayer.chooser`."""
        return lambda: self.planner.choose(batch.state, e)


@dataclass(frozen=True)
class OwnPlayer(FleetPlayer):
    """Plays by a user's policy.

    Attributes:
        policy: which; it sees a decision by `evaluation.fleet.action_table`.
    """

    policy: Policy

    def chooser(self, batch: FleetBatch, seed: int, e: int = 0) -> Callable[[], int]:
        """See `FleetPlayer.chooser`."""
        links = observed_links(batch.fleet)
        self.policy.reset(seed)

        def observe() -> dict[str, NDArray[Any]]:
            batch.observe(e)
            return {name: values[e].copy() for name, values in with_links(links, batch.observations._asdict()).items()}

        return lambda: possible_choice(self.policy, fleet_decision(batch.fleet, batch.state, e), observe)


@dataclass(frozen=True)
class LearnedPlayer(FleetPlayer):
    """Plays by a trained policy.

    Attributes:
        policy: takes a batch and gives an action for each of its episodes.
    """

    policy: Callable[[FleetBatch], NDArray[np.int64]]
    observes = True

    def play(self, batch: FleetBatch, seeds: Sequence[int]) -> int:
        """See `FleetPlayer.play`."""
        count = 0
        while not batch.state.is_over.all():
            count += int((~batch.state.is_over).sum())
            batch.step(self.policy(batch))
        return count

    def chooser(self, batch: FleetBatch, seed: int, e: int = 0) -> Callable[[], int]:
        """See `FleetPlayer.chooser`."""

        def choose_observed() -> int:
            batch.observe()
            return int(self.policy(batch)[e])

        return choose_observed


@dataclass(frozen=True)
class SynchronousPlayer(FleetPlayer):
    """Plays as another policy does where nothing is on offer that is not exact.

    Attributes:
        player: the other policy.
    """

    player: FleetPlayer

    @property
    def observes(self) -> bool:  # type: ignore[override]
        """Whether the wrapped player reads observations."""
        return self.player.observes

    def plays_on(self, fleet: Fleet) -> Fleet:
        """See `FleetPlayer.plays_on`."""
        return synchronous_only(fleet)

    def play(self, batch: FleetBatch, seeds: Sequence[int]) -> int:
        """See `FleetPlayer.play`."""
        return self.player.play(batch, seeds)

    def chooser(self, batch: FleetBatch, seed: int, e: int = 0) -> Callable[[], int]:
        """See `FleetPlayer.chooser`."""
        return self.player.chooser(batch, seed, e)


def is_best_fixed_entry(spec: str) -> bool:
    """Return whether a spelling is of a rule with a number of devices, or a percentage of refusals, that is best."""
    if spec == SYNCHRONOUS_ONLY:
        return True
    return any(one in spec for one in (BEST_FIXED_ENTRY, BEST_SHARES, BEST_PRICED, BEST_REFUSAL)) and not spec.startswith(ROLLOUT)


def each_fixed_entry(spec: str, fleet: Fleet) -> list[str]:
    """Return the rules among which such a spelling chooses."""
    spec = f"{EXACT}{BEST_FIXED_ENTRY}" if spec == SYNCHRONOUS_ONLY else spec
    of_entry = [
        spec.replace(BEST_FIXED_ENTRY, f"fixed-{degree}").replace(BEST_SHARES, f"goodput-shares-{degree}")
        for degree in fleet.problem.degrees
    ]
    priced = dict.fromkeys(one.replace(BEST_PRICED, f"priced-{weight}") for one in of_entry for weight in WEIGHTS)
    # none twice where the spelling has no such part
    return list(dict.fromkeys(one.replace(BEST_REFUSAL, f"refuse-{percent}") for one in priced for percent in REFUSALS))


def is_rule(spec: str) -> bool:
    """Return whether a spelling is meant as a rule's and not as a path."""
    bare = _bare(spec)
    return not (Path(bare).exists() or "/" in bare or bare.endswith(".pt") or bare.startswith(SHIPPED))


def _bare(spec: str) -> str:
    """Return a policy without what is asked of it."""
    return spec.removeprefix(EXACT).removeprefix(SCORES)


def policy_kind(spec: str) -> str:
    """Return the kind of a policy: ``baseline``, ``learned``, ``own``, ``planner`` or, of a bound, ``reference``."""
    if spec == BOUND:
        return "reference"
    if spec.removeprefix(EXACT).startswith(ROLLOUT):
        return "planner"
    if spec.removeprefix(EXACT).startswith(OWN):
        return "own"
    return "baseline" if is_rule(spec) else "learned"


def policy_name(spec: str) -> str:
    """Return a policy in tables: the name of a run folder, or of a file other than ``policy.pt``, without what leads to it."""
    for mode in (EXACT, SCORES):
        if spec.startswith(mode):
            return mode + policy_name(spec.removeprefix(mode))
    if is_rule(spec) or spec.startswith(SHIPPED):
        return display_name(spec) if spec.startswith(OWN) else spec
    path = Path(spec).resolve()
    return path.parent.name if path.name in POLICY_FILES else path.stem if path.suffix == ".pt" else path.name


def fleet_player(spec: str, fleet: Fleet) -> FleetPlayer:
    """Return a policy by its spelling.

    Raises:
        PolicyError: there is none of this name, or it does not fit the fleet.
        CheckpointError: the file of a trained policy is damaged.
    """
    if spec.startswith(EXACT):
        return SynchronousPlayer(fleet_player(spec.removeprefix(EXACT), synchronous_only(fleet)))
    if spec == RANDOM:
        return RandomPlayer()
    if spec.startswith(ROLLOUT):
        rule = fleet_rule(spec.removeprefix(ROLLOUT), fleet.problem, fleet.work_device_s)
        return RolloutPlayer(FleetRollout(fleet.problem, fleet.settings.num_jobs, rule, reward_weights(fleet)[: len(Total) + 1]))
    if spec.startswith(OWN):
        return OwnPlayer(own_policy(spec)(fleet))
    if is_rule(spec):
        return RulePlayer(_rule(spec, fleet))
    path = fleet_policy_file(_bare(spec))
    if not path.exists():
        raise PolicyError("no such run folder, and no rule (those have no /)", value=_bare(spec))
    import torch  # it takes a while

    from ...models.fleet.saved import SavedFleetNetwork, load_fleet_policy

    if spec.startswith(SCORES):
        weights = SavedFleetNetwork.load(path).linear_scores(path)
        return RulePlayer(linear_scorer(fleet.problem, _rule(PACKS, fleet), weights, fleet.mean_duration_s))
    torch.set_num_threads(1)  # more of them wait for each other over networks so small
    return LearnedPlayer(load_fleet_policy(path, fleet))


def trained_file(spec: str) -> Path | None:
    """Return the file or run folder of a trained policy; None for others."""
    bare = _bare(spec)
    return None if spec == BOUND or is_rule(spec) or bare.startswith(ROLLOUT) else fleet_policy_file(bare)


def carried_file(spec: str) -> tuple[str, Path] | None:
    """Return the part of a spelling that names the file of a trained policy, and that file; None for others and shipped ones."""
    bare = _bare(spec)
    if is_rule(spec) or bare.startswith((SHIPPED, ROLLOUT)):
        return None
    path = fleet_policy_file(bare)
    return bare, path / POLICY_FILES[0] if path.is_dir() else path


def condition_changes(spec: str, fleet: Fleet) -> str | None:
    """Return how the fleet differs from that of a policy's training, in a sentence; None for rules and if it does not differ."""
    file = trained_file(spec)
    if file is None:
        return None
    from ...models.fleet.saved import SavedFleetNetwork

    ground = SavedFleetNetwork.load(file).trained.get("ground", {})
    result = fleet.condition_changes(ground)
    if spec.startswith(EXACT) and synchronous_only(fleet).condition_changes(ground) is None:
        return None  # trained with exact entries alone
    return None if result is None else f"{policy_name(spec)} was not trained for this fleet, but for {result}."


def check_policy(spec: str, fleet: Fleet) -> None:
    """Refuse a spelling that names no policy of a fleet.

    Raises:
        MeshwrightError: so it is.
    """
    if not is_rule(spec):
        inputs.note(fleet_policy_file(_bare(spec)))
    if spec != BOUND:
        fleet_player(each_fixed_entry(spec, fleet)[0] if is_best_fixed_entry(spec) else spec, fleet)


def _rule(spec: str, fleet: Fleet) -> FleetRule:
    """Return a rule by its name; the error of another name says what it is instead."""
    try:
        return fleet_rule(spec, fleet.problem, fleet.work_device_s)
    except PolicyError:
        if spec == ROLLOUT.rstrip(":"):
            raise PolicyError("a rollout planner over a rule is spelled rollout:RULE, as rollout:sjf", value=spec) from None
        if spec.startswith(SCORES):
            raise PolicyError("scores: wants a trained policy after it, a run folder or shipped:NAME", value=spec) from None
        if "," in spec:
            raise PolicyError("names one policy; separate several by blanks", value=spec) from None
        if parsed(spec).whole in NAMES:
            raise PolicyError(OF_ONE_JOB, value=spec) from None
        names = (RANDOM, BOUND, SYNCHRONOUS_ONLY)
        others = [other for other in names if other == nearest(spec, names)]
        if others and nearest_rule(spec, fleet.problem) is None:
            raise PolicyError("no such policy of a fleet", value=spec, choices=others) from None
        raise


def _rng(seed: int) -> np.random.Generator:
    """Return a generator for random choices in the episode of a seed."""
    return np.random.default_rng([seed, 1])
