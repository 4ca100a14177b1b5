"""ZeRO-3 that codes the parameters that it gathers, the gradients that it scatters, or both."""

import json

import pytest

from meshwright.costs.settings import CostSettings
from meshwright.costs.training.compressed import coded_shards
from meshwright.costs.work.operations import Message
from meshwright.errors import ExportError, PlanError
from meshwright.export import export
from meshwright.planning.estimate import estimate
from meshwright.plans.compression import Quantise
from meshwright.simulation.training.strategy_step import simulated_training_s

LAYOUT = "dp=16,zero=3,micro_batch=1,global_batch=32"
COSTS = CostSettings(contention="independent", overlap_slowdown=1.0)


def found(layout, code):
    return estimate("zoo:gpt2-small", "preset:dgx-a100-8x8", layout, costs=COSTS, compression=code)


@pytest.fixture(scope="module")
def plain():
    return found(LAYOUT, None)


def seconds(code, layout=LAYOUT):
    made = found(layout, code)
    (price,) = made.trained
    event_s = simulated_training_s(made.maker, made.work, price.training, price.compression, costs=COSTS)
    return price, event_s


NEUTRAL = [
    *((what, more, 16) for what in ("gradients", "parameters", "both") for more in ("", ",overlap_dp=true")),
    ("both", ",precision=fp32,attention=unfused", 32),
    ("parameters", ",framework=fsdp2", 16),
    ("gradients", ",framework=fsdp2", 32),
]
"""Coded tensors, keys of the layout, and the bits of its numbers; FSDP2 gathers parameters in 2 bytes and reduces in 4."""


@pytest.mark.parametrize(("what", "more", "bits"), NEUTRAL)
def test_a_code_that_changes_nothing_changes_nothing(what, more, bits):
    price, event_s = seconds(
        f"kind=quantise,bits={bits},group=null,codec_passes=0,summable=true,error_feedback=false,what={what}", LAYOUT + more
    )
    uncoded = found(LAYOUT + more, None)
    assert price.step_s == pytest.approx(uncoded.step.step_s, rel=1e-9)
    assert event_s == pytest.approx(uncoded.simulated_s(COSTS), rel=1e-9)
    assert price.extra_bytes == 0


@pytest.mark.parametrize("what", ["gradients", "parameters", "both"])
@pytest.mark.parametrize("layout", [LAYOUT, f"{LAYOUT},overlap_dp=true"])
def test_both_paths_say_the_same(what, layout):
    price, event_s = seconds(f"kind=quantise,bits=4,what={what}", layout)
    assert event_s == pytest.approx(price.step_s, rel=0.03)


@pytest.mark.parametrize(("what", "parts"), [("gradients", (1, 1 / 2)), ("parameters", (1 / 2, 1)), ("both", (1 / 2, 1 / 2))])
def test_bytes_of_the_passes_are_those_of_the_table(plain, what, parts):
    # 8 of 16 bits without scales; gradients are exchanged all to all and not reduced in transit
    coded = coded_shards(plain.work, Quantise(bits=8, group=None, what=what))
    for name, block in plain.work.blocks.items():
        for items, others in zip(
            *([one.forward, one.recompute, one.backward] for one in (block, coded.blocks[name])), strict=True
        ):
            before, after = ([i for i in each if isinstance(i, Message) and i.axis == "shard"] for each in (items, others))
            for one, other in zip(before, after, strict=True):
                is_gather = one.operation == "all_gather"
                assert other.payload_bytes == pytest.approx(parts[0 if is_gather else 1] * one.payload_bytes, rel=1e-9)
                is_exchanged = not is_gather and what != "parameters"
                assert other.operation == ("all_to_all" if is_exchanged else one.operation)


def test_what_is_lost_is_held_in_four_bytes(plain):
    held = 4 * max(stage.parameters for stage in plain.work.stages)
    assert seconds("kind=quantise,bits=8")[0].extra_bytes == pytest.approx(held)
    assert seconds("kind=quantise,bits=8,what=parameters")[0].extra_bytes == 0


@pytest.mark.parametrize(
    ("layout", "code", "message"),
    [
        (
            "dp=16,micro_batch=1,global_batch=32",
            "kind=quantise,bits=8,what=both",
            "compression.what: parameters are gathered by ZeRO-3",
        ),
        ("dp=16,zero=2,micro_batch=1,global_batch=32", "kind=quantise,bits=8", "layout.zero: coded gradients are summed whole"),
        (LAYOUT, "kind=sign", "layout.zero: coded gradients are summed whole"),
    ],
)
def test_what_does_not_go_together_is_told(layout, code, message):
    with pytest.raises(PlanError, match=message):
        found(layout, code)


def test_deepspeed_is_told_what_it_codes_by_itself(plain):
    plan = plain.maker.plan(plain.work, "tp-cp-dp-pp", 10, (), "a test")
    for what, bits, key in (("parameters", 8, "zero_quantized_weights"), ("gradients", 4, "zero_quantized_gradients")):
        coded = plan.model_copy(update={"compression": Quantise(bits=bits, what=what)})
        config = json.loads(export(coded, "deepspeed")["ds_config.json"])
        assert config["zero_optimization"][key] is True
        assert config["zero_optimization"]["stage"] == 3
        assert coded.model_dump(mode="json", exclude_none=True)["compression"].get("what") == (
            None if what == "gradients" else what
        )
    for code in (Quantise(bits=8), Quantise(bits=8, what="both")):
        with pytest.raises(ExportError, match="parameters in 8 bits and gradients in 4"):
            export(plan.model_copy(update={"compression": code}), "deepspeed")
    with pytest.raises(ExportError, match="hooks code gradients of whole replicas"):
        export(plan.model_copy(update={"compression": Quantise(bits=8)}), "torchrun")
