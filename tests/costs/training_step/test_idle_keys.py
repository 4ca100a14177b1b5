"""A key reported as idle changes nothing, and selective recomputation is reported wherever it has no effect."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshwright.costs.process_groups.group_network import HostNetwork
from meshwright.costs.training_step.graph_step_time import GraphPricer
from meshwright.costs.training_step.idle_keys import LAYERS_ONLY, idle_keys, remarks
from meshwright.costs.training_step.step_time import Pricer
from meshwright.costs.work.graph_work import describe_graph
from meshwright.costs.work.memory import peak_memory
from meshwright.costs.work.model_chunks import is_legal
from meshwright.costs.work.work import describe
from meshwright.devices import device_type
from meshwright.jobs.load import load_shape
from meshwright.plans.partition import Layout

from ...draws import draws
from ..graphs import CHAIN, Line

A100 = device_type("a100")
PRICER = Pricer(A100, HostNetwork(8, 300e9, 200e9))
SHAPE = load_shape("zoo:gpt2-small")[0]
DEFAULTS = {name: spec.get_default() for name, spec in Layout.model_fields.items() if not spec.is_required()}

flags = st.booleans()
degrees = st.sampled_from([1, 1, 2, 4])


@st.composite
def layouts(draw, has_layers=True):
    pp, dp = draw(degrees), draw(degrees)
    tp, cp = (draw(degrees), draw(st.sampled_from([1, 1, 2]))) if has_layers else (1, 1)
    zero = draw(st.sampled_from([0, 1, 2, 3] if has_layers else [0, 1]))
    keys = {"tp": tp, "cp": cp, "pp": pp, "dp": dp, "zero": zero, "micro_batch": 1, "global_batch": 8 * dp}
    keys |= {name: draw(flags) for name in ("sequence_parallel", "overlap_tp", "overlap_pp", "overlap_dp", "async_gradients")}
    keys |= {name: draw(flags) for name in ("distributed_optimizer", "fp32_gradients", "fused_accumulation")}
    keys["attention"] = draw(st.sampled_from(["fused", "unfused"]))
    keys["context_parallel"] = draw(st.sampled_from(["ring", "all-gather", "ulysses"]))
    keys["recompute"] = draw(st.sampled_from(["none", "selective", "full"] if has_layers else ["none", "full"]))
    keys["schedule"] = draw(st.sampled_from(["1f1b", "gpipe", *(("zb-h1",) if has_layers else ())]))
    if zero or keys["distributed_optimizer"]:
        keys["shard_group"] = draw(st.sampled_from([None, 1, dp * cp]))
    return Layout(**keys)


@pytest.mark.parametrize("zero", [0, 2, 3])
def test_what_was_priced_before_changes_no_price(zero):
    # With a pipeline the head sums the gradients of its table apart from the embedding's, which the table is tied to.
    keys = {"cp": 2, "dp": 4, "zero": zero, "micro_batch": 1, "global_batch": 32}
    works = [describe(SHAPE, Layout(pp=pp, **keys)) for pp in (1, 4)]
    alone = [Pricer(A100, PRICER.wires).step_s(work) for work in works]
    for order in (works, works[::-1]):
        pricer = Pricer(A100, PRICER.wires)
        for work in order:
            pricer.step_s(work)
        assert [pricer.step_s(work) for work in works] == alone


@draws(38)
@given(layouts())
def test_what_changes_nothing_of_a_transformer_changes_neither_time_nor_memory(layout):
    def figures(cut):
        work = describe(SHAPE, cut)
        return PRICER.step_s(work), peak_memory(work)[1]

    assume(is_legal(SHAPE, layout, SHAPE.default_sequence_length))
    result = idle_keys(layout, has_layers=True)
    for name in result:
        assert figures(Layout(**(layout.model_dump() | {name: DEFAULTS[name]}))) == figures(layout), name
    if layout.recompute == "selective":
        plain_s, _ = figures(Layout(**(layout.model_dump() | {"recompute": "none"})))
        assert ("recompute" in result) is (figures(layout)[0] == plain_s)


@draws(25)
@given(layouts(has_layers=False))
def test_what_changes_nothing_of_a_graph_of_ops_changes_neither_time_nor_memory(layout):
    def figures(cut):
        work = describe_graph(CHAIN, cut, A100)
        return GraphPricer(A100, Line()).step_s(work), work.peak_memory()[1]

    result = idle_keys(layout, has_layers=False)
    for name in result:
        assert figures(Layout(**(layout.model_dump() | {name: DEFAULTS[name]}))) == figures(layout), name
    assert {name for name in LAYERS_ONLY if getattr(layout, name) != DEFAULTS[name]} <= set(result)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("recompute=selective,micro_batch=1,global_batch=1", ["recompute=selective changes nothing: fused attention keeps no"]),
        ("recompute=selective,attention=unfused,micro_batch=1,global_batch=1", []),
        ("recompute=full,micro_batch=1,global_batch=1", []),
        ("sequence_parallel=true,micro_batch=1,global_batch=1", ["sequence_parallel=true changes nothing: tp is 1"]),
        ("dp=2,zero=1,shard_group=2,micro_batch=1,global_batch=2", ["shard_group=2 changes nothing: it is all of dp x cp"]),
    ],
)
def test_each_is_told_with_its_reason(text, message):
    result = remarks(Layout.parse(text), has_layers=True)
    assert len(result) == len(message)
    assert all(one.startswith(start) for one, start in zip(result, message, strict=True))
