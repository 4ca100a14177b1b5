"""The spelling of policies: linear scorers, rollout planners, baselines and networks."""

import dataclasses
import re

import numpy as np
import pytest

from meshwright.errors import PolicyError
from meshwright.models.policy_files import shipped_folder
from meshwright.models.saved import NetworkPolicy, SavedNetwork
from meshwright.planners.linear import FEATURES, LinearScorer, LinearWeights
from meshwright.planners.rollout import Rollout
from meshwright.planning.policies import (
    base_of,
    display_name,
    each_fixed,
    is_best_fixed,
    is_rollout,
    kind,
    policy,
    wanted_settings,
)


@pytest.fixture
def run(tmp_path):
    """A run folder with a linear scorer."""
    weights = np.random.default_rng(0).normal(size=len(FEATURES))
    LinearWeights(weights, ("best-fit",)).save(tmp_path / "mine" / "policy.json")
    return tmp_path / "mine"


def test_a_rollout_planner_is_spelled_with_its_base_or_alone():
    spelled = ("rollout", "rollout(max)", "rollout()", "rollout(max", "rollouts")
    assert [spec for spec in spelled if is_rollout(spec)] == ["rollout", "rollout(max)"]
    assert base_of("rollout") == "best-fixed@best-fit"
    assert base_of("rollout(fixed-8@best-fit)") == "fixed-8@best-fit"
    fixed = ("rollout", "rollout(best-fixed)", "best-fixed@best-fit", "rollout(fixed-8)", "max")
    assert [is_best_fixed(spec) for spec in fixed] == [True, True, True, False, False]


def test_a_best_fixed_base_stands_for_a_rollout_over_each_degree(scenario):
    assert scenario.space.degrees == (1, 2, 4, 6, 8)
    each = {f"fixed-{d}@best-fit": f"rollout(fixed-{d}@best-fit)" for d in scenario.space.degrees}
    assert each_fixed("rollout", scenario) == each
    assert each_fixed("best-fixed", scenario) == {f"fixed-{d}": f"fixed-{d}" for d in scenario.space.degrees}


def test_a_linear_scorer_is_named_by_its_run_folder_or_its_file(run, scenario):
    for spec in (str(run), str(run / "policy.json")):
        assert isinstance(policy(spec, scenario), LinearScorer)
        assert display_name(spec) == "mine"
        assert kind(spec) == "learned"
    planner = policy(f"rollout({run})", scenario)
    assert isinstance(planner, Rollout)
    assert planner.name == display_name(f"rollout({run})") == "rollout(mine)"


def test_a_network_is_made_blind_to_graphs_by_its_spelling(scenario):
    spec = "without-graph(shipped:quickstart)"
    assert display_name(spec) == spec
    assert display_name("without-graph(runs/mine/policy.pt)") == "without-graph(mine)"
    assert kind(spec) == "learned"
    blind, seeing = policy(spec, scenario), policy("shipped:quickstart", scenario)
    assert isinstance(blind, NetworkPolicy)
    assert not blind._network.graph_embeddings().any()
    assert seeing._network.graph_embeddings().any()
    assert wanted_settings(spec, ["aligned"]) == wanted_settings("shipped:quickstart", ["aligned"])


def test_scores_of_a_network_play_without_it(run, scenario, tmp_path):
    scores = policy("scores:shipped:quickstart", scenario)
    saved = SavedNetwork.load(shipped_folder() / "quickstart.pt")
    np.testing.assert_equal(scores.scorer, LinearScorer("", saved.prior, scenario).scorer)
    assert (scores.name, display_name(f"scores:{run}")) == ("scores:shipped:quickstart", "scores:mine")
    dataclasses.replace(saved, prior=None).save(tmp_path / "policy.pt")
    with pytest.raises(PolicyError, match="was trained without a search, so that it has no linear scores"):
        policy(f"scores:{tmp_path}", scenario)
    with pytest.raises(PolicyError, match=r"scores: goes with a trained network alone \(got 'max'\)"):
        policy("scores:max", scenario)


@pytest.mark.parametrize("named", ["max", "rollout", "python:mine:Own", "RUN"])
def test_only_a_network_can_be_made_blind_to_graphs(named, run, scenario):
    named = str(run) if named == "RUN" else named
    message = f"without-graph: goes with a trained network alone (got {named!r})"
    with pytest.raises(PolicyError, match=re.escape(message)):
        policy(f"without-graph({named})", scenario)
    with pytest.raises(PolicyError, match="did you mean 'quickstart'"):
        policy("without-graph(shipped:quickstar)", scenario)


@pytest.mark.parametrize("base", ["fixed-4@best-fit", "ladder-8-2", "max", "min@best-fit"])
def test_rules_that_name_degrees_can_be_played_on_with(base, scenario):
    made = policy(f"rollout({base})", scenario)
    assert isinstance(made, Rollout)
    assert made.name == f"rollout({base})"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("rollout(random)", "rollout: cannot be the base of a rollout planner (got 'random')"),
        ("rollout(cheapest-feasible)", "rollout: cannot be the base of a rollout planner (got 'cheapest-feasible')"),
        ("rollout(fixed-5)", "no block of 5 devices"),
        ("rollout(max@bestfit)", "did you mean 'best-fit'?"),
        ("rollout(shipped:quickstart)", "the base of a rollout planner is a baseline or a linear scorer"),
        ("rollout(rollout)", "no such policy, run folder or file (got 'rollout')"),
        ("rollout(best-fixed)", "is chosen on the validation episodes of an evaluation"),
        ("rollout", "is chosen on the validation episodes of an evaluation"),
        ("rollout()", "no such policy, run folder or file (got 'rollout()'); did you mean 'rollout'?"),
        ("rolout", "did you mean 'rollout'?"),
    ],
)
def test_what_is_no_rollout_planner_is_told(spec, message, scenario):
    with pytest.raises(PolicyError, match=re.escape(message)):
        policy(spec, scenario)


def test_a_rollout_over_the_best_fixed_degree_is_chosen_on_validation_episodes_and_enters_no_verdict(compare, run):
    results = compare("rollout(best-fixed)", str(run), num_seeds=2).results
    rows = {row["policy"]: row for row in results["rows"]}
    tuned = results["tuned"]
    assert tuned["rollout(best-fixed)"] == {**tuned["best-fixed"], "played": f"rollout({tuned['best-fixed']['chosen']})"}
    assert rows["rollout(best-fixed)"]["kind"] == "planner"
    assert rows["mine"]["kind"] == "learned"
    assert results["best_baseline"] != "rollout(best-fixed)"
    assert "rollout" not in results["verdict"]
    assert rows["rollout(best-fixed)"]["against"]["best baseline"]["policy"] == results["best_baseline"]


def test_a_rollout_over_a_placement_rule_that_is_absent_is_refused_before_anything_is_played(compare):
    with pytest.raises(PolicyError, match=r"rollout\(best-fixed@aligned\): is not among the scenario's placement rules"):
        compare("rollout(best-fixed@aligned)")
