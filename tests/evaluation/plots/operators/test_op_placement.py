"""Laws of the drawing of ops on devices: every op is there, and what crosses is counted once for each device."""

import numpy as np
from meshwright.evaluation.plots.operators.op_placement import levels, placement_svg

import meshwright

from ....plans.test_op_placement import fork


def test_levels_are_the_longest_ways_from_a_source():
    assert levels(fork().edges, fork().order).tolist() == [0, 1, 1, 2]


def test_a_drawing_names_each_device_and_its_ops_and_the_bytes_that_cross():
    found = meshwright.place("zoo:resnet50", "preset:toy", by="heft", batch_size=64)
    drawn = placement_svg(found)
    assert drawn == placement_svg(found)
    for row in found.device_rows():
        assert f">{row['num_ops']} op{'s' * (row['num_ops'] != 1)}<" in drawn
    graph, device_of = found.graph, np.array(found.plan.partition.device_of)
    crossing = {(a, device_of[b]) for a, b in graph.edges.tolist() if device_of[a] != device_of[b]}
    assert f"of {len(crossing)} with their size" in drawn
    total = sum(graph.activation_bytes[a] for a, _ in crossing)
    assert 1e3 <= total < 1e6
    assert f"{total / 1e3:.3g} kB cross forward" in drawn
