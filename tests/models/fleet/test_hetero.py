"""The graph for PyG holds what the padded arrays hold, and nothing else."""

import numpy as np
import pytest

from meshwright.envs.fleet.env import FleetEnv
from meshwright.envs.fleet.features import trunk_members
from meshwright.models.fleet.hetero import hetero_data
from tests.tiny_fleet import tiny_fleet


@pytest.fixture(scope="module", params=[{}, {"placements": ["construct"], "candidate_features": "none"}])
def env(request, tmp_path_factory):
    return FleetEnv(fleet=tiny_fleet(tmp_path_factory.mktemp("fleet"), load=1.5, **request.param))


def test_the_graph_is_the_observation_without_its_padding(env):
    rng, most = np.random.default_rng(0), 0
    seen, _ = env.reset(seed=0)
    for _ in range(60):
        data = hetero_data(env.fleet, seen)
        held, rows = seen["host_of"], np.flatnonzero(seen["running"][:, -1])
        running, host = data["running", "holds", "host"].edge_index.numpy()
        again = np.zeros_like(held)
        again[rows[running], host] = data["running", "holds", "host"].edge_attr[:, 0].numpy()
        np.testing.assert_array_equal(again, held)
        running, trunk = data["running", "loads", "trunk"].edge_index.numpy()
        again = np.zeros_like(seen["trunk_of"])
        again[rows[running], trunk] = data["running", "loads", "trunk"].edge_attr[:, 0].numpy()
        np.testing.assert_array_equal(again, seen["trunk_of"])
        np.testing.assert_array_equal(data["offer"].x.numpy(), seen["offers"][data["offer"].row.numpy()])
        assert len(data["offer"].x) == seen["offers"][:, 0].sum()
        assert (data["offer"].type < env.fleet.num_types).all()
        assert ("candidates" in data) == (env.fleet.settings.candidate_features != "none")
        most = max(most, len(rows))
        seen, _, ended, _, _ = env.step(int(rng.choice(np.flatnonzero(seen["action_mask"]))))
        if ended:
            break
    assert most > 1


def test_hosts_hang_below_their_trunks_by_links_of_known_bandwidth(env):
    data, network = hetero_data(env.fleet, env.reset(seed=0)[0]), env.fleet.problem.network
    host, trunk = data["host", "below", "trunk"].edge_index.numpy()
    assert (trunk_members(network)[trunk, host] == 1).all()
    assert len(host) == trunk_members(network).sum()
    reported = data["host", "below", "trunk"].edge_attr.numpy()
    fastest = network.capacity_bytes_per_s.max()
    assert reported[:, 0] * fastest == pytest.approx(network.capacity_bytes_per_s[2 * host], rel=1e-6)
    up = 2 * (len(network.host_group) + trunk)
    assert reported[:, 1] * fastest == pytest.approx(network.capacity_bytes_per_s[up], rel=1e-6)
