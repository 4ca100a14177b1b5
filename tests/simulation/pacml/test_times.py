"""Communication times, worked by hand, and what each switch does to them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters import load_cluster
from meshwright.errors import ConfigError
from meshwright.simulation.pacml.mirror import mirror
from meshwright.simulation.pacml.semantics import Defects
from meshwright.simulation.pacml.splitting import split
from meshwright.simulation.pacml.times import Network, Spread, collective_times_s, dep_times

from .conftest import make_graph

LATENCY_S = 50e-9 + 2 * 100e-9


def spread(groups, racks, servers, racks_of_a_group=None):
    return Spread(*(np.array([v]) for v in (groups, racks, servers, racks if racks_of_a_group is None else racks_of_a_group)))


def collective_s(cluster, *shape, message=1e9, **switches):
    return float(collective_times_s(spread(*shape), np.array([message]), Network.from_cluster(cluster), Defects(**switches))[0])


def exchange_s(*message_s):
    return sum(2 * (LATENCY_S + each_s) for each_s in message_s)


def reduction_s(data, size):
    n = math.ceil(math.log2(size))
    return n * (data / size) / 2 / min(2e12 * n / ((size + 1) * 2), 130e12)


@pytest.mark.parametrize(
    ("shape", "switches", "expected_s"),
    [
        # g = [2, 1, 1, 1]; half of the message at trx(2) = 4 transceivers of B/x = 1e11, so 4e11 B/s; both ways
        ((2, 1, 1), {}, exchange_s(5e8 / 4e11) + reduction_s(1e9, 2)),
        # g = [2, 1, 2, 1]: messages of 5e8, then 2.5e8 bytes
        ((2, 2, 1), {}, exchange_s(5e8 / 4e11, 2.5e8 / 4e11) + reduction_s(1e9, 2) + reduction_s(5e8, 2)),
        # trx(4) = floor(4 / 3) = 1 transceiver: a quarter of the message at 1e11 B/s
        ((4, 1, 1), {}, exchange_s(2.5e8 / 1e11) + reduction_s(1e9, 4)),
        # servers of one rack exchange for nothing unless the defect is off; one server needs no exchange
        ((1, 1, 2), {}, 0.0),
        ((1, 1, 2), {"intra_rack_is_free": False}, exchange_s(5e8 / 4e11) + reduction_s(1e9, 2)),
        ((1, 1, 1), {}, 0.0),
        ((1, 1, 1), {"intra_rack_is_free": False}, 0.0),
        # a rate divided once is four times the rate
        ((4, 1, 1), {"transceiver_rate_divided_twice": False}, exchange_s(2.5e8 / 4e11) + reduction_s(1e9, 4)),
        # two racks that contend have x / J = 2 transceivers each instead of 4
        (
            (2, 2, 1),
            {"racks_never_contend": False},
            exchange_s(5e8 / 2e11, 2.5e8 / 2e11) + reduction_s(1e9, 2) + reduction_s(5e8, 2),
        ),
    ],
)
def test_a_collective_by_hand(cluster, shape, switches, expected_s):
    assert collective_s(cluster, *shape, **switches) == pytest.approx(expected_s, rel=1e-12)


@given(
    shape=st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 2)),
    message=st.floats(1, 1e12),
    more=st.floats(1, 10),
    switches=st.fixed_dictionaries(
        {key: st.booleans() for key in ("transceiver_rate_divided_twice", "intra_rack_is_free", "racks_never_contend")}
    ),
)
def test_more_bytes_never_take_less_time(cluster, shape, message, more, switches):
    one, other = (collective_s(cluster, *shape, message=m, **switches) for m in (message, message * more))
    assert 0 <= one <= other


# --- which dependencies form a collective ---

GRAPH = make_graph([0.0, 1.0, 1.0], [1.0] * 3, [4e9, 8e9, 2e10], [0, 0, 0], [(0, 1), (1, 2)])


def placed(cluster, servers, **switches):
    defects = Defects(**switches)
    job = split(mirror(GRAPH, defects), 2, defects)
    server = np.array([servers[0], *servers[1:], *servers[1:], *servers[1:], *servers[1:], servers[0]])
    return job, dep_times(job, server, Network.from_cluster(cluster), defects)


def between(job, times, source, target):
    here = (job.op[job.source] == source - 1) & (job.op[job.target] == target - 1)
    return times.run_s[here].tolist(), times.is_flow[here].tolist()


def test_an_uncut_op_sends_messages_of_its_own(cluster):
    # From server 0 to pieces on 0 and 16: one stays, the other takes the latency and 2e9 B at 4e11 B/s.
    job, times = placed(cluster, [0, 0, 16])
    run_s, is_flow = between(job, times, 1, 2)
    assert is_flow == [False, True]
    assert run_s == [0.0, pytest.approx(LATENCY_S + 2e9 / 4e11, rel=1e-12)]


def test_a_cut_op_and_its_cut_child_on_the_same_servers_form_one_collective(cluster):
    # Four sub-edges of 8e9 / 4 B are one message of 8e9 B between two communication groups.
    job, times = placed(cluster, [0, 0, 16])
    run_s, is_flow = between(job, times, 2, 3)
    expected = collective_s(cluster, 2, 1, 1, message=8e9)
    assert is_flow == [False, True, True, False]
    assert run_s == [0, pytest.approx(expected, rel=1e-12), pytest.approx(expected, rel=1e-12), 0]


def test_a_pair_synchronises_by_a_collective_of_both_its_dependencies(cluster):
    # Memory 2e10 cut in two: 1e10 B each way, 2e10 B in all.
    job, times = placed(cluster, [0, 0, 16])
    assert between(job, times, 4, 4)[0] == [pytest.approx(collective_s(cluster, 2, 1, 1, message=2e10), rel=1e-12)] * 2


def test_a_collective_between_servers_of_one_rack_is_a_flow_that_takes_no_time(cluster):
    job, times = placed(cluster, [0, 0, 1])
    assert between(job, times, 2, 3) == ([0, 0, 0, 0], [False, True, True, False])


def test_one_collective_of_four_beats_six_of_two_in_bytes_moved(cluster):
    graph = make_graph([1.0], [1.0], [4e9], [4e9], [])
    for pairwise, message, shape in ((True, 2 * 8e9 / 4, (2, 1, 1)), (False, 8e9, (2, 2, 1))):
        defects = Defects(sync_is_pairwise=pairwise)
        job = split(mirror(graph, defects), 4, defects)
        times = dep_times(job, np.array([0, 2, 16, 18] * 2), Network.from_cluster(cluster), defects)
        sync = times.run_s[job.edge < 0]
        assert len(sync) == 12
        assert sync[(times.source == 0)[job.edge < 0] & (times.target == 16)[job.edge < 0]] == pytest.approx(
            collective_s(cluster, *shape, message=message), rel=1e-12
        )


def test_other_topologies_are_refused():
    with pytest.raises(ConfigError, match="ramp"):
        Network.from_cluster(load_cluster("preset:host-8"))
