"""A step of many micro-batches extrapolated from two of fewer equals the whole one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters import load_cluster
from meshwright.costs.pipelines.schedules import in_flight
from meshwright.costs.settings import CostSettings
from meshwright.planning.estimate import estimate
from meshwright.plans.partition import Layout
from meshwright.simulation.layouts.steady import SteadyRounds, rounds, with_micro_batches

from ...costs.pipelines.closed_forms import closed_form_s

HOST = load_cluster("preset:host-8")


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("job", "layout", "costs"),
    [
        ("zoo:gpt2-small", "tp=2,dp=4,micro_batch=1,global_batch=32,overlap_dp=true,zero=1", {"contention": "fair"}),
        ("zoo:gpt2-small", "dp=8,micro_batch=1,global_batch=64,zero=3", {"gradient_bucket_bytes": 25 * 2**20}),
        ("zoo:gpt2-small", "pp=4,dp=2,micro_batch=1,global_batch=38,overlap_dp=true", {"priority": "first-consumer"}),
        ("zoo:gpt2-small", "pp=4,dp=2,micro_batch=1,global_batch=48,schedule=gpipe", {}),
        ("zoo:gpt2-small", "pp=4,dp=2,micro_batch=1,global_batch=60,schedule=interleaved,virtual_stages=3", {}),
        ("zoo:gpt2-small", "pp=4,micro_batch=1,global_batch=24,schedule=zb-2p", {"contention": "independent"}),
        ("zoo:resnet50", "pp=8,micro_batch=4,global_batch=128,overlap_pp=true", {"contention": "fair"}),
    ],
)
def test_the_step_is_that_of_all_micro_batches(job, layout, costs):
    settings = CostSettings(**costs)
    result = estimate(job, HOST, layout, costs=settings)
    m = result.layout.num_micro_batches
    least = next(two for most in range(2 * m) if (two := rounds(result.layout, most)) is not None)
    assert least.longer < m
    told_s = least.step_s(lambda number: result.simulated_s(settings, number))
    assert told_s == pytest.approx(result.simulated_s(settings), rel=5e-3)


layouts = st.builds(
    lambda p, v, m, schedule: Layout(
        pp=p,
        virtual_stages=v if p > 1 and schedule == "1f1b" else 1,
        schedule="interleaved" if p > 1 and v > 1 and schedule == "1f1b" else schedule,
        micro_batch=1,
        global_batch=m,
    ),
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(1, 60),
    st.sampled_from(["1f1b", "gpipe", "zb-h1", "zb-2p"]),
)


@given(layouts, st.floats(0, 80))
def test_two_steps_are_shorter_and_alike(layout, most):
    result, m = rounds(layout, most), layout.num_micro_batches
    if result is None:
        return
    assert result.fewer < result.longer < m == result.all
    assert result.fewer + result.longer <= most
    assert (m - result.fewer) % result.size == 0
    assert layout.schedule == "gpipe" or result.fewer >= in_flight(layout.schedule, layout.pp, layout.virtual_stages, m, 0)
    assert with_micro_batches(layout, result.fewer).num_micro_batches == result.fewer


def test_what_needs_no_shortening_has_none_and_a_line_is_continued_exactly():
    assert rounds(Layout(pp=4, micro_batch=1, global_batch=4), 1e9) is None
    assert rounds(Layout(pp=4, micro_batch=1, global_batch=64), 11) is None  # 4 and 8 are 12
    assert rounds(Layout(pp=4, micro_batch=1, global_batch=64), 12) == SteadyRounds(64, 4, 4)
    assert rounds(Layout(pp=4, micro_batch=1, global_batch=66), 1e9) == SteadyRounds(66, 18, 4)
    for m in (64, 66):
        two = rounds(Layout(pp=4, micro_batch=1, global_batch=m), 1e9)
        whole_s = closed_form_s("1f1b", 4, 1, m, (1.0, 2.0, 0.0))
        assert two.step_s(lambda number: closed_form_s("1f1b", 4, 1, number, (1.0, 2.0, 0.0))) == pytest.approx(whole_s)
