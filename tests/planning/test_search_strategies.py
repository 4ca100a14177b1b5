"""Strategies next to a ranking: chosen by their effective step only where a multiplier is declared."""

from functools import cache

import numpy as np
import pytest

from meshwright.planning.search import search_layouts

from ..samples.sample_clusters import cluster_of, matrix

LOCAL = "kind=local-sgd,every=16"


@pytest.fixture(scope="module")
def slow_links():
    return cluster_of(matrix(np.full((4, 4), 1.0)))


@cache
def _found(cluster, training):
    return search_layouts("zoo:gpt2-small", cluster, batch=16, training=training, keep="tp=1,pp=1,cp=1,dp=4", order="tp-cp-dp-pp")


def test_without_a_multiplier_nothing_but_the_exact_layout_is_chosen(slow_links):
    result = _found(slow_links, LOCAL)
    (row,) = result.strategies.rows
    assert row.price.step_s < result.strategies.exact_s
    assert result.strategies.winner is None
    assert result.plan.training is None
    assert result.to_data()["strategies"][0]["break_even_multiplier"] == pytest.approx(
        result.strategies.exact_s / row.price.step_s
    )


@pytest.mark.parametrize(("share", "is_chosen"), [(0.99, True), (1.01, False)])
def test_a_multiplier_decides_at_the_break_even(slow_links, share, is_chosen):
    rho = _found(slow_links, LOCAL).strategies
    declared = share * rho.exact_s / rho.rows[0].price.step_s
    found_exactly = _found(slow_links, None).plan
    plan = _found(slow_links, f"{LOCAL},multiplier={declared},multiplier_source=a test").plan
    assert (plan.training is not None) == is_chosen
    if is_chosen:
        figures = {one.name: one.value for one in plan.predicted}
        assert figures["effective_step_s"] == pytest.approx(declared * figures["step_s"])
        assert figures["steps_multiplier"] == pytest.approx(declared)
        (step_s,) = (one.value for one in found_exactly.predicted if one.name == "step_s")
        (mfu,) = (one.value for one in found_exactly.predicted if one.name == "mfu")
        assert figures["mfu"] * figures["step_s"] == pytest.approx(mfu * step_s)
        assert "exposed_communication_share" not in figures
        assert any(source == "a test" for _, _, source in plan.summary_rows())
