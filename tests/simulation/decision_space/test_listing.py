"""Every free block as a candidate, equal ones once: against brute force over sets of devices."""

import dataclasses

import numpy as np
import pytest

from meshwright.errors import ConfigError
from meshwright.simulation.cluster import dynamics
from meshwright.simulation.cluster.decision import decision
from meshwright.simulation.decision_space.block_bits import block_bits, count
from meshwright.simulation.decision_space.space import Neighbours

from ..samples import small_scenario


def played(scenario, seed, decisions):
    """An episode in which random candidates were taken."""
    rng = np.random.default_rng(seed)
    episodes = scenario.new_episodes(1)
    scenario.reset(episodes, 0, scenario.workload.sample(rng, scenario.settings.num_jobs + 1))
    for _ in range(decisions):
        dynamics.decide(scenario.problem, episodes, 0, int(rng.choice(np.flatnonzero(episodes.can_place[0]))))
    return episodes


def cost_of(scenario, episodes, block):
    """The cost of taking a block: lost blocks of each shape, now and whenever a job ends."""
    space, now = scenario.space, float(episodes.now_s[0])
    free_at = episodes.block_free_at_s[0]
    ends = sorted({now, *(t for t in episodes.free_at_s[0].tolist() if now < t < now + scenario.problem.horizon_s)})
    lost = np.isin(np.arange(space.num_blocks), space.neighbours.of(block))
    return tuple(tuple(np.bincount(space.shape[lost & (free_at <= end)], minlength=space.shape[-1] + 1)) for end in ends)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("decisions", [0, 7, 25])
def test_one_block_of_each_kind_is_listed_in_scan_order(seed, decisions):
    scenario = small_scenario(placement_rules=("all-blocks",), max_listed_blocks=500)
    episodes = played(scenario, seed, decisions)
    k = int(episodes.job[0])
    graph, steps = int(episodes.graph_id[0, k]), int(episodes.num_steps[0, k])
    expected, kinds = [], set()
    for block in range(scenario.space.num_blocks):
        c = scenario.space.placement_class[block]
        time = steps * float(scenario.times.step_s[graph, c])
        can_run = scenario.times.can_run[graph, c] and time <= episodes.allowed_s[0, k] * (1 + 1e-9)
        kind = (int(scenario.space.degree[block]), time, cost_of(scenario, episodes, block))
        if can_run and episodes.block_free_at_s[0, block] <= episodes.now_s[0] and kind not in kinds:
            kinds.add(kind)
            expected.append((block, time))
    listed = episodes.candidate_block[0] >= 0
    assert list(zip(episodes.candidate_block[0, listed], episodes.candidate_s[0, listed], strict=True)) == expected
    assert (episodes.can_place[0, 1:] == listed[1:]).all()


def test_where_room_is_scarce_the_best_of_each_degree_stay():
    everything = small_scenario(placement_rules=("all-blocks",), max_listed_blocks=500)
    few = small_scenario(placement_rules=("all-blocks", "best-fit"), max_listed_blocks=5)
    assert few.problem.num_candidates == 1 + 5 + 5
    rng = np.random.default_rng(3)
    jobs = dataclasses.replace(everything.workload.sample(rng, 31), deadline_fraction=np.full(31, np.inf))
    episodes, scarce = everything.new_episodes(1), few.new_episodes(1)
    everything.reset(episodes, 0, jobs)
    few.reset(scarce, 0, jobs)
    assert (episodes.candidate_block[0] >= 0).sum() > 5
    listed = scarce.candidate_block[0, 6:]
    assert (listed >= 0).all()
    assert (np.diff(listed) > 0).all()
    # one of each of the five degrees: the block that best fit takes
    assert few.space.degree[listed].tolist() == [0, 1, 2, 3, 4]
    assert listed.tolist() == scarce.candidate_block[0, 1:6].tolist()
    # best fit offers them already
    assert not scarce.can_place[0, 6:].any()
    current = decision(few, scarce, 0)
    assert current.offered("all-blocks").tolist() == [1, 2, 3, 4, 5]
    assert current.degree.tolist() == [0, 1, 2, 4, 6, 8, 1, 2, 4, 6, 8]


def test_too_many_blocks_to_list_are_refused():
    with pytest.raises(ConfigError, match=r"placement_rules: ramp-8x8x4 has .* blocks, more than the 1,024"):
        small_scenario(cluster="preset:ramp-8x8x4", placement_rules=("all-blocks",), max_degree=16)


def test_bits_count_what_sets_count():
    rng = np.random.default_rng(0)
    degree = np.repeat([0, 1, 1, 2], [70, 3, 130, 64])
    group = np.repeat([0, 1, 2, 3], [70, 3, 130, 64])
    intersects = rng.random((len(degree), len(degree))) < 0.3
    start = np.concatenate([[0], np.cumsum(intersects.sum(1))])
    bits = block_bits(degree, group, Neighbours(start, np.nonzero(intersects)[1]))
    assert bits.group_start.tolist() == [0, 2, 3, 6, 7]  # 70, 3, 130 and 64 blocks at 64 to a word
    assert bits.degree_start.tolist() == [0, 2, 6, 7]
    members = rng.random(len(degree)) < 0.5
    choice = np.zeros(7, np.uint64)
    for block in np.flatnonzero(members):
        choice[bits.word[block]] |= bits.bit[block]
    for block in range(len(degree)):
        for g in range(4):
            expected = (intersects[block] & members & (group == g)).sum()
            assert count(bits.neighbours[block], choice, bits.group_start[g], bits.group_start[g + 1]) == expected
