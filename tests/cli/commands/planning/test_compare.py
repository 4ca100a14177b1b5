"""``compare``: layouts side by side as `estimate` prices them, and the plans of several numbers of devices."""

import json

import pytest

from meshwright import load_plan

JOB = ("--job", "zoo:gpt2-small", "--cluster", "preset:dgx-a100-8x8")
FIRST, SECOND = "dp=8,micro_batch=1,global_batch=64", "tp=2,dp=4,micro_batch=1,global_batch=64"


def test_layouts_stand_side_by_side_as_estimate_prices_them(meshwright, work):
    result = meshwright("compare", FIRST, SECOND, FIRST, *JOB, "--json", "both.json")
    assert (result.status, result.err) == (0, "")
    rows = json.loads((work / "both.json").read_text())["layouts"]
    for layout, row in zip((FIRST, SECOND), rows, strict=False):
        meshwright("estimate", *JOB, "--layout", layout, "--json", "one.json")
        assert row["figures"] == json.loads((work / "one.json").read_text())["figures"]
    assert rows[0]["figures"] == rows[2]["figures"]
    for row in rows:  # of a layout with itself there is no doubt
        assert (row["paired_uncertainty"] == 0) is (row["layout"] == rows[0]["layout"])
    assert "A is the fastest; B: " in result.out
    assert "different frameworks" not in result.out
    unlike = meshwright("compare", FIRST, f"{SECOND},framework=megatron", *JOB)
    assert "prices are of different frameworks (none named, megatron)" in " ".join(unlike.out.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((FIRST, *JOB), "LAYOUT: wants two layouts or more"),
        ((FIRST, FIRST.replace("=64", "=128"), *JOB), "global_batch: steps of different batches do not compare (got '64, 128')"),
        ((FIRST, "tpp=2,micro_batch=1", *JOB), "layout.tpp: unknown key, in layout 2 of 2 (got 'tpp'); did you mean 'tp'?"),
        ((FIRST, SECOND, "--job", "zoo:gpt9", *JOB[2:]), "no such job in the zoo (got 'gpt9')"),
    ],
)
def test_what_cannot_be_compared_is_refused(refused, words, message):
    assert message in refused("compare", *words)


def test_several_numbers_of_devices_give_a_plan_each(meshwright, work):
    keep = ("--batch", 64, "--keep", "cp=1,pp=1,tp=1|2,zero=1", "--set", "front=0", "--set", "top=1")
    assert meshwright("plan", "--search", *JOB, *keep, "--devices", "8,16", "--json", "plan.json").status == 0
    assert meshwright("plan", "--search", *JOB, *keep, "--devices", "8", "--json", "alone.json").status == 0
    assert load_plan(work / "plan.json").num_ranks == 16
    other, alone = load_plan(work / "plan-8.json"), load_plan(work / "alone.json")
    assert (other.layout(), other.figure("step_s").value) == (alone.layout(), alone.figure("step_s").value)
