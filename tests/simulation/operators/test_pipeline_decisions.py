"""Decisions of a full pipeline: features of a device for a whole group are the outcome of the decision."""

import numpy as np
import pytest

from meshwright.simulation.operators.decisions.placing import CANDIDATE_FEATURES
from meshwright.simulation.operators.generators import DeviceDraw, GraphDraw, draw_instance
from meshwright.simulation.operators.instance import OperatorInstance
from meshwright.simulation.operators.placement import loads_s

from ...worlds.operators.played import episodes_on

GRAPH = GraphDraw(kind="mixed", num_ops=(20, 30), free_share=(0.2, 0.4), joined_share=(0.3, 0.6))
DEVICES = DeviceDraw(num_devices=(3,), num_hosts=(1,), memory_slack=None, communication_to_computation=(0.1, 5.0))


@pytest.mark.parametrize("seed", range(8))
def test_loads_of_groups_are_those_of_the_placement_and_what_was_told_comes_true(seed: int) -> None:
    instance = draw_instance(GRAPH, DEVICES, "training", seed)
    episodes, rng = episodes_on(instance, "throughput"), np.random.default_rng(seed)
    growth, unit = CANDIDATE_FEATURES.index("growth"), episodes.stacked.feature_unit_s[0]
    while episodes.is_live[0]:
        device = int(rng.choice(np.flatnonzero(episodes.state.can_place[0])))
        message, before = float(episodes.state.candidates[0, device, growth]), episodes.state.value_s[0]
        assert ((episodes.state.candidates[0] >= 0) & (episodes.state.candidates[0] <= 1)).all()
        episodes.step(np.array([device]))
        assert message / (1 - message) * unit == pytest.approx(episodes.state.value_s[0] - before, rel=1e-4, abs=1e-6 * unit)
    np.testing.assert_allclose(episodes.state.load_s[0], loads_s(instance, episodes.device_of(0)), rtol=1e-9, atol=1e-12)
    assert episodes.state.value_s[0] == pytest.approx(loads_s(instance, episodes.device_of(0)).max())


def test_a_group_is_told_whole_worked_by_hand() -> None:
    # Two ops of 1 s that stay together read one each of two others: the pair takes 2 s, and where one producer is only its
    # tensor of the other comes in, 1 GB at 1 GB/s.
    instance = OperatorInstance.of_outputs(
        "pair", np.ones((4, 2)), [(0, 2), (1, 3)], [1e9, 1e9, 0.0, 0.0], bandwidth_bytes_per_s=1e9, group=[0, 1, 2, 2]
    )
    episodes = episodes_on(instance, "throughput")
    for device in (0, 1):
        episodes.step(np.array([device]))
    unit = episodes.stacked.feature_unit_s[0]
    figures = {name: episodes.state.candidates[0, :, CANDIDATE_FEATURES.index(name)] for name in ("op_time", "wait_for_inputs")}
    assert figures["op_time"] == pytest.approx([2 / (2 + unit)] * 2)
    assert figures["wait_for_inputs"] == pytest.approx([1 / (1 + unit)] * 2)
    episodes.step(np.array([0]))
    assert episodes.state.load_s[0] == pytest.approx([4.0, 2.0])  # three ops and a tensor in; one op and the tensor out
