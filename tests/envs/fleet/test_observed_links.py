"""Links between hosts and trunks in an observation: off unless asked for, and the same as in the graph for PyG."""

import numpy as np
import pytest

from meshwright.envs.fleet.benchmark import load_fleet_benchmark
from meshwright.envs.fleet.env import FleetEnv
from meshwright.envs.fleet.features import link_bandwidths
from meshwright.models.fleet.hetero import hetero_data
from meshwright.training.fleet.vec_env import FleetVecEnv


@pytest.fixture
def fleet(small_file):
    return load_fleet_benchmark(str(small_file), changes=["fleet.observes_links=true"]).build()


def test_bandwidths_worked_by_hand(fleet):
    """Two hosts of a 12.5 GB/s card each below a leaf whose trunk has a quarter of both."""
    assert link_bandwidths(fleet.problem.network).tolist() == [
        [[1.0, 0.5], [1.0, 0.5], [0.0, 0.0], [0.0, 0.0]],
        [[0.0, 0.0], [0.0, 0.0], [1.0, 0.5], [1.0, 0.5]],
    ]


def test_links_are_those_of_the_graph_for_pyg(fleet):
    env, rng, most = FleetEnv(fleet=fleet), np.random.default_rng(0), 0.0
    seen, _ = env.reset(seed=0)
    over = False
    while not over:
        edges = hetero_data(fleet, seen)["host", "below", "trunk"]
        host, trunk = edges.edge_index.numpy()
        again = np.zeros_like(seen["links"])
        again[trunk, host] = edges.edge_attr.numpy()
        np.testing.assert_array_equal(again, seen["links"])
        most = max(most, float(seen["links"][:, :, 2:].max()))
        seen, _, over, _, _ = env.step(int(rng.choice(np.flatnonzero(seen["action_mask"]))))
    assert most > 0


def test_nothing_else_changes(fleet, small_fleet):
    plain = FleetEnv(fleet=small_fleet)
    assert set(FleetEnv(fleet=fleet).observation_space.spaces) - set(plain.observation_space.spaces) == {"links"}
    assert fleet.digest == small_fleet.digest
    assert "observes_links" not in small_fleet.settings.model_dump()
    env = FleetVecEnv(fleet, 2, 0)  # what policies here are trained on
    assert set(env.observation_space.spaces) == set(env.reset()) == {*plain.observation_space.spaces, "to_come"}
