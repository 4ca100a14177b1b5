"""Each rule of thumb on a decision made by hand, and the spelling of rules."""

import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import PolicyError
from meshwright.planners.rules import NAMES, rule_of_thumb
from meshwright.simulation.cluster.decision import Decision

DEGREES = (1, 2, 4, 8)
PLACEMENTS = ("first-fit", "best-fit")
INFINITE = float("inf")

# Candidate:     0    1    2    3    4    5    6    7    8
# degree:        -    1    1    2    2    4    4    8    8
# rule:          -   ff   bf   ff   bf   ff   bf   ff   bf
BLOCK = [-1, 0, 3, 10, 10, -1, -1, 20, 21]
CAN_PLACE = [True, True, True, True, False, False, False, True, True]
COMPLETION_S = [INFINITE, 90.0, 80.0, 39.0, 39.0, INFINITE, INFINITE, 30.0, 20.0]


def decision(block=BLOCK, can_place=CAN_PLACE, completion_s=COMPLETION_S):
    """On two devices both rules take block 10, which is offered once; no block of four devices is free."""
    return Decision(
        now_s=0.0,
        graph_id=0,
        num_steps=10,
        allowed_s=INFINITE,
        sequential_s=100.0,
        degree=np.array([0, *(degree for degree in DEGREES for _ in PLACEMENTS)]),
        rule=("", *(rule for _ in DEGREES for rule in PLACEMENTS)),
        can_place=np.array(can_place),
        completion_s=np.array(completion_s),
        block=np.array(block),
    )


def rule(name, degrees=DEGREES, placements=PLACEMENTS):
    return rule_of_thumb(name, degrees=degrees, placements=placements)


def choose(name, at):
    return rule(name).choose(at, {})


def test_what_a_placement_rule_offers_includes_the_block_that_another_rule_offers_for_it():
    assert decision().offered("first-fit").tolist() == [1, 3, 7]
    assert decision().offered("best-fit").tolist() == [2, 3, 8]
    assert decision().offered("aligned").tolist() == []


def test_what_beats_a_candidate_in_time_and_devices_by_hand():
    # 90 s and 80 s on one device, 39 s on two, 30 s and 20 s on eight
    assert [decision().beating(candidate).tolist() for candidate in (1, 2, 3, 7, 8)] == [[2], [], [], [8], []]
    slow = [INFINITE, 90.0, 80.0, 39.0, 39.0, INFINITE, INFINITE, 90.0, 80.0]
    assert decision(completion_s=slow).beating(7).tolist() == [3, 2, 8, 1]  # the fastest first, then the one on fewer devices


def test_device_seconds_by_hand():
    # 1 x 90, 1 x 80, 2 x 39 twice, none for four devices, 8 x 30, 8 x 20
    infinite = float("inf")
    assert decision().device_seconds.tolist() == [infinite, 90, 80, 78, 78, infinite, infinite, 240, 160]


@pytest.mark.parametrize(
    ("name", "candidate"),
    [
        ("max", 7),
        ("max@best-fit", 8),
        ("min", 1),
        ("min@best-fit", 2),
        ("cheapest-feasible", 3),  # 78 device-seconds
        ("cheapest-feasible@best-fit", 3),  # the same block, offered by first fit
        ("fastest-feasible", 7),  # 30 s
        ("fastest-feasible@best-fit", 8),  # 20 s
        ("fixed-1", 1),
        ("fixed-1@best-fit", 2),
        ("fixed-2", 3),
        ("fixed-2@best-fit", 3),
        ("fixed-4", 0),  # no free block
        ("fixed-4@best-fit", 0),
        ("fixed-8@best-fit", 8),
    ],
)
def test_each_rule_by_hand(name, candidate):
    assert choose(name, decision()) == candidate
    assert rule(name).name == name


PUBLISHED_VALID = [False, True, False, True, False, True, False, False, False]


def published(can_place, valid=PUBLISHED_VALID, **changes):
    """Candidates 1, 3, 5, 7 follow the published first fit, the others best fit; two devices fit but miss the deadline."""
    made = decision(can_place=can_place)
    names = ("", *("published" if i % 2 == 0 else "best-fit" for i in range(8)))
    return replace(made, rule=names, is_valid=np.array(valid), **changes)


@pytest.mark.parametrize(
    ("name", "candidate"),
    [
        ("max", 5),  # what the mask shows, though no block of four is free
        ("min", 1),
        ("fixed-4", 5),
        ("fixed-8", 0),  # the mask does not show it
        ("fixed-2", 3),
        ("cheapest-feasible", 1),  # these look at what fits
        ("ladder-4-2-1", 1),
        ("acceptable-jct", 3),  # 100 s of work in 50 s ask for two ranks
    ],
)
def test_published_rules_choose_by_the_published_mask(name, candidate):
    at = published([True, True, True, False, False, False, False, True, True], allowed_s=50.0)
    assert rule(f"{name}@published", placements=("published", "best-fit")).choose(at, {}) == candidate


def test_an_acceptable_time_out_of_reach_asks_for_the_largest_degree():
    at = published([True, True, True, False, False, False, False, True, True], allowed_s=1.0)
    assert rule("acceptable-jct@published", placements=("published",)).choose(at, {}) == 5


def test_a_ladder_takes_the_first_degree_that_fits():
    assert choose("ladder-4-8-1", decision()) == 7
    assert choose("ladder-4", decision()) == 0
    assert choose("ladder-1-8@best-fit", decision()) == 2


def test_equal_figures_go_to_fewer_devices():
    same = decision(completion_s=[INFINITE, 80.0, 80.0, 40.0, 40.0, INFINITE, INFINITE, 10.0, 10.0])
    assert choose("cheapest-feasible", same) == 1
    same = decision(completion_s=[INFINITE, *(8 * [5.0])])
    assert choose("fastest-feasible", same) == 1


def test_every_rule_rejects_where_nothing_is_offered():
    nothing = decision(block=9 * [-1], can_place=[True, *(8 * [False])], completion_s=9 * [INFINITE])
    for name, placement in product([*NAMES, *(f"fixed-{degree}" for degree in DEGREES)], PLACEMENTS):
        assert choose(f"{name}@{placement}", nothing) == 0, (name, placement)


@given(seed=st.integers(0, 1000), placement=st.sampled_from(PLACEMENTS))
def test_random_takes_only_what_its_placement_rule_offers(seed, placement):
    policy = rule(f"random@{placement}")
    policy.reset(seed)
    choice = [policy.choose(decision(), {}) for _ in range(20)]
    assert set(choice) <= set(decision().offered(placement).tolist())
    policy.reset(seed)
    assert [policy.choose(decision(), {}) for _ in range(20)] == choice


def test_random_takes_each_candidate_about_equally_often():
    policy = rule("random")
    policy.reset(0)
    choice = [policy.choose(decision(), {}) for _ in range(3000)]
    # 1000 each; the standard deviation is 26
    assert all(abs(choice.count(candidate) - 1000) < 130 for candidate in (1, 3, 7))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("maxx", "unknown policy (got 'maxx'); did you mean 'max'?"),
        ("cheapest-feasable", "did you mean 'cheapest-feasible'?"),
        ("fixed", "unknown policy (got 'fixed')"),
        ("fixed-", "unknown policy (got 'fixed-'); did you mean 'fixed-"),
        ("fixed--2", "unknown policy (got 'fixed--2'); did you mean 'fixed-2'?"),
        ("fixed-3", "no block of 3 devices; degrees are 1, 2, 4, 8 (got 'fixed-3')"),
        ("fixed-99999999", "unknown policy"),
        ("max@", "max@: unknown placement rule (got ''); valid: best-fit, first-fit"),
        ("max@best-fitt", "max@best-fitt: unknown placement rule (got 'best-fitt'); did you mean 'best-fit'?"),
        ("max@aligned", "max@aligned: is not among the scenario's placement rules (got 'aligned'); valid: best-fit, first-fit"),
        ("max@first-fit@best-fit", "unknown placement rule"),
        ("", "unknown policy (got '')"),
    ],
)
def test_an_unknown_rule_is_told_with_the_nearest(name, message):
    with pytest.raises(PolicyError, match=re.escape(message)) as caught:
        rule(name)
    assert "\n" not in str(caught.value)


def test_without_first_fit_a_placement_rule_must_be_named():
    with pytest.raises(PolicyError, match="is not among the scenario's placement rules"):
        rule("max", placements=["best-fit"])
    assert rule("max@best-fit", placements=["best-fit"]).name == "max@best-fit"


@pytest.mark.parametrize("choice", [-1, 5, 1.9, True, "1", None])
def test_an_answer_that_is_no_candidate_is_refused(choice):
    from meshwright.planners.policy import checked

    with pytest.raises(PolicyError, match=r"mine: must choose a candidate 0\.\.4"):
        checked(choice, "mine", 5)
    assert checked(np.int64(4), "mine", 5) == 4
