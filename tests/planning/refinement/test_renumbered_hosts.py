"""Renumbering the hosts of an uneven network changes no estimate and no search."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters import load_cluster
from meshwright.clusters.cluster import Cluster
from meshwright.clusters.host_order import chained_devices
from meshwright.planning.estimate import estimate
from meshwright.planning.search import search_layouts

from ...costs.uneven import matrix_of, regions, renumbered
from ...draws import draws

LAYOUTS = ("dp=2,pp=2", "dp=4", "pp=4", "tp=2,pp=2", "tp=2,dp=2", "dp=2,pp=2,zero=1")


@st.composite
def uneven(draw, num_hosts):
    """A network of few different links, so that many hosts are equal, and another numbering of it."""
    rng, per_host = np.random.default_rng(draw(st.integers(0, 10**6))), draw(st.sampled_from([1, 2]))
    devices = num_hosts * per_host
    kinds = rng.integers(0, draw(st.sampled_from([2, 3, 50])), (devices, devices))
    kinds = kinds if draw(st.booleans()) else np.minimum(kinds, kinds.T)
    cluster = matrix_of(10.0 ** (2 - kinds % 4), 10.0 * kinds, per_host)
    host_of = rng.permutation(num_hosts)
    return cluster, renumbered(cluster, host_of)[0], host_of


@draws(10)
@given(networks=uneven(num_hosts=6), layout=st.sampled_from(LAYOUTS))
def test_an_estimate_does_not_depend_on_the_numbers_of_hosts(networks, layout):
    steps_s = [estimate("zoo:bert-base", one, f"{layout},micro_batch=2,global_batch=16").step.step_s for one in networks[:2]]
    assert steps_s[1] == pytest.approx(steps_s[0], rel=1e-9)


@draws(3)
@given(networks=uneven(num_hosts=4), effort=st.sampled_from(["none", "fast"]), devices=st.sampled_from(["4", None]))
def test_a_search_does_not_depend_on_the_numbers_of_hosts(networks, effort, devices):
    request = {
        "batch": 16,
        "keep": "micro_batch=2,schedule=1f1b,recompute=none,zero=0,cp=1",
        "devices": devices,
        "arrange": effort,
    }
    results = [search_layouts("zoo:bert-base", one, **request).searched.ranking for one in networks[:2]]
    assert [one.step_s for one in results[1]] == pytest.approx([one.step_s for one in results[0]], rel=1e-9)


@pytest.mark.parametrize("num_kinds", [2, 50])
def test_an_estimate_on_many_hosts_does_not_depend_on_their_numbers(num_kinds):
    rng = np.random.default_rng(num_kinds)
    kinds = rng.integers(0, num_kinds, (140, 140))
    one = matrix_of(10.0 ** (2 - kinds % 4), 10.0 * kinds)
    steps_s = [
        estimate("zoo:bert-base", where, "dp=20,pp=7,micro_batch=1,global_batch=20").step.step_s
        for where in (one, renumbered(one, rng.permutation(140))[0])
    ]
    assert steps_s[1] == pytest.approx(steps_s[0], rel=1e-9)


@draws(6)
@given(networks=uneven(num_hosts=6), busy=st.sets(st.integers(0, 5), min_size=1, max_size=2), layout=st.sampled_from(LAYOUTS))
def test_an_estimate_on_free_devices_does_not_depend_on_the_numbers_of_hosts(networks, busy, layout):
    one, other, host_of = networks
    free = [~np.isin(one.device_host, list(busy)), ~np.isin(other.device_host, host_of[list(busy)])]
    request = f"{layout},micro_batch=2,global_batch=16"
    both = zip((one, other), free, strict=True)
    steps_s = [estimate("zoo:bert-base", where, request, is_free=is_free).step.step_s for where, is_free in both]
    assert steps_s[1] == pytest.approx(steps_s[0], rel=1e-9)


@draws(6)
@given(order=st.permutations(range(4)), layout=st.sampled_from(LAYOUTS), is_matrix=st.booleans())
def test_an_estimate_on_mixed_devices_does_not_depend_on_the_numbers_of_hosts(order, layout, is_matrix):
    steps_s = []
    for hosts in (range(4), order):
        data = matrix_of(*np.full((2, 4, 4), 10.0)).to_data() if is_matrix else load_cluster("preset:clos-64-25g").to_data()
        names = load_cluster("preset:clos-64-25g").host_names if not is_matrix else [f"host-{number}" for number in range(4)]
        data |= {"device": "a100", "device_overrides": {names[place]: "h100" for place, host in enumerate(hosts) if host % 2}}
        steps_s.append(estimate("zoo:bert-base", Cluster.from_data(data), f"{layout},micro_batch=2,global_batch=16").step.step_s)
    assert steps_s[1] == pytest.approx(steps_s[0], rel=1e-9)


def test_an_estimate_prints_the_order_of_hosts_where_it_is_not_that_of_the_file(cases):
    layout = "dp=2,pp=2,micro_batch=4,global_batch=32"
    remarks = [
        estimate("zoo:bert-large", load_cluster(str(cases / "clusters" / f"uneven_{name}.yaml")), layout).remarks for name in "ab"
    ]
    assert ["hosts in this order: " in " ".join(remark) for remark in remarks] != [False, False]


@pytest.mark.parametrize("num_regions", [4, 8])
def test_hosts_of_a_region_follow_each_other_whatever_their_numbers(num_regions):
    cluster = regions(num_regions, 2.0, 0.9)
    other, device_of = renumbered(cluster, np.random.default_rng(0).permutation(64))
    region = np.empty(64, np.int64)
    region[device_of] = np.arange(64) * num_regions // 64
    result = region[chained_devices(other)].reshape(num_regions, -1)
    assert (result == result[:, :1]).all()
    assert (np.abs(np.diff(result[:, 0])) == 1).all()


@pytest.mark.parametrize("devices", [[0, 1], [0, 1, 2], range(6)])
def test_a_host_alone_or_of_a_size_of_its_own_has_its_place(devices):
    uneven = matrix_of(1.0 + np.arange(36.0).reshape(6, 6), np.ones((6, 6)), 2)
    assert sorted(chained_devices(uneven, np.array(devices))) == list(devices)
    assert chained_devices(matrix_of(np.ones((2, 2)), np.ones((2, 2)), 2)).tolist() == [0, 1]
