"""Results of several benchmarks as one."""

import json

import pytest

from meshwright.envs.benchmark import load_variants
from meshwright.evaluation.evaluate import evaluate
from meshwright.evaluation.families import BEST_BASELINE, BEST_TUNED, combined, family_standings, standing_cells


def result(benchmark, rates, tuned=("best-fixed", "best-fixed@best-fit"), metric="blocking_rate"):
    """Results of nine episodes, three that come three times: by policy its figures; ``net`` is learned."""
    rows = [
        {
            "policy": name,
            "kind": "learned" if name == "net" else "baseline",
            "metrics": {metric: {"mean": sum(values) / 3}},
            "per_case": {metric: values * 3},
        }
        for name, values in rates.items()
    ]
    results = {"benchmark": benchmark, "objective": metric, "rows": rows, "best_baselines": ["min"]}
    return {**results, "tuned": {name: {} for name in tuned}}


RATES = {"net": [0.1, 0.2, 0.3], "min": [0.2, 0.3, 0.4], "best-fixed": [0.3, 0.4, 0.5], "best-fixed@best-fit": [0.2, 0.2, 0.2]}
FAMILY = [
    result("f/a", RATES),
    result("f/b", {**RATES, "net": [0.4, 0.5, 0.6]}),
    result("f/c", {**RATES, "min": [0.1, 0.2, 0.3]}, tuned=()),
]


def test_standings_worked_by_hand():
    fixed, baseline = family_standings(FAMILY)
    # The better of the tuned degrees, .2 in every episode: the differences are -.1 0 .1 in a and .2 .3 .4 in b; c has none.
    assert fixed == {
        "policy": "net", "against": BEST_TUNED, "benchmarks": 2, "better": 0, "unclear": 1, "worse": 1, "ahead": 0,
        "worst_ratio": pytest.approx(2.5),
    }  # fmt: skip
    # Against min: -.1, .2 and 0 in every episode of a, b and c.
    assert baseline == {
        "policy": "net", "against": BEST_BASELINE, "benchmarks": 3, "better": 1, "unclear": 1, "worse": 1, "ahead": 1,
        "worst_ratio": pytest.approx(0.5 / 0.3),
    }  # fmt: skip
    head, cells = standing_cells([fixed, baseline])
    assert cells[1] == ["net", BEST_BASELINE, "3", "1", "1", "1", "1", "1.67"]
    assert len(head) == len(cells[0])
    # Where more is better, .4 .5 .6 is ahead of the tuned .3 .4 .5.
    more = [result(name, {**RATES, "net": [0.4, 0.5, 0.6]}, metric="deadline_met_rate") for name in "ab"]
    assert [(row["better"], row["worse"], row["ahead"]) for row in family_standings(more)] == [(2, 0, 2)] * 2


def test_without_a_learned_policy_nobody_stands():
    assert family_standings([result("f/a", {"min": [0.1] * 3, "best-fixed": [0.2] * 3})]) == []


def test_nothing_is_divided_by_a_baseline_that_never_blocks():
    (_, row) = family_standings([result("f/a", {**RATES, "min": [0.0] * 3})])
    assert row["worst_ratio"] is None
    assert standing_cells([row])[1][0][-1] == "-"


@pytest.fixture(scope="module")
def family(small_file):
    text = small_file.read_text() + (
        "variants:\n"
        "  slow: [scenario.workload_changes.arrivals.interarrival_s=1400]\n"
        "  pair: [scenario.max_degree=2, scenario.num_jobs=20]\n"
    )
    path = small_file.parent / "family.yaml"
    path.write_text(text.replace("name: small", "name: family"))
    return str(path)


def test_a_family_is_its_variants(family):
    results = [evaluate(variant, num_seeds=2).results for variant in load_variants(family)]
    together = combined("family", results)
    assert together["variants"] == results
    assert [one["benchmark"] for one in results] == ["family/slow", "family/pair"]
    assert results[1]["about"]["num_jobs"] == 20
    assert together["standings"] == []
    assert together["benchmark"] == "family"
    json.dumps(together)
