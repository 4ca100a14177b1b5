"""Degrees by the state in which they were chosen, on the toy benchmark: one host of four devices."""

import dataclasses

import numpy as np
import pytest

from meshwright.envs.playing import play_episode
from meshwright.evaluation.cluster.decision_stats import DEADLINE, FREE_DEVICES, GRAPH, REJECTED, degrees_by_state
from meshwright.planners.rules import rule_of_thumb
from meshwright.simulation.cluster.state import Outcome


def made_up(record, toy):
    """Four jobs and then nothing but jobs that had no place: a pair of devices, one more, a rejection, one after all ended.

    The first holds two devices until just before the fourth arrives, the second one device for as long.
    """
    k = len(record.arrival_s)
    block_of = {tuple(toy.space.block(b).tolist()): b for b in range(toy.space.num_blocks)}
    degree, block = np.zeros(k, np.int64), np.full(k, -1)
    outcome = np.full(k, int(Outcome.NO_BLOCK))
    start, finish = np.full(k, np.nan), np.full(k, np.nan)
    for job, devices in ((0, (0, 1)), (1, (2,)), (3, (0,))):
        degree[job], block[job], outcome[job] = len(devices), block_of[devices], int(Outcome.ACCEPTED)
        start[job], finish[job] = record.arrival_s[job], record.arrival_s[3] - 1e-3
    finish[3] = 1e9
    outcome[2] = int(Outcome.REJECTED)
    allowed = np.array([0.2, 0.21, 1.0, np.inf] + [0.5] * (k - 4)) * record.sequential_s
    changed = {"degree": degree, "block": block, "outcome": outcome, "start_s": start, "finish_s": finish, "allowed_s": allowed}
    return dataclasses.replace(record, **changed)


def test_four_decisions_worked_by_hand(record, toy):
    # 4 devices are free, then 2, then 1, then 4 again; a class for each number, those that do not occur are left out.
    found = degrees_by_state([made_up(record, toy)], toy)
    assert found[FREE_DEVICES] == [
        {"state": "1", "decisions": 1, "shares": {REJECTED: 1.0}},
        {"state": "2", "decisions": 1, "shares": {"1": 1.0}},
        {"state": "4", "decisions": 2, "shares": {"1": 0.5, "2": 0.5}},
    ]
    assert found[DEADLINE] == [
        {"state": "up to 0.2", "decisions": 1, "shares": {"2": 1.0}},
        {"state": "0.2 to 0.4", "decisions": 1, "shares": {"1": 1.0}},
        {"state": "0.8 to 1", "decisions": 1, "shares": {REJECTED: 1.0}},
        {"state": "looser", "decisions": 1, "shares": {"1": 1.0}},
    ]


def test_every_way_to_tell_the_state_counts_every_decision_once_and_shares_add_up(record, toy):
    found = degrees_by_state([record, record], toy)
    had_a_choice = record.is_accepted | np.equal(record.outcome, int(Outcome.REJECTED))
    for kind in (FREE_DEVICES, DEADLINE, GRAPH):
        assert sum(one["decisions"] for one in found[kind]) == 2 * int(had_a_choice.sum())
        for one in found[kind]:
            assert sum(one["shares"].values()) == pytest.approx(1.0)


def test_a_fixed_degree_is_a_constant_in_every_state(toy):
    fixed = play_episode(rule_of_thumb("fixed-2", degrees=toy.space.degrees, placements=toy.settings.placement_rules), toy, 0)
    for bins in degrees_by_state([fixed], toy).values():
        assert {tuple(one["shares"]) for one in bins} == {("2",)}


def test_the_warm_up_does_not_count(record, toy):
    late = dataclasses.replace(toy, settings=toy.settings.model_copy(update={"num_warmup_jobs": 3}))
    found = degrees_by_state([made_up(record, toy)], late)
    assert found[FREE_DEVICES] == [{"state": "4", "decisions": 1, "shares": {"1": 1.0}}]
