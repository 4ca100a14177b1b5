"""Fleets whose menu has named entries: their features in observations, their masks, and the policies that they refuse."""

import json

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from meshwright.envs.fleet.batch import FleetBatch
from meshwright.envs.fleet.benchmark import load_fleet_benchmark
from meshwright.envs.fleet.env import FleetEnv
from meshwright.envs.fleet.features import CANDIDATE, CANDIDATE_STRATEGY, CONTEXT, LEFT, STRATEGY
from meshwright.envs.fleet.fleet import synchronous_only
from meshwright.envs.fleet.menu_lines import menu_lines
from meshwright.errors import CheckpointError, ConfigError
from meshwright.simulation.fleet.state import Resource

from ...fleet_samples import coded

RHO = 1.25
CODED = coded(RHO)
FIRST, LAST = len(CANDIDATE), len(CANDIDATE) + len(CANDIDATE_STRATEGY)
EXACTNESS, STEPS, MEMORY, EXPOSED, TREES_LEFT, SERVERS_LEFT, LINK_LEFT = range(FIRST, LAST)


@pytest.fixture(scope="module")
def named(small_file):
    return load_fleet_benchmark(str(small_file), changes=[f"fleet.menu.entries={json.dumps([CODED])}"]).build()


def seen_of(fleet, seed=0):
    """Offers in an episode of random choices: features of the candidates that start a job, row by row."""
    batch, random, rows = FleetBatch(fleet, 1), np.random.default_rng(seed), []
    batch.reset(0, np.random.default_rng(seed))
    over = np.zeros(1, np.bool_)
    while not over.any():
        candidates, mask = batch.observations.candidates[0], batch.observations.action_mask[0] > 0
        rows.append(candidates[mask & (candidates[:, STEPS] > 0)].copy())
        _, over = batch.step(np.array([random.choice(np.flatnonzero(mask))]))[:2]
    return np.concatenate(rows)


def test_the_environment_is_one_of_gymnasiums_and_shows_more_than_without_names(named, small_fleet):
    check_env(FleetEnv(fleet=named), skip_render_check=True)
    plain, more = FleetEnv(fleet=small_fleet).observation_space, FleetEnv(fleet=named).observation_space
    assert more["context"].shape == (len(CONTEXT) + len(STRATEGY) + len(LEFT),)
    assert more["candidates"].shape[1] == plain["candidates"].shape[1] + len(CANDIDATE_STRATEGY)


def test_candidates_tell_how_exact_they_are_and_how_many_steps_they_want(named):
    rows = seen_of(named)
    coded = rows[:, EXACTNESS] == 0
    assert coded.any()
    assert set(rows[~coded, EXACTNESS]) == {1.0}
    assert rows[coded, STEPS] == pytest.approx(RHO / (1 + RHO))
    assert rows[~coded, STEPS] == pytest.approx(0.5)
    assert ((rows[:, [MEMORY, EXPOSED]] >= 0) & (rows[:, [MEMORY, EXPOSED]] <= 1)).all()
    assert len(np.unique(rows[:, EXPOSED])) > 1


def test_what_is_left_of_the_busiest_link_is_told_where_steps_are_simulated(small_file):
    changes = [f"fleet.menu.entries={json.dumps([CODED])}", "fleet.candidate_features=simulated"]
    rows = seen_of(load_fleet_benchmark(str(small_file), changes=changes).build())
    assert ((rows[:, LINK_LEFT] >= 0) & (rows[:, LINK_LEFT] <= 1)).all()
    assert 0 < rows[:, LINK_LEFT].min() < 1
    many = rows[:, EXPOSED] > 0.3  # who shows much of what it sends loads a link
    assert rows[many, LINK_LEFT].mean() < rows[~many, LINK_LEFT].mean()


def test_lines_of_the_menu_hold_the_step_and_the_step_times_the_multiplier(named):
    lines = [line for line in menu_lines(named) if line["name"] == "coded"]
    assert lines
    for line in lines:
        assert line["effective_step_s"] == pytest.approx(RHO * line["step_s"])
        assert line["multiplier_source"] == "a test"


def test_synchronous_training_alone_meets_the_same_jobs_and_is_offered_nothing_else(named, small_fleet):
    masked = synchronous_only(named)
    assert set(seen_of(masked)[:, EXACTNESS]) == {1.0}
    assert synchronous_only(masked) is masked
    assert synchronous_only(small_fleet) is small_fleet
    for fleet in (masked, small_fleet):
        assert (fleet.requested_step_s == named.requested_step_s).all()
        for mine, its in zip(fleet._draw(np.random.default_rng(1), 50), named._draw(np.random.default_rng(1), 50), strict=True):
            np.testing.assert_array_equal(mine, its)
        assert fleet.mean_interarrival_s == named.mean_interarrival_s


def test_a_policy_of_a_menu_without_names_is_refused(named, small_fleet, tmp_path):
    torch = pytest.importorskip("torch")
    from meshwright.models.fleet.network import FleetActor
    from meshwright.models.fleet.saved import SavedFleetNetwork, load_fleet_policy
    from meshwright.models.settings import FleetNetworkSettings

    torch.manual_seed(0)
    actor = FleetActor(FleetNetworkSettings(width=8, rounds=1), small_fleet)
    SavedFleetNetwork.from_network(actor, {"candidate_features": "analytic"}).save(tmp_path / "policy.pt")
    assert load_fleet_policy(tmp_path, small_fleet) is not None
    with pytest.raises(CheckpointError, match="entries with names"):
        load_fleet_policy(tmp_path, named)


def test_a_menu_of_the_same_jobs_with_more_entries_is_told_as_such(named, small_fleet):
    assert small_fleet.condition_changes(small_fleet.conditions) is None
    assert named.condition_changes(small_fleet.conditions) == "other entries or prices of the same jobs (small, large)"


def test_trees_of_the_cluster_are_for_entries_whose_messages_switches_reduce(small_file):
    entries = json.dumps([{"name": "switches", "collectives": "in-network", "partition": "dp=2|4"}])
    one_type = "fleet.job_types=[{name: small, job: zoo:alexnet, global_batch: 64}]"
    changes = [f"fleet.menu.entries={entries}", "fleet.in_network_trees=1", one_type]
    fleet = load_fleet_benchmark(str(small_file), changes=changes).build()
    assert fleet.problem.resource_capacity[Resource.TREES] == 1
    named = np.array([entry.named is not None for entry in fleet.menu.entries])
    assert named.any()
    # a host has two devices: replicas on four sum between hosts by one tree, those of one host by none
    assert (fleet.problem.entry_demand[:, Resource.TREES] == (named & (fleet.menu.table.degree > 2))).all()
    batch = FleetBatch(fleet, 1)
    batch.reset(0, np.random.default_rng(0))
    assert batch.observations.context[0, -len(LEFT) :].tolist() == [0.5, 0.0]  # one tree, no servers
    rows = batch.observations.candidates[0][batch.observations.action_mask[0] > 0]
    assert set(rows[rows[:, STEPS] > 0, TREES_LEFT]) <= {0.0, 0.5}
    assert (rows[:, SERVERS_LEFT] == 0).all()
    with pytest.raises(ConfigError, match=r"give menu\.entries"):
        load_fleet_benchmark(str(small_file), changes=["fleet.in_network_trees=1", "fleet.costs.collectives=in-network"])
