"""Evaluations of every world: what the rows, differences and verdict of each claim, and what is refused."""

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import files
from meshwright.envs.benchmark import load_benchmark
from meshwright.envs.job_partitioning import play_episode
from meshwright.envs.training_conditions import TrainingConditions
from meshwright.errors import CheckpointError, ConfigError, InputFileError, PolicyError
from meshwright.evaluation.cluster.cluster_figures import PERCENTILES, ClusterFigures
from meshwright.evaluation.cluster.episodes import carried, play_episodes
from meshwright.evaluation.evaluate import evaluate
from meshwright.evaluation.metrics import METRICS, figures, metrics_of
from meshwright.evaluation.playing import play_all
from meshwright.evaluation.report.report import report_html
from meshwright.evaluation.result_folder import best_policy
from meshwright.evaluation.statistics import NO_POLICY, interval
from meshwright.evaluation.tables import best_cell, to_markdown
from meshwright.evaluation.verdict import BEST_BASELINE, standings
from meshwright.evaluation.worlds.evaluated_cluster import EvaluatedCluster
from meshwright.evaluation.worlds.evaluated_world import Options
from meshwright.planning.policies import condition_changes, display_name, policy
from meshwright.simulation.cluster.records import EpisodeRecord
from meshwright.simulation.cluster.state import Outcome

from .conftest import SPECS

BLOCKED, MET = METRICS["blocking_rate"], METRICS["deadline_met_rate"]


def _untimed(results):
    return files.json_text({key: value for key, value in results.items() if key != "timing"})


@pytest.fixture(scope="module")
def found(played):
    return played("cluster")


@pytest.mark.parametrize(
    ("world", "num_processes"),
    [
        *((world, 1) for world in ("cluster", "fleet", "elastic")),
        *(pytest.param(each, 2, marks=pytest.mark.slow) for each in ("cluster", "fleet")),
    ],
)
def test_a_second_run_gives_the_same_bytes_apart_from_times(world_of, played, world, num_processes):
    again = evaluate(world_of(world), SPECS[world], num_processes=num_processes)
    assert _untimed(again.results) == _untimed(played(world).results)


@pytest.mark.parametrize("world", SPECS)
def test_rows_come_best_first_with_every_figure_and_differences_are_taken_case_by_case(played, world):
    results = played(world).results
    rows, objective = {row["policy"]: row for row in results["rows"]}, METRICS[results["objective"]]
    assert list(rows.values()) == sorted(rows.values(), key=lambda row: (objective.cost(row), row["policy"]))
    baselines = {name: objective.cost(row) for name, row in rows.items() if row["kind"] == "baseline"}
    least = min(baselines.values())
    assert {name for name, cost in baselines.items() if cost == pytest.approx(least, rel=1e-9)} == set(results["best_baselines"])
    for name, row in rows.items():
        assert set(row["per_case"]) == set(metrics_of(world))
        assert row["metrics"] == {metric: interval(values) for metric, values in row["per_case"].items()}
        assert {len(values) for values in row["per_case"].values()} == {len(results["cases"])}
        difference = row["against"].get(BEST_BASELINE)
        assert (difference is None) == (results["best_baseline"] in (None, name))
        if difference is not None:
            other = rows[results["best_baseline"]]["per_case"][objective.name]
            pairs = zip(row["per_case"][objective.name], other, strict=True)
            assert difference["mean"] == pytest.approx(np.mean([one - its for one, its in pairs]))
    timed = results["timing"]["decision_s"]
    assert set(timed) == {name for name, row in rows.items() if row["kind"] not in NO_POLICY}
    assert all(0 < seconds < 1 for each in timed.values() for seconds in each.values())


def test_references_enter_no_verdict(compare, found):
    with_them = compare(*SPECS["cluster"], "clairvoyant-beam-32")
    rows = {row["policy"]: row for row in with_them.results["rows"]}
    bound, beam = rows["linear-programme"], rows["clairvoyant-beam-32"]
    assert bound["kind"] == beam["kind"] == "reference"
    assert bound["metrics"]["mean_completion_s"] is None
    policies = [row for row in rows.values() if row["kind"] != "reference"]
    for seed in range(4):
        least = bound["per_case"]["blocking_rate"][seed]
        assert all(least <= row["per_case"]["blocking_rate"][seed] for row in (beam, *policies))
    assert BLOCKED.cost(beam) <= min(map(BLOCKED.cost, policies))
    assert with_them.results["verdict"] == found.results["verdict"]
    assert with_them.results["best_baseline"] == found.results["best_baseline"]
    assert policies == [row for row in found.results["rows"] if row["kind"] != "reference"]
    assert best_policy(with_them.results) == best_policy(found.results)


def test_a_trace_is_split_unless_rules_alone_are_evaluated(tmp_path):
    rows = "".join(f"{60 * number},600,{1 + number % 4}\n" for number in range(100))
    (tmp_path / "trace.csv").write_text("timestamp,duration,num_gpus\n" + rows)
    workload = "graphs: [zoo:alexnet]\narrivals: {kind: trace, file: trace.csv, min_gpus: 2}\ndeadline: {kind: none}\n"
    (tmp_path / "workload.yaml").write_text(workload)
    scenario = "{cluster: preset:host-8, workload: workload.yaml, num_jobs: 60, max_degree: 8}"
    (tmp_path / "b.yaml").write_text(f"name: b\nscenario: {scenario}\n")
    benchmark = load_benchmark(str(tmp_path / "b.yaml"))
    result = evaluate(benchmark, ["max", "rollout(fixed-2)"], num_seeds=1)
    assert result.results["about"]["digest"] != benchmark.build().digest
    always = load_benchmark(str(tmp_path / "b.yaml"), changes=["scenario.workload_changes.arrivals.split=true"])
    for changed, policies in ((benchmark, ["max", "best-fixed"]), (always, ["max"])):
        with pytest.raises(InputFileError, match=r"has \d+ jobs; the benchmark needs 61\. Lower num_jobs or min_gpus\."):
            evaluate(changed, policies, num_seeds=1)


def test_shares_add_up_and_quantiles_are_in_order(found, scenario):
    for row in found.results["rows"]:
        if row["kind"] == "reference":
            continue
        means, details = {name: value["mean"] for name, value in row["metrics"].items()}, row["details"]
        for name in ("outcomes", "degrees", "shapes", "rules"):
            assert sum(details[name].values()) == pytest.approx(1)
        assert details["outcomes"]["accepted"] == pytest.approx(means["acceptance_rate"])
        assert set(details["shapes"]) <= set(scenario.space.shape_names)
        times = details["completion_percentiles_s"]
        assert times == sorted(times)
        assert len(times) == len(PERCENTILES)
        assert means["p5_slack"] <= means["p50_slack"]
        assert means["p50_completion_s"] <= means["p95_completion_s"] <= means["p99_completion_s"]
        assert means["blocking_rate"] + means["acceptance_rate"] == pytest.approx(1)
        # Jobs arrive 700 s apart, and what is not blocked is placed.
        assert means["throughput_per_h"] == pytest.approx(3600 / 700 * means["acceptance_rate"])


def test_best_fixed_is_the_fixed_degree_that_blocks_least_on_the_validation_episodes(scenario, found):
    entry = found.results["tuned"]["best-fixed"]
    rates = {}
    for degree in scenario.space.degrees:
        chooser = policy(f"fixed-{degree}", scenario)
        records = [play_episode(chooser, scenario, seed) for seed in (100, 101)]
        rates[f"fixed-{degree}"] = np.mean([1 - record.is_accepted[5:].mean() for record in records])
    assert entry["chosen"] == entry["played"] == found.specs["best-fixed"] == min(rates, key=rates.get)
    assert entry["values"] == pytest.approx(rates)


def row_of(policy, rates, kind="baseline", metric=BLOCKED):
    return {
        "policy": policy,
        "kind": kind,
        "metrics": {metric.name: interval(rates)},
        "per_case": {metric.name: rates},
        "against": {},
        "details": {},
    }


BEST = [0.1, 0.12, 0.08, 0.1, 0.1]


@pytest.mark.parametrize(
    ("changes", "begins"),
    [
        ([-0.02, -0.01, -0.016, -0.014, -0.015], "mine beats the best baseline, best: -1.5 ["),
        ([-0.02, 0.01, -0.01, 0.024, 0.001], "No winner: mine against the best baseline, best: +0.1 ["),
        ([0.02, 0.01, 0.016, 0.014, 0.015], "best wins over mine: +1.5 ["),
    ],
)
def test_the_verdict_claims_no_more_than_the_interval_shows(changes, begins):
    def judged(metric, of, cases=5):
        rates = {"best": BEST, "mine": [rate + change for rate, change in zip(BEST, changes, strict=True)]}
        kinds = {"best": "baseline", "mine": "learned"}
        rows = [row_of(name, [of(rate) for rate in each][:cases], kinds[name], metric) for name, each in rates.items()]
        return standings(rows, metric, "episode")["verdict"]

    assert judged(BLOCKED, float).startswith(begins)
    assert judged(BLOCKED, float, cases=1) == "No winner: one episode does not separate mine and best; ask for more seeds."
    few = judged(BLOCKED, float, cases=4)  # whose intervals cover less than they say
    assert few.startswith("No winner: mine against the best baseline, best: ")
    assert few.endswith("4 episodes are too few; compare 10 or more.")
    # Where more is better, the same policy wins by the opposite of the figure.
    assert judged(MET, lambda rate: 1 - rate).split(":")[0] == begins.split(":")[0]


def test_whoever_ties_is_named_with_the_one_that_it_ties_with():
    def judged(*others):
        baselines = [row_of("min", [0.1] * 5), row_of("cheap", [0.1] * 5), row_of("max", [0.3] * 5)]
        return standings([*baselines, *others], BLOCKED, "episode")

    alone = judged()
    assert alone["best_baselines"] == ["min", "cheap"]
    assert alone["verdict"] == (
        "No learned policy was compared; the best baselines are min and cheap, which tie: 10.0 % in blocked jobs."
    )
    alone["objective"] = BLOCKED.name
    assert [best_cell(alone, row, has_words=False) for row in alone["rows"]] == [*["best baseline"] * 2, "+20.0 [+20.0, +20.0]"]
    said = "the best baselines, min and cheap, which tie: -5.0 [-5.0, -5.0] points in blocked jobs, -50.0 %."
    assert judged(row_of("mine", [0.05] * 5, "learned"))["verdict"] == f"mine beats {said}"
    twins = [row_of(name, [0.05] * 5, "learned") for name in ("twin", "mine")]
    assert judged(*twins)["verdict"] == f"twin and mine beat {said}"
    slow = row_of("slow", [0.2] * 5, "learned")
    assert judged(slow)["verdict"] == "min and cheap win over slow: +10.0 [+10.0, +10.0] points in blocked jobs, +100.0 %."


@pytest.mark.parametrize("metric", [BLOCKED, MET])
def test_the_same_figures_on_many_instances_are_a_win(metric):
    """As of a network that places every graph as well as is known where a rule is always a quarter worse."""
    figures = {"net": 1.0, "rule": 1.0 + 0.25 * metric.sign}
    rows = [row_of(name, [figures[name]] * 20, kind, metric) for name, kind in (("net", "learned"), ("rule", "baseline"))]
    for row in rows:
        row["per_case"]["won"] = [float(row["policy"] == "net")] * 20
    assert standings(rows, metric, "instance")["verdict"].startswith("net beats the best baseline, rule: ")


def test_where_all_policies_tie_nobody_is_best(small_file):
    # Without deadlines every job waits in the queue until it has a place.
    changes = ["scenario.workload_changes.deadline={kind: none}", "scenario.queue_capacity=40", "num_validation_seeds=1"]
    idle = load_benchmark(str(small_file), changes=changes)
    results = evaluate(idle, ["fixed-2"], num_seeds=2).results
    assert results["verdict"] == "No winner: all 5 policies tie at 0.0 % in blocked jobs."
    assert results["best_baseline"] is None
    assert results["best_baselines"] == ["fixed-2", "max", "min", "random", "best-fixed"]
    assert [row["against"] for row in results["rows"]] == [{}] * 5
    assert results["tuned"]["best-fixed"]["chosen"] == "fixed-1"
    assert results["tuned"]["best-fixed"]["tied"] == ["fixed-2", "fixed-4", "fixed-6", "fixed-8"]
    assert {best_cell(results, row, has_words=True) for row in results["rows"]} == {"all tie"}
    markdown, page = to_markdown(results), report_html(results)
    for text in (markdown, page):
        assert "best-fixed (fixed-1, tied)" in text
        assert "all 5 policies tie" in text
    assert "| best baseline" not in markdown
    assert ">best baseline" not in page
    assert "fixed-2, fixed-4, fixed-6, fixed-8 did as well" in page


def test_a_network_off_its_ground_is_named_with_the_results(scenario, compare):
    results = compare("shipped:quickstart", num_seeds=1).results
    (said,) = (sentence for sentence in results["remarks"] if "neither trained nor evaluated" in sentence)
    assert said.startswith("shipped:quickstart was neither trained nor evaluated on host-8, a single-host of 8 a100 (known: ramp")
    for shown in (to_markdown(results), report_html(results)):
        assert said in shown.replace("\\", "")
    assert condition_changes("without-graph(shipped:quickstart)", TrainingConditions.from_scenario("small", scenario)).startswith(
        "without-graph("
    )
    assert compare(num_seeds=1).results["remarks"] == []


@given(st.permutations(["a", "b", "c", "d"]), st.lists(st.sampled_from([0.0, 0.1, 0.2]), min_size=4, max_size=4))
def test_no_verdict_depends_on_how_policies_are_called(names, rates):
    def judged(called):
        result = standings([row_of(name, [rate] * 3) for name, rate in zip(called, rates, strict=True)], BLOCKED, "episode")
        return result["verdict"], result["best_baselines"]

    (ours, best), (theirs, others) = judged(names), judged("abcd")
    renamed = dict(zip("abcd", names, strict=True))
    assert best == [renamed[name] for name in others]
    assert re.sub(r"\b[abcd]\b", lambda result: renamed[result[0]], theirs) == ours


def test_metrics_of_a_record_worked_by_hand(scenario):
    # Six jobs 700 s apart, five of warm-up left out by num_warmup_jobs = 5: only the sixth counts.
    k = 6
    arrival_s = 700.0 * np.arange(k)
    completion_s = np.array([np.nan, np.nan, np.nan, np.nan, 900.0, 250.0])
    record = EpisodeRecord(
        arrival_s=arrival_s,
        graph_id=np.zeros(k, np.int64),
        num_steps=np.ones(k, np.int64),
        allowed_s=np.full(k, 1000.0),
        sequential_s=np.full(k, 1000.0),
        degree=np.array([0, 0, 0, 0, 4, 2]),
        candidate=np.array([0, 0, 0, 0, 1, 1]),
        block=np.array([-1, -1, -1, -1, 0, 0]),
        completion_s=completion_s,
        outcome=np.array([int(Outcome.NO_BLOCK)] * 4 + [int(Outcome.ACCEPTED)] * 2),
        start_s=np.where(np.isnan(completion_s), np.nan, arrival_s),
        finish_s=arrival_s + completion_s,
        **dict.fromkeys(["num_failures", "num_preemptions", "lost_work_s", "delay_s"], np.zeros(k)),
    )
    of = figures("cluster", ClusterFigures(record, scenario))
    assert of["blocking_rate"] == 0
    assert of["mean_completion_s"] == 250
    assert of["mean_slack"] == pytest.approx(0.75)
    assert of["mean_degree"] == 2
    assert of["utilisation"] is None  # no time passes between the first counted and the last arrival
    # Counted from the fourth job on, 1,400 s on 8 devices pass; the fifth job holds 4 of them for the last 700 s.
    earlier = dataclasses.replace(scenario, settings=scenario.settings.model_copy(update={"num_warmup_jobs": 3}))
    assert ClusterFigures(record, earlier).utilisation == pytest.approx(4 * 700 / (8 * 1400))


class Always:
    """A policy that always answers the same, and notes the seeds of its episodes."""

    name = "always"

    def __init__(self, answer=0):
        self.answer, self.seeds = answer, []

    def reset(self, seed):
        self.seeds.append(seed)

    def choose(self, decision, observation):
        return self.answer


def test_an_episode_without_an_accepted_job_has_no_completion_time(scenario):
    never = Always()
    of = figures("cluster", ClusterFigures(play_episode(never, scenario, 7), scenario))
    assert of["blocking_rate"] == 1
    assert of["mean_completion_s"] is None
    play_episode(never, scenario, 8)
    assert never.seeds == [7, 8]
    with pytest.raises(PolicyError, match="always: must choose a candidate"):
        play_episode(Always(0.5), scenario, 0)


def test_play_depends_on_nothing_but_the_seed(scenario):
    a, b, c = play_all(play_episodes, scenario, carried(["random"], scenario), (3, 3, 4))["random"].records
    assert np.array_equal(a.candidate, b.candidate)
    assert not np.array_equal(a.arrival_s * 0 + a.num_steps, c.num_steps)


def test_a_reference_that_is_none_is_refused_with_the_nearest(small, scenario):
    world = EvaluatedCluster(small, Options(references=("linear-program",)), scenario)
    with pytest.raises(PolicyError, match=r"POLICY: no such reference .*'linear-programme'"):
        evaluate(world)


def test_two_policies_of_one_name_are_refused(compare, tmp_path):
    with pytest.raises((PolicyError, CheckpointError), match="name"):
        compare(str(_empty(tmp_path / "a" / "x.pt")), str(_empty(tmp_path / "b" / "x.pt")))


@pytest.mark.parametrize(("field", "number"), [("num_seeds", 0), ("num_seeds", 101), ("num_processes", 0)])
def test_impossible_numbers_are_refused(compare, field, number):
    with pytest.raises(ConfigError):
        compare(**{field: number})


def test_a_policy_of_the_users_own_is_imported_and_played(compare, scenario, tmp_path, monkeypatch):
    (tmp_path / "own_rules.py").write_text(
        "class Shy:\n"
        "    name = 'shy'\n"
        "    def __init__(self, scenario): pass\n"
        "    def begin(self, seed): pass\n"  # as versions before called `reset`
        "    def choose(self, decision, observation): return 0\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    rows = compare("python:own_rules:Shy", num_seeds=2).results["rows"]
    assert {row["policy"]: BLOCKED.cost(row) for row in rows}["Shy"] == 1
    with pytest.raises(PolicyError, match="Shy"):
        policy("python:own_rules:Shi", scenario)
    with pytest.raises(PolicyError, match="no such module"):
        policy("python:own_ruls:Shy", scenario)


def test_names_for_tables():
    assert display_name("runs/mine") == "mine"
    assert display_name("runs/mine/policy.pt") == "mine"
    assert display_name("fixed-8@best-fit") == "fixed-8@best-fit"
    assert display_name("python:a.b:C") == "C"


def _empty(path):
    path.parent.mkdir()
    path.write_bytes(b"")
    return path
