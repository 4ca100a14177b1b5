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
    taken, told = searched.taken, searched.mechanisms
    changes = {one.text.split()[0]: one for one in told.changes}
    assert changes["pp"].text == "pp 2 -> 1"
    keys = {"tp": taken.layout.tp, "cp": taken.layout.cp, "dp": 2 * taken.layout.dp, "micro_batch": taken.layout.micro_batch}
    keys |= {"global_batch": 64, "zero": taken.layout.zero, "sequence_parallel": str(taken.layout.sequence_parallel).lower()}
    words = ",".join(f"{key}={value}" for key, value in keys.items())
    priced = estimate("zoo:llama-7b", "preset:dgx-a100-8x8", words).step.step_s
    assert changes["pp"].step_s == pytest.approx(priced, rel=1e-12)
    assert changes["pp"].difference == pytest.approx(priced / taken.step_s - 1)
    for one in told.changes:
        assert (one.step_s is None) is bool(one.problem)
    assert told.device_hours == pytest.approx(16 * taken.step_s * 10_000 / 3600)
    assert told.per_device[1] == pytest.approx(searched.row(taken).rate[1] / 16)
    assert told.binds.startswith("binds: ")
    assert told.scaling.startswith("the next 16 GPUs (dp ")
    assert searched.to_data()["mechanisms"]["changes"][0]["text"] == told.changes[0].text


def test_all_of_a_cluster_is_held_against_a_part_of_it():
    assert found("64").mechanisms.scaling.startswith("the last 32 GPUs (dp ")
