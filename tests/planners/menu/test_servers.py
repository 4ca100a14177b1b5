"""Entries of a menu whose parameters are on servers: what they take, what they send, and who may have them."""

import numpy as np
import pytest

from meshwright.clusters.cluster import load_cluster
from meshwright.costs.training.synchronisation import server_rate
from meshwright.envs.fleet.fleet import build_fleet
from meshwright.envs.fleet.settings import FleetSettings
from meshwright.errors import ConfigError
from meshwright.planners.menu.build import build_menu
from meshwright.planners.menu.settings import MenuSettings
from meshwright.settings import build_settings
from meshwright.simulation.fleet.menu_table import SERVERS
from meshwright.simulation.fleet.network import add_loads, fleet_network
from meshwright.simulation.fleet.state import Resource

from .job_types import types_of

SOURCE = {"multiplier": 1.0, "multiplier_source": "a test"}
TYPE = {"name": "alexnet", "job": "zoo:alexnet", "global_batch": 1024}
STALE = {"name": "stale", "training": {"kind": "ssp", "staleness": 2, "servers": 2, **SOURCE}}
FREE = {"name": "free", "training": {"kind": "asp", "servers": 4, **SOURCE}}
KEYS = {"num_jobs": 5, "load": 0.5, "duration": {"median_s": 100, "sigma": 1, "most_s": 1000}, "requested": {8: 1}}


@pytest.fixture(scope="module")
def served(clos, folder):
    given = types_of({**TYPE, "name": "own", "training": {"kind": "asp", "servers": 4}}, {**TYPE, "training": {"kind": "asp"}})
    return build_menu(given, clos, build_settings(MenuSettings, {"degrees": [8, 16]}), cache=folder)


def flows_of(menu, entry, devices_per_host):
    flows = menu.table.flows(entry, devices_per_host)
    table = menu.table
    return list(zip(*(column[flows].tolist() for column in (table.flow_from, table.flow_to, table.flow_bytes)), strict=True))


def test_each_host_sends_its_workers_gradients_to_the_servers_and_gets_as_much_back(served, clos):
    gradient_bytes = float(served.job_types[0].graph.parameter_bytes.sum())
    for number, entry in enumerate(served.entries):
        for per_host in (2, 4):
            hosts = range(entry.layout.world // per_host)
            there = [(host, SERVERS, per_host * gradient_bytes) for host in hosts]
            back = [(SERVERS, host, per_host * gradient_bytes) for host in hosts]
            assert flows_of(served, number, per_host) == there + back


def test_the_rate_is_what_the_servers_cards_carry(served, clos):
    # AlexNet's computation is short against the way of its 244 MB, so that n workers take n ways, one behind the other.
    own, other = ([e for e in range(len(served.entries)) if served.entries[e].job_type == kind] for kind in (0, 1))
    card = clos.topology.hosts.nics_per_host * clos.topology.hosts.nic_bandwidth_bytes_per_s
    way_s = 2 * float(served.job_types[0].graph.parameter_bytes.sum()) / card
    step_s = {e: served.table.step_s[e][np.isfinite(served.table.step_s[e])].min() for e in (*own, *other)}
    each_s = [step_s[e] / served.entries[e].layout.world for e in other]
    assert way_s * (1 - 1e-9) <= min(each_s) < 1.2 * way_s
    assert max(each_s) == pytest.approx(min(each_s))
    for mine, single in zip(own, other, strict=True):  # four servers carry four times as much: a worker's card a host is full
        assert step_s[single] / 2 * (1 - 1e-9) <= step_s[mine] < step_s[single] / 1.6


def test_loads_of_the_way_to_the_servers_worked_by_hand(clos):
    network = fleet_network(clos).arrays
    num_hosts, group = len(network.host_group), int(network.host_group[5])
    busy_s, streams = np.zeros(len(network.capacity_bytes_per_s)), np.zeros(len(network.capacity_bytes_per_s))
    touched = np.empty(len(busy_s), np.int64)
    columns = np.array([0, SERVERS]), np.array([SERVERS, 0]), np.array([6e9, 3e9]), np.array([2, 2])
    count = add_loads(network, *columns, 0, 2, np.array([5]), busy_s, streams, touched)
    ways = [10, 2 * (num_hosts + group), 11, 2 * (num_hosts + group) + 1]  # out of host 5 and up, and in from above
    assert touched[:count].tolist() == ways
    assert busy_s[ways] == pytest.approx(np.array([6e9, 6e9, 3e9, 3e9]) / network.capacity_bytes_per_s[ways])
    assert streams[ways].tolist() == [2, 2, 2, 2]
    assert busy_s.sum() == pytest.approx(busy_s[ways].sum())


def test_a_fleet_offers_them_while_there_are_servers(clos, folder):
    entries = [one | {"training": one["training"] | {"multiplier": 0.5}} for one in (STALE, FREE)]  # worth a place in the menu
    menu = {"degrees": [8], "entries": entries}
    options = {"cluster": "preset:clos-64-4to1", "menu": menu, **KEYS, "job_types": [TYPE], "parameter_servers": 5}
    fleet = build_fleet(build_settings(FleetSettings, options), cache=folder)
    assert fleet.problem.resource_capacity[Resource.SERVERS] == 5
    named = [None if entry.named is None else entry.named.name for entry in fleet.menu.entries]
    assert set(named) - {None}
    assert fleet.problem.entry_demand[:, Resource.SERVERS].tolist() == [{None: 0, "stale": 2, "free": 4}[one] for one in named]


@pytest.mark.parametrize(
    "changes",
    [{"menu": {"degrees": [8], "entries": [FREE]}}, {"job_types": [TYPE | {"training": {"kind": "asp", "servers": 4}}]}],
)
def test_servers_that_are_not_there_are_told(folder, changes):
    options = {"cluster": "preset:clos-64-4to1", "menu": {"degrees": [8]}, **KEYS, "job_types": [TYPE], "parameter_servers": 3}
    with pytest.raises(ConfigError, match="give 4") as error:
        build_fleet(build_settings(FleetSettings, options | changes), cache=folder)
    assert error.value.field == "fleet.parameter_servers"


def test_a_cluster_without_leaf_switches_has_no_place_for_servers(folder):
    torus = load_cluster("preset:torus-256")
    with pytest.raises(ConfigError, match=r"no job type can use it.*leaf switches of a clos"):
        build_menu(types_of(TYPE), torus, build_settings(MenuSettings, {"degrees": [8], "entries": [FREE]}), cache=folder)


def test_more_servers_are_never_slower():
    times_s = np.full((40, 8), 0.1)
    rates = [server_rate(times_s, 0.5, None, servers) for servers in (1, 2, 4, 8, 16)]
    assert rates == sorted(rates)
    assert rates[0] == 2.0  # one way takes half a second
