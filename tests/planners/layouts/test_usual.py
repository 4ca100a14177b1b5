"""The usual choices beside a search: what they are, and that a search for the same framework is never slower."""

import math
import re
from functools import cache

import pytest

from meshwright.planning.search import search_layouts
from meshwright.planning.usual import compared_text, usual_choices, usual_texts


@cache
def found(job="zoo:gpt2-xl", devices="8", **more):
    return search_layouts(job, "preset:dgx-a100-8x8", batch=128, devices=devices, **more)


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("launcher", "titles"),
    [
        (None, ["pure FSDP", "Megatron's default"]),
        ("megatron", ["Megatron's default"]),
        ("torchtitan", ["pure FSDP"]),
        ("fsdp2", ["pure FSDP"]),
        ("deepspeed", ["pure ZeRO-3"]),
    ],
)
def test_each_framework_has_its_own_and_the_search_is_never_slower(launcher, titles):
    searched = found(launcher=launcher)
    choices = usual_choices(searched)
    assert [one.title for one in choices] == titles
    for one in choices:
        assert one.found.devices == 8
        assert one.found.step_s >= searched.best.step_s * (1 - 1e-12)
        layout = one.found.layout
        if one.title != "Megatron's default":
            assert (layout.dp, layout.zero) == (8, 3)


def test_megatron_takes_the_least_model_parallelism_that_fits():
    # 6.7 billion parameters: on two replicas that share the optimizer 2 + 4 + 12 / 2 bytes each, 81 GB of 80; on two halves 60 GB
    halves = search_layouts("zoo:llama-7b", "preset:dgx-a100-8x8", batch=64, devices="2", launcher="megatron")
    layout = usual_choices(halves)[0].found.layout
    assert (layout.tp, layout.pp, layout.dp, layout.recompute) == (2, 1, 1, "none")
    # on four replicas 2 + 4 + 12 / 4 bytes, 61 GB: nothing is cut
    whole = search_layouts("zoo:llama-7b", "preset:dgx-a100-8x8", batch=64, devices="4", launcher="megatron")
    layout = usual_choices(whole)[0].found.layout
    assert (layout.tp, layout.pp, layout.dp, layout.zero) == (1, 1, 4, 1)


def test_the_first_line_names_both_times():
    (line,) = usual_texts(found(launcher="torchtitan"))
    assert re.match(r"your usual choice \(pure FSDP\) takes [0-9.]+ s ± \d+ % with dp=8 mb=\d+ zero=3 ", line)
    first, second = usual_texts(found(keep="micro_batch=4|8"))
    assert first.startswith("your usual choice (pure FSDP) takes ")
    assert second.startswith("your usual choice (Megatron's default) takes ")
    assert "data parallelism alone" in usual_texts(found("zoo:resnet18", "8", keep="schedule=1f1b"))[0]


@pytest.mark.parametrize("step_s", [0.5, 0.89, 0.92, 0.99, 1.0, 1.05, 1.09, 1.12, 1.6])
def test_no_difference_within_its_uncertainty_is_stated_as_a_gain(step_s):
    searched = found(launcher="megatron")
    usual = searched.best._replace(step_s=step_s * searched.best.step_s, text="another")
    width = searched.tie_width(usual)
    assert width == pytest.approx(0.10)
    line = compared_text(searched, usual)
    assert "with another, this " in line
    ratio = 1 / step_s
    stated = re.search(r": (\d+)% (less|more), the difference is uncertain by 10%$", line)
    assert (stated is None) is (abs(math.log(ratio)) <= width)
    assert (stated is None) is line.endswith("no gain, the difference is within its uncertainty of 10%")
    assert stated is None or (int(stated[1]), stated[2]) == (round(100 * abs(1 - ratio)), "less" if ratio < 1 else "more")
