"""Comparisons on a small fleet: paired, the same in many processes as in one, and no verdict beyond the intervals."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.envs.fleet.batch import FleetBatch
from meshwright.envs.fleet.benchmark import load_fleet_benchmark
from meshwright.envs.fleet.fleet import Jobs
from meshwright.errors import MeshwrightError
from meshwright.evaluation.fleet.episodes import FleetEpisodes, play_episodes
from meshwright.evaluation.fleet.evaluate import evaluate_fleet
from meshwright.evaluation.fleet.metrics import FLEET_METRICS
from meshwright.evaluation.fleet.objectives import OBJECTIVES
from meshwright.evaluation.fleet.policies import LearnedPlayer, fleet_player, policy_name
from meshwright.evaluation.fleet.verdict import fleet_verdict
from meshwright.evaluation.workers import Workers
from meshwright.planners.fleet.rules import BASES, ORDERS, fleet_rule, nearest_rule
from meshwright.simulation.fleet.state import JobState, Total

from ...fleet_samples import DEADLINES, ELASTIC

SHARES = ("goodput-shares-1", "goodput-shares-2", "goodput-shares-4", "srtf:goodput-shares-4")


@pytest.fixture(scope="module")
def found(small, small_fleet):
    return evaluate_fleet(small, ["bound", "fixed-2", "rollout:fixed-2"], num_seeds=2, fleet=small_fleet)


def test_every_policy_meets_the_same_jobs_and_has_every_figure(found):
    rows = {row["policy"]: row for row in found.results["rows"]}
    assert set(rows) == {"bound", "fixed-2", "rollout:fixed-2", "random", "fifo", "sjf+backfill", "best-fixed-entry"}
    arrivals = {tuple(record.arrival_s.tolist()) for records in found.records.values() for record in records}
    assert len(arrivals) == 2
    for row in rows.values():
        assert set(FLEET_METRICS) <= set(row)
        assert [len(values) for values in row["per_seed"].values()] == [2] * len(FLEET_METRICS)
        if row["kind"] != "reference":
            assert sum(row["degrees"].values()) == pytest.approx(1)
            assert sum(row["layouts"].values()) == pytest.approx(1)
    assert rows["fixed-2"]["degrees"] == {"2": 1.0}
    kinds = {name: row["kind"] for name, row in rows.items()}
    assert (kinds["bound"], kinds["rollout:fixed-2"], kinds["random"]) == ("reference", "planner", "baseline")


def test_differences_are_of_the_same_episodes(found):
    best = next(row for row in found.results["rows"] if row["policy"] == found.results["best_baseline"])
    for row in found.results["rows"]:
        against = row["against_best_baseline"]
        if row is not best:
            differences = np.subtract(row["per_seed"]["mean_completion_s"], best["per_seed"]["mean_completion_s"])
            assert against["mean"] == pytest.approx(differences.mean())
    assert best["against_best_baseline"] is None


def test_the_fixed_entry_is_chosen_on_other_episodes_than_it_is_tested_on(found):
    tuned = found.results["best_fixed_entry"]["best-fixed-entry"]
    assert not set(tuned["validation_seeds"]) & set(found.results["seeds"])
    assert tuned["mean_completion_s"][tuned["chosen"]] == min(tuned["mean_completion_s"].values())
    assert set(tuned["mean_completion_s"]) == {"fixed-1", "fixed-2", "fixed-4"}


def test_the_least_number_of_devices_of_shares_is_chosen_on_validation_episodes(small, small_fleet):
    changed = small.model_copy(update={"policies": ("sjf:best-goodput-shares",)})
    tuned = evaluate_fleet(changed, [], num_seeds=1, fleet=small_fleet).results["best_fixed_entry"]["sjf:best-goodput-shares"]
    assert set(tuned["mean_completion_s"]) == {"sjf:goodput-shares-1", "sjf:goodput-shares-2", "sjf:goodput-shares-4"}
    assert tuned["mean_completion_s"][tuned["chosen"]] == min(tuned["mean_completion_s"].values())


def test_nobody_gets_fewer_devices_than_the_least_share_and_one_is_no_bound(small_file):
    fleet = load_fleet_benchmark(str(small_file), changes=[*ELASTIC, "fleet.load=2"]).build()
    played = {name: play_episodes(fleet_player(name, fleet), fleet, (0, 1))[0] for name in ("goodput-shares", *SHARES)}
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


def test_another_process_gives_the_same_episodes(small, small_fleet):
    specs, seeds = ["fifo", "random"], range(6)
    alone = FleetEpisodes(small, small_fleet).play_all(specs, seeds)
    together = FleetEpisodes(small, small_fleet, Workers(2)).play_all(specs, seeds)
    for spec in specs:
        for one, other in zip(alone[spec], together[spec], strict=True):
            for name, values in vars(one).items():
                np.testing.assert_array_equal(values, getattr(other, name))


def test_a_learned_policy_that_acts_as_a_rule_plays_as_the_rule(small_fleet):
    seeds = (0, 1)
    first_possible = LearnedPlayer(lambda batch: (batch.state.can_act * np.arange(batch.state.can_act.shape[1])).argmax(axis=1))
    ones, others = (play_episodes(first_possible, small_fleet, part)[0] for part in (seeds, seeds[1:]))
    np.testing.assert_array_equal(ones[1].finish_s, others[0].finish_s)  # whoever plays beside it


def test_a_run_and_its_networks_have_names_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    specs = ("runs/a", "runs/a/policy.pt", "runs/a/imitated-a.pt", "runs/b/imitated-b.pt", "sjf+backfill", "shipped:llm-256")
    assert [policy_name(spec) for spec in specs] == ["a", "a", "imitated-a", "imitated-b", "sjf+backfill", "shipped:llm-256"]


def test_results_are_plain_and_the_same_each_time(found, small, small_fleet):
    again = evaluate_fleet(small, ["bound", "fixed-2", "rollout:fixed-2"], num_seeds=2, fleet=small_fleet)
    first, second = ({key: value for key, value in one.results.items() if key != "timing"} for one in (found, again))
    assert json.dumps(first, allow_nan=False) == json.dumps(second)


def rows(learned, baseline, difference, metric="mean_completion_s"):
    """Two policies and the interval of their difference."""
    low, high = difference

    def row(name, kind, mean, against):
        return {
            "policy": name, "kind": kind, "num_seeds": 5, metric: {"mean": mean, "low": mean, "high": mean},
            "against_best_baseline": against,
        }  # fmt: skip

    against = {"policy": "rule", "mean": learned - baseline, "low": low, "high": high}
    return [row("net", "learned", learned, against), row("rule", "baseline", baseline, None)]


@pytest.mark.parametrize(
    ("learned", "baseline", "ends", "metric", "told"),
    [
        (
            540,
            600,
            (-90, -30),
            "mean_completion_s",
            "net beats the best baseline, rule: -1.0 [-1.5, -0.5] min in mean completion",
        ),
        (660, 600, (30, 90), "mean_completion_s", "rule wins over net: +1.0 [+0.5, +1.5] min"),
        (540, 600, (-90, 30), "mean_completion_s", "which does not exclude zero"),
        (0.9, 0.8, (0.05, 0.15), "deadline_met_rate", "net beats the best baseline, rule: +10.0 [+5.0, +15.0] points"),
        (600, 600, (0, 0), "mean_completion_s", "No winner: all 2 policies tie at 10.0 min in mean completion time"),
    ],
)
def test_a_verdict_claims_what_the_interval_shows(learned, baseline, ends, metric, told):
    both = rows(learned, baseline, ends, metric)
    assert told in fleet_verdict(both, both[1:], OBJECTIVES[metric])


@pytest.mark.parametrize(
    ("spec", "told"),
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
        ("max", "is of benchmarks that decide on one job at a time"),
        ("shipped:quickstart", "is of benchmarks that decide on one job at a time"),
        ("rollout", "is spelled rollout:RULE, as rollout:sjf"),
        ("sjf,fifo", "several are told apart by blanks"),
    ],
)
def test_an_unknown_policy_is_told_with_its_nearest_name(small, small_fleet, spec, told):
    with pytest.raises(MeshwrightError) as error:
        evaluate_fleet(small, [spec], fleet=small_fleet)
    assert told in str(error.value)


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


def test_the_best_refusal_is_one_of_those_that_were_tried_on_other_episodes(small, small_file):
    benchmark = load_fleet_benchmark(str(small_file), changes=DEADLINES)
    found = evaluate_fleet(benchmark, ["sjf:best-fixed-entry+backfill+best-refusal"], num_seeds=1).results
    tuned = found["best_fixed_entry"]["sjf:best-fixed-entry+backfill+best-refusal"]
    tried = tuned["blocking_rate"]
    assert len(tried) == 3 * 9
    assert tried[tuned["chosen"]] == min(tried.values())
    assert min(tuned["validation_seeds"]) >= 100


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
