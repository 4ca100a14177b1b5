"""Why a layout: each mechanism switched off is priced as `estimate` prices it, and what more devices would bring."""

from functools import cache

import pytest

from meshwright.planning.estimate import estimate
from meshwright.planning.search import search_layouts


@cache
def found(devices):
    keep = "tp=1|2|4,cp=1|2,pp=2,schedule=interleaved|1f1b,recompute=none"
    return search_layouts("zoo:llama-7b", "preset:dgx-a100-8x8", batch=64, devices=devices, keep=keep, order="tp-cp-dp-pp")


def test_a_mechanism_less_costs_what_estimate_says():
    searched = found("16")
    taken, mechanisms = searched.taken, searched.mechanisms
    changes = {change.text.split()[0]: change for change in mechanisms.changes}
    assert changes["pp"].text == "pp 2 -> 1"
    keys = {"tp": taken.layout.tp, "cp": taken.layout.cp, "dp": 2 * taken.layout.dp}
    priced = estimated_s(taken.layout, **keys)
    other = changes["pp"].ranked
    assert other.step_s == pytest.approx(priced, rel=1e-12)
    row = searched.to_data()["mechanisms"]["changes"][[change.text for change in mechanisms.changes].index("pp 2 -> 1")]
    assert row["difference"] == pytest.approx(priced / taken.step_s - 1)
    assert (row["step_s"], row["memory_bytes"], row["problem"]) == (other.step_s, other.memory_bytes, "")
    assert mechanisms.device_hours == pytest.approx(16 * taken.step_s * 10_000 / 3600)
    assert mechanisms.per_device == pytest.approx(searched.row(taken).step.rate[1] / 16)


def estimated_s(layout, **degrees):
    keys = {"micro_batch": layout.micro_batch, "global_batch": 64, "zero": layout.zero, **degrees}
    keys |= {"sequence_parallel": str(layout.sequence_parallel).lower()}
    words = ",".join(f"{key}={value}" for key, value in keys.items())
    return estimate("zoo:llama-7b", "preset:dgx-a100-8x8", words).step.step_s


@pytest.mark.parametrize(("devices", "text"), [("16", "the next 16 GPUs (dp "), ("64", "the last 32 GPUs (dp ")])
def test_what_devices_bring_worked_by_hand(devices, text):
    searched = found(devices)
    taken, scaling = searched.taken, searched.mechanisms.scaling
    assert scaling.startswith(text)
    layout, factor = taken.layout, 2 if devices == "16" else 1 / 2
    keys = vars(layout) | {"dp": int(layout.dp * factor)}
    words = ",".join(f"{key}={str(value).lower()}" for key, value in keys.items() if value is not None)
    other_s = estimate("zoo:llama-7b", "preset:dgx-a100-8x8", words).step.step_s
    # steps a second that each further device brings, over those that each of the first ones does
    less, more = sorted(((taken.devices, 1 / taken.step_s), (taken.devices * factor, 1 / other_s)))
    share = (more[1] - less[1]) / (more[0] - less[0]) / (less[1] / less[0])
    assert f"{share:.0%} of what one" in scaling


def test_more_devices_are_whole_hosts():
    searched = search_layouts(
        "zoo:gpt2-small", "preset:dgx-a100-8x8", batch=120, devices="16", keep="tp=4,pp=1,cp=1,micro_batch=1"
    )
    assert searched.best.layout.dp == 4
    # dp=5 would be 20 devices, and 24 or 40 are whole hosts of 8
    assert searched.mechanisms.scaling.startswith("the next 8 GPUs (dp 4 -> 6)")


@pytest.mark.parametrize(
    ("job", "batch", "keep", "binding"),
    [
        ("zoo:gpt2-small", 64, "tp=1,cp=1,pp=1,zero=3,micro_batch=1", "exposed communication"),
        ("zoo:llama-7b", 8, "tp=1,cp=1,pp=8,micro_batch=2,schedule=1f1b,recompute=none", "the bubble of the schedule"),
        ("zoo:gpt2-small", 64, "tp=1,cp=1,pp=4,zero=0,micro_batch=16,schedule=1f1b,recompute=none", "imbalance of stages"),
        ("zoo:gpt2-small", 64, "tp=1,cp=1,pp=1,zero=1,micro_batch=8,recompute=full", "memory of stage 0"),
    ],
)
def test_the_longest_wait_binds_and_recomputation_says_that_memory_does(job, batch, keep, binding):
    searched = search_layouts(job, "preset:dgx-a100-8x8", batch=batch, devices="8", keep=keep)
    mechanisms, row = searched.mechanisms, searched.row(searched.taken)
    assert mechanisms.binding == binding
    assert f"exposed communication {row.exposed_share:.1%} of the step" in mechanisms.shares or row.exposed_share < 0.0005
    assert f"the bubble of the schedule {row.bubble_share:.1%}" in mechanisms.shares or row.bubble_share < 0.0005
    assert f"{searched.taken.memory_bytes / 1e9:.1f} of {searched.maker.capacity_bytes / 1e9:.1f} GB" in mechanisms.shares


def test_one_thing_is_changed_at_a_time():
    keep = "tp=2,cp=1,pp=1,zero=1,micro_batch=1,overlap_dp=true|false"
    searched = search_layouts("zoo:gpt2-small", "preset:dgx-a100-8x8", batch=64, devices="8", keep=keep)
    hidden = searched.taken.layout.overlap_dp
    assert {change.ranked.layout.overlap_dp for change in searched.mechanisms.changes if change.ranked is not None} == {hidden}
