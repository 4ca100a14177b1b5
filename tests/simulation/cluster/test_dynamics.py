"""Cluster dynamics against a plain player that knows nothing but devices, blocks and step times."""

import numpy as np
import pytest
from hypothesis import strategies as st

from meshwright.clusters.cluster import load_cluster
from meshwright.jobs.arrivals import Arrivals
from meshwright.simulation.cluster import dynamics
from meshwright.simulation.cluster.scenario import ScenarioSettings, assemble
from meshwright.simulation.cluster.state import Outcome

from ..samples import small_workload

seeds = st.integers(0, 10_000)


def arrivals_of(scenario, seed):
    return scenario.workload.sample(np.random.default_rng(seed), scenario.settings.num_jobs + 1)


def play(scenario, arrivals, choose):
    """One episode; ``choose(episodes)`` gives a candidate for each decision."""
    episodes = scenario.new_episodes(1)
    scenario.reset(episodes, 0, arrivals)
    for _ in range(scenario.settings.num_jobs):
        dynamics.decide(scenario.problem, episodes, 0, choose(episodes))
    return episodes


def at_random(seed, eager):
    """Takes any candidate that can be placed, or turns the job away now and then."""
    rng = np.random.default_rng(seed)

    def choose(episodes):
        placeable = np.flatnonzero(episodes.can_place[0, 1:]) + 1
        return int(rng.choice(placeable)) if len(placeable) and rng.random() < eager else 0

    return choose


def test_an_episode_that_starts_anew_forgets_the_last_one(scenario):
    arrivals = arrivals_of(scenario, 5)
    episodes = play(scenario, arrivals_of(scenario, 4), at_random(4, 1.0))
    scenario.reset(episodes, 0, arrivals)
    for name, values in episodes._asdict().items():
        fresh = scenario.new_episodes(1)
        scenario.reset(fresh, 0, arrivals)
        assert np.array_equal(values, getattr(fresh, name), equal_nan=values.dtype == np.float64), name


def test_a_candidate_that_cannot_be_placed_rejects_the_job(scenario):
    episodes = scenario.new_episodes(1)
    scenario.reset(episodes, 0, arrivals_of(scenario, 0))
    barred = int(np.flatnonzero(~episodes.can_place[0])[0])
    assert not dynamics.decide(scenario.problem, episodes, 0, barred)
    assert (episodes.chosen[0, 0], episodes.outcome[0, 0], episodes.block[0, 0]) == (0, Outcome.REJECTED, -1)


def assert_same(first, second):
    for name in first.__dataclass_fields__:
        assert is_same(getattr(first, name), getattr(second, name)), name


def is_same(a, b):
    """Whether two fields of records are equal, NaN where NaN is."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(is_same(a[key], b[key]) for key in a)
    return np.array_equal(a, b, equal_nan=np.asarray(a).dtype == np.float64)


@pytest.fixture(scope="module")
def one_host():
    """Eight devices of one host; first fit only; four jobs."""
    settings = ScenarioSettings(
        cluster="preset:host-8", workload="made to measure", num_jobs=4, max_degree=4, placement_rules=("first-fit",)
    )
    return assemble(settings, load_cluster(settings.cluster), small_workload())


def by_hand(scenario, *, arrival_s, deadline_fraction, num_steps=1000):
    """Jobs of graph 0, in an episode that shows the first of them."""
    jobs = len(arrival_s)
    fractions = np.broadcast_to(deadline_fraction, jobs)
    episodes = scenario.new_episodes(1)
    scenario.reset(episodes, 0, Arrivals(np.array(arrival_s), np.zeros(jobs), np.full(jobs, num_steps), fractions))
    return episodes


def take(scenario, episodes, degree):
    """Accept the current job on that many ranks."""
    return dynamics.decide(scenario.problem, episodes, 0, scenario.candidate_degree.index(degree))


def test_a_job_that_needs_more_than_the_one_free_device_finds_no_block(one_host):
    # 4 + 2 + 1 devices are taken; the last job may take 0.9 of its sequential time, so one device is too slow for it
    episodes = by_hand(one_host, arrival_s=[0.0] * 5, deadline_fraction=[np.inf, np.inf, np.inf, 0.9, np.inf])
    assert all(take(one_host, episodes, degree) for degree in (4, 2, 1))
    assert not take(one_host, episodes, 1)
    assert episodes.outcome[0, 3] == Outcome.NO_BLOCK


def test_a_deadline_that_no_block_meets_is_the_reason_even_on_an_empty_cluster(one_host):
    # four devices are at most four times as fast
    episodes = by_hand(one_host, arrival_s=[0.0] * 5, deadline_fraction=0.24)
    assert episodes.can_place[0].tolist() == [True, False, False, False]
    assert not take(one_host, episodes, 4)
    assert episodes.outcome[0, 0] == Outcome.DEADLINE


def test_devices_are_free_again_at_the_very_moment_a_job_ends(one_host):
    four = by_hand(one_host, arrival_s=[0.0] * 5, deadline_fraction=np.inf).candidate_s[0, -1]
    for arrival_s, outcome in ((four, Outcome.REJECTED), (np.nextafter(four, 0.0), Outcome.NO_DEVICE)):
        episodes = by_hand(one_host, arrival_s=[0.0, 0.0, arrival_s, arrival_s, arrival_s], deadline_fraction=np.inf)
        take(one_host, episodes, 4)
        take(one_host, episodes, 4)
        assert episodes.obstacle[0] == outcome


def test_a_deadline_is_met_within_a_relative_tolerance_of_1e_9(one_host):
    four = by_hand(one_host, arrival_s=[0.0] * 5, deadline_fraction=np.inf).candidate_s[0, -1]
    exact = four / (1000 * one_host.workload.graphs[0].step_s)
    for fraction, meets in ((exact, True), (exact * (1 - 5e-10), True), (exact * (1 - 2e-9), False)):
        episodes = by_hand(one_host, arrival_s=[0.0] * 5, deadline_fraction=fraction)
        assert episodes.can_place[0].tolist() == [True, False, False, meets]


def test_a_job_on_one_device_meets_the_deadline_of_its_sequential_time(one_host):
    # the published simulator blocks such jobs where rounding puts them above
    assert by_hand(one_host, arrival_s=[0.0] * 5, deadline_fraction=1.0, num_steps=123_457).can_place[0, 1]


def test_first_fit_takes_the_first_devices_in_scan_order(one_host):
    episodes = by_hand(one_host, arrival_s=[0.0] * 5, deadline_fraction=np.inf)
    for degree in (1, 2, 4):
        take(one_host, episodes, degree)
    taken = [one_host.space.block(int(b)).tolist() for b in episodes.block[0, :3]]
    assert taken == [[0], [2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize(("rule", "third"), [("first-fit", [0]), ("best-fit", [3])])
def test_best_fit_keeps_pairs_whole_worked_by_hand(rule, third):
    # Two jobs arrive at once: one takes devices 0 and 1, the other device 2. When the first has ended, device 0 is the first
    # free one, but taking it would cost the pair 0-1; device 3 costs no pair, because 2-3 is broken already.
    settings = ScenarioSettings(
        cluster="preset:host-8", workload="made to measure", num_jobs=4, max_degree=4, placement_rules=(rule,)
    )
    scenario = assemble(settings, load_cluster(settings.cluster), small_workload())
    two = by_hand(scenario, arrival_s=[0.0] * 5, deadline_fraction=np.inf).candidate_s[0, 2]
    episodes = by_hand(scenario, arrival_s=[0.0, 0.0, two, two, two], deadline_fraction=np.inf)
    assert all(take(scenario, episodes, degree) for degree in (2, 1, 1))
    taken = [scenario.space.block(int(b)).tolist() for b in episodes.block[0, :3]]
    assert taken == [[0, 1], [2], third]
