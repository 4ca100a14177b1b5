"""Comparisons on a small fleet: paired, the same in many processes as in one, and no verdict beyond the intervals."""

import csv

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.envs.fleet.batch import FleetBatch
from meshwright.envs.fleet.benchmark import load_fleet_benchmark
from meshwright.envs.fleet.fleet import Jobs
from meshwright.errors import MeshwrightError
from meshwright.evaluation.evaluate import evaluate
from meshwright.evaluation.fleet.episodes import play_episodes
from meshwright.evaluation.fleet.policies import LearnedPlayer, fleet_player, policy_name
from meshwright.evaluation.metrics import metrics_of
from meshwright.evaluation.worlds.evaluated_fleet import EvaluatedFleet
from meshwright.evaluation.worlds.evaluated_world import Options
from meshwright.planners.fleet.rules import BASES, ORDERS, fleet_rule, nearest_rule
from meshwright.simulation.fleet.state import JobState, Total

from ...fleet_samples import DEADLINES, ELASTIC, FAILURES

SHARES = ("goodput-shares-1", "goodput-shares-2", "goodput-shares-4", "srtf:goodput-shares-4")


@pytest.fixture(scope="module")
def found(small, small_fleet):
    return evaluate(EvaluatedFleet(small, built=small_fleet), ["bound", "fixed-2", "rollout:fixed-2"], num_seeds=2)


def test_every_policy_meets_the_same_jobs_and_has_every_figure(found):
    rows = {row["policy"]: row for row in found.results["rows"]}
    assert set(rows) == {"bound", "fixed-2", "rollout:fixed-2", "random", "fifo", "sjf+backfill", "best-fixed-entry"}
    arrivals = {tuple(record.arrival_s.tolist()) for one in found.played.values() for record in one.records}
    assert len(arrivals) == 2
    for row in rows.values():
        assert row["metrics"].keys() == row["per_case"].keys() == metrics_of("fleet").keys()
        assert {len(values) for values in row["per_case"].values()} == {2}
        if row["kind"] != "reference":
            assert sum(row["details"]["degrees"].values()) == pytest.approx(1)
            assert sum(row["details"]["layouts"].values()) == pytest.approx(1)
    assert rows["fixed-2"]["details"]["degrees"] == {"2": 1.0}
    kinds = {name: row["kind"] for name, row in rows.items()}
    assert (kinds["bound"], kinds["rollout:fixed-2"], kinds["random"]) == ("reference", "planner", "baseline")


def test_dumped_times_of_jobs_are_those_of_the_figures(small, small_fleet, tmp_path):
    ran = evaluate(EvaluatedFleet(small, Options(dump=tmp_path), small_fleet), ["fixed-2"], num_seeds=2)
    (row,) = [row for row in ran.results["rows"] if row["policy"] == "fixed-2"]
    with (tmp_path / f"jobs-{small.name}.csv").open() as file:
        jobs = [one for one in csv.DictReader(file) if one["policy"] == "fixed-2"]
    for seed, mean_s in enumerate(row["per_case"]["mean_completion_s"]):
        of_seed = [job for job in jobs if job["seed"] == str(seed)][small.fleet.counted]
        spent_s = [float(one["finish_s"]) - float(one["arrival_s"]) for one in of_seed if one["finish_s"]]
        assert np.mean(spent_s) == pytest.approx(mean_s, rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "spec", "tried"),
    [
        ([], "best-fixed-entry", ["fixed-1", "fixed-2", "fixed-4"]),
        ([], "sjf:best-goodput-shares", [f"sjf:goodput-shares-{least}" for least in (1, 2, 4)]),
        (DEADLINES, "sjf:best-fixed-entry+backfill+best-refusal", 3 * 9),
    ],
)
def test_a_tuned_rule_is_the_best_of_its_choices_on_other_episodes_than_it_is_tested_on(small_file, changes, spec, tried):
    benchmark = load_fleet_benchmark(str(small_file), changes=[*changes, "policies=[]"])
    results = evaluate(benchmark, [spec], num_seeds=1).results
    tuned = results["tuned"][spec]
    assert not set(tuned["cases"]) & set(results["cases"])
    assert min(tuned["cases"]) >= 100
    assert tuned["values"][tuned["chosen"]] == min(tuned["values"].values())
    assert tried in (len(tuned["values"]), list(tuned["values"]))


@pytest.mark.parametrize("changes", [[], ELASTIC, FAILURES])
def test_orders_that_are_others_where_no_running_job_is_stopped_are_named(small_file, changes):
    benchmark = load_fleet_benchmark(str(small_file), changes=[*changes, "policies=[]"])
    specs = ["rollout:fifo", "srtf+backfill", "sjf+backfill", "las", "normalised-throughput", "fifo"]
    results = evaluate(benchmark, specs, num_seeds=1).results
    said = [one.partition("stopped, ")[2] for one in results["remarks"] if "stopped" in one]
    others = ["las orders jobs as fifo", "normalised-throughput orders jobs as fifo", "srtf orders jobs as sjf"]
    assert said == ([] if changes else [f"so that {' and '.join(others)}."])
    figures = {row["policy"]: row["per_case"] for row in results["rows"]}
    assert figures["srtf+backfill"] == figures["sjf+backfill"] or changes
    assert figures["las"] == figures["normalised-throughput"] == figures["fifo"] or changes


def test_nobody_gets_fewer_devices_than_the_least_share_and_one_is_no_bound(small_file):
    fleet = load_fleet_benchmark(str(small_file), changes=[*ELASTIC, "fleet.load=2"]).build()
    played = {name: play_episodes(fleet, fleet_player(name, fleet), (0, 1)).records for name in ("goodput-shares", *SHARES)}
    for shares, without in zip(played["goodput-shares-1"], played["goodput-shares"], strict=True):
        np.testing.assert_array_equal(shares.finish_s, without.finish_s)
    close_to_best = fleet.best_step_s <= fleet.best_step_s.min(axis=1, keepdims=True) / 0.97
    enough = fleet.problem.degrees[close_to_best.argmax(axis=1)]  # more devices are no faster
    for least in (1, 2, 4):
        for record in played[f"goodput-shares-{least}"]:
            assert (fleet.problem.menu.degree[record.entry] >= np.minimum(least, enough[record.job_type])).all()
    assert enough.max() == 4
    assert any(record.num_restarts.sum() for record in played["goodput-shares-1"])  # some are resized
    assert not any(record.num_restarts.sum() for record in played["goodput-shares-4"])  # none is beyond its share
    assert any(record.num_restarts.sum() for record in played["srtf:goodput-shares-4"])  # long ones are paused for short ones


def test_a_learned_policy_that_acts_as_a_rule_plays_as_the_rule(small_fleet):
    seeds = (0, 1)
    first_possible = LearnedPlayer(lambda batch: (batch.state.can_act * np.arange(batch.state.can_act.shape[1])).argmax(axis=1))
    ones, others = (play_episodes(small_fleet, first_possible, part).records for part in (seeds, seeds[1:]))
    np.testing.assert_array_equal(ones[1].finish_s, others[0].finish_s)  # whoever plays beside it


def test_a_run_and_its_networks_have_names_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    specs = ("runs/a", "runs/a/policy.pt", "runs/a/imitated-a.pt", "runs/b/imitated-b.pt", "sjf+backfill", "shipped:llm-anywhere")
    assert [policy_name(spec) for spec in specs] == ["a", "a", "imitated-a", "imitated-b", "sjf+backfill", "shipped:llm-anywhere"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("sjff", "did you mean 'sjf'?"),
        ("best-fixd-entry", "did you mean 'best-fixed-entry'?"),
        ("fixed-3", "no entry of the menu has so many devices"),
        ("rollout:sjff", "did you mean 'sjf'?"),
        ("sfj:fixed-2", "did you mean 'sjf:fixed-2'"),
        ("runs/nowhere", "no such run folder, and no rule (those have no /) (got 'runs/nowhere')"),
        ("sjf:fixd-2", "did you mean 'sjf:fixed-2'?"),
        ("fixed-2:sjf", "did you mean 'sjf:fixed-2'?"),
        ("las:best-fixed", "did you mean 'las:best-fixed-entry'?"),
        ("fifo@spred", "did you mean 'fifo@spread'?"),
        ("sjf-backfill@nearst", "did you mean 'sjf+backfill@nearest'?"),
        ("fifo@host", "a rule places by @packed, @spread, @nearest (got 'fifo@host')"),
        ("sjf+refuse-x", "refuse-N wants N of 0 to 99"),
        ("sjf+backfil", "did you mean 'sjf+backfill'?"),
        ("sjf+bckfill+refuse-5", "did you mean 'sjf+backfill+refuse-5'?"),
        ("tiresias", "one is an order (fifo, sjf, srtf, edf, las, normalised-throughput), an entry (searched, "),
        ("max", "decides on one job at a time, which fleet benchmarks do not support; use a rule"),
        ("shipped:quickstart", "decides on one job at a time, which fleet benchmarks do not support; use a rule"),
        ("rollout", "is spelled rollout:RULE, as rollout:sjf"),
        ("sjf,fifo", "separate several by blanks"),
    ],
)
def test_an_unknown_policy_is_told_with_its_nearest_name(small, small_fleet, spec, message):
    with pytest.raises(MeshwrightError) as error:
        evaluate(EvaluatedFleet(small, built=small_fleet), [spec])
    assert message in str(error.value)


def test_a_rule_that_refuses_never_starts_the_largest_jobs_while_it_may_pass(small_file):
    fleet = load_fleet_benchmark(str(small_file), changes=DEADLINES).build()
    limit = fleet.work_device_s[80]
    played = {}
    for spec in ("sjf+backfill", "sjf+backfill+refuse-20", "sjf+backfill+refuse-0"):
        batch = FleetBatch(fleet, 4, observes=False)
        for e in range(4):
            batch.reset(e, np.random.default_rng(e))
        fleet_player(spec, fleet).play(batch, range(4))
        played[spec] = batch.state
    work = played["sjf+backfill"].num_steps * fleet.problem.menu.work_device_s[played["sjf+backfill"].job_type]
    is_large = work > limit
    assert is_large.any()
    assert np.isfinite(played["sjf+backfill"].start_s[is_large]).any()
    late = played["sjf+backfill+refuse-20"]
    # One that starts all the same is the last: nothing runs then, nothing is to come, and time would stand still.
    started = is_large & np.isfinite(late.start_s)
    assert (late.start_s[started] >= np.broadcast_to(late.arrival_s[:, -1:], started.shape)[started]).all()
    np.testing.assert_array_equal(played["sjf+backfill"].start_s, played["sjf+backfill+refuse-0"].start_s)


@given(
    order=st.sampled_from(["", *(f"{order}:" for order in ORDERS)]),
    entry=st.sampled_from([*BASES, "fixed-2", "best-fixed-entry"]),
    end=st.sampled_from(["", "+backfill", "@spread", "+refuse-5@nearest", "+backfill+best-refusal@packed"]),
)
def test_every_rule_is_nearest_to_itself(small_fleet, order, entry, end):
    name = f"{order}{entry}{end}"
    assert nearest_rule(name, small_fleet.problem) == name
    played = name.replace("best-fixed-entry", "fixed-2").replace("best-refusal", "refuse-2")
    assert fleet_rule(played, small_fleet.problem, small_fleet.work_device_s)


def test_the_rollout_planner_is_no_worse_than_its_rule_where_no_job_is_to_come(small_fleet):
    # All jobs are there at once: then its trials foresee everything.
    seed = 2
    drawn = small_fleet.sample(np.random.default_rng(seed))
    jobs = Jobs(np.zeros_like(drawn.arrival_s), drawn.job_type, drawn.requested, drawn.num_steps, drawn.deadline_s)
    costs = {}
    for spec in ("sjf+backfill", "rollout:sjf+backfill"):
        batch = FleetBatch(small_fleet, 1, observes=False)
        batch.begin_with(0, jobs)
        fleet_player(spec, small_fleet).play(batch, [seed])
        assert (batch.state.status[0] == JobState.COMPLETED).all()
        costs[spec] = batch.state.totals[0, Total.IN_SYSTEM_S]
    assert costs["rollout:sjf+backfill"] <= costs["sjf+backfill"] * (1 + 1e-9)
