"""Pipeline stages as Megatron spells them: worked examples, refusals, and what is read back."""

import importlib.util
import itertools
import re
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import ExportError
from meshwright.export.frameworks.megatron import arguments, rank_order
from meshwright.plans import Layout

from ..grids import layer, plan_of, stage

PIPELINE = Layout(pp=2, micro_batch=1, global_batch=4)


def cut_of(*stages, layout=PIPELINE):
    plan = plan_of(layout, num_hosts=1, stages=stages)
    given_words = arguments(plan, rank_order(plan))
    return given_words[given_words.index("--pipeline-model-parallel-layout") + 1]


def test_stages_become_a_pipeline_layout():
    first = stage(0, 0, "embedding", *layer(0), *layer(1), *layer(2))
    last = stage(1, 0, *layer(3), *layer(4), "final_norm", "lm_head", "loss", ranks=(1,))
    assert cut_of(first, last) == "Et*3|t*2L"
    assert cut_of(last, first) == "Et*3|t*2L"
    assert cut_of(stage(0, 0, "embedding"), stage(1, 0, *layer(0), "loss", ranks=(1,))) == "E|tL"
    assert cut_of(stage(0, 0, *layer(0)), stage(1, 0, "lm_head", ranks=(1,))) == "Et|L"


def test_chunks_of_an_interleaved_schedule_follow_one_another():
    layout = Layout(pp=2, micro_batch=1, global_batch=4, virtual_stages=2, schedule="interleaved", overlap_pp=True)
    stages = [
        stage(0, 0, "embedding", *layer(0)),
        stage(0, 1, *layer(2), *layer(3)),
        stage(1, 0, *layer(1), ranks=(1,)),
        stage(1, 1, *layer(4), "loss", ranks=(1,)),
    ]
    assert cut_of(*stages, layout=layout) == "Et|t|t*2|tL"


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([stage(0, 0, *layer(0))], "stages: chunk 0 of stage 1 is missing"),
        ([stage(0, 0, *layer(0)), stage(0, 0, *layer(1))], "stages.1: stage 0 has chunk 0 already"),
        ([stage(0, 0, "a"), stage(1, 0, "b", ranks=(1,))], "stages: no op is named after a transformer layer"),
        (
            [stage(0, 0, *layer(0), "layer1.attention"), stage(1, 0, "layer1.mlp", "loss", ranks=(1,))],
            r"stages.1: begins inside layer 1; Megatron cuts between layers \(got 'layer1.mlp'\)",
        ),
        (
            [stage(0, 0, *layer(1)), stage(1, 0, *layer(0), ranks=(1,))],
            "stages.1: layer 0 follows layer 1; Megatron runs them in order",
        ),
        (
            [stage(0, 0, "embedding"), stage(1, 0, "positions", *layer(0), ranks=(1,))],
            r"stages.1: comes before the layers; .* first stage \(got 'positions'\)",
        ),
        (
            [stage(0, 0, *layer(0), "norm"), stage(1, 0, "loss", ranks=(1,))],
            r"stages.0: comes after the layers; .* last stage \(got 'norm'\)",
        ),
        (
            [stage(0, 0, *layer(0), "x", *layer(1)), stage(1, 0, "y", ranks=(1,))],
            r"stages.0: .* nothing between two layers \(got 'x'\)",
        ),
        ([stage(0, 0) | {"num_ops": 3}, stage(1, 0, *layer(0), ranks=(1,))], "stages.0: does not name its ops"),
        (
            [stage(0, 0, *layer(0)), stage(1, 0, "loss", ranks=(1,)), stage(0, 1, *layer(1))],
            "stages: 2 stages of 1 chunks are wanted",
        ),
    ],
)
def test_stages_that_megatron_cannot_cut_are_refused(stages, message):
    with pytest.raises(ExportError, match=message):
        cut_of(*stages)


@given(st.lists(st.integers(0, 4), min_size=2, max_size=6))
def test_layouts_are_read_back_as_the_planned_layers(counts):
    """Unrolled by the rules of Megatron's argument: ``x*n`` is ``x`` n times; held against megatron-core where installed."""
    counts[0] = max(counts[0], 1)
    pp = len(counts)
    numbers = iter(range(sum(counts)))
    per_stage = [list(itertools.islice(numbers, count)) for count in counts]
    if any(not held for held in per_stage[1:-1]):
        per_stage = [held for place, held in enumerate(per_stage) if held or place in (0, pp - 1)]
        pp = len(per_stage)
    stages = []
    for index, held in enumerate(per_stage):
        ops = [op for number in held for op in layer(number)]
        ops = (["embedding"] if index == 0 else []) + ops + (["loss"] if index == pp - 1 else [])
        stages.append(stage(index, 0, *ops, ranks=(index,)))
    text = cut_of(*stages, layout=Layout(pp=pp, micro_batch=1, global_batch=4))
    unrolled = re.sub(r"(.)\*(\d+)", lambda result: result[1] * int(result[2]), text).split("|")
    assert [held.count("t") for held in unrolled] == [len(held) for held in per_stage]
    assert "".join(unrolled).strip("t") in ("EL", "E" + "t" * sum(map(len, per_stage)) + "L")
    if importlib.util.find_spec("megatron") is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = importlib.import_module("megatron.core.transformer.pipeline_parallel_layer_layout")
        parsed = module.PipelineParallelLayerLayout(text, pp)
        parsed.validate_layer_layout(sum(map(len, per_stage)), None)
        assert [parsed.get_layer_id_list(vp_stage=0, pp_rank=place) for place in range(pp)] == per_stage
