"""Fleets that tests draw: small clusters of every kind, menus whose entries differ, workloads; and what plays them."""

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from meshwright.clusters import load_cluster
from meshwright.simulation.fleet import dynamics, sharing
from meshwright.simulation.fleet.menu_table import NO_BLOCKS, FleetBlocks, MenuTable
from meshwright.simulation.fleet.network import fleet_network
from meshwright.simulation.fleet.placing import placement_class
from meshwright.simulation.fleet.state import FleetProblem, PlacementRule, SharingMode, new_state

from ...samples import sample_clusters
from ...samples.sample_clusters import cluster_of, torus, trace

PACKED, SPREAD, NEAREST, CONSTRUCT, BLOCKS = PlacementRule


def clos(num_hosts, devices_per_host, hosts_per_leaf, *, device_overrides=None, **keys):
    """``oversubscription`` is 2: a leaf's trunk carries half of what its hosts send."""
    topology = sample_clusters.clos(num_hosts, devices_per_host, hosts_per_leaf, **{"oversubscription": 2, **keys})
    return cluster_of(topology, device_overrides=device_overrides or {})


def _torus():
    return cluster_of(torus(2, 3))


def _tree():
    """Leaves of three and one hosts in one site, of two in another."""
    leaves = [("a", "a0"), ("a", "a0"), ("a", "a0"), ("a", "a1"), ("b", "b0"), ("b", "b0")]
    hosts_at = [[str(number), "core", *leaf] for number, leaf in enumerate(leaves)]
    return cluster_of(trace(hosts_at, (15, 1), (5, 9), devices_per_host=2))


CLUSTERS = {
    "one host": lambda: load_cluster("preset:host-8"),
    "one leaf": lambda: clos(3, 4, 3),
    "two leaves": lambda: clos(4, 4, 2),
    "four leaves": lambda: clos(8, 2, 2),
    "a host a leaf": lambda: clos(4, 2, 1),
    "rail": lambda: clos(4, 2, 2, wiring="rail", nics_per_host=2),
    "two types": lambda: clos(6, 2, 2, device_overrides={"l0-h1": "v100", "l2-h0": "v100", "l2-h1": "v100"}),
    "torus": _torus,
    "two sites": _tree,
}


@cache
def network_of(name):
    return fleet_network(CLUSTERS[name]()).arrays


class Workload(NamedTuple):
    arrival_s: np.ndarray
    job_type: np.ndarray
    num_steps: np.ndarray
    deadline_s: np.ndarray
    seed: int = 0


def menu_of(network, types, *, work_device_s=None, state_bytes=None):
    """A menu from entries ``(degree, step_s, hidden_s, flows)`` of each type.

    ``step_s`` and ``hidden_s`` are called with device type, devices a host and hosts a group. ``flows`` is called with devices
    a host and the number of hosts, for rows (host slot, host slot, bytes, streams).
    """
    num_types = int(network.host_type.max()) + 1
    parts = network.devices_per_host.bit_length()
    spreads = int(np.bincount(network.class_group).max()).bit_length()
    shape = (num_types, parts, spreads * (2 if network.num_sites > 1 else 1))
    rows, first = [], [0]
    entries = [entry for of_type in types for entry in of_type]
    step_s, hidden_s = np.full((len(entries), *shape), np.inf), np.zeros((len(entries), *shape))
    for e, (degree, step, hidden, flows) in enumerate(entries):
        for k, g, h in np.ndindex(*shape):
            if degree % 2**g == 0:
                of = k, 2**g, 2 ** (h % spreads)
                apart = 1.5 if h >= spreads else 1.0
                step_s[e, k, g, h], hidden_s[e, k, g, h] = apart * step(*of), hidden(*of)
        for g in range(parts):
            rows += flows(2**g, degree // 2**g) if degree % 2**g == 0 and degree > 2**g else []
            first.append(len(rows))
    columns = (np.array([row[i] for row in rows], kind) for i, kind in enumerate((np.int64, np.int64, float, np.int64)))
    return MenuTable(
        np.cumsum([0, *map(len, types)]),
        np.array([entry[0] for entry in entries]),
        np.zeros(len(entries)),
        step_s,
        hidden_s,
        np.array(first),
        *columns,
        np.array(state_bytes or [0.0] * len(types)),
        np.array(work_device_s or [1.0] * len(types)),
    )


def constant(value):
    return lambda *_: value


def ring(num_bytes, streams=1):
    """Flows of a ring of hosts."""
    return lambda _, hosts: [(i, (i + 1) % hosts, num_bytes, streams) for i in range(hosts)]


def problem_of(network, menu, **keys):
    degrees = np.unique(menu.degree)
    rules = keys.pop("rules", [(PACKED, 0)])
    options = {
        "rule": np.array([rule for rule, _ in rules], np.int64),
        "rule_type": np.array([kind for _, kind in rules], np.int64),
        "sharing": int(SharingMode.NONE),
        "sharing_constants": getattr(sharing, "CONSTANTS", np.zeros(1)),
        "queue_capacity": 8,
        "visible_waiting": 4,
        "visible_running": 0,
        "entries_per_job": int(np.diff(menu.first_entry).max()),
        "every_s": 0.0,
        "at_events": False,
        "restart_s": 0.0,
        "storage_bytes_per_s": 1e9,
        "stores_by_host": False,
        "min_degree": 1,
        "max_degree": 1024,
        "max_running": network.devices_per_host * len(network.host_group),
        "max_hosts": len(network.host_group),
        "mean_failure_s": math.inf,
        "repair_s": 0.0,
        "blocks": NO_BLOCKS,
        "resource_capacity": np.array([2**62, 0]),
        "entry_demand": np.zeros((len(menu.degree), 2), np.int64),
        "may_refuse": False,
    }
    return FleetProblem(network, menu, degrees, np.searchsorted(degrees, menu.degree), **options | keys)


def with_blocks(problem, rng):
    """The problem with some sets of one, two and four hosts in any order as blocks."""
    network = problem.network
    counts = [count for count in (1, 2, 4) if count <= problem.max_hosts for _ in range(4)]
    sets = [rng.permutation(len(network.host_group))[:count] for count in counts]
    classes = np.array([placement_class(problem, hosts, len(hosts)) for hosts in sets])
    first, degrees = np.cumsum([0, *counts]), np.array(counts) * network.devices_per_host
    return problem._replace(blocks=FleetBlocks(degrees, first, np.concatenate(sets), classes, False))


def drawn_menu(network, rng, is_whole):
    """One to three types of a few entries each; whole seconds, so that events meet, or any."""
    size, num_hosts = network.devices_per_host, len(network.host_group)
    degrees = [d for d in (1, 2, 3, 4, 6, 8, 12, 16) if d <= size * num_hosts]

    def entry(degree, work_s, sends_bytes):
        time_s = work_s / degree * rng.uniform(1, 1.3)
        slow = {key: rng.uniform(1, 1.5) for key in np.ndindex(2, size + 1, num_hosts + 1)}
        never = {(k, g) for k in range(2) for g in range(size + 1) if rng.random() < 0.05}
        hides_s = rng.uniform(0, 0.3) * time_s

        def step(*of):
            result = max(1.0, round(slow[of] * time_s)) if is_whole else slow[of] * time_s
            return math.inf if of[:2] in never else result

        def flows(_, hosts):
            pairs = [
                (a, b) for a in range(hosts) for b in range(hosts) if a != b and (b == (a + 1) % hosts or rng.random() < 0.2)
            ]
            return [(a, b, sends_bytes * rng.uniform(0.5, 1), int(rng.integers(1, 9))) for a, b in pairs]

        return degree, step, constant(hides_s), flows

    types = []
    for _ in range(rng.integers(1, 4)):
        choice = sorted(rng.choice(degrees, min(len(degrees), rng.integers(2, 5)), replace=False).tolist())
        work_s, sends_bytes = 10 ** rng.uniform(0, 1.5), 10 ** rng.uniform(9, 11)
        types.append([entry(degree, work_s, sends_bytes) for degree in choice for _ in range(rng.integers(1, 3))])
    return menu_of(network, types, state_bytes=[float(rng.integers(0, 4)) * 1e9 for _ in types])


def drawn_workload(menu, rng, num_jobs, is_whole):
    num_types = len(menu.state_bytes)
    kinds, num_steps = rng.integers(0, num_types, num_jobs), rng.integers(1, 7, num_jobs).astype(float)
    gaps = rng.exponential(rng.choice([0.0, 1.0, 10.0]), num_jobs) * (rng.random(num_jobs) < 0.7)
    arrival_s = np.cumsum(np.round(gaps) if is_whole else gaps)
    fastest = np.array([menu.step_s[menu.first_entry[t] : menu.first_entry[t + 1]].min() for t in range(num_types)])
    allowed_s = num_steps * fastest[kinds] * rng.uniform(0.9, 4, num_jobs)
    deadline_s = np.where(rng.random(num_jobs) < rng.choice([0.0, 0.7]), arrival_s + allowed_s, np.inf)
    return Workload(arrival_s, kinds, num_steps, deadline_s, int(rng.integers(2**63)))


@st.composite
def fleets(draw, clusters=tuple(CLUSTERS), rules=tuple(PlacementRule), **fixed):
    """A problem, a workload and a generator of decisions; ``fixed`` are fields of `FleetProblem`."""
    network = network_of(draw(st.sampled_from(clusters)))
    kinds = range(int(network.host_type.max()) + 1)
    choice = draw(st.lists(st.tuples(st.sampled_from(rules), st.sampled_from(kinds)), min_size=1, max_size=4, unique=True))
    is_elastic, is_whole = draw(st.booleans()), draw(st.booleans())
    keys = {
        "sharing": int(draw(st.sampled_from(SharingMode))),
        "queue_capacity": draw(st.integers(0, 5)),
        "visible_waiting": draw(st.integers(1, 4)),
        "visible_running": draw(st.integers(1, 3)) if is_elastic else 0,
        "every_s": draw(st.sampled_from([2.0, 7.5, 30.0, math.inf])) if is_elastic else 0.0,
        "at_events": draw(st.booleans()) if is_elastic else False,
        "restart_s": draw(st.sampled_from([0.0, 1.0, 2.5])),
        "stores_by_host": draw(st.booleans()),
        "min_degree": draw(st.sampled_from([1, 2])),
        "max_degree": draw(st.sampled_from([4, 1024])),
        "max_running": draw(st.sampled_from([64, 2])),
        "max_hosts": draw(st.sampled_from([len(network.host_group), 2])),
        "may_refuse": draw(st.booleans()),
    }
    num_jobs, seed = draw(st.integers(4, 12)), draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    menu = drawn_menu(network, rng, is_whole)
    if draw(st.booleans()):
        longest_s = float(menu.step_s[np.isfinite(menu.step_s)].max(initial=1.0))
        keys["mean_failure_s"] = draw(st.sampled_from([2, 20])) * len(network.host_group) * longest_s
        keys["repair_s"] = draw(st.sampled_from([0.0, 1.0, 3.0])) * longest_s
    problem = problem_of(network, menu, rules=choice, **keys | fixed)
    if BLOCKS in (rule for rule, _ in choice):
        problem = with_blocks(problem, rng)
    return problem, drawn_workload(menu, rng, num_jobs, is_whole), rng


def started(problem, workload):
    """The state at the first decision."""
    state = new_state(problem, 1, len(workload.arrival_s))
    for name, values in workload._asdict().items():
        getattr(state, name)[0] = values
    dynamics.start(problem, state, 0)
    return state


def possible(state):
    return np.flatnonzero(state.can_act[0]).tolist()


def any_of(actions, rng, number):
    """An action, one in seven times to pass where that is possible, and more and more so in a long episode."""
    if actions[0] == 0 and rng.random() < 0.15 + number / 500:
        return 0
    return actions[rng.integers(len(actions))]


def play(problem, workload, choose):
    """The state at the end; ``choose`` is given the state and the actions that are possible."""
    state = started(problem, workload)
    while not state.is_over[0]:
        dynamics.act(problem, state, 0, choose(state, possible(state)))
    return state
