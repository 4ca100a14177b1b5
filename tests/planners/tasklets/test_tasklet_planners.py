"""Planners of tasklets: all groupings of small instances, regular groupings, determinism, and the published values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import PlanError, PolicyError
from meshwright.planners.tasklets.annealing import anneal_tasklets
from meshwright.planners.tasklets.place import TASKLET_PLANNERS, place_tasklets
from meshwright.planners.tasklets.request import TaskletRequest
from meshwright.planners.tasklets.structured import structured_best
from meshwright.simulation.tasklets.instance import TaskletInstance, read_tasklets
from meshwright.simulation.tasklets.placement import tasklet_value_s

from ...draws import cases, draws
from ...simulation.tasklets.test_tasklets import drawn, two_sites

PUBLISHED = {
    "case0_datacenter_on_demand": 3.439799,
    "case1_datacenter_spot": 31.634160,
    "case2_multi_universities": 16.086840,
    "case3_regional_geo": 34.802041,
    "case4_worldwide_geo": 49.218380,
}
FEW = TaskletRequest(num_evaluations=120)


def groupings(devices, size):
    """All ways to cut devices into stages of a size."""
    if not devices:
        yield []
        return
    from itertools import combinations

    for others in combinations(devices[1:], size - 1):
        rest = [each for each in devices if each != devices[0] and each not in others]
        for grouping in groupings(rest, size):
            yield [[devices[0], *others], *grouping]


@pytest.mark.parametrize("planner", TASKLET_PLANNERS)
def test_stages_lie_across_the_two_sites(planner):
    assert place_tasklets(two_sites(), planner, FEW).value_s == pytest.approx(1.42)


def best_of_all(instance):
    everything = groupings(list(range(instance.num_devices)), instance.num_replicas)
    return min(tasklet_value_s(instance, np.array(stages)) for stages in everything)


@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (2, 3), (2, 4)])
def test_annealing_finds_the_best_of_all_groupings(shape):
    for seed in cases(4):
        instance = drawn(seed, *shape)
        result = anneal_tasklets(instance, TaskletRequest(seed=seed), num_steps=12_000)
        assert result.value_s == pytest.approx(best_of_all(instance), rel=1e-9)


@given(st.integers(0, 10**6), st.sampled_from([(2, 2), (3, 2), (2, 3)]))
@draws(15)
def test_no_planner_is_better_than_the_best(seed, shape):
    instance = drawn(seed, *shape)
    best = best_of_all(instance)
    for planner in ("genetic", "structured"):
        assert place_tasklets(instance, planner, FEW).value_s >= best * (1 - 1e-12)
    assert anneal_tasklets(instance, FEW, num_steps=100).value_s >= best * (1 - 1e-12)


@given(st.integers(0, 10**6))
@draws(10)
def test_a_seed_says_all(seed):
    instance = drawn(seed, 3, 3)
    for planner in ("genetic", "structured"):
        one, other = (place_tasklets(instance, planner, TaskletRequest(seed=seed, num_evaluations=120)) for _ in range(2))
        assert one.device_of.tolist() == other.device_of.tolist()
    one, other = (anneal_tasklets(instance, TaskletRequest(seed=seed), num_steps=200) for _ in range(2))
    assert one.device_of.tolist() == other.device_of.tolist()
    start = [np.arange(9).reshape(3, 3)]
    assert anneal_tasklets(instance, FEW, start=start, num_steps=50).value_s <= tasklet_value_s(instance, start[0])


def test_regions_that_make_no_stages_are_told():
    wide = two_sites()
    uneven = TaskletInstance(
        "uneven", ("a", "b", "b", "b", "b", "b"), np.ones((6, 6)), np.ones((6, 6)), 2, wide.gradient_bytes, wide.activation_bytes
    )
    result = place_tasklets(uneven, "structured", FEW)  # chunks of one device always do
    assert sorted(result.device_of.ravel().tolist()) == list(range(6))
    with pytest.raises(PolicyError, match="no such planner"):
        place_tasklets(wide, "genetical", FEW)
    with pytest.raises(PlanError):
        anneal_tasklets(wide, FEW, start=[np.zeros((2, 2), np.int64)], num_steps=1)


@pytest.mark.reference
@pytest.mark.every(4)
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_best_published_values_are_reached(reference, name):
    instance = read_tasklets(reference / "operators/tasklets" / f"{name}.json")
    assert anneal_tasklets(instance, TaskletRequest(), num_steps=200).value_s <= PUBLISHED[name] * (1 + 1e-6)


@pytest.mark.timeout(60)
def test_regions_of_many_sizes_of_which_one_cannot_be_cut_end_at_once():
    # Forty regions of one device can be grouped in 10^30 ways by eights, and six of two in none.
    sizes = [1] * 40 + [2] * 6 + [4] * 3
    names = tuple(f"r{region}" for region, size in enumerate(sizes) for _ in range(size))
    spread = np.random.default_rng(0).uniform(0.01, 0.1, (64, 64))
    instance = TaskletInstance("many", names, spread + spread.T, np.full((64, 64), 1e9), 8, 1e8, 1e7)
    result = structured_best(instance, 20)
    assert sorted(result.device_of.ravel().tolist()) == list(range(64))
