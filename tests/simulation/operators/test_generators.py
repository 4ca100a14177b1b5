"""Drawn instances: what was drawn before draws the same, and what was added keeps its laws."""

import numpy as np
import pytest
from pydantic import ValidationError

from meshwright.errors import ConfigError
from meshwright.simulation.operators.generators import DeviceDraw, GraphDraw, draw_instance
from meshwright.worlds.operators.benchmark import load_placement_benchmark

WIDE = DeviceDraw(
    num_devices=(2, 4),
    num_hosts=(1,),
    speed_spread=(0.0,),
    link_spread=(0.0, 1.0),
    memory_slack=(1.5, None),
    host_slowdown=(5, 30),
)


@pytest.mark.parametrize("benchmark", ["preset:throughput-tight", "preset:latency-tight"])
def test_draws_of_the_presets_are_as_they_were_before_hosts_and_groups(benchmark: str) -> None:
    drawn = load_placement_benchmark(benchmark).placement.instance("validation", 3)
    assert drawn.digest == BEFORE[benchmark]
    assert not drawn.is_host.any()
    assert drawn.num_groups == drawn.num_ops


def test_a_host_is_slow_and_last_and_holds_everything() -> None:
    for seed in range(20):
        drawn = draw_instance(GraphDraw(kind="mixed", num_ops=(20,)), WIDE, "training", seed)
        assert drawn.is_host.tolist() == [False] * (drawn.num_devices - 1) + [True]
        slower = drawn.times_s[:, -1] / drawn.times_s[:, 0]  # devices are of speed 1 here
        assert slower.min() * (1 + 1e-9) >= 5
        assert slower.max() <= 30 * (1 + 1e-9)
        assert np.isinf(drawn.memory_bytes[-1])
        assert drawn.num_devices <= WIDE.most_devices


def test_joined_ops_are_next_to_each_other_and_free_ops_take_no_time() -> None:
    graph = GraphDraw(kind="chain", num_ops=(40,), free_share=(0.5, 0.5), joined_share=(0.5, 0.5))
    for seed in range(10):
        drawn = draw_instance(graph, WIDE, "training", seed)
        assert 1 < drawn.num_groups < drawn.num_ops
        assert 0 < (drawn.times_s[:, 0] == 0).sum() < drawn.num_ops
        linked = {tuple(each) for each in drawn.group[drawn.edges].tolist()}
        for group in np.flatnonzero(np.bincount(drawn.group) > 1):
            assert (group, group) in linked


def test_shares_and_spreads_are_checked() -> None:
    with pytest.raises((ValidationError, ConfigError)):
        GraphDraw(free_share=(0.5, 0.2))
    with pytest.raises((ValidationError, ConfigError)):
        DeviceDraw(speed_spread=())


BEFORE = {
    "preset:throughput-tight": "191c40f0d1631f8df4cb8d2254cd7832",
    "preset:latency-tight": "8e115cab6dea445237d1dc2ad5e74a60",
}
