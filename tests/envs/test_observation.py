"""Observations against a plain implementation and numbers worked by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.envs.batch import EpisodeBatch
from meshwright.envs.observation import CANDIDATE_FEATURES, DURATION_SCALE, SLOTS
from meshwright.jobs.arrivals import Arrivals
from meshwright.simulation.cluster.problem import ONE_BLOCK_RULES

from ..draws import draws


def squashed(x, scale):
    return 1.0 if math.isinf(x) else x / (x + scale)


def against(x, y):
    return 0.0 if math.isinf(y) else squashed(x, y)


class Plain:
    """The observation of a state, from the jobs that run and from sets of devices; no arrays of the dynamics but the jobs."""

    def __init__(self, scenario, episodes, e):
        self.scenario, self.episodes, self.e = scenario, episodes, e
        self.k = int(episodes.job[e])
        self.now_s = float(episodes.arrival_s[e, self.k])
        self.mean_s = scenario.workload.mean_interarrival_s
        self.scale_s = DURATION_SCALE * self.mean_s
        self.blocks = [frozenset(scenario.space.block(b).tolist()) for b in range(scenario.space.num_blocks)]
        self.left_s = [0.0] * scenario.cluster.num_devices
        for job in range(self.k):
            block = int(episodes.block[e, job])
            end_s = float(episodes.arrival_s[e, job] + episodes.completion_s[e, job])
            if block >= 0 and end_s > self.now_s:
                for device in self.blocks[block]:
                    self.left_s[device] = end_s - self.now_s

    def slots(self, left_s):
        """For each degree the share of its blocks that are free by each slot, then whether any is."""
        rows = []
        for degree in self.scenario.space.degrees:
            wait_s = [max(left_s[device] for device in block) for block in self.blocks if len(block) == degree]
            by = [sum(wait <= slot * self.mean_s for wait in wait_s) for slot in SLOTS]
            rows.append([free / len(wait_s) for free in by] + [float(free > 0) for free in by])
        return rows

    def candidate(self, a):
        scenario, episodes, e = self.scenario, self.episodes, self.e
        num_devices = scenario.cluster.num_devices
        num_free = sum(left == 0 for left in self.left_s)
        row = dict.fromkeys(CANDIDATE_FEATURES, 0.0)
        if a == 0:
            row |= {"can place": 1.0, "is reject": 1.0, "free devices after": num_free / num_devices}
            return row, self.slots(self.left_s)
        if not episodes.can_place[e, a]:
            return row, [[0.0] * (2 * len(SLOTS))] * len(scenario.space.degrees)
        block = int(episodes.candidate_block[e, a])
        devices = self.blocks[block]
        degree, graph_id = len(devices), int(episodes.graph_id[e, self.k])
        num_steps = int(episodes.num_steps[e, self.k])
        placement_class = scenario.space.placement_class[block]
        time_s = num_steps * float(scenario.times.step_s[graph_id, placement_class])
        sequential_s = num_steps * scenario.workload.graphs[graph_id].step_s
        row |= {
            "can place": 1.0,
            f"rule {scenario.candidate_rule[a]}": 1.0,
            "share of devices": degree / num_devices,
            "doublings": math.log2(degree) / math.log2(num_devices),
            "completion against deadline": against(time_s, float(episodes.allowed_s[e, self.k])),
            "completion": squashed(time_s, self.scale_s),
            "device-seconds": squashed(degree * time_s / num_devices, self.mean_s),
            "communication share": float(scenario.times.communication_share[graph_id, placement_class]),
            "efficiency": squashed(sequential_s, degree * time_s),
            "free devices after": (num_free - degree) / num_devices,
        }
        return row, self.slots([time_s if device in devices else left for device, left in enumerate(self.left_s)])

    def observation(self):
        episodes, e, k = self.episodes, self.e, self.k
        graph_id, num_steps = int(episodes.graph_id[e, k]), int(episodes.num_steps[e, k])
        allowed_s = float(episodes.allowed_s[e, k])
        sequential_s = num_steps * self.scenario.workload.graphs[graph_id].step_s
        times = self.scenario.times
        fastest_s = num_steps * float(times.step_s[graph_id][times.can_run[graph_id]].min())
        candidates = [self.candidate(a) for a in range(self.scenario.problem.num_candidates)]
        time_left = [squashed(left, self.scale_s) for left in self.left_s]
        return {
            "graph_id": graph_id,
            "job": [
                squashed(allowed_s, sequential_s),
                squashed(sequential_s, self.scale_s),
                float(any(row["can place"] for row, _ in candidates[1:])),
                against(fastest_s, allowed_s),
            ],
            "cluster": [sum(left == 0 for left in self.left_s) / len(self.left_s), sum(time_left) / len(time_left)],
            "cluster_slots": self.slots(self.left_s),
            "devices": [[float(left == 0), share] for left, share in zip(self.left_s, time_left, strict=True)],
            "candidates": [list(row.values()) for row, _ in candidates],
            "candidate_slots": [slots for _, slots in candidates],
            "action_mask": [int(row["can place"]) for row, _ in candidates],
        }


@draws(4)
@given(seed=st.integers(0, 10_000), steps=st.integers(0, 39))
@pytest.mark.parametrize("name", ["small", "toy"])
def test_every_feature_is_what_a_plain_implementation_finds(small, toy, name, seed, steps):
    batch = EpisodeBatch({"small": small, "toy": toy}[name], 1)
    rng = np.random.default_rng(seed)
    batch.reset(0, rng)
    for _ in range(steps):
        batch.step(rng.choice(np.flatnonzero(batch.observations.action_mask[0]), 1))
    plain = Plain(batch.scenario, batch.episodes, 0).observation()
    assert set(plain) == set(batch.observations.current())
    for key, value in plain.items():
        np.testing.assert_allclose(getattr(batch.observations, key)[0], value, rtol=1e-5, atol=1e-6, err_msg=key)


def test_the_first_decision_of_the_toy_by_hand(toy):
    # A squeezenet of 100,000 steps on the empty toy: 1394 s on two devices, arrivals every 1100 s.
    batch = EpisodeBatch(toy, 1)
    jobs = 61
    batch.begin_with(0, Arrivals(1100.0 * np.arange(jobs), np.zeros(jobs), np.full(jobs, 100_000), np.full(jobs, np.inf)))
    seen = batch.observations
    assert toy.candidate_degree == (0, 1, 2, 4)
    # One device has too little memory.
    assert seen.action_mask[0].tolist() == [1, 0, 1, 1]
    assert seen.cluster[0].tolist() == [1.0, 0.0]
    assert (seen.cluster_slots[0] == 1).all()
    # After two devices are taken: one of two pairs and two of four devices are free by 1100 s, all by 2200 s; the four
    # together not by 1100 s.
    half = [0.5] + 7 * [1.0]
    assert seen.candidate_slots[0, 2].tolist() == [half + 8 * [1.0], half + 8 * [1.0], 2 * ([0.0] + 7 * [1.0])]
    two = dict(zip(CANDIDATE_FEATURES, seen.candidates[0, 2].tolist(), strict=True))
    time_s = 1e5 * float(toy.times.step_s[0, 1])
    assert time_s == pytest.approx(1394, abs=1)
    assert two["completion"] == pytest.approx(time_s / (time_s + 8 * 1100))
    # Two of four devices for 1394 s are half of them all.
    assert two["device-seconds"] == pytest.approx(time_s / 2 / (time_s / 2 + 1100))
    assert (two["share of devices"], two["doublings"], two["free devices after"]) == (0.5, 0.5, 0.5)
    # No deadline.
    assert seen.job[0, 0] == 1.0
    assert two["completion against deadline"] == 0.0


def test_a_candidate_slot_shows_the_cluster_that_the_next_decision_sees(toy):
    # Arrivals 1e-9 s apart, so that the cluster has not moved on.
    batch = EpisodeBatch(toy, 1)
    jobs = 61
    arrivals = Arrivals(1e-9 * np.arange(jobs), np.full(jobs, 2), np.full(jobs, 100_000), np.full(jobs, np.inf))
    for candidate in (0, 1, 2, 3):
        batch.begin_with(0, arrivals)
        foreseen = batch.observations.candidate_slots[0, candidate].copy()
        batch.step(np.array([candidate]))
        np.testing.assert_array_equal(batch.observations.cluster_slots[0], foreseen)


def test_two_rules_that_take_one_block_offer_it_once(small):
    batch = EpisodeBatch(small, 1)
    batch.reset(0, np.random.default_rng(0))
    offered = np.flatnonzero(batch.observations.action_mask[0])
    taken = [(small.candidate_degree[a], int(batch.episodes.candidate_block[0, a])) for a in offered]
    assert len(set(taken)) == len(taken)
    # First fit and fastest differ from nothing on an empty cluster of equal hosts: fewer are offered than there are.
    assert len(offered) < small.problem.num_candidates


def test_rules_of_candidates_are_marked_by_name(small):
    batch = EpisodeBatch(small, 1)
    batch.reset(0, np.random.default_rng(0))
    for a in np.flatnonzero(batch.observations.action_mask[0])[1:]:
        marked = [
            name for name in ONE_BLOCK_RULES if batch.observations.candidates[0, a, CANDIDATE_FEATURES.index(f"rule {name}")]
        ]
        assert marked == [small.candidate_rule[a]]
