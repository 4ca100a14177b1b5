"""Menus with named entries: policies with exact entries alone, what was chosen, break-evens."""

import json

import numpy as np
import pytest

from meshwright.envs.fleet.benchmark import load_fleet_benchmark
from meshwright.errors import PolicyError
from meshwright.evaluation.evaluate import evaluate
from meshwright.evaluation.fleet.policies import EXACT, check_policy, policy_kind, policy_name
from meshwright.evaluation.tables import to_markdown

from ...fleet_samples import coded

CODED = coded(1.0)
SIGN = {"name": "sign", "compression": {"kind": "sign"}}
RULES = ("fifo", EXACT + "fifo", "best-fixed-entry", "synchronous-only", EXACT + "best-fixed-entry")


@pytest.fixture(scope="module")
def benchmark(small_file):
    entries = [f"fleet.menu.entries={json.dumps([CODED])}", f"fleet.menu.unranked={json.dumps([SIGN])}"]
    degrees = ["fleet.menu.degrees=[2, 4]", "fleet.requested={2: 2, 4: 1}"]
    return load_fleet_benchmark(str(small_file), changes=[*entries, *degrees, "policies=[]"])


@pytest.fixture(scope="module")
def results(benchmark):
    return evaluate(benchmark, RULES, num_seeds=2).results


def rows(results):
    return {row["policy"]: row for row in results["rows"]}


def test_with_exact_entries_alone_nothing_else_is_taken(results):
    by_name = rows(results)
    assert "coded" in by_name["fifo"]["details"]["entries"]
    for name in RULES:
        if name.startswith("synchronous-only"):
            assert set(by_name[name]["details"]["entries"]) == {"searched"}
        assert sum(share["mean"] for share in by_name[name]["details"]["entries"].values()) == pytest.approx(1)


def test_alone_it_is_the_best_fixed_entry_of_exact_ones(results):
    by_name = rows(results)
    assert by_name["synchronous-only"]["per_case"] == by_name[EXACT + "best-fixed-entry"]["per_case"]
    choice = results["tuned"]["synchronous-only"]["chosen"]
    assert choice.startswith(EXACT + "fixed-")


def test_the_ablation_is_paired(results):
    row, exact = rows(results)["fifo"], rows(results)[EXACT + "fifo"]
    values = [each["per_case"][results["objective"]] for each in (row, exact)]
    assert row["against"]["itself with exact entries"]["mean"] == pytest.approx(np.mean(np.subtract(*values)))
    assert "itself with exact entries" not in exact["against"]
    assert "| against itself with exact entries, min |" in to_markdown(results)


def test_shares_of_types_make_up_those_of_all(results):
    details = rows(results)["fifo"]["details"]
    assert list(details["entries_by_type"]) == results["about"]["jobs"]
    assert all(set(shares) <= set(details["entries"]) for shares in details["entries_by_type"].values())


def test_break_evens_are_told_of_ranked_and_unranked_entries(results):
    result = {(one["entry"], one["multiplier"]) for one in results["more"]["break_evens"]}
    assert result == {("coded", 1.0), ("sign", None)}
    text = to_markdown(results)
    assert "## Named entries" in text
    assert "## Break-even of inexact entries" in text


def test_a_menu_of_layouts_alone_says_nothing_of_entries(small_file):
    plain = evaluate(load_fleet_benchmark(str(small_file), changes=["policies=[]"]), ("fifo", EXACT + "fifo"), num_seeds=2)
    assert "break_evens" not in plain.results["more"]
    assert all("entries" not in row["details"] for row in plain.results["rows"])
    one, other = (rows(plain.results)[name]["per_case"] for name in ("fifo", EXACT + "fifo"))
    assert one == other  # nothing is masked


def test_names_and_kinds_are_those_of_the_policy_inside(benchmark):
    assert policy_kind(EXACT + "sjf") == policy_kind("synchronous-only") == "baseline"
    assert policy_kind(EXACT + "rollout:sjf") == "planner"
    assert policy_kind(EXACT + "runs/menu-64") == "learned"
    assert policy_name(EXACT + "runs/menu-64") == EXACT + "menu-64"
    with pytest.raises(PolicyError, match="synchronous-only"):
        check_policy("synchronous_only", benchmark.build())
