"""The decision space: blocks, classes, and conflicts of blocks."""

from dataclasses import replace

import numpy as np
import pytest

from meshwright.clusters.blocks import blocks
from meshwright.clusters.cluster import load_cluster
from meshwright.costs.settings import CostSettings
from meshwright.errors import ConfigError
from meshwright.jobs import load_graph
from meshwright.plans.splitting.op_splits import OpSplits
from meshwright.simulation.decision_space.space import decision_space
from meshwright.simulation.step.timeline import simulate

PRESETS = ["ramp-4x4x2", "ramp-4x4x4", "dgx-a100-8x8", "clos-64-4to1", "host-8"]
COSTS = [
    CostSettings(),
    CostSettings(flows="store-and-forward", collectives="hierarchical", contention="independent"),
    CostSettings(collectives="ring", priority="shortest-first"),
]


@pytest.fixture(scope="module", params=PRESETS)
def space(request):
    return decision_space(load_cluster(f"preset:{request.param}"), 16)


def test_the_space_holds_every_block_in_scan_order(space):
    result = 0
    for number, degree in enumerate(space.degrees):
        expected = blocks(space.cluster, degree)
        here = np.flatnonzero(space.degree == number)
        assert here.tolist() == list(range(result, result + len(expected)))
        assert [space.block(i).tolist() for i in here.tolist()] == expected.devices.tolist()
        assert [space.shape_names[i] for i in here.tolist()] == [expected.shape_names[s] for s in expected.shape.tolist()]
        result += len(expected)
    assert result == space.num_blocks == len(space.placement_class) == len(space.start) - 1


def test_degrees_are_one_and_the_even_numbers_that_have_a_block(space):
    candidates = [1, *range(2, 17, 2)]
    assert space.degrees == tuple(d for d in candidates if len(blocks(space.cluster, d)))


def test_neighbours_are_the_blocks_that_share_a_device(space, monkeypatch):
    owned = [set(space.block(i).tolist()) for i in range(space.num_blocks)]
    for i in np.random.default_rng(0).integers(0, space.num_blocks, 40).tolist():
        assert space.neighbours.of(i).tolist() == [j for j, other in enumerate(owned) if owned[i] & other]
    # Found in pieces, they are the same.
    monkeypatch.setattr("meshwright.simulation.decision_space.space.CHUNK_PAIRS", 300)
    pieces = replace(space).neighbours
    assert np.array_equal(pieces.start, space.neighbours.start)
    assert np.array_equal(pieces.blocks, space.neighbours.blocks)


def test_each_class_has_its_first_block_as_representative_and_one_degree(space):
    assert sorted(set(space.placement_class.tolist())) == list(range(len(space.representative)))
    for number, first in enumerate(space.representative.tolist()):
        members = np.flatnonzero(space.placement_class == number)
        assert first == members[0]
        assert len(set(space.degree[members].tolist())) == 1


@pytest.mark.every(3)
@pytest.mark.parametrize("costs", COSTS, ids=["default", "hierarchical", "ring"])
def test_blocks_of_one_class_take_equally_long(space, costs):
    # An uneven split, so that transfers between all kinds of ranks count beside the all-reduces.
    graph = load_graph("zoo:alexnet")
    for number in range(len(space.representative)):
        members = np.flatnonzero(space.placement_class == number)
        first, last = (space.block(int(i)) for i in (members[0], members[-1]))
        degree = len(first)
        splits = OpSplits(np.where(np.arange(graph.num_ops) % 3 == 1, max(1, degree // 2), degree))
        assert (
            simulate(graph, space.cluster, splits, first, costs).step_s
            == simulate(graph, space.cluster, splits, last, costs).step_s
        )


def test_a_single_host_has_one_class_for_each_degree():
    # eight devices behind one switch: 8 blocks of 1, 4 of 2, 2 of 4, 6 at 0, 1, 2 (8 is no multiple of 6), 1 of 8
    space = decision_space(load_cluster("preset:host-8"), 64)
    assert space.degrees == (1, 2, 4, 6, 8)
    assert np.bincount(space.degree).tolist() == [8, 4, 2, 3, 1]
    assert len(space.representative) == 5


def test_the_digest_tells_clusters_and_degrees_apart(space):
    smaller = decision_space(space.cluster, 4)
    other = decision_space(load_cluster("preset:clos-256-4to1"), 16)
    assert len({space.digest, smaller.digest, other.digest}) == 3
    assert decision_space(space.cluster, 16).digest == space.digest


def test_at_least_one_rank_is_wanted(host):
    with pytest.raises(ConfigError, match=r"max_degree: must be at least 1 \(got 0\)"):
        decision_space(host, 0)
