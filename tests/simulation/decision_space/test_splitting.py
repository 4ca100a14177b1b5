"""The partition rule of a scenario."""

import pytest

from meshwright.simulation.decision_space.splitting import SplitSettings

from ...samples.sample_graphs import profile


@pytest.fixture(scope="module")
def graph():
    """Forward 10, 25 and 60 us."""
    return profile("graph", [10e-6, 25e-6, 60e-6], [0.0] * 3, [[0, 1], [1, 2]])


def test_the_uniform_rule_splits_every_op_alike(graph):
    assert SplitSettings().splits(graph, 6).splits.tolist() == [6, 6, 6]


def test_the_sip_ml_rule_spares_short_ops(graph):
    # quanta of 20 us: 1, 2 and 3 of them, made even: 2, 2, 4; at most 3 ranks: 2, 2, 3
    rule = SplitSettings(rule="sip-ml", quantum_us=20.0)
    assert rule.splits(graph, 16).splits.tolist() == [2, 2, 4]
    assert rule.splits(graph, 3).splits.tolist() == [2, 2, 3]
