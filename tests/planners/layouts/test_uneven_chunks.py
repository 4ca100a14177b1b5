"""The search on layers that chunks do not divide."""

from meshwright.costs.training_step.step_time import Pricer
from meshwright.costs.work.work import describe
from meshwright.jobs.readers.huggingface import shape_of
from meshwright.planners.layouts.request import SearchRequest
from meshwright.planners.layouts.space import LayoutSpace
from meshwright.plans.pipelines.layers import layers_of_chunks

from .small_layouts import A100, LENGTH, PAIRS
from .test_search import ROOMY, search

SEVEN = shape_of(
    {"model_type": "gpt2", "n_embd": 256, "n_layer": 7, "n_head": 4, "n_positions": 256, "vocab_size": 1024}, name="seven"
)


def test_layers_that_no_chunks_divide_are_cut_with_less_in_the_last_one():
    """Seven layers in two stages of two chunks: two in each chunk but the last, which the head joins."""
    space = LayoutSpace(SEVEN, LENGTH, 4, 2, SearchRequest(keep="schedule=interleaved"))
    cut = {one for one in space.layouts(2) if one.pp == 2}
    assert {(one.virtual_stages, one.first_stage_less_layers, one.last_stage_less_layers) for one in cut} == {(2, 0, 1)}
    assert {layers_of_chunks(7, one) for one in cut} == {(2, 2, 2, 1)}
    result = search(SEVEN, [2], 4, ROOMY, top=None, keep="schedule=interleaved")
    assert cut <= {one.layout for one in result.ranking}
    best = search(SEVEN, [2], 4, ROOMY, top=1, keep="schedule=interleaved,pp=2")
    pricer = Pricer(A100, PAIRS)
    assert best.ranking[0].step_s == min(pricer.step_s(describe(SEVEN, one, LENGTH)) for one in cut)
    stored = LayoutSpace(SEVEN, LENGTH, 4, 2, SearchRequest(keep="last_stage_less_layers=1,schedule=interleaved,pp=2"))
    assert set(stored.layouts(2)) == cut
