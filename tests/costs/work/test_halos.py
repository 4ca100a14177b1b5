"""Cut volumes: halos by hand, which layers are divided, what ranks hold."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.settings import CostSettings
from meshwright.costs.work.graph_work import describe_graph
from meshwright.costs.work.halos import cut_volumes, halo_bytes, parts_of
from meshwright.devices import device_type
from meshwright.errors import PlanError
from meshwright.jobs import zoo_graph
from meshwright.jobs.convolutional import cosmoflow
from meshwright.plans.partition import Layout

V100 = device_type("v100")
sizes = st.sampled_from([1, 2, 4])


def layout(**keys):
    return Layout(**({"micro_batch": 1, "global_batch": 1} | keys))


def test_halos_worked_by_hand():
    # one cut: 2 faces of 64 x 64 positions, 8 channels of 4 bytes
    assert halo_bytes(8, (64, 64, 64), (4, 1, 1), 1, 4) == (2 * 64 * 64 * 8 * 4, 0.0, 0.0)
    # two cuts: the second faces have the planes of the first ones too, 16 + 2 positions deep
    assert halo_bytes(8, (64, 64, 64), (4, 2, 1), 1, 4) == (2 * 32 * 64 * 8 * 4, 2 * 18 * 64 * 8 * 4, 0.0)


@given(d=sizes, h=sizes, w=sizes, reach=st.integers(1, 3))
def test_halos_are_all_that_surrounds_a_part(d, h, w, reach):
    cuts, extent = (d, h, w), (32, 32, 32)
    local = [n // cut for n, cut in zip(extent, cuts, strict=True)]
    around = [n + 2 * reach * (cut > 1) for n, cut in zip(local, cuts, strict=True)]
    whole, own = around[0] * around[1] * around[2], local[0] * local[1] * local[2]
    assert sum(halo_bytes(1, extent, cuts, reach, 1)) == whole - own


def test_layers_thinner_than_their_parts_are_gathered():
    shape = cosmoflow(32)  # 32, 16 and 8 positions a side, then dense
    graph = shape.graph(1)
    parts = dict(zip(graph.op_names, parts_of(graph, layout(sp_d=8)).tolist(), strict=True))
    assert (parts["conv_3"], parts["pool_3"], parts["linear_1"]) == (8, 1, 1)
    cut = cut_volumes(graph, layout(sp_d=8))
    sent = {name: one.waited for name, one in zip(graph.op_names, cut.forward, strict=True) if one.waited}
    assert list(sent) == ["relu_3"]
    assert sent["relu_3"][0].payload_bytes == 4 * 64 * 8**3


def test_activations_of_a_rank_are_its_part_of_outputs_and_their_gradients():
    graph = cosmoflow(64).graph(1).timed_on(V100)
    whole = describe_graph(graph, layout(), V100).peak_memory()[1]
    assert whole.activations == 2 * graph.activation_bytes.sum()
    for parts in (2, 4):
        held = describe_graph(graph, layout(sp_d=parts), V100).peak_memory()[1]
        divided = parts_of(graph, layout(sp_d=parts))
        assert held.activations == pytest.approx(2 * (graph.activation_bytes / divided).sum(), rel=1e-12)
        assert held.parameters == whole.parameters


def test_reading_takes_what_a_rank_reads_at_its_rate():
    graph = cosmoflow(64).graph(1).timed_on(V100)
    costs = CostSettings(file_system_gbytes_per_s=2.0)
    for parts in (1, 4):
        own, read = (describe_graph(graph, layout(sp_w=parts), V100, one).forward_s for one in (CostSettings(), costs))
        assert (read - own)[0] == pytest.approx(4 * 4 * 64**3 / parts / 2e9, rel=1e-9)
        assert (read - own)[1:].sum() == 0


def test_no_op_takes_longer_on_a_part_and_none_less_than_a_launch():
    graph = replace(cosmoflow(32).graph(1).timed_on(V100), source="measured")
    whole, cut = describe_graph(graph, layout(), V100), describe_graph(graph, layout(sp_d=8), V100)
    assert (cut.forward_s <= whole.forward_s).all()
    divided = parts_of(graph, layout(sp_d=8)) > 1
    assert (cut.forward_s[divided] >= V100.kernel_launch_s * (1 - 1e-12)).all()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"sp_h": 2}, r"layout.sp_h: cuts volumes, and resnet50 has none \(got 2\)"),
        ({"sp_d": 2, "tp": 2}, "cut volumes; tp, cp and ep cut the layers"),
    ],
)
def test_what_has_no_volume_is_not_cut(keys, message):
    graph = zoo_graph("resnet50", V100, batch_size=1)
    with pytest.raises((PlanError, ValueError), match=message):
        describe_graph(graph, layout(**keys), V100)
