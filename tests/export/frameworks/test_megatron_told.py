"""What Megatron-LM is told so that it does what was priced: experts, the order of kernels, short ends."""

import pytest

from meshwright.errors import ExportError
from meshwright.export.frameworks.megatron import arguments, rank_order, render
from meshwright.export.target import ExportOptions
from meshwright.plans import Layout

from ..grids import layer, plan_of, stage


def words(plan):
    return arguments(plan, rank_order(plan))


def test_experts_are_exchanged_as_they_were_priced():
    given_words = words(plan_of(Layout(dp=2, ep=2, micro_batch=1, global_batch=2)))
    assert given_words[-2:] == ["--moe-token-dispatcher-type", "alltoall"]
    assert "--moe-token-dispatcher-type" not in words(plan_of(Layout(dp=2, micro_batch=1, global_batch=2)))


def test_tensor_and_context_parallel_kernels_run_in_the_order_of_their_launch():
    # before Blackwell validate_args of Megatron-LM ends a run without it
    for layout, is_set in (
        (Layout(tp=2, micro_batch=1, global_batch=2), True),
        (Layout(dp=2, micro_batch=1, global_batch=2), False),
    ):
        script = render(plan_of(layout), ExportOptions())["launch.sh"]
        assert (' CUDA_DEVICE_MAX_CONNECTIONS=1"' in script) == is_set


def test_short_ends_are_told_layer_by_layer_or_refused():
    layout = Layout(pp=2, micro_batch=1, global_batch=2, first_stage_less_layers=1)
    with pytest.raises(ExportError, match=r"layout.first_stage_less_layers: the plan's stages do not name the layers"):
        words(plan_of(layout))
    stages = [stage(0, 0, "embedding", *layer(0)), stage(1, 0, *layer(1), *layer(2), "head", ranks=(1,))]
    given_words = words(plan_of(layout, stages=stages))
    assert given_words[given_words.index("--pipeline-model-parallel-layout") + 1] == "Et|t*2L"
