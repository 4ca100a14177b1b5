"""A search for a framework or with kept values is the whole search less what they exclude, and exports take its results."""

from functools import cache

import pytest

from meshwright.clusters import load_cluster
from meshwright.costs.training_step.step_time import Pricer
from meshwright.costs.work.memory import peak_memory
from meshwright.costs.work.work import describe
from meshwright.errors import PlanError
from meshwright.export import export
from meshwright.planners.layouts.request import SearchRequest, parse_keep
from meshwright.planners.layouts.search import LayoutSearch
from meshwright.planners.layouts.space import LayoutSpace
from meshwright.planning.search import search_layouts
from meshwright.plans.frameworks.limits import LayoutOfModel
from meshwright.plans.frameworks.table import FRAMEWORKS

from .small_layouts import A100, GPT, LENGTH, MIXTURE, PAIRS


@cache
def ranking(shape, launcher, keep="cp=1,virtual_stages=1|2"):
    request = SearchRequest(keep=keep, top=None, launcher=launcher)
    space = LayoutSpace(shape, LENGTH, 4, PAIRS.devices_per_host, request)
    return frozenset(one.layout for one in LayoutSearch(space, A100, 80e9, PAIRS).run([4]).ranking)


def asked_of(asked):
    """A layout with the keys that are not searched as a framework has them."""
    return lambda layout: layout.model_copy(update={**asked.as_cut(vars(layout)), **asked.as_run(vars(layout))})


@pytest.mark.every(3)
@pytest.mark.parametrize("shape", [GPT, MIXTURE], ids=lambda shape: shape.name)
@pytest.mark.parametrize("name", list(FRAMEWORKS))
def test_a_search_for_a_framework_finds_what_it_runs_of_all_layouts(shape, name):
    request, whole = FRAMEWORKS[name], ranking(shape, None)
    # in a pipeline ZeRO-2 is ZeRO-1, and stands for it where a framework has no other
    whole |= {
        one.model_copy(update={"zero": 2})
        for one in whole
        if (one.zero, one.pp > 1, 1 in request.zero_stages) == (1, True, False)
    }
    runs = {
        layout
        for layout in map(asked_of(request), whole)
        if request.refusal(LayoutOfModel(layout, shape, LENGTH)) is None
        and any(request.numbering(layout, order, PAIRS.devices_per_host) for order in ("tp-cp-dp-pp", "tp-cp-pp-dp"))
    }
    result = ranking(shape, name)
    assert result == runs
    assert 0 < len(result) < len(whole)


@pytest.mark.parametrize(("name", "priced_as"), [("megatron", "megatron"), ("torchtitan", "fsdp2"), ("fsdp2", "fsdp2")])
def test_a_search_for_a_framework_prices_with_it(name, priced_as):
    assert {layout.framework for layout in ranking(GPT, name)} == {priced_as}


def test_fsdp2_on_one_device_keeps_one_copy_of_the_weights():
    request = SearchRequest(keep="cp=1", top=None, launcher="fsdp2")
    result = LayoutSearch(LayoutSpace(GPT, LENGTH, 8, 1, request), A100, 80e9, PAIRS).run([1])
    assert {one.layout.zero for one in result.ranking} == {3}
    with pytest.raises(PlanError, match="fits 1 device; "):
        LayoutSearch(LayoutSpace(GPT, LENGTH, 8, 1, request), A100, 1e8, PAIRS).run([1])


@pytest.mark.parametrize(
    "name", ["megatron", *(pytest.param(name, marks=pytest.mark.slow) for name in ("torchtitan", "deepspeed"))]
)
def test_the_exporter_takes_what_a_search_finds(name):
    cluster = load_cluster("preset:dgx-a100-8x8")
    for keep in ("micro_batch=1", "micro_batch=1,pp=2|4", "micro_batch=2,tp=2|4,pp=1", "micro_batch=1,cp=2"):
        result = search_layouts("zoo:gpt2-small", cluster, batch=32, devices="8", keep=keep, launcher=name, top=3)
        assert export(result.plan, name)


def test_memory_and_step_of_what_deepspeed_runs_are_those_of_the_layout_by_itself():
    request = SearchRequest(keep="framework=deepspeed,precision=fp16,pp=2,zero=1", top=None, launcher="deepspeed")
    for one in LayoutSearch(LayoutSpace(GPT, LENGTH, 8, 4, request), A100, 80e9, PAIRS).run([4]).ranking:
        work = describe(GPT, one.layout, LENGTH)
        assert one.memory_bytes == peak_memory(work)[1].total, one.text
        assert one.step_s == pytest.approx(Pricer(A100, PAIRS, order=one.order).step_s(work), rel=1e-12), one.text


def test_ulysses_stands_where_deepspeed_cuts_sequences_and_nowhere_else():
    result = ranking(GPT, "deepspeed", "micro_batch=1")
    assert {(layout.cp > 1, layout.context_parallel) for layout in result} == {(False, "ring"), (True, "ulysses")}


def test_what_is_kept_and_not_run_is_told_with_the_reason():
    none = r"layout.schedule: no legal layout of 4 devices is one that DeepSpeed runs.*1f1b \(got 'gpipe'\)"
    with pytest.raises(PlanError, match=none):
        ranking(GPT, "deepspeed", "pp=2,schedule=gpipe")
    with pytest.raises(PlanError, match=r"layout.zero: .*FSDP2 has the ZeRO stages 2, 3 \(got 1\)"):
        ranking(GPT, "fsdp2", "zero=1")
    request = SearchRequest(keep="tp=2,dp=2,pp=1,cp=1", order="dp-tp-cp-pp", launcher="megatron")
    with pytest.raises(PlanError, match="--set order: Megatron-LM starts no layout of 4 devices with its ranks so"):
        LayoutSearch(LayoutSpace(GPT, LENGTH, 8, 2, request), A100, 80e9, PAIRS).run([4])
    with pytest.raises(PlanError, match="--for: torchtitan is planned for transformers here, resnet18 is a graph of ops"):
        search_layouts("zoo:resnet18", "preset:dgx-a100-8x8", devices="8", launcher="torchtitan")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tp", "must read key=value"),
        ("tp=2,tp=4", "the key appears twice"),
        ("micro_bach=2", "unknown key.*did you mean 'micro_batch'"),
        ("global_batch=4", "is given by --batch"),
        ("tp=0", "keep.tp.*at least 1"),
        ("schedule=1f1b|zb-h2", "keep.schedule: not a valid choice.*zb-h2.*valid: 1f1b"),
        ("sequence_parallel=yes", "keep.sequence_parallel"),
        ("zero=4", "keep.zero"),
    ],
)
def test_what_is_kept_wrongly_is_refused_by_name(text, message):
    with pytest.raises(PlanError, match=message):
        parse_keep(text)


def test_every_key_of_a_layout_may_be_kept():
    assert parse_keep("tp=4|8, zero=0|1,overlap_dp=false,schedule=interleaved,ep=2,virtual_stages=3,shard_group=4,dp=3") == {
        "tp": (4, 8),
        "zero": (0, 1),
        "overlap_dp": (False,),
        "schedule": ("interleaved",),
        "ep": (2,),
        "virtual_stages": (3,),
        "shard_group": (4,),
        "dp": (3,),
    }
