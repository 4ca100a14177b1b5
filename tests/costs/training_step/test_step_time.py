"""The analytic step: parts add up, and more of anything good never costs time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters import load_cluster
from meshwright.costs.collectives.groups import Group
from meshwright.costs.process_groups.group_network import HostNetwork, group_network
from meshwright.costs.process_groups.regular_groups import boundary_groups, groups_of
from meshwright.costs.settings import CostSettings
from meshwright.costs.training_step.step_time import Pricer
from meshwright.costs.work.operations import Message
from meshwright.costs.work.work import describe
from meshwright.devices import device_type
from meshwright.evaluation.validation.step_times.published_step import gpt
from meshwright.plans.partition import Layout

SHAPE = gpt(24, 2048, 16, 51200, 1024)
WIRES = HostNetwork(8, 300e9, 200e9)
PRICER = Pricer(device_type("a100"), WIRES)


def layout(**keys):
    return Layout(**({"micro_batch": 2, "global_batch": 64} | keys))


LAYOUTS = [
    layout(),
    layout(tp=8, dp=2),
    layout(tp=4, pp=4, dp=2, recompute="full"),
    layout(tp=2, pp=4, schedule="interleaved", virtual_stages=3, sequence_parallel=True),
    layout(pp=4, schedule="zb-h1"),
    layout(pp=4, schedule="zb-2p", tp=2),
    layout(pp=4, schedule="gpipe"),
    layout(dp=16, zero=3, recompute="full"),
    layout(dp=8, zero=2, overlap_dp=True),
    layout(cp=4, tp=2, dp=2, distributed_optimizer=True),
]


@pytest.mark.parametrize("cut", LAYOUTS, ids=str)
def test_the_breakdown_adds_up_to_the_step(cut):
    step = PRICER.price(SHAPE, cut)
    assert sum(step.breakdown_s.values()) == pytest.approx(step.step_s)
    assert all(seconds >= -1e-9 for seconds in step.breakdown_s.values())
    assert PRICER.step_s(describe(SHAPE, cut)) == pytest.approx(step.step_s)
    assert 0 < step.mfu <= step.hfu < 1


def test_model_operations_are_those_of_the_published_formula():
    # 72 B s l h^2 (1 + s / 6h + V / 12 l h), and 96 with V / 16 l h under full recomputation, of which the head is not
    # computed again (Narayanan et al., 2021, appendix)
    batch, s, layers, h, v = 64, 1024, 24, 2048, 51200
    step = PRICER.price(SHAPE, layout(recompute="full"))
    assert step.model_flops == pytest.approx(72 * batch * s * layers * h**2 * (1 + s / (6 * h) + v / (12 * layers * h)))
    assert step.hardware_flops == pytest.approx(96 * batch * s * layers * h**2 * (1 + s / (6 * h) + v / (16 * layers * h)))


@pytest.mark.parametrize("cut", LAYOUTS, ids=str)
def test_faster_wires_never_cost_time(cut):
    faster = Pricer(device_type("a100"), HostNetwork(8, 600e9, 400e9))
    assert faster.price(SHAPE, cut).step_s <= PRICER.price(SHAPE, cut).step_s


@pytest.mark.parametrize(
    ("cut", "switch"),
    [
        (layout(tp=8, dp=2, sequence_parallel=True), "overlap_tp"),
        (layout(tp=2, pp=8), "overlap_pp"),
        (layout(dp=16), "overlap_dp"),
    ],
)
def test_overlap_saves_time_and_no_more_than_what_was_exposed(cut, switch):
    pricer = Pricer(device_type("a100"), WIRES, slowdown=1.0)
    before = pricer.price(SHAPE, cut)
    after = pricer.price(SHAPE, Layout(**(cut.model_dump() | {switch: True})))
    waiting = ("exposed tp", "pipeline transfers", "gradient sync", "parameter gather", "bubble")
    assert 0 < before.step_s - after.step_s <= sum(before.breakdown_s.get(name, 0.0) for name in waiting)


@given(m=st.sampled_from([1, 2, 4]))
def test_more_micro_batches_shrink_the_share_of_the_bubble(m):
    one, more = (PRICER.price(SHAPE, layout(pp=4, global_batch=8 * k)) for k in (m, 4 * m))
    assert more.breakdown_s["bubble"] / more.step_s < one.breakdown_s["bubble"] / one.step_s


def test_zero_bubble_beats_1f1b():
    schedules = ("1f1b", "zb-h1", "zb-2p")
    even = gpt(24, 2048, 16, 1024, 1024)
    plain, h1, double = (PRICER.price(even, layout(pp=8, schedule=s)).step_s for s in schedules)
    assert double < h1 < plain
    # a last stage that takes twice as long as the others bounds both
    plain, h1, double = (PRICER.price(SHAPE, layout(pp=8, schedule=s)).step_s for s in schedules)
    assert double <= h1 < plain


@pytest.mark.parametrize("schedule", ["zb-h1", "zb-2p"])
def test_full_recomputation_adds_a_forward_pass_to_zero_bubble_and_both_keep_their_order(schedule):
    stored, again, plain = (
        PRICER.price(SHAPE, layout(pp=4, **keys))
        for keys in ({"schedule": schedule}, {"schedule": schedule, "recompute": "full"}, {"recompute": "full"})
    )
    m, layers = 32, 6
    forward = PRICER._block_times(describe(SHAPE, layout(pp=4)))["layer"].forward
    assert again.breakdown_s["recompute"] == pytest.approx(m * layers * forward.kernels_s)
    assert stored.step_s < again.step_s < plain.step_s


def test_zero_3_gathers_for_every_micro_batch_of_every_stage():
    # each layer's weights come twice and its gradients go once for every micro-batch, hidden behind nothing at this width
    wide = gpt(8, 4096, 32, 1024, 128)
    cut = {"tp": 1, "pp": 4, "dp": 16, "micro_batch": 1, "global_batch": 64, "zero": 3}
    pricer = Pricer(device_type("a100"), WIRES, slowdown=1.0)
    step = pricer.price(wide, layout(**cut))
    layer = describe(wide, layout(**cut)).layer
    gathers = [i for i in (*layer.forward, *layer.backward) if isinstance(i, Message) and i.operation == "all_gather"]
    assert len(gathers) == 2
    gather_s = pricer.message_s(gathers[0], layout(**cut))
    m, layers = 4, 2
    assert step.breakdown_s["exposed shard"] >= m * layers * 2 * gather_s * (1 - 1e-12)
    alone = pricer.price(wide, layout(**(cut | {"zero": 1})))
    assert step.breakdown_s["gradient sync"] < alone.breakdown_s["gradient sync"]


def test_shards_within_a_host_are_gathered_at_the_hosts_pace():
    cut = {"pp": 2, "dp": 16, "global_batch": 64, "zero": 3}
    whole, hybrid = (PRICER.price(SHAPE, layout(**cut, **more)).step_s for more in ({}, {"shard_group": 8}))
    assert hybrid < whole


def test_more_micro_batches_never_take_an_interleaved_schedule_less_time():
    # also where stages do not divide them
    steps = [
        PRICER.price(SHAPE, layout(pp=4, schedule="interleaved", virtual_stages=2, global_batch=2 * m)).step_s
        for m in range(1, 20)
    ]
    assert steps == sorted(steps)


def test_groups_stand_on_hosts_as_ranks_are_numbered():
    cut = layout(tp=4, dp=4, pp=2)
    assert groups_of(cut, 8)["tp"] == Group(4, 4, 1, 2)
    # two replicas of a tensor-parallel rank on each host, four such groups beside each other
    assert groups_of(cut, 8)["dp_cp"] == Group(4, 2, 4, 4)
    assert groups_of(cut, 8)["pp"] == Group(2, 1, 16, 8)


def test_messages_worked_by_hand():
    # 8 ranks of one host: 78.6 us + 2 x 7/8 x 1 GB / 227.3 GB/s
    assert WIRES.group_s("all_reduce", 1e9, Group(8, 8, 1, 1)) == pytest.approx(78.6e-6 + 1.75 * 1e9 / 227.3e9)
    # 8 hosts, one rank on each, eight such groups share 200 GB/s of which 90 % get through: 22.5 GB/s; a tree's latency
    latency = (2 * 3 + 2) * 14e-6
    assert WIRES.group_s("all_reduce", 1e9, Group(8, 1, 8, 8)) == pytest.approx(latency + 1.75 * 1e9 / 22.5e9)
    assert WIRES.group_s("send_recv", 1e8, Group(2, 1, 8, 8)) == pytest.approx(14e-6 + 1e8 / 22.5e9)
    assert WIRES.group_s("all_reduce", 1e9, Group(1, 1, 1, 1)) == 0.0


def test_a_named_algorithm_is_priced_by_the_collective_layer():
    cluster = load_cluster("preset:dgx-a100-8x8")
    assert group_network(cluster) == WIRES
    ring, hierarchical = (
        Pricer(device_type("a100"), group_network(cluster, CostSettings(collectives=name))).price(
            SHAPE, layout(dp=64, global_batch=128)
        )
        for name in ("ring", "hierarchical")
    )
    assert hierarchical.step_s < ring.step_s


def test_the_ends_of_a_pipeline_within_one_host_are_priced_by_the_collective_layer_too():
    # the tied table goes between ranks 0 and 6 and between 1 and 7; no other pair of the host is 6 apart
    nccl = group_network(load_cluster("preset:dgx-a100-8x8"), CostSettings(collectives="nccl"))
    step = Pricer(device_type("a100"), nccl).price(SHAPE, layout(tp=2, pp=4))
    assert step.breakdown_s["gradient sync"] > 0


def test_transfers_within_a_host_are_told_from_those_between_hosts():
    # stages of four ranks: two on each host of eight; the first and third transfer stay inside, the last goes back to the first
    layout = Layout(tp=4, pp=4, micro_batch=1, global_batch=4)
    inside, between, again, back = boundary_groups(layout, 8)
    assert (inside.per_host, between.per_host, back.per_host) == (2, 1, 1)
    assert inside == again
    # what leaves the host shares its cards with the other three ranks of the stage
    assert between.side_by_side == 4
    whole = boundary_groups(Layout(tp=8, pp=2, micro_batch=1, global_batch=2), 8)
    assert [group.per_host for group in whole] == [1, 1]
    assert [group.side_by_side for group in whole] == [8, 8]
