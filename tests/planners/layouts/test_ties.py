"""Ties: uncertainties that two layouts share cancel, others add, and the plainest of tied layouts comes first."""

import collections
import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.training_step.uncertainty import UTILISATION
from meshwright.planners.layouts.results import RankedLayout, layout_text
from meshwright.planners.layouts.ties import (
    COMPARED_UNCERTAINTY,
    FARTHEST,
    are_tied,
    more_than_plain,
    paired_uncertainty,
    plainness,
)
from meshwright.planning.search import search_layouts
from meshwright.plans.partition import Layout
from meshwright.plans.rank_order import DEFAULT_ORDER

NAMES = ("kernels", "links between hosts", "hidden communication", UTILISATION)
SLOW = pytest.mark.slow
doubts = st.dictionaries(st.sampled_from(NAMES), st.floats(0, 0.4))


def found(**keys):
    layout = Layout(**({"micro_batch": 1, "global_batch": 64} | keys))
    return RankedLayout(1.0, 1e9, layout.world, layout_text(layout), layout, DEFAULT_ORDER)


def test_a_tie_worked_by_hand():
    plain = {"kernels": 0.1, "links between hosts": 0.02}
    assert paired_uncertainty(plain, plain) == pytest.approx(0.10)
    # what crosses hosts differs by 0.075: a hypotenuse of 0.125
    assert paired_uncertainty(plain, {"kernels": 0.1, "links between hosts": 0.095}) == pytest.approx(0.125)
    # the faster one may hide less than predicted, 0.1 and 0.075; that the slower one may is no reason to prefer it
    hidden = plain | {"hidden communication": 0.075}
    assert paired_uncertainty(hidden, plain) == pytest.approx(0.125)
    assert paired_uncertainty(plain, hidden) == pytest.approx(0.10)
    assert are_tied(1.0, math.exp(0.0999), 0.10)
    assert not are_tied(1.0, math.exp(0.1001), 0.10)


@given(doubts, doubts, st.floats(0, 0.4))
def test_what_both_share_decides_nothing_and_what_they_do_not_share_never_narrows(first, second, common):
    width = paired_uncertainty(first, second)
    assert width >= COMPARED_UNCERTAINTY
    shared = [one | {"software": common} for one in (first, second)]
    assert paired_uncertainty(*shared) == pytest.approx(width)
    assert paired_uncertainty(first | {"fused attention": common}, second) >= width


@pytest.mark.parametrize(
    ("simple", "other"),
    [
        ({"dp": 8}, {"dp": 4, "tp": 2}),
        ({"dp": 8}, {"tp": 8}),
        ({"dp": 8}, {"dp": 8, "zero": 1}),
        ({"dp": 8, "zero": 3}, {"dp": 8, "recompute": "full"}),
        ({"dp": 4, "pp": 2}, {"dp": 2, "pp": 4}),
        ({"dp": 4, "pp": 2}, {"dp": 4, "pp": 2, "schedule": "interleaved", "virtual_stages": 2}),
        ({"dp": 4, "pp": 2, "schedule": "gpipe"}, {"dp": 4, "pp": 2, "schedule": "zb-h1"}),
        ({"dp": 4, "tp": 2}, {"dp": 4, "tp": 2, "sequence_parallel": True}),
        ({"dp": 4}, {"dp": 8}),
        ({"dp": 2, "tp": 2, "pp": 2}, {"dp": 4, "cp": 2}),
        ({"dp": 2, "tp": 8, "pp": 2}, {"dp": 2, "tp": 16}),
    ],
)
def test_the_plainer_of_two_layouts(simple, other):
    assert plainness(found(**simple), 8) < plainness(found(**other), 8)


def test_mechanisms_are_what_a_plain_layout_does_without():
    for schedule in ("1f1b", "gpipe"):
        plain = found(dp=2, tp=8, pp=4, zero=1, schedule=schedule, sequence_parallel=True, overlap_dp=True)
        assert more_than_plain(plain.layout, 8) == 0
    assert more_than_plain(found(dp=2, tp=16, overlap_dp=True).layout, 8) == 1
    # tp across hosts, cp, no powers of two, chunks of stages, ZeRO-3, recomputation, hidden tensor parallelism, shown gradients
    keys = {"tp": 16, "cp": 3, "pp": 2, "dp": 1, "zero": 3, "recompute": "full", "overlap_tp": True, "global_batch": 60}
    assert more_than_plain(found(**keys, schedule="interleaved", virtual_stages=2, overlap_pp=True).layout, 8) == 8


def test_a_search_tells_ties_plainest_first_and_data_keep_the_order_of_time():
    searched = search_layouts("zoo:gpt2-small", "preset:dgx-a100-8x8", batch=64, devices="16", keep="cp=1", top=12)
    ranking, order = searched.by_time, searched.plain_first(12)
    assert tuple(ranking[:12]) == searched.searched.ranking
    assert 0 in searched.ties
    tied = [place for place in order if place in searched.ties]
    assert order == tied + [place for place in range(12) if place not in searched.ties]
    assert set(tied) == {place for place in searched.ties if place < 12} | {searched.plain}
    assert tied == sorted(tied, key=lambda place: (searched.is_tight(ranking[place]), *plainness(ranking[place], 8)))
    steps = [row["step_s"] for row in searched.table()]
    assert steps == sorted(steps)
    assert {place for place, row in enumerate(searched.table()) if row["ties_with_fastest"]} == {
        place for place in searched.ties if place < 12
    }
    steps = [one.step_s for one in ranking]
    near = {place for place, step_s in enumerate(steps) if step_s <= steps[0] * math.exp(COMPARED_UNCERTAINTY)}
    far = {place for place, step_s in enumerate(steps) if step_s > steps[0] * math.exp(FARTHEST)}
    assert near <= searched.ties
    assert not far & searched.ties
    assert ("as fast" in searched.why) is (len(searched.ties) > 1)
    assert searched.plan.layout() == ranking[0].layout
    # the order of its ranks makes no layout less plain
    plain = searched.__dict__.pop("plain")
    ranking[plain] = ranking[plain]._replace(order="pp-dp-cp-tp")
    assert searched.plain == plain


@pytest.mark.parametrize(
    ("job", "options"),
    [
        ("zoo:gpt2-small", {"batch": 16, "devices": "16", "keep": "cp=1,micro_batch=1,schedule=1f1b|interleaved"}),
        pytest.param("zoo:gpt2-small", {"batch": 16, "devices": "8,16", "launcher": "megatron", "keep": "cp=1"}, marks=SLOW),
        pytest.param("zoo:gpt2-small", {"batch": 16, "devices": "16", "launcher": "fsdp2"}, marks=SLOW),
        ("zoo:resnet18", {"batch": 8, "devices": "8", "keep": "micro_batch=1,schedule=1f1b"}),
    ],
)
def test_ties_and_the_plainest_of_them_do_not_depend_on_how_many_are_ranked(job, options):
    results = [search_layouts(job, "preset:dgx-a100-8x8", top=top, **options) for top in (1, 20, None)]
    ties = [[one.by_time[place] for place in sorted(one.ties)] for one in results]
    assert ties[0] == ties[1] == ties[2]
    plain = min(ties[0], key=lambda one: (results[0].is_tight(one), *plainness(one, 8)))
    for one in results:
        assert one.by_time[one.plain_first(1)[0]] == plain
        assert one.why.partition("as far as")[2] == results[0].why.partition("as far as")[2]


@pytest.mark.reference
def test_two_predictions_are_as_far_apart_as_the_held_out_runs_say(published_steps):
    groups = collections.defaultdict(list)
    for one in published_steps.predictions:
        if one.row.family == "vtrain-h2048" and one.predicted is not None:
            groups[one.row.group].append((math.log(one.predicted.step_s), math.log(one.row.measured_s)))
    pairs = [(a[0] - b[0], a[1] - b[1]) for rows in groups.values() for a, b in itertools.combinations(rows, 2)]
    near = [(abs(messages), messages * measured > 0) for messages, measured in pairs if abs(messages) < 0.25]
    assert len(near) > 2000

    def likelihood(spread):
        right = [min(1 - 1e-9, NormalDist().cdf(messages / spread)) for messages, _ in near]
        return sum(math.log(p if is_right else 1 - p) for p, (_, is_right) in zip(right, near, strict=True))

    most_likely = max(np.arange(0.06, 0.16, 0.01), key=likelihood)
    assert most_likely == pytest.approx(COMPARED_UNCERTAINTY, abs=0.011)
