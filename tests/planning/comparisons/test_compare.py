"""Layouts side by side: each against the fastest, and what does not compare."""

import pytest

import meshwright
from meshwright.errors import PlanError
from meshwright.planning.comparisons.compare import compare
from meshwright.planning.estimate import estimate

WHERE = "zoo:gpt2-small", "preset:dgx-a100-8x8"
LAYOUTS = (
    "dp=8,micro_batch=1,global_batch=64",
    "tp=2,dp=4,micro_batch=1,global_batch=64",
    "tp=4,dp=2,micro_batch=1,global_batch=64",
)


def test_each_is_compared_with_the_fastest_whatever_the_order():
    steps = [estimate(*WHERE, layout).step.step_s for layout in LAYOUTS]
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        compared = compare(*WHERE, [LAYOUTS[place] for place in order])
        assert steps[order[compared.fastest]] == min(steps)
        for place, row in zip(order, compared.to_data()["layouts"], strict=True):
            assert row["difference"] == pytest.approx(steps[place] / min(steps) - 1)
            assert row["exceeds_uncertainty"] is (row["difference"] > 0 and row["order_probability"] > 0.8413)


@pytest.mark.parametrize("key", ["training: {kind: local-sgd, every: 4}", "compression: {kind: sign}"])
def test_a_file_with_a_strategy_is_refused(tmp_path, key):
    path = tmp_path / "layout.yaml"
    path.write_text(f"layout: {{dp: 8, micro_batch: 1, global_batch: 64}}\n{key}\n")
    with pytest.raises(PlanError, match="LAYOUT: compares synchronous steps; estimate prices training and compression"):
        compare(*WHERE, [LAYOUTS[1], str(path)])


def test_layouts_are_compared_as_words_or_as_they_are():
    made = estimate(*WHERE, LAYOUTS[1]).layout
    assert meshwright.compare(*WHERE, [LAYOUTS[0], made]).to_data() == compare(*WHERE, LAYOUTS[:2]).to_data()
    with pytest.raises(PlanError, match="LAYOUT: compares synchronous steps"):
        compare(*WHERE, [made, made], training="kind=local-sgd,every=4")
