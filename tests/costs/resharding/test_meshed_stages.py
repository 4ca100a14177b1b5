"""Stages with meshes of their own: both price paths, the neutral setting, memory, and what is refused."""

from dataclasses import replace
from typing import get_args

import pytest

from meshwright.clusters import load_cluster
from meshwright.costs.resharding.crossings import Ways, crossing
from meshwright.costs.resharding.prices import Algorithm
from meshwright.costs.resharding.stage_tensors import StageTensor
from meshwright.costs.settings import CostSettings
from meshwright.costs.training_step.step_time import Pricer
from meshwright.costs.work.memory import FRAGMENTATION, stage_memory
from meshwright.costs.work.work import describe
from meshwright.errors import PlanError
from meshwright.jobs.zoo.catalogue import zoo_shape
from meshwright.plans.partition import Layout
from meshwright.simulation.layouts.running import run_layout
from meshwright.simulation.layouts.step_model import TransformerStep

CLUSTER = load_cluster("preset:dgx-a100-8x8")
SHAPE = zoo_shape("bert-large")[0].model_copy(update={"is_head_tied": False, "num_layers": 8})
BATCH = ",micro_batch=2,global_batch=16"


def layout(text):
    return Layout.parse(text + BATCH)


def both_s(text, costs, shape=SHAPE):
    work, pricer = describe(shape, layout(text), 512), Pricer.from_cluster(CLUSTER, costs)
    step = TransformerStep(work, pricer)
    assert sum(pricer.price_work(work).breakdown_s.values()) == pytest.approx(pricer.step_s(work), rel=1e-9)
    return pricer.step_s(work), run_layout(step, CLUSTER, costs=costs).step_s


@pytest.mark.every(4)
@pytest.mark.parametrize("algorithm", get_args(Algorithm))
@pytest.mark.parametrize(
    "text",
    [
        "tp=8,dp=2,pp=2,stage_meshes=8x2/4x4",
        "tp=4,dp=1,pp=2,stage_meshes=4x1/2x2",
        "tp=4,dp=2,pp=4,stage_meshes=4x2/2x4/2x4/8x1,overlap_pp=true",
        "tp=2,dp=2,cp=2,pp=2,stage_meshes=2x2/1x4,sequence_parallel=true,zero=1",
        "tp=4,dp=2,pp=2,stage_meshes=4x2/8x1,schedule=interleaved,virtual_stages=2,overlap_dp=true",
        "tp=4,dp=2,pp=2,stage_meshes=4x2/8x1,schedule=gpipe,overlap_pp=true",
    ],
)
def test_both_paths_agree_within_three_percent(text, algorithm):
    analytic_s, simulated_s = both_s(text, CostSettings(contention="independent", resharding=algorithm).of_layouts)
    assert simulated_s == pytest.approx(analytic_s, rel=0.03)


@pytest.mark.every(4)
@pytest.mark.parametrize("algorithm", get_args(Algorithm))
@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("tp=8,dp=1,pp=2,stage_meshes=8x1/4x1", 12),
        ("tp=4,dp=2,pp=4,stage_meshes=4x2/2x4/2x2/4x1", 24),
        ("tp=2,dp=2,cp=2,pp=2,stage_meshes=2x2/1x2,sequence_parallel=true,zero=1", 12),
        ("tp=4,dp=1,pp=3,stage_meshes=4x1/4x1/8x1,overlap_dp=true", 16),
        ("tp=4,dp=2,pp=2,stage_meshes=4x2/4x1,schedule=interleaved,virtual_stages=2,overlap_dp=true", 12),
        ("tp=4,dp=4,pp=2,stage_meshes=4x4/8x1,stage_layers=6/2,overlap_pp=true", 24),
    ],
)
def test_both_paths_agree_where_stages_have_unequally_many_ranks(text, ranks, algorithm):
    assert layout(text).world == ranks
    analytic_s, simulated_s = both_s(text, CostSettings(contention="independent", resharding=algorithm).of_layouts)
    assert simulated_s == pytest.approx(analytic_s, rel=0.03)


def test_ranks_of_unequal_stages_worked_by_hand():
    unequal = layout("tp=4,dp=2,pp=3,stage_meshes=4x2/2x1/4x1")
    assert [unequal.first_rank(stage) for stage in range(4)] == [0, 8, 10, 14]
    places = [unequal.coordinates(rank) for rank in range(14)]
    assert [(one.pp, one.dp, one.tp) for one in places[7:]] == [
        *((0, 1, 3), (1, 0, 0), (1, 0, 1)),
        *((2, 0, tp) for tp in range(4)),
    ]
    with pytest.raises(PlanError, match=r"ranks 0\.\.13"):
        unequal.coordinates(14)
    # a stage of half as many replicas takes twice the samples on each
    assert [unequal.at(stage).micro_batch for stage in range(3)] == [2, 4, 4]
    assert {unequal.at(stage).num_micro_batches for stage in range(3)} == {4}


def test_every_rank_stands_once_in_its_stage():
    for text in ("tp=4,dp=2,pp=3,stage_meshes=4x2/2x1/4x1", "tp=2,dp=4,pp=2,stage_meshes=2x4/4x4", "tp=4,dp=2,pp=2"):
        one = layout(text)
        places = [one.coordinates(rank) for rank in range(one.world)]
        assert len(set(places)) == one.world
        assert [place.pp for place in places] == [one.stage_of_rank(rank) for rank in range(one.world)]
        assert sum(one.stage_width(stage) for stage in range(one.pp)) == one.world


def test_more_ranks_on_the_busier_stage_shorten_the_step():
    costs = CostSettings().of_layouts
    seconds = [both_s(f"tp=4,dp=4,pp=2,stage_layers=2/6,stage_meshes=4x4/{last}", costs)[0] for last in ("4x1", "4x2", "4x4")]
    assert seconds == sorted(seconds, reverse=True)


def test_a_stage_that_begins_within_a_host_is_told():
    text = "tp=4,dp=1,pp=2,stage_meshes=4x1/8x1"
    with pytest.raises(PlanError, match="fill whole hosts of 8 devices"):
        both_s(text, CostSettings().of_layouts)


def test_equal_meshes_are_no_meshes():
    costs = CostSettings(contention="independent", resharding="send-recv").of_layouts
    for keys in ("tp=4,dp=2,pp=2", "tp=2,dp=4,pp=4,overlap_pp=true"):
        tp, dp, pp = (part.split("=")[1] for part in keys.split(",")[:3])
        named = keys + f",stage_meshes={'/'.join([f'{tp}x{dp}'] * int(pp))}"
        assert both_s(named, costs) == pytest.approx(both_s(keys, costs), rel=1e-9)


def test_a_stage_does_what_it_does_in_the_layout_of_its_own_mesh():
    meshed = describe(SHAPE, layout("tp=4,dp=2,pp=2,stage_meshes=4x2/2x4"), 512)
    alone = describe(SHAPE, Layout.parse("tp=2,dp=4,pp=2,micro_batch=1,global_batch=16"), 512)
    assert meshed.stages[1] == alone.stages[1]
    assert meshed.layout.num_micro_batches == alone.layout.num_micro_batches
    # 2 x 2 samples of 512 tokens of 1,024 numbers of 2 bytes; stage 1 gets a quarter of it at once
    slices = 4 * 512 * 1024 * 2 / 4
    held, expected = stage_memory(meshed, 1), stage_memory(alone, 1)
    assert held.buffers == expected.buffers + slices
    assert held.total == pytest.approx(expected.total + (1 + FRAGMENTATION) * slices, rel=1e-12)


def test_a_crossing_worked_by_hand():
    # two samples of 4 bytes on host 0, one on each pair of ranks; all four ranks of host 1 want both
    source = StageTensor(2, 4, 1, tp=2, cp=1, dp=2, cuts_tokens=False, hosts=(0, 0, 0, 0))
    target = StageTensor(2, 4, 1, tp=4, cp=1, dp=1, cuts_tokens=False, hosts=(1, 1, 1, 1))
    ways = Ways(lambda size: size, lambda size: 0.0, lambda size, ranks, groups: 0.5 * size)
    assert crossing(source, target, ways).seconds == 8  # each sample once
    assert crossing(source, target, ways, "send-recv").seconds == 32  # each sample to each rank
    gathered = crossing(source, target, ways, "all-gather")
    assert gathered.seconds == 8 + 0.5 * 8
    assert [message.operation for message in gathered.messages].count("all_gather") == 1
    # all of it comes back once to each pair of ranks
    assert crossing(target, source, ways).seconds == 8
    assert crossing(target, source, ways, "send-recv").seconds == 16


def test_slices_move_as_many_bytes_as_receivers_want():
    source = StageTensor(4, 8, 2, tp=2, cp=1, dp=4, cuts_tokens=False, hosts=(0,) * 8)
    target = StageTensor(4, 8, 2, tp=4, cp=1, dp=2, cuts_tokens=True, hosts=(1,) * 8)
    ways = Ways(lambda size: size, lambda size: size, lambda size, ranks, groups: size)
    for algorithm in ("send-recv", "broadcast"):
        got = crossing(source, target, ways, algorithm).messages
        assert sum(one.payload_bytes * len(one.receivers) for one in got) == 4 * 8 * 2  # each rank its own tokens


def test_long_skips_cross_a_boundary_between_their_layers():
    shape = SHAPE.model_copy(update={"is_encoder": False, "long_skips": 3})
    # outputs of layers 0, 1, 2 go to layers 7, 6, 5: behind layer 3 all three go on beside its own output
    assert [shape.skips_behind(layers) for layers in range(1, 8)] == [0, 1, 2, 3, 3, 2, 1]
    one = describe(SHAPE, layout("tp=2,dp=2,pp=2"), 512)
    assert replace(one, shape=shape).sent(0)[0].payload_bytes == 4 * one.sent(0)[0].payload_bytes
    middle = shape.model_copy(update={"long_skips": 4})  # the last of them ends in the next layer
    assert middle.graph(1, 64).num_edges == shape.graph(1, 64).num_edges


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tp=4,dp=2,pp=2,stage_meshes=4x2", "names 1 stages, pp is 2"),
        ("tp=4,dp=2,pp=2,stage_meshes=2x4/4x2", "are those of the first stage"),
        ("tp=4,dp=2,pp=2,stage_meshes=4x2/2x3", "are not divided by 3"),
        ("tp=4,dp=2,pp=2,stage_meshes=4x2/1x8", "are not divided by 8"),
        ("tp=4,dp=2,pp=2,stage_meshes=4-2", "TPxDP"),
    ],
)
def test_meshes_that_do_not_go_together_are_told(text, problem):
    with pytest.raises(PlanError, match=problem):
        layout(text)


def test_a_tied_table_wants_one_mesh_at_both_ends():
    tied = SHAPE.model_copy(update={"is_head_tied": True})
    with pytest.raises(PlanError, match="sums its table"):
        describe(tied, layout("tp=4,dp=2,pp=2,stage_meshes=4x2/2x4"), 512)
    analytic_s, simulated_s = both_s(
        "tp=4,dp=2,pp=3,stage_meshes=4x2/2x4/4x2", CostSettings(contention="independent").of_layouts, tied
    )
    assert simulated_s == pytest.approx(analytic_s, rel=0.03)
