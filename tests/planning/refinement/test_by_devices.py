"""The plans of the other numbers of devices: each is what a search of that number alone finds, and none is lost in silence."""

from functools import cache

import numpy as np
import pytest

from meshwright.planning.search import plans_by_devices, search_layouts

KEEP = "cp=1,schedule=1f1b,recompute=none"


@cache
def found(devices, job="zoo:gpt2-small", cluster="preset:dgx-a100-8x8", keep=KEEP, **more):
    return search_layouts(job, cluster, batch=64, devices=devices, keep=keep, **more)


@pytest.mark.parametrize(
    ("job", "devices", "keep"),
    [
        ("zoo:gpt2-small", "4,8", KEEP),
        *(pytest.param("zoo:gpt2-small", devices, KEEP, marks=pytest.mark.slow) for devices in ("1-8", "8,16,24", "8,64")),
        ("zoo:resnet18", "1-4", "pp=1|2,schedule=1f1b"),
    ],
)
def test_each_is_the_fastest_of_its_number(job, devices, keep):
    searched = found(devices, job, keep=keep)
    plans, left_out = plans_by_devices(searched)
    assert {*plans, searched.best.devices, *(int(one.split()[3]) for one in left_out)} == set(searched.device_counts)
    for number, plan in plans.items():
        alone = found(str(number), job, keep=keep)
        assert plan.num_ranks == number
        assert plan.figure("step_s").value == pytest.approx(alone.best.step_s, rel=1e-12)


@pytest.mark.parametrize(("take", "taken"), [("1f1b", "fastest"), ("plain", "plain")])
def test_it_is_the_plain_layout_where_that_is_taken_and_else_the_fastest(take, taken):
    plans, left_out = plans_by_devices(found("8,16", take=take))
    assert left_out == ()
    assert plans[8].taken == taken
    assert plans[8].figure("step_s").value == pytest.approx(found("8", take=taken).taken.step_s, rel=1e-12)


def test_beside_other_jobs_too_and_none_raises_after_the_plan_was_written():
    is_free = np.ones(64, np.bool_)
    is_free[:4] = False
    more = {"is_free": is_free, "batch": 64, "keep": KEEP}
    searched = search_layouts("zoo:gpt2-small", "preset:dgx-a100-8x8", devices="8,16", take="default", **more)
    alone = search_layouts("zoo:gpt2-small", "preset:dgx-a100-8x8", devices="8", **more)
    plans, left_out = plans_by_devices(searched)
    (number,) = {8, 16} - {searched.planned.devices}
    assert left_out == ()
    assert plans[number].taken == "fastest"
    if number == 8:
        assert plans[8].figure("step_s").value == pytest.approx(alone.best.step_s, rel=1e-12)


def test_a_number_on_which_nothing_fits_is_named():
    searched = found("1,8", "zoo:llama-7b", keep="tp=1|8,cp=1,pp=1")
    plans, left_out = plans_by_devices(searched)
    assert plans == {}
    (line,) = left_out
    assert line.startswith("no plan of 1 devices: memory: no layout of llama-7b fits 1 device")
