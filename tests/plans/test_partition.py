"""Layouts: the grid of ranks, bad input."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from meshwright.costs.process_groups.rank_groups import stage_groups
from meshwright.errors import PlanError
from meshwright.plans.partition import Layout

degrees = st.integers(1, 4)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    dp, cp = draw(degrees), draw(degrees)
    tp = draw(degrees)
    etp = draw(st.sampled_from([d for d in range(1, tp + 1) if tp % d == 0]))
    ranks = tp * dp * cp // etp
    ep = draw(st.sampled_from([d for d in range(1, ranks + 1) if ranks % d == 0]))
    return Layout(tp=tp, pp=draw(degrees), dp=dp, cp=cp, ep=ep, etp=etp, micro_batch=1, global_batch=dp)


def test_ranks_run_through_tp_then_cp_then_dp_then_pp():
    layout = Layout(tp=2, cp=2, dp=2, pp=2, ep=4, micro_batch=1, global_batch=2)
    # rank 13 = 1 + 2 * (0 + 2 * (1 + 2 * 1)): tp 1, cp 0, dp 1, pp 1; of its 4 dp x cp places it is number 2
    assert layout.coordinates(13).model_dump() == {"pp": 1, "dp": 1, "cp": 0, "ep": 2, "tp": 1}
    with pytest.raises(PlanError, match=r"0\.\.15.*got 16"):
        layout.coordinates(16)


@given(layouts())
def test_coordinates_are_a_bijection_with_ranks(layout):
    places = [layout.coordinates(rank) for rank in range(layout.world)]
    assert len({(place.pp, place.dp, place.cp, place.tp) for place in places}) == layout.world
    assert all(place.pp < layout.pp and place.dp < layout.dp for place in places)
    assert all(place.cp < layout.cp and place.tp < layout.tp and place.ep < layout.ep for place in places)


@given(layouts(), st.sampled_from(["tp", "cp", "ep"]))
def test_ranks_of_a_group_differ_along_its_axis_only(layout, axis):
    groups = stage_groups(layout, axis)
    assert sorted(groups.ravel().tolist()) == list(range(layout.world // layout.pp))
    fixed = [other for other in ("dp", "cp", "tp") if other != axis]
    for group in groups.tolist():
        places = [layout.coordinates(rank) for rank in group]
        assert [getattr(place, axis) for place in places] == list(range(getattr(layout, axis)))
        assert axis == "ep" or len({tuple(getattr(place, key) for key in fixed) for place in places}) == 1


@given(layouts())
def test_every_slice_of_an_expert_is_on_as_many_ranks(layout):
    places = map(layout.coordinates, range(layout.world))
    held = Counter((place.pp, place.ep, place.tp % layout.expert_tp) for place in places)
    assert set(held.values()) == {layout.expert_copies}
    assert len(held) == layout.pp * layout.ep * layout.expert_tp


def test_groups_worked_by_hand():
    layout = Layout(tp=2, dp=2, pp=2, micro_batch=1, global_batch=2)
    assert stage_groups(layout, "tp").tolist() == [[0, 1], [2, 3]]
    assert stage_groups(layout, "dp_cp").tolist() == [[0, 2], [1, 3]]
    # Experts cut by two of four ranks of tp: slices 0 1 0 1 of experts 0 0 1 1 of the first copy, and so on
    layout = Layout(tp=4, dp=2, ep=2, etp=2, micro_batch=1, global_batch=2)
    assert stage_groups(layout, "etp").tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert stage_groups(layout, "ep").tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert stage_groups(layout, "expert_dp").tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]


@pytest.mark.parametrize(
    ("text", "etp"),
    [
        ("tp=2,dp=4,ep=8", 1),  # ep divides 8 ranks, and not the 4 of dp
        ("tp=2,pp=8,dp=16,ep=32", 1),
        ("tp=4,dp=2,ep=4", 2),
        ("tp=4,dp=4,ep=4", None),
        ("tp=4,dp=4,ep=4,etp=4", None),
    ],
)
def test_experts_are_cut_as_dense_layers_where_ep_then_divides_the_ranks(text, etp):
    assert Layout.parse(f"{text},micro_batch=1,global_batch=16").etp == etp


def test_a_layout_is_spelled_as_text():
    layout = Layout.parse("tp=8, pp=8,dp=2,micro_batch=1,global_batch=64,schedule=1f1b,sequence_parallel=true,zero=1")
    assert (layout.world, layout.num_micro_batches) == (128, 32)
    assert layout.sequence_parallel
    assert layout.zero == 1


def test_an_absent_batch_is_the_jobs_or_an_error():
    assert Layout.parse("dp=2,micro_batch=4", samples_per_step=32).num_micro_batches == 4
    with pytest.raises(PlanError, match=r"layout\.global_batch: the key is missing"):
        Layout.parse("dp=2,micro_batch=4")
    with pytest.raises(PlanError, match=r"layout\.micro_batch: the key is missing"):
        Layout.parse("dp=2", samples_per_step=32)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tp=8,micro_bach=1,global_batch=8", "did you mean 'micro_batch'"),
        ("tp=8,tp=4,micro_batch=1,global_batch=8", "twice"),
        ("tp,micro_batch=1,global_batch=8", "key=value"),
        ("tp=0,micro_batch=1,global_batch=8", r"layout\.tp.*got 0"),
        ("tp=two,micro_batch=1,global_batch=8", r"layout\.tp.*'two'"),
        ("tp=2.5,micro_batch=1,global_batch=8", r"layout\.tp"),
        ("sequence_parallel=3,micro_batch=1,global_batch=8", r"layout\.sequence_parallel"),
        ("schedule=1f1,micro_batch=1,global_batch=8", "did you mean '1f1b'"),
        ("zero=4,micro_batch=1,global_batch=8", r"layout\.zero"),
        ("dp=2,ep=4,micro_batch=1,global_batch=8", "ep=4 does not divide tp x cp x dp / etp = 2"),
        ("dp=3,micro_batch=1,global_batch=8", "not a multiple of micro_batch x dp = 3"),
        ("pp=2,virtual_stages=2,micro_batch=1,global_batch=8", "needs schedule=interleaved"),
        ("virtual_stages=2,schedule=interleaved,micro_batch=1,global_batch=8", "pp is 1"),
        ("pp=2,schedule=none,micro_batch=1,global_batch=8", "schedule=none"),
        ("tp.x=1,micro_batch=1,global_batch=8", "key=value"),
    ],
)
def test_a_bad_layout_is_refused_with_the_key(text, message):
    with pytest.raises(PlanError, match=message):
        Layout.parse(text)


@pytest.mark.parametrize("update", [None, {"schedule": "gpipe"}, {"micro_batch": 4, "zero": 1}])
def test_a_copy_of_a_layout_is_that_of_pydantic(update):
    layout = Layout(tp=2, micro_batch=1, global_batch=8)
    ours, theirs = layout.model_copy(update=update), BaseModel.model_copy(layout, update=update)
    assert ours == theirs
    assert hash(ours) == hash(theirs)
    assert ours.model_dump() == theirs.model_dump()
    assert ours.model_fields_set == theirs.model_fields_set
    assert layout == Layout(tp=2, micro_batch=1, global_batch=8)
