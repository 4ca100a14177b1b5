"""Which paths messages take: collisions worked by hand, and what every routing keeps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs import collectives, flows
from meshwright.costs.network import RankNetwork
from meshwright.costs.phases import Flow, Phase, fullest_s
from meshwright.costs.routing import MAX_PARTS, Routing
from meshwright.errors import ConfigError

from ..draws import draws
from ..samples.sample_clusters import clos, cluster_of, torus

SEEDS = range(64)


@pytest.fixture(scope="module")
def pairs_of_hosts():
    """Four hosts of one device below each of two leaves, two spines. Cards: 10 GB/s; uplinks: 10 x 4 / (2 x 2) = 10 GB/s."""
    return cluster_of(clos(8, 1, 4, inside=(100, 0), card=(10, 0), num_spines=2, oversubscription=2, spine_latency_us=0))


def both_s(cluster, routing):
    """Seconds of 10 GB from host 0 to 4 while 10 GB go from host 1 to 6; D-mod-2 sends both through spine 0."""
    network = RankNetwork(cluster, np.array([0, 1, 4, 6]), routing=routing)
    return fullest_s(network, Phase(0.0, (Flow(0, 2, 10e9), Flow(1, 3, 10e9))))


def separates(cluster, seed):
    routing = Routing("ecmp", seed)
    return routing.number(cluster, 0, 4) != routing.number(cluster, 1, 6)


def test_two_flows_collide_on_one_uplink_and_part_where_the_hash_parts_them(pairs_of_hosts):
    # one uplink carries 20 GB at 10 GB/s: 2 s; two carry 10 GB each: 1 s
    assert both_s(pairs_of_hosts, Routing()) == 2.0
    parted = [seed for seed in SEEDS if separates(pairs_of_hosts, seed)]
    assert 0 < len(parted) < len(SEEDS)
    for seed in SEEDS:
        assert both_s(pairs_of_hosts, Routing("ecmp", seed)) == (1.0 if seed in parted else 2.0)


def test_spread_flows_use_both_uplinks(pairs_of_hosts):
    # each uplink carries half of both; their cards carry 10 GB each, as before
    assert both_s(pairs_of_hosts, Routing("spread")) == 1.0


def test_one_message_has_all_uplinks_where_they_are_narrower_than_its_card(leaves):
    # device 0 to device 4: cards of 10 GB/s, uplinks of 2.5 GB/s to each of two spines
    one, both = (RankNetwork(leaves, np.array([0, 4]), routing=Routing(kind)) for kind in ("shortest-path", "spread"))
    assert flows.MODELS["cut-through"](one, 0, 1, 5e6) == pytest.approx(10e-6 + 2e-3, rel=1e-12)
    assert flows.MODELS["cut-through"](both, 0, 1, 5e6) == pytest.approx(10e-6 + 1e-3, rel=1e-12)


routings = st.one_of(
    st.just(Routing()), st.builds(Routing, st.just("ecmp"), st.integers(0, 2**63 - 1)), st.just(Routing("spread"))
)
tori = st.lists(st.integers(1, 4), min_size=1, max_size=3)


@draws(10)
@given(routings, tori, st.data())
def test_every_byte_leaves_and_arrives_and_parts_are_equal(routing, shape, data):
    cluster = cluster_of(torus(*shape))
    a, b = (data.draw(st.integers(0, cluster.num_devices - 1)) for _ in "ab")
    paths = routing.paths(cluster, a, b)
    load = np.zeros(len(cluster.links))
    for path in paths:
        load[list(path)] += 1 / len(paths)
    carried = np.zeros(len(cluster.links))
    for link, share in routing.carried(cluster, a, b):
        carried[link] = share
    assert carried == pytest.approx(load)
    ends = [name.split(">") for name in cluster.links.names]
    for device in range(cluster.num_devices):
        name = cluster.device_name(device)
        net = sum(c for (_, head), c in zip(ends, carried, strict=True) if head == name) - sum(
            c for (tail, _), c in zip(ends, carried, strict=True) if tail == name
        )
        assert net == pytest.approx(float(device == b) - float(device == a), abs=1e-12)


@draws(8)
@given(st.integers(0, 2**63 - 1))
def test_a_seed_gives_the_same_routes_every_time(pairs_of_hosts, seed):
    once, again = ([Routing("ecmp", seed).paths(pairs_of_hosts, a, b) for a in range(4) for b in range(4, 8)] for _ in range(2))
    assert once == again


def test_the_hash_uses_every_path_about_as_often():
    cluster = cluster_of(clos(128, 1, 64, inside=(1, 0), card=(1, 0), num_spines=8, spine_latency_us=0))
    numbers = [Routing("ecmp", 3).number(cluster, a, b) for a in range(64) for b in range(64, 128)]
    # 4,096 flows on eight paths: 512 each, with a deviation of 21; six of these are a bound
    assert np.bincount(numbers, minlength=8) == pytest.approx([512] * 8, abs=126)
    # between neighbours as well, whatever a simpler hash would make of consecutive numbers
    assert len({Routing("ecmp", 3).number(cluster, 0, b) for b in range(64, 96)}) == 8


def test_where_there_is_one_path_all_routings_agree(ramp):
    for kind in ("ecmp", "spread"):
        assert Routing(kind).paths(ramp, 3, 17) == Routing().paths(ramp, 3, 17)
        assert Routing(kind).signature(ramp, np.arange(4)) == b""


def test_groups_alike_on_other_hashed_paths_are_told_apart(pairs_of_hosts):
    routing, groups = Routing("ecmp", 0), [np.array([a, b]) for a in range(4) for b in range(4, 8)]
    for group in groups:
        for other in groups:
            same = [routing.number(pairs_of_hosts, *pair) for pair in (group, group[::-1])] == [
                routing.number(pairs_of_hosts, *pair) for pair in (other, other[::-1])
            ]
            assert (routing.signature(pairs_of_hosts, group) == routing.signature(pairs_of_hosts, other)) == same


@pytest.mark.parametrize("kind", ["ecmp", "spread"])
@draws(4)
@given(seed=st.integers(0, 1000), n=st.integers(2, 8))
def test_no_collective_is_faster_than_its_fullest_links(pairs_of_hosts, kind, seed, n):
    devices = np.random.default_rng(seed).permutation(8)[:n]
    network = RankNetwork(pairs_of_hosts, devices, routing=Routing(kind, seed))
    for name in ("ring", "tree", "halving-doubling", "hierarchical"):
        model = collectives.algorithm_named(name)
        least_s = sum(fullest_s(network, phase) for phase in model.phases(network, np.arange(n), 1e9))
        assert model.time_s(network, np.arange(n), 1e9) >= least_s * (1 - 1e-9)


def test_more_parts_than_a_message_is_cut_into_are_refused():
    cluster = cluster_of(torus(9, 9, 9))
    far = 4 * 81 + 4 * 9 + 4
    # 12! / (4! 4! 4!) ways
    with pytest.raises(ConfigError, match=rf"costs\.routing: 34,650 paths of equal cost .* {MAX_PARTS:,} parts are the most"):
        Routing("spread").paths(cluster, 0, far)
    assert len(Routing("ecmp").paths(cluster, 0, far)) == 1
    assert sum(share for _, share in Routing("spread").carried(cluster, 0, far)) == pytest.approx(12)
