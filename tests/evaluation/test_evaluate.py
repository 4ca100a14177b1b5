import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import files
from meshwright.envs.benchmark import load_benchmark
from meshwright.envs.ground import Ground
from meshwright.envs.playing import play_episode
from meshwright.errors import CheckpointError, ConfigError, InputFileError, PolicyError
from meshwright.evaluation.episodes import Player
from meshwright.evaluation.evaluate import evaluate, verdict
from meshwright.evaluation.metrics import PERCENTILES, metrics, utilisation
from meshwright.evaluation.report.report import report_html
from meshwright.evaluation.result_folder import best_policy
from meshwright.evaluation.statistics import least
from meshwright.evaluation.tables import beside, to_markdown
from meshwright.planning.policies import display_name, off_ground, policy
from meshwright.simulation.cluster.dynamics import Outcome
from meshwright.simulation.cluster.records import EpisodeRecord


def _untimed(results):
    return files.json_text({key: value for key, value in results.items() if key != "timing"})


@pytest.fixture(scope="module")
def found(small, scenario):
    return evaluate(small, ["fixed-2"], scenario=scenario)


def test_a_second_run_gives_the_same_bytes_apart_from_times(small, scenario, found):
    assert _untimed(evaluate(small, ["fixed-2"], scenario=scenario).results) == _untimed(found.results)


def test_references_stand_beside_the_policies_and_enter_no_verdict(small, scenario, found):
    with_them = evaluate(small, ["fixed-2"], references=["linear-programme", "clairvoyant-beam-32"], scenario=scenario)
    rows = {row["policy"]: row for row in with_them.results["rows"]}
    bound, beam = rows["linear-programme"], rows["clairvoyant-beam-32"]
    assert bound["kind"] == beam["kind"] == "reference"
    assert bound["mean_completion_s"] is None
    policies = [row for row in rows.values() if row["kind"] != "reference"]
    for seed in range(4):
        least = bound["per_seed"]["blocking_rate"][seed]
        assert all(least <= row["per_seed"]["blocking_rate"][seed] for row in (beam, *policies))
    assert beam["blocking_rate"]["mean"] <= min(row["blocking_rate"]["mean"] for row in policies)
    assert with_them.results["verdict"] == found.results["verdict"]
    assert with_them.results["best_baseline"] == found.results["best_baseline"]
    assert [row for row in with_them.results["rows"] if row["kind"] != "reference"] == found.results["rows"]
    assert best_policy(with_them.results) == best_policy(found.results)


def test_a_trace_is_split_unless_rules_alone_are_evaluated(tmp_path):
    rows = "".join(f"{60 * number},600,{1 + number % 4}\n" for number in range(100))
    (tmp_path / "trace.csv").write_text("timestamp,duration,num_gpus\n" + rows)
    workload = "graphs: [zoo:alexnet]\narrivals: {kind: trace, file: trace.csv, min_gpus: 2}\ndeadline: {kind: none}\n"
    (tmp_path / "workload.yaml").write_text(workload)
    scenario = "{cluster: preset:host-8, workload: workload.yaml, num_jobs: 60, max_degree: 8}"
    (tmp_path / "b.yaml").write_text(f"name: b\nscenario: {scenario}\n")
    benchmark = load_benchmark(str(tmp_path / "b.yaml"))
    found = evaluate(benchmark, ["max", "rollout(fixed-2)"], num_seeds=1)
    assert found.results["scenario"]["digest"] != benchmark.build().digest
    always = load_benchmark(str(tmp_path / "b.yaml"), changes=["scenario.workload_changes.arrivals.split=true"])
    for changed, policies in ((benchmark, ["max", "best-fixed"]), (always, ["max"])):
        with pytest.raises(InputFileError, match=r"has \d+ jobs; the benchmark needs 61\. Lower num_jobs or min_gpus\."):
            evaluate(changed, policies, num_seeds=1)


@pytest.mark.parametrize(
    ("names", "says"),
    [(["linear-program"], "linear-programme"), (["clairvoyant-beam"] * 2, "twice"), (["clairvoyant-beam-0"], "a width is")],
)
def test_a_reference_that_is_none_is_refused(small, scenario, names, says):
    with pytest.raises(PolicyError, match=says):
        evaluate(small, references=names, scenario=scenario)


def test_a_decision_has_a_latency_that_no_result_depends_on(found):
    latency = found.results["timing"]["decision_latency_s"]
    assert set(latency) == {row["policy"] for row in found.results["rows"]}
    assert all(0 < taken["p50"] <= taken["p99"] < 1 for taken in latency.values())


def test_shares_of_shapes_and_rules_add_up_and_quantiles_are_in_order(found, scenario):
    for row in found.results["rows"]:
        assert sum(row["shapes"].values()) == pytest.approx(1)
        assert sum(row["rules"].values()) == pytest.approx(1)
        assert set(row["shapes"]) <= set(scenario.space.shape_names)
        times = row["completion_percentiles_s"]
        assert times == sorted(times)
        assert len(times) == len(PERCENTILES)
        assert row["p5_slack"]["mean"] <= row["p50_slack"]["mean"]
        assert row["p50_completion_s"]["mean"] <= row["p95_completion_s"]["mean"] <= row["p99_completion_s"]["mean"]
        # Jobs arrive 700 s apart, and what is not blocked is placed.
        assert row["throughput_per_h"]["mean"] == pytest.approx(3600 / 700 * row["acceptance_rate"]["mean"])


@pytest.mark.slow
def test_two_processes_give_the_same_bytes_as_one(small, scenario, found):
    assert _untimed(evaluate(small, ["fixed-2"], num_processes=2, scenario=scenario).results) == _untimed(found.results)


def test_rows_are_sorted_and_their_shares_add_up(found):
    rows = found.results["rows"]
    rates = [row["blocking_rate"]["mean"] for row in rows]
    assert rates == sorted(rates)
    for row in rows:
        assert sum(row["outcomes"].values()) == pytest.approx(1)
        assert sum(row["degrees"].values()) == pytest.approx(1)
        assert row["outcomes"]["accepted"] == pytest.approx(row["acceptance_rate"]["mean"])
        assert row["blocking_rate"]["mean"] + row["acceptance_rate"]["mean"] == pytest.approx(1)


def test_best_fixed_is_the_fixed_degree_that_blocks_least_on_the_validation_episodes(small, scenario, found):
    entry = found.results["best_fixed"]["best-fixed"]
    rates = {}
    for degree in scenario.space.degrees:
        chooser = policy(f"fixed-{degree}", scenario)
        records = [play_episode(chooser, scenario, seed) for seed in (100, 101)]
        rates[f"fixed-{degree}"] = np.mean([1 - record.is_accepted[5:].mean() for record in records])
    assert entry["chosen"] == min(rates, key=rates.get)
    assert entry["blocking_rate"] == pytest.approx(rates)
    assert found.records["best-fixed"] == found.records.get(entry["chosen"], found.records["best-fixed"])


def test_differences_are_taken_against_the_best_baseline_seed_by_seed(found):
    rows = {row["policy"]: row for row in found.results["rows"]}
    best = rows[found.results["best_baseline"]]
    # Each blocks 35 of the 100 jobs that count, in other episodes.
    assert found.results["best_baselines"] == ["min", "random"]
    assert found.results["verdict"].endswith("the best baselines are min and random, which tie.")
    assert {beside(found.results, rows[name]) for name in found.results["best_baselines"]} == {"best baseline, tied"}
    assert best["against_best_baseline"] is None
    for name, row in rows.items():
        if name != best["policy"]:
            pairs = zip(row["per_seed"]["blocking_rate"], best["per_seed"]["blocking_rate"], strict=True)
            assert row["against_best_baseline"]["mean"] == pytest.approx(np.mean([a - b for a, b in pairs]))


@pytest.mark.parametrize(
    ("low", "high", "words"), [(-0.02, -0.01, "blocks fewer jobs"), (-0.02, 0.01, "No winner"), (0.01, 0.02, "best wins")]
)
def test_the_verdict_claims_no_more_than_the_interval_shows(low, high, words):
    best = {"policy": "best", "kind": "baseline", "blocking_rate": {"mean": 0.1}, "against_best_baseline": None}
    learned = {"policy": "mine", "kind": "learned", "num_seeds": 4, "blocking_rate": {"mean": 0.09}}
    learned["against_best_baseline"] = {"policy": "best", "mean": (low + high) / 2, "low": low, "high": high}
    assert words in verdict([best, learned], [best])
    assert "one episode tells nothing" in verdict([best, {**learned, "num_seeds": 1}], [best])


def row_of(policy, rate, kind="baseline", against=None):
    difference = None if against is None else {"policy": "min", "mean": against, "low": against - 0.01, "high": against + 0.01}
    own = {"policy": policy, "kind": kind, "num_seeds": 4, "blocking_rate": {"mean": rate}}
    return {**own, "against_best_baseline": difference}


def test_whoever_ties_is_named_beside_the_one_that_it_ties_with():
    baselines = [row_of("min", 0.1), row_of("cheap", 0.1), row_of("max", 0.3)]
    best = baselines[:2]
    assert verdict(baselines, best) == "No learned policy was compared; the best baselines are min and cheap, which tie."
    mine = row_of("mine", 0.05, "learned", -0.05)
    told = "blocks fewer jobs than the best baselines, min and cheap, which tie: -5.0 points [-6.0, -4.0]."
    assert verdict([*baselines, mine], best) == f"mine {told}"
    twin = {**mine, "policy": "twin"}
    assert verdict([*baselines, twin, mine], best) == f"twin and mine {told}".replace("blocks", "block")
    slow = row_of("slow", 0.2, "learned", 0.1)
    assert verdict([*baselines, slow], best) == (
        "min and cheap win: slow blocks more jobs than these baselines: +10.0 points [+9.0, +11.0]."
    )


def test_where_all_policies_tie_nobody_is_best(small_file):
    # Without deadlines every job waits in the queue until it has a place.
    changes = ["scenario.workload_changes.deadline={kind: none}", "scenario.queue_capacity=40", "num_validation_seeds=1"]
    idle = load_benchmark(str(small_file), changes=changes)
    results = evaluate(idle, ["fixed-2"], num_seeds=2).results
    assert results["verdict"] == "No winner: all 5 policies tie at 0 % of jobs blocked, which tells none of them from another."
    assert results["best_baseline"] is None
    assert results["best_baselines"] == ["fixed-2", "max", "min", "random", "best-fixed"]
    assert {row["against_best_baseline"] for row in results["rows"]} == {None}
    assert results["best_fixed"]["best-fixed"]["chosen"] == "fixed-1"
    assert results["best_fixed"]["best-fixed"]["tied"] == ["fixed-2", "fixed-4", "fixed-6", "fixed-8"]
    assert {beside(results, row) for row in results["rows"]} == {"all tie"}
    markdown, page = to_markdown(results), report_html(results, learning_curve=[])
    for told in (markdown, page):
        assert "best-fixed (fixed-1, tied)" in told
        assert "all 5 policies tie" in told
    assert "| best baseline" not in markdown
    assert ">best baseline" not in page
    assert "as little as fixed-2, fixed-4, fixed-6, fixed-8, of which it is the smallest" in page


def test_a_network_off_its_ground_is_told_with_the_results(small, scenario):
    results = evaluate(small, ["shipped:quickstart"], num_seeds=1, scenario=scenario).results
    assert list(results["off_ground"]) == ["shipped:quickstart"]
    told = results["off_ground"]["shipped:quickstart"]
    assert told.startswith("shipped:quickstart was neither trained nor evaluated on host-8, a single-host of 8 a100 (known: ramp")
    for shown in (to_markdown(results), report_html(results)):
        assert f"{told}." in shown.replace("\\", "")
    assert off_ground("without-graph(shipped:quickstart)", Ground.of("small", scenario)).startswith("without-graph(")
    assert evaluate(small, num_seeds=1, scenario=scenario).results["off_ground"] == {}


@given(st.permutations(["a", "b", "c", "d"]), st.lists(st.sampled_from([0.0, 0.1, 0.2]), min_size=4, max_size=4))
def test_no_verdict_depends_on_how_policies_are_called(names, rates):
    def told(called):
        rows = [row_of(name, rate) for name, rate in zip(called, rates, strict=True)]
        best = least(rows, lambda row: row["blocking_rate"]["mean"])
        return verdict(rows, best), [row["policy"] for row in best]

    (ours, best), (theirs, others) = told(names), told("abcd")
    renamed = dict(zip("abcd", names, strict=True))
    assert best == [renamed[name] for name in others]
    assert re.sub(r"\b[abcd]\b", lambda found: renamed[found[0]], theirs) == ours


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
    figures = metrics(record, scenario)
    assert figures["blocking_rate"] == 0
    assert figures["mean_completion_s"] == 250
    assert figures["mean_slack"] == pytest.approx(0.75)
    assert figures["mean_degree"] == 2
    assert figures["utilisation"] is None  # no time passes between the first counted and the last arrival
    # Counted from the fourth job on, 1,400 s on 8 devices pass; the fifth job holds 4 of them for the last 700 s.
    earlier = dataclasses.replace(scenario, settings=scenario.settings.model_copy(update={"num_warmup_jobs": 3}))
    assert utilisation(record, earlier) == pytest.approx(4 * 700 / (8 * 1400))


def test_an_episode_without_an_accepted_job_has_no_completion_time(scenario):
    class Never:
        name = "never"

        def reset(self, seed):
            pass

        def choose(self, decision, observation):
            return 0

    figures = metrics(play_episode(Never(), scenario, 0), scenario)
    assert figures["blocking_rate"] == 1
    assert figures["mean_completion_s"] is None


def test_play_depends_on_nothing_but_the_seed(small, scenario):
    player = Player(small, scenario)
    a, b, c = player.play_all([("random", 3), ("random", 3), ("random", 4)])
    assert np.array_equal(a.candidate, b.candidate)
    assert not np.array_equal(a.arrival_s * 0 + a.num_steps, c.num_steps)


@pytest.mark.parametrize(
    ("spec", "near"),
    [("fixd-4", "fixed-4"), ("fixed-5", "no block"), ("max@bestfit", "best-fit"), ("shipped:quickstat", "quickstart")],
)
def test_an_unknown_policy_is_refused_with_the_nearest(small, scenario, spec, near):
    with pytest.raises(PolicyError, match=near):
        evaluate(small, [spec], scenario=scenario)


def test_two_policies_of_one_name_are_refused(small, scenario, tmp_path):
    with pytest.raises((PolicyError, CheckpointError)) as error:
        evaluate(small, [str(_empty(tmp_path / "a" / "x.pt")), str(_empty(tmp_path / "b" / "x.pt"))], scenario=scenario)
    assert "name" in str(error.value)


@pytest.mark.parametrize(("field", "number"), [("num_seeds", 0), ("num_seeds", 101), ("num_processes", 0)])
def test_impossible_numbers_are_refused(small, scenario, field, number):
    with pytest.raises(ConfigError):
        evaluate(small, scenario=scenario, **{field: number})


def test_a_policy_of_the_users_own_is_imported_and_played(small, scenario, tmp_path, monkeypatch):
    (tmp_path / "own_rules.py").write_text(
        "class Shy:\n"
        "    name = 'shy'\n"
        "    def __init__(self, scenario): pass\n"
        "    def begin(self, seed): pass\n"  # as versions before called `reset`
        "    def choose(self, decision, observation): return 0\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    rows = evaluate(small, ["python:own_rules:Shy"], scenario=scenario, num_seeds=2).results["rows"]
    assert {row["policy"]: row["blocking_rate"]["mean"] for row in rows}["Shy"] == 1
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


def test_a_policy_begins_each_episode_with_the_episodes_seed(scenario):
    seeds = []

    class Spy:
        name = "spy"

        def reset(self, seed):
            seeds.append(seed)

        def choose(self, decision, observation):
            return 0

    play_episode(Spy(), scenario, 7)
    play_episode(Spy(), scenario, 8)
    assert seeds == [7, 8]


def test_a_policy_that_answers_with_half_a_candidate_is_refused(scenario):
    class Half:
        name = "half"

        def reset(self, seed):
            pass

        def choose(self, decision, observation):
            return 0.5

    with pytest.raises(PolicyError, match="half: must choose a candidate"):
        play_episode(Half(), scenario, 0)
