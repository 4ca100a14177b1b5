"""plan --search on uneven networks: hosts in a better order, whatever their numbers."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from meshwright.errors import PlanError
from meshwright.planning.refinement.arranged import arranged
from meshwright.planning.search import search_layouts

from ...samples.sample_clusters import cluster_of, matrix

KEEP = "dp=2,pp=2,tp=1,micro_batch=4,schedule=1f1b,zero=0,recompute=none"


def two_fast_pairs(order):
    """Four hosts; in a given order, a fast link joins the first two and another the last two."""
    bandwidth = np.full((4, 4), 0.1)
    for one, other in (order[:2], order[2:]):
        bandwidth[one, other] = bandwidth[other, one] = 100.0
    return cluster_of(matrix(bandwidth), "v100")


def found(order, arrange, **more):
    options = {"batch": 32, "keep": KEEP, "order": "tp-cp-dp-pp", **more}
    return search_layouts("zoo:bert-large", two_fast_pairs(order), arrange=arrange, **options)


def test_numbers_of_hosts_do_not_matter_where_hosts_are_arranged():
    known = found((0, 1, 2, 3), "none").best.step_s
    for order, effort in product(((0, 2, 1, 3), (0, 3, 1, 2)), ("none", "fast")):
        arranged = found(order, effort)
        assert arranged.best.step_s == pytest.approx(known, rel=1e-9)
        hosts = [int(rank.host.removeprefix("host-")) for rank in arranged.plan.ranks]
        assert {frozenset(hosts[:2]), frozenset(hosts[2:])} == {frozenset(order[:2]), frozenset(order[2:])}
        assert arranged.plan.figure("step_s").value == pytest.approx(known, rel=1e-9)


def test_searches_of_other_numbers_of_devices_are_kept():
    options = {"batch": 32, "keep": KEEP, "order": "tp-cp-dp-pp", "devices": "4", "arrange": "none"}
    first = search_layouts("zoo:bert-large", uneven_hosts([(0, 2), (1, 3)]), **options)
    better = arranged(replace(first, others=(first,)), "fast")
    assert better.best.step_s < first.best.step_s
    assert better.others == (first,)


def uneven_hosts(fast):
    """Two hosts of four devices, joined by slow links; within them some pairs are fast."""
    bandwidth = np.full((8, 8), 0.1)
    for one, other in fast:
        bandwidth[one, other] = bandwidth[other, one] = 100.0
    return cluster_of(matrix(bandwidth, devices_per_host=4), "v100")


def test_devices_change_places_within_a_host_and_with_free_ones():
    # On one host the fast pairs are 0-2 and 1-3, in order 0-1 and 2-3 sum gradients over slow links.
    options = {"batch": 32, "keep": KEEP, "order": "tp-cp-dp-pp", "devices": "4"}
    known = search_layouts("zoo:bert-large", uneven_hosts([(0, 1), (2, 3)]), **options, arrange="none").best.step_s
    crossed = uneven_hosts([(0, 2), (1, 3)])
    assert search_layouts("zoo:bert-large", crossed, **options, arrange="none").best.step_s > 2 * known
    arranged = search_layouts("zoo:bert-large", crossed, **options, arrange="fast")
    assert arranged.best.step_s == pytest.approx(known, rel=1e-9)
    assert {frozenset(rank.device for rank in arranged.plan.ranks[:2])} <= {frozenset({0, 2}), frozenset({1, 3})}
    # the other host alone has fast pairs, and only the job's first host was asked about in order
    other = search_layouts("zoo:bert-large", uneven_hosts([(4, 6), (5, 7)]), **options, arrange="fast")
    assert other.best.step_s == pytest.approx(known, rel=1e-9)
    assert {rank.host for rank in other.plan.ranks} == {"host-1"}


def test_an_unknown_effort_is_told():
    with pytest.raises(PlanError, match=r"--set arrange.*hard"):
        found((0, 1, 2, 3), "hard")


def test_no_number_of_devices_leaves_the_ranking():
    more = {"keep": "micro_batch=4,schedule=1f1b,zero=0,recompute=none", "devices": "2,4", "top": None}
    ranked = [{one.devices for one in found((0, 2, 1, 3), effort, **more).searched.ranking} for effort in ("none", "fast")]
    assert ranked[0] == ranked[1] == {2, 4}
