"""Balanced pipeline stages, held against every possible cut."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import PlanError
from meshwright.jobs import load_graph
from meshwright.plans.partition import Layout
from meshwright.plans.splitting.op_splits import OpSplits
from meshwright.plans.stages import balanced_cuts, layout_stages, op_split_stages


@given(st.data())
def test_no_other_cut_has_a_lighter_heaviest_stage(data):
    loads = np.array(data.draw(st.lists(st.floats(0, 100), min_size=1, max_size=8)))
    stages = data.draw(st.integers(1, len(loads)))
    cuts = balanced_cuts(loads, stages)
    assert (cuts[0], cuts[-1]) == (0, len(loads))
    assert (np.diff(cuts) >= 1).all()
    others = [_heaviest(loads, [0, *inner, len(loads)]) for inner in combinations(range(1, len(loads)), stages - 1)]
    assert _heaviest(loads, cuts.tolist()) == pytest.approx(min(others), rel=1e-12, abs=1e-300)


def test_stages_worked_by_hand(chain):
    # loads 3, 6, 9, 0: [3 6 | 9 0] has 9, [3 | 6 9 0] 15, [3 6 9 | 0] 18
    stages = layout_stages(chain, Layout(tp=2, pp=2, micro_batch=1, global_batch=8))
    assert [(stage.stage, stage.chunk, stage.ranks, stage.ops) for stage in stages] == [
        (0, 0, (0, 1), ("a", "b")),
        (1, 0, (2, 3), ("c", "d")),
    ]


def test_interleaved_chunks_go_round_the_pipeline(chain):
    layout = Layout(pp=2, virtual_stages=2, schedule="interleaved", micro_batch=1, global_batch=8)
    stages = layout_stages(chain, layout)
    assert [(stage.stage, stage.chunk, stage.ops) for stage in stages] == [
        (0, 0, ("a",)),
        (1, 0, ("b",)),
        (0, 1, ("c",)),
        (1, 1, ("d",)),
    ]


def test_more_stages_than_ops_are_refused(chain):
    with pytest.raises(PlanError, match=r"5 stages are more than the job's ops \(got 4\)"):
        layout_stages(chain, Layout(pp=5, micro_batch=1, global_batch=8))


def test_no_stage_cuts_a_transformer_layer():
    graph = load_graph("zoo:gpt2-small")
    for pp, virtual in ((2, 1), (5, 1), (3, 2), (14, 1)):
        schedule = "interleaved" if virtual > 1 else "1f1b"
        layout = Layout(pp=pp, virtual_stages=virtual, schedule=schedule, micro_batch=1, global_batch=8)
        stages = layout_stages(graph, layout)
        assert [op for stage in stages for op in stage.ops] == [graph.op_names[op] for op in graph.order]
        for before, after in pairwise(stages):
            assert before.ops[-1].partition(".")[0] != after.ops[0].partition(".")[0]


def test_more_stages_than_layers_are_refused():
    # 12 layers, the embedding before and norm, head and loss behind
    with pytest.raises(PlanError, match=r"15 stages are more than the job's layers \(got 14\)"):
        layout_stages(load_graph("zoo:gpt2-small"), Layout(pp=15, micro_batch=1, global_batch=8))


def test_runs_of_ranks_worked_by_hand():
    # rank 0 holds 4 ops, rank 1 the two that are split 2 ways or more, ranks 2 and 3 the one that is split 4 ways
    stages = op_split_stages(OpSplits(np.array([1, 2, 4, 1])))
    assert [(stage.ranks, stage.num_ops) for stage in stages] == [((0,), 4), ((1,), 2), ((2, 3), 1)]


@given(st.lists(st.integers(1, 16), min_size=1, max_size=10))
def test_runs_cover_every_rank_once(splits):
    stages = op_split_stages(OpSplits(np.array(splits)))
    assert [rank for stage in stages for rank in stage.ranks] == list(range(max(splits)))
    for stage in stages:
        assert {sum(split > rank for split in splits) for rank in stage.ranks} == {stage.num_ops}


def _heaviest(loads, cuts):
    return max(loads[first:last].sum() for first, last in pairwise(cuts))


def test_chunks_hold_the_layers_that_are_asked_for_and_the_ends_what_stands_around_them():
    graph = load_graph("zoo:gpt2-small", batch_size=8)
    layout = Layout(pp=2, micro_batch=1, global_batch=8)
    first, last = layout_stages(graph, layout, layers=[5, 7])
    assert first.ops[0] == "embedding"
    assert {op.split(".")[0] for op in first.ops[1:]} == {f"layer{n}" for n in range(5)}
    assert last.ops[0].startswith("layer5.")
    assert last.ops[-1] == "loss"
    assert first.num_ops + last.num_ops == graph.num_ops


@pytest.mark.parametrize("layers", [[12], [0, 12], [6, 7], [4, 4, 4]])
def test_layers_that_are_not_the_graphs_are_refused(layers):
    with pytest.raises(PlanError, match="2 chunks share the 12 layers of gpt2-small"):
        layout_stages(load_graph("zoo:gpt2-small", batch_size=8), Layout(pp=2, micro_batch=1, global_batch=8), layers=layers)
