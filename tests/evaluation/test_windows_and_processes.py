"""Evaluation where jobs wait and devices fail: windows at both ends; no job counted twice."""

import dataclasses

import numpy as np
import pytest

from meshwright.envs.job_partitioning import play_episode
from meshwright.evaluation.cluster.cluster_figures import ClusterFigures, shares
from meshwright.evaluation.evaluate import evaluate
from meshwright.evaluation.metrics import figures
from meshwright.evaluation.plots import gantt, policies
from meshwright.evaluation.report.report import SECTIONS, report_html
from meshwright.evaluation.report.shared_figures import drawn_rows
from meshwright.evaluation.worlds.evaluated_cluster import EvaluatedCluster
from meshwright.planning.policies import policy
from meshwright.simulation.cluster.records import EpisodeRecord
from meshwright.simulation.cluster.state import OUTCOME_WORDS, Outcome

from ..small_benchmarks import with_events


@pytest.fixture(scope="module")
def eventful(small):
    return with_events(small)


@pytest.fixture(scope="module")
def built(eventful):
    return eventful.build()


def test_jobs_arrive_alike_with_and_without_failures(small, scenario, built):
    with_failures, without = (play_episode(policy("min", s), s, 3) for s in (built, scenario))
    assert with_failures.arrival_s.tolist() == without.arrival_s.tolist()
    assert with_failures.num_steps.tolist() == without.num_steps.tolist()


@pytest.mark.usefixtures("undrawn")
def test_results_count_each_job_of_the_window_once_and_are_drawn(eventful, built):
    result = evaluate(EvaluatedCluster(eventful, built=built), ["min@best-fit"])
    described = result.results["about"]
    assert (described["num_warmup_jobs"], described["num_cooldown_jobs"], described["queue_capacity"]) == (5, 2, 3)
    rows = drawn_rows(result.results)
    for row in rows:
        assert sum(row["outcomes"].values()) == pytest.approx(1)
        assert OUTCOME_WORDS[Outcome.WAITING] not in row["outcomes"]
        assert row["blocking_rate"]["mean"] + row["acceptance_rate"]["mean"] == pytest.approx(1)
    assert any(row["outcomes"].get(OUTCOME_WORDS[Outcome.EXPIRED], 0) > 0 for row in rows)
    assert "deadline expired while waiting" in str(policies.reasons_figure(rows))
    page = report_html(result.results, SECTIONS["cluster"](result))
    assert "the last 2 do not count, so 23 arrivals of each episode count" in page
    assert "Up to 3 jobs may wait in a queue" in page
    assert ">wait, min<" in page
    assert ">delay, min<" in page
    assert "expired while waiting" in str(gantt.episode_figure(built, [("min", result.played["min"].records[0])]))


def by_hand(*, outcome, start_s, finish_s, degree) -> EpisodeRecord:
    """Jobs 100 s apart that may take 1000 s."""
    k = len(outcome)
    arrival_s, accepted = 100.0 * np.arange(k), np.equal(outcome, int(Outcome.ACCEPTED))
    return EpisodeRecord(
        arrival_s=arrival_s,
        graph_id=np.zeros(k, np.int64),
        num_steps=np.ones(k, np.int64),
        allowed_s=np.full(k, 1000.0),
        sequential_s=np.full(k, 1000.0),
        degree=np.array(degree),
        candidate=accepted.astype(np.int64),
        block=np.where(accepted, 0, -1),
        completion_s=np.array(finish_s) - arrival_s,
        outcome=np.array(outcome, np.int64),
        start_s=np.array(start_s),
        finish_s=np.array(finish_s),
        **dict.fromkeys(["num_failures", "num_preemptions", "lost_work_s", "delay_s"], np.zeros(k)),
    )


def test_a_window_at_both_ends_worked_by_hand(scenario):
    # Ten jobs, the first two and the last three left out: jobs 2 to 6 count, from 200 s to 600 s on 8 devices.
    choice = scenario.settings.model_copy(update={"num_jobs": 10, "num_warmup_jobs": 2, "num_cooldown_jobs": 3})
    windowed = dataclasses.replace(scenario, settings=choice)
    nan, placed, no, waits = np.nan, Outcome.ACCEPTED, Outcome.NO_DEVICE, Outcome.WAITING
    record = by_hand(
        outcome=[placed, no, placed, Outcome.EXPIRED, waits, placed, no, no, placed, waits],
        start_s=[0.0, nan, 300.0, nan, nan, 500.0, nan, nan, 800.0, nan],
        finish_s=[250.0, nan, 500.0, nan, nan, 1500.0, nan, nan, 900.0, nan],
        degree=[4, 0, 2, 0, 0, 8, 0, 0, 8, 0],
    )
    view = ClusterFigures(record, windowed)
    of = figures("cluster", view)
    # 2 placed and 2 turned away; the one that waits counts neither way, the one that still runs counts as placed
    assert (of["blocking_rate"], of["acceptance_rate"]) == (0.5, 0.5)
    assert of["mean_completion_s"] == (300 + 1000) / 2
    assert of["mean_slack"] == pytest.approx((0.7 + 0.0) / 2)
    assert of["mean_degree"] == 5
    # jobs 2 and 5 came at 200 s and 500 s and started at 300 s and 500 s
    assert (of["mean_wait_s"], of["mean_delay_s"]) == (50, 0)
    # 4 devices for 50 s, 2 for 200 s from the job's start on, 8 for the last 100 s
    assert view.utilisation == pytest.approx((4 * 50 + 2 * 200 + 8 * 100) / (8 * 400))
    outcomes = shares([record], windowed, is_policy=True)["outcomes"]
    assert {word: share for word, share in outcomes.items() if share} == {
        "accepted": 0.5,
        "no free device": 0.25,
        "deadline expired while waiting": 0.25,
    }
