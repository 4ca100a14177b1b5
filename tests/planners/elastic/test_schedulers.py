"""Schedulers of elastic jobs: shares and packing by law, the published ones to the second."""

import dataclasses
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.jobs.readers.elastic import load_applications, load_published, load_workload
from meshwright.planners.elastic.attained_service import AttainedService
from meshwright.planners.elastic.expected_remaining import ExpectedRemaining
from meshwright.planners.elastic.goodput_shares import GoodputShares
from meshwright.planners.elastic.marginal_gain import MarginalGain
from meshwright.planners.elastic.scheduler import PUBLISHED, play
from meshwright.planners.elastic.shares import best_shares, pack
from meshwright.planners.elastic.shortest_remaining import ShortestRemaining
from meshwright.simulation.elastic.simulation import ElasticSimulation

from ...draws import draws
from ...elastic_samples import simulation_of, workload, write_applications

SCHEDULERS = (AttainedService, MarginalGain, lambda: GoodputShares(generations=3), ShortestRemaining, ExpectedRemaining)
RANKS = np.array([1, 2, 3, 5], np.int64)


@pytest.fixture(scope="module")
def simulation(tmp_path_factory):
    return simulation_of(write_applications(tmp_path_factory.mktemp("elastic") / "applications"))


@given(st.lists(st.lists(st.floats(-1.0, 5.0), min_size=4, max_size=4), min_size=1, max_size=3), st.integers(1, 7))
def test_no_other_shares_are_worth_more(values, num_devices):
    values, choice = np.array(values), np.empty(len(values), np.int64)
    best_shares(values, RANKS, num_devices, choice)

    def worth(choice):
        if sum(RANKS[o] for o in choice if o >= 0) > num_devices:
            return -np.inf
        return sum(values[i, o] for i, o in enumerate(choice) if o >= 0)

    assert worth(choice) == pytest.approx(max(worth(choice) for choice in product(range(-1, 4), repeat=len(values))))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.integers(1, 24), st.booleans())
def test_packing_takes_free_devices_only_and_each_node_once(free, num_ranks, is_tight):
    num_ranks = min(num_ranks, sum(free))
    left, ranks = np.array(free, np.int64), np.empty(24, np.int16)
    pack(ranks, num_ranks, left, is_tight)
    used = np.bincount(ranks[:num_ranks], minlength=len(free)) if num_ranks else np.zeros(len(free), np.int64)
    assert (ranks[num_ranks:] == -1).all()
    assert (np.array(free) - used == left).all()
    assert (left >= 0).all()
    # No placement has fewer nodes than one that fills the emptiest first.
    fullest = np.cumsum(sorted(free, reverse=True))
    assert np.count_nonzero(used) == (int(np.searchsorted(fullest, num_ranks)) + 1 if num_ranks else 0)


def test_a_rest_goes_where_it_leaves_least():
    ranks, free = np.empty(8, np.int16), np.array([4, 2, 1, 3], np.int64)
    pack(ranks, 6, free, True)
    assert ranks.tolist() == [0, 0, 0, 0, 1, 1, -1, -1]
    assert free.tolist() == [0, 0, 1, 3]


JOB = st.tuples(st.integers(0, 200), st.integers(0, 1), st.integers(1, 6), st.just(64))


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@given(st.lists(JOB, min_size=1, max_size=6))
@draws(4)
def test_every_scheduler_ends_every_job_and_never_before_it_can(simulation, scheduler, jobs):
    (spans,) = play(simulation, scheduler(), [workload(jobs)])
    assert (spans > 0).all()
    # Device-seconds held are those between the decisions at which a job had ranks; none is held after the end.
    assert (simulation.jobs.num_restarts[0] >= 0).all()
    assert simulation.jobs.epoch[0].tolist() == [int(simulation.apps.num_epochs[a]) for _, a, _, _ in jobs]


def test_the_shorter_job_goes_first_where_there_is_one_device(tmp_path):
    simulation = simulation_of(write_applications(tmp_path / "applications"), num_nodes=1, devices_per_node=1)
    (spans,) = play(simulation, ShortestRemaining(), [workload([(0, 1, 1, 64), (0, 0, 1, 64)])])
    assert spans[1] < spans[0]
    (spans,) = play(simulation, AttainedService(), [workload([(0, 1, 1, 64), (0, 0, 1, 64)])])
    assert spans[0] < spans[1]  # in the order of the workload, as both ask for one device


def test_equal_seeds_search_alike(simulation):
    jobs = workload([(0, 0, 4, 64), (0, 1, 4, 64), (60, 1, 4, 64)])
    spans = [play(simulation, GoodputShares(seed, 5), [jobs])[0].tolist() for seed in (1, 1)]
    assert spans[0] == spans[1]
    together = play(simulation, GoodputShares(1, 5), [jobs, jobs])
    alone = [play(simulation, GoodputShares(1, 5, first), [jobs])[0].tolist() for first in (0, 1)]
    assert [each.tolist() for each in together] == alone


@pytest.fixture(scope="module")
def published(reference):
    """Applications of the artifact, and a simulation of them."""
    applications = load_applications(reference / "elastic" / "applications")
    return applications, ElasticSimulation(applications)


@pytest.mark.reference
@pytest.mark.parametrize("num_jobs", [24, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("policy", "load", "name"), [("tiresias", "load-1.0", "workload-3"), ("optimus", "load-0.5", "workload-7")]
)
def test_the_published_schedulers_are_met_to_the_second(reference, published, policy, load, name, num_jobs):
    """Of the first jobs alone those that end before the next one comes; what comes later cannot change them."""
    applications, simulation = published
    whole = load_workload(reference / "elastic" / "workloads" / load / f"{name}.csv", applications)
    reported = load_published(reference / "elastic" / "published" / f"{policy}-{load}.json")[name]
    first = {key: values[:num_jobs] for key, values in vars(whole).items() if key != "name"}
    jobs = dataclasses.replace(whole, **first)
    (spans,) = play(simulation, PUBLISHED[policy](), [jobs])
    next_s = np.inf if num_jobs is None else whole.submission_s[num_jobs]
    has_ended = jobs.submission_s + spans <= next_s
    assert has_ended.sum() >= len(spans) / 2
    assert [reported[job] for job in np.array(jobs.job_names)[has_ended]] == spans[has_ended].tolist()
