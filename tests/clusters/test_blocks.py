"""Which blocks there are, how many, and in which order first fit tries them."""

import numpy as np
import pytest

from meshwright.clusters import Cluster, load_cluster
from meshwright.clusters.blocks import blocks, ramp_shapes, torus_shapes
from meshwright.clusters.symmetry import signatures
from meshwright.clusters.topologies.topology import relabelled
from meshwright.errors import ClusterError

from ..samples.sample_clusters import cluster_of, torus, trace
from .alike_groups import classes


def preset(name):
    return load_cluster(f"preset:{name}")


def counts(name, sizes):
    cluster = preset(name)
    return {size: len(blocks(cluster, size)) for size in sizes}


def test_even_degrees_of_ramp_4x4x2_that_have_a_block():
    cluster = preset("ramp-4x4x2")
    assert [d for d in [1, *range(2, 17, 2)] if len(blocks(cluster, d))] == [1, 2, 4, 6, 8, 16]


@pytest.mark.parametrize(
    ("degree", "first"), [(1, "1x1x1"), (2, "2x1x1"), (4, "2x2x1"), (6, "3x1x2"), (8, "2x2x2"), (16, "4x4x1")]
)
def test_first_shapes_of_ramp_4x4x2(degree, first):
    assert blocks(preset("ramp-4x4x2"), degree).shape_names[0] == first


def test_degree_16_of_ramp_4x4x2_is_a_whole_server_plane_only():
    result = blocks(preset("ramp-4x4x2"), 16)
    assert result.shape_names == ("4x4x1",)
    assert result.devices.tolist() == [list(range(0, 32, 2)), list(range(1, 32, 2))]


def test_shapes_of_degree_eight_worked_by_hand():
    # Factor pairs (8, 1): too wide; (4, 2): the square 2x2x2, then 4x1x2 and 4x2x1; (2, 4), (1, 8): too deep.
    assert ramp_shapes((4, 4, 2), 8) == [(2, 2, 2), (4, 1, 2), (4, 2, 1), (8, 8, -1), (8, 1, 1)]


def test_blocks_of_ramp_4x4x2_counted_by_hand():
    # 1: 32 servers.
    # 2: 2x1x1 3*4*2 = 24, 1x1x2 16, 1x2x1 4*3*2 = 24, diagonal 3*3*2 = 18.
    # 4: 2x2x1 3*3*2 = 18, 4x1x1 4*2 = 8, 2x1x2 3*4 = 12 (2x2x1 again), diagonal 2.
    # 6: 3x1x2 2*4 = 8, 3x2x1 2*3*2 = 12.    8: 2x2x2 9, 4x1x2 4, 4x2x1 3*2 = 6.    16: 4x4x1 2.
    expected = {1: 32, 2: 82, 4: 40, 6: 20, 8: 19, 16: 2}
    assert counts("ramp-4x4x2", expected) == expected


def test_blocks_of_larger_ramps():
    assert counts("ramp-4x4x4", [8, 16, 32, 64]) == {8: 75, 16: 17, 32: 3, 64: 1}
    assert counts("ramp-8x8x4", [2, 8, 16, 32, 64, 128, 256]) == {2: 836, 8: 639, 16: 241, 32: 103, 64: 29, 128: 3, 256: 1}


def test_ramp_blocks_are_scanned_by_origin_in_lexicographic_order():
    result = blocks(preset("ramp-4x4x2"), 8)
    # 2x2x2 at (0, 0, 0): servers (0,0,0) (0,0,1) (0,1,0) (0,1,1) (1,0,0) ...; then at (0, 1, 0).
    assert result.devices[0].tolist() == [0, 1, 2, 3, 8, 9, 10, 11]
    assert result.devices[1].tolist() == [2, 3, 4, 5, 10, 11, 12, 13]


def test_the_diagonal_steps_through_groups_and_racks_together():
    cluster = preset("ramp-4x4x2")
    result = blocks(cluster, 4)
    diagonal = result.devices[result.shape == result.shape_names.index("diagonal-4")]
    assert cluster.coordinates[diagonal[1]].tolist() == [[0, 0, 1], [1, 1, 1], [2, 2, 1], [3, 3, 1]]


def test_a_set_that_two_shapes_yield_counts_under_the_first():
    # (2, 2, 1) is the square of pair (4, 1) and the third shape of pair (2, 2).
    assert ramp_shapes((4, 4, 2), 4).count((2, 2, 1)) == 2
    assert blocks(preset("ramp-4x4x2"), 4).shape_names == ("2x2x1", "4x1x1", "2x1x2", "diagonal-4")


def test_hosts_within_first_then_leaves():
    cluster = preset("clos-64-4to1")
    result = blocks(cluster, 16)
    # Pairs of neighbouring hosts: 4 within the leaves, then 3 across.
    assert [int(row[0]) // 8 for row in result.devices] == [0, 2, 4, 6, 1, 3, 5]
    assert result.shape_names == ("one-leaf", "leaves")
    aligned = blocks(cluster, 32)
    assert [int(row[0]) // 8 for row in aligned.devices] == [0, 2, 4, 1, 3]
    assert aligned.shape_names == ("leaves-aligned", "leaves")


def test_blocks_of_the_clos_presets():
    # Aligned groups in 8 hosts of 8; three contiguous starts of 6 in each; runs of 2, 4, 8 of the 8 hosts.
    assert counts("clos-64-4to1", [1, 2, 4, 6, 8, 12, 16, 32, 64]) == {
        1: 64,
        2: 32,
        4: 16,
        6: 24,
        8: 8,
        12: 0,
        16: 7,
        32: 5,
        64: 1,
    }
    assert counts("dgx-a100-8x8", [8, 16, 24, 64]) == {8: 8, 16: 7, 24: 6, 64: 1}
    assert counts("host-8", [1, 2, 3, 4, 8]) == {1: 8, 2: 4, 3: 6, 4: 2, 8: 1}


def test_pods_are_crossed_last():
    # Leaves of 2 hosts, pods of 2 leaves: runs of 3 hosts.
    rows = [[f"h{i}", "G", f"P{i // 4}", f"S{i // 2 % 2}"] for i in range(8)]
    result = blocks(cluster_of(trace(rows, (1, 0), (1, 0), devices_per_host=1, inside=(1, 0), card=(1, 0))), 3)
    assert [int(row[0]) for row in result.devices] == [0, 4, 1, 5, 2, 3]
    assert [result.shape_names[i] for i in result.shape] == ["leaves-aligned"] * 2 + ["leaves"] * 2 + ["pods"] * 2


def test_torus_boxes_are_compact_first_and_do_not_wrap():
    assert torus_shapes((4, 4), 4) == [(2, 2), (1, 4), (4, 1)]
    result = blocks(cluster_of(torus(4, 4, link=(1, 0))), 4)
    # 3 x 3 squares, 4 rows, 4 columns
    assert np.bincount(result.shape).tolist() == [9, 4, 4]
    assert result.devices[0].tolist() == [0, 1, 4, 5]


def test_a_job_larger_than_the_cluster_has_no_block_and_one_of_no_device_is_refused():
    cluster = preset("host-8")
    result = blocks(cluster, 9)
    assert (result.devices.shape, result.shape.shape, result.shape_names) == ((0, 9), (0,), ())
    with pytest.raises(ClusterError, match="at least one device"):
        blocks(cluster, 0)


def test_blocks_of_one_ramp_shape_are_alike_and_of_different_shapes_are_not():
    cluster = preset("ramp-4x4x2")
    for degree in (2, 4, 6, 8, 16):
        result = blocks(cluster, degree)
        assert classes(cluster, result.devices).tolist() == result.shape.tolist()


def test_one_odd_device_makes_a_block_unlike_the_others():
    data = preset("ramp-4x4x2").to_data() | {"device_overrides": {"g0-r0-s0": "v100"}}
    cluster = Cluster.from_data(data)
    result = blocks(cluster, 8)
    of_block = classes(cluster, result.devices)
    holds_it = (result.devices == 0).any(axis=1)
    assert not set(of_block[holds_it].tolist()) & set(of_block[~holds_it].tolist())


def test_labels_become_the_places_where_they_first_stand():
    rows = np.array([[7, 3, 7, -2], [3, 3, 7, 7]])
    assert relabelled(rows).tolist() == [[0, 1, 0, 3], [0, 0, 2, 2]]


def test_order_matters_where_pairs_differ():
    cluster = preset("clos-64-4to1")
    near_first, far_first = signatures(cluster, np.array([[0, 1, 8], [0, 8, 1]]))
    assert near_first != far_first
