"""The first stage of training a fleet's policy: behaviour cloning of a rule, and its costs for the critic.

Where the network then errs, it comes to states in which the rule never was. So it may play itself, label its states with the
rule's actions, and learn from all data together.

Source:
    Ross, Gordon and Bagnell, "A reduction of imitation learning and structured prediction to no-regret online learning", 2011.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from ...compiled import njit
from ...envs.fleet.features import ContextColumn, HostColumn, TrunkColumn
from ...errors import PolicyError
from ...models.fleet.network import FleetActor
from ...models.fleet.saved import player
from ...planners.fleet.linear_scores import FleetScores, choose_by_scores
from ...planners.fleet.rule_kernel import choose
from ...planners.fleet.rules import fleet_rule
from .settings import SEARCHED, ImitationSettings
from .vec_env import FleetVecEnv

TAIL = 100
"""Play after the last decision that is learned from, so that its costs are seen. Counted in the unit of the discount: mean times
between two arrivals, or decisions."""

MOST_TAIL = 40
"""Rounds of that at most, for each unit of `TAIL`."""


BUILT, IS_SITE = HostColumn.IS_PICKED, TrunkColumn.IS_SITE

SITES_APART = 0.6180339887
"""Additional weight of a site's features over those of a group, so that their sum distinguishes the two."""

HOSTS_ARE_PICKED = ContextColumn.PICKING

_Data = tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor]


def imitate(
    network: FleetActor,
    env: FleetVecEnv,
    settings: ImitationSettings,
    discount: float,
    progress: Callable[[float], None],
    searched: FleetScores | None = None,
) -> dict[str, float]:
    """Learn a rule's actions and the discounted sums of its rewards.

    Args:
        network: changed in place.
        env: from its start.
        settings: constants.
        discount: of later rewards, for as much as the environment says has elapsed.
        progress: called with the share that is done.
        searched: what a search has found, for the rule of this name.

    Returns:
        Cross-entropy of the last epoch, and the share of the spread of the sums that the critic explains.
    """
    data = played(env, settings, discount, None, searched)
    result = _learn(network, data, settings, 0, progress)
    for number in range(1, 1 + settings.corrections):
        data = _joined(data, played(env, settings, discount, network, searched))
        result = _learn(network, data, settings, number, progress)
    return result


def _joined(data: _Data, more: _Data) -> _Data:
    seen = {name: torch.cat([array, more[0][name]]) for name, array in data[0].items()}
    return seen, torch.cat([data[1], more[1]]), torch.cat([data[2], more[2]])


def _learn(
    network: FleetActor, data: _Data, settings: ImitationSettings, place: int, progress: Callable[[float], None]
) -> dict[str, float]:
    """Learn the part of this place among the equal ones that the corrections and the first round are."""
    device = next(network.parameters()).device
    seen, actions, returns = {name: array.to(device) for name, array in data[0].items()}, *(one.to(device) for one in data[1:])
    learned = is_learned(seen["context"], settings)
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.learning_rate)
    count, batches, spread = len(actions), len(actions) // settings.minibatch, max(float(returns.var()), 1e-12)
    weight = 1.0 / spread if settings.value_weight is None else settings.value_weight
    losses, errors = [0.0], [0.0]
    for epoch in range(settings.epochs):
        order = torch.randperm(count).to(device)
        losses, errors = [], []
        for number in range(batches):
            share = (epoch * batches + number) / (settings.epochs * batches)
            for group in optimizer.param_groups:
                group["lr"] = settings.learning_rate * (1.01 - share)
            rows = order[number * settings.minibatch : (number + 1) * settings.minibatch]
            part = {name: array[rows] for name, array in seen.items()}
            scores, values = network(part)
            right = right_actions(part, actions[rows], network.menu.member) if settings.alike else None
            cross = _cross_entropy(scores, actions[rows], part["action_mask"], settings.smoothing, learned[rows], right)
            error = ((values - returns[rows]) ** 2).mean()
            optimizer.zero_grad()
            (cross + weight * error).backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            losses.append(float(cross.detach()))
            errors.append(float(error.detach()))
            if number % 16 == 0:
                progress((place + share) / (1 + settings.corrections))
    return {"cross_entropy": float(np.mean(losses)), "explained": 1.0 - float(np.mean(errors)) / spread}


def is_learned(context: torch.Tensor, settings: ImitationSettings) -> torch.Tensor:
    """Return whether each decision is imitated, 1 or 0: all are, but of searched scores only picks of hosts, ``(n,)``.

    The network acts by these scores from the start, so that all it could learn of other decisions is noise.
    """
    picks = (context[:, HOSTS_ARE_PICKED] > 0).float()
    return picks if settings.rules == (SEARCHED,) and bool(picks.any()) else torch.ones_like(picks)


def right_actions(seen: Mapping[str, torch.Tensor], actions: torch.Tensor, member: torch.Tensor) -> torch.Tensor:
    """Return whether each action is as good as the rule's, ``(n, a)``: itself, and where hosts are picked all that look the same.

    Two hosts look the same if their features and those of the trunks above are equal, and the job has as many hosts there
    already. A rule takes the first of such hosts by number, which a network cannot learn, as it reads no numbers.

    Args:
        seen: observations.
        actions: of the rule, ``(n,)``.
        member: which trunks are above each host, ``(m, r)``.
    """
    mask, hosts, trunks = seen["action_mask"] != 0, seen["hosts"], seen["trunks"]
    here = torch.nn.functional.one_hot(actions, mask.shape[1]).bool()
    picked = member.T @ hosts[:, :, BUILT : BUILT + 1]
    of_trunk = torch.cat([trunks, picked], dim=2) * (1.0 + SITES_APART * trunks[:, :, IS_SITE : IS_SITE + 1])
    looks = torch.cat([hosts, member @ of_trunk], dim=2)
    num_hosts = hosts.shape[1]
    pick = looks[torch.arange(len(actions)), actions.clamp(max=num_hosts - 1)]
    is_same = (looks == pick.unsqueeze(1)).all(dim=2)
    is_same = torch.nn.functional.pad(is_same, (0, mask.shape[1] - num_hosts)) & mask
    is_pick = seen["context"][:, HOSTS_ARE_PICKED] > 0
    return here | (is_same & is_pick.unsqueeze(1))


def _cross_entropy(
    scores: torch.Tensor,
    actions: torch.Tensor,
    mask: torch.Tensor,
    smoothing: float,
    learned: torch.Tensor,
    right: torch.Tensor | None,
) -> torch.Tensor:
    shares = torch.log_softmax(scores, dim=1)
    possible = (mask != 0).float()
    if right is None:
        target = shares.gather(1, actions.unsqueeze(1)).squeeze(1)
    else:
        target = torch.logsumexp(shares.masked_fill(~right, -torch.inf), dim=1)
    others = (shares * possible).sum(dim=1) / possible.sum(dim=1)
    result: torch.Tensor = -(((1 - smoothing) * target + smoothing * others) * learned).sum() / learned.sum().clamp(min=1.0)
    return result


def played(
    env: FleetVecEnv,
    settings: ImitationSettings,
    discount: float,
    network: FleetActor | None,
    searched: FleetScores | None = None,
) -> _Data:
    """Collect data to learn from: the rule plays, or a network plays and the rule labels its states.

    Args:
        env: is reset.
        settings: constants.
        discount: of later rewards.
        network: which plays; None: the rule does.
        searched: what a search has found, for the rule of this name.

    Returns:
        Observations, the actions of the rule of each episode, and discounted sums of the rewards of the one that played, all of
        ``d`` decisions.

    Raises:
        PolicyError: there is no such rule.
    """
    fleet, state = env.batch.fleet, env.batch.state
    try:
        rules = [
            searched if name == SEARCHED else fleet_rule(name, fleet.problem, fleet.work_device_s) for name in settings.rules
        ]
    except PolicyError as error:
        raise error.at(field="imitation.rule") from None
    plays = None if network is None else player(network)
    rounds = -(-settings.decisions // env.num_envs)
    rewards: list[NDArray[np.float32]] = []
    seen, actions, ends, elapsed, rows = env.reset(), [], [], [], []
    after = np.zeros(env.num_envs)
    while len(rewards) < rounds or (after.min() < TAIL and len(rewards) < rounds + MOST_TAIL * TAIL):
        picked = np.zeros(env.num_envs, np.int64)
        for number, rule in enumerate(rules):
            chooses = choose_all_by_scores if isinstance(rule, FleetScores) else choose_all
            chooses(fleet.problem, state, rule, picked, number, len(rules))
        if len(rewards) < rounds:
            rows.append(seen)
            actions.append(picked)
        env.step_async(picked if plays is None else plays(env.batch))
        seen, paid, over, _ = env.step_wait()
        rewards.append(paid)
        elapsed.append(env.elapsed)
        ends.append(over)
        if len(rewards) > rounds:
            after += env.elapsed
    returns = _discounted(np.stack(rewards), np.stack(ends), discount ** np.stack(elapsed))[:rounds]
    arrays = {name: torch.as_tensor(np.concatenate([row[name] for row in rows])) for name in rows[0]}
    return arrays, torch.as_tensor(np.concatenate(actions)), torch.as_tensor(returns.reshape(-1), dtype=torch.float32)


def _discounted(rewards: NDArray[np.float32], ends: NDArray[np.bool_], discount: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return sums of all later rewards of the episode, ``(decisions, e)``; ``discount`` is of the time after each decision."""
    result = np.zeros(rewards.shape)
    following = np.zeros(rewards.shape[1])
    for row in reversed(range(len(rewards))):
        following = rewards[row] + discount[row] * np.where(ends[row], 0.0, following)
        result[row] = following
    return result


@njit
def choose_all(problem, state, rule, out, first, stride):  # type: ignore[no-untyped-def]
    """Write into ``out`` a rule's action in every ``stride``-th episode from ``first`` on that is not over."""
    for e in range(first, len(out), stride):
        if not state.is_over[e]:
            out[e] = choose(problem, state, e, rule)


@njit
def choose_all_by_scores(problem, state, scorer, out, first, stride):  # type: ignore[no-untyped-def]
    """Write the actions that linear scores choose in every live episode."""
    for e in range(first, len(out), stride):
        if not state.is_over[e]:
            out[e] = choose_by_scores(problem, state, e, scorer)
