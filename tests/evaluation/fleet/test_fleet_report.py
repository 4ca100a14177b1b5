"""The page of a fleet: its replay shows the played episode, and it holds every policy, figure and loss."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from meshwright.evaluation.evaluate import evaluate
from meshwright.evaluation.fleet.episodes import play_episodes, watch_episode
from meshwright.evaluation.fleet.policies import LearnedPlayer, fleet_player
from meshwright.evaluation.report.fleet_sections import MOST_SHOWN, lost_by_type, sections_of, slowed
from meshwright.evaluation.report.report import report_html
from meshwright.evaluation.report.shared_figures import shown_policies
from meshwright.evaluation.worlds.evaluated_fleet import EvaluatedFleet

from ..plots.texts import words
from ..report.test_report import HOSTILE, Page, scripts_of

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def found(small, small_fleet):
    choice = small.model_copy(update={"policies": ("fifo", "best-fixed-entry")})
    return evaluate(EvaluatedFleet(choice, built=small_fleet), ["fixed-4@spread", "bound"], num_seeds=2)


@pytest.mark.parametrize("spec", ["sjf+backfill", "random", None, "rollout:fixed-2"])
def test_a_watched_episode_is_the_one_that_was_played(small_fleet, spec):
    first_possible = LearnedPlayer(lambda batch: (batch.state.can_act * np.arange(batch.state.can_act.shape[1])).argmax(axis=1))
    player = fleet_player(spec, small_fleet) if spec else first_possible
    played = play_episodes(small_fleet, player, (0, 1)).records[1]
    watched = watch_episode("one", player, small_fleet, 1)
    for name, values in vars(played).items():
        np.testing.assert_array_equal(values, getattr(watched.record, name))
    lost_s = np.zeros(len(played.arrival_s))
    for (job, _), seconds in watched.timeline.lost_s.items():
        lost_s[job] += seconds
    assert lost_s == pytest.approx(played.shared_s, rel=1e-9)


def test_the_page_leads_with_the_verdict_and_holds_every_policy_as_text(found, small_fleet):
    def renamed(by_policy):
        return {HOSTILE if name == "fixed-4@spread" else name: value for name, value in by_policy.items()}

    rows = [row | {"policy": renamed({row["policy"]: 0}).popitem()[0]} for row in found.results["rows"]]
    results = found.results | {"rows": rows, "verdict": f"Nobody beats {HOSTILE}."}
    message = replace(found, results=results, played=renamed(found.played), specs=renamed(found.specs))
    shown = shown_policies(results, MOST_SHOWN)
    episodes = [watch_episode(name, fleet_player(message.specs[name], small_fleet), small_fleet, 0) for name in shown]
    load = np.zeros_like(episodes[0].timeline.load)
    load[:, 9] = 0.5  # down to the first leaf; the eight links of hosts come before
    first, *others = episodes[0].timeline.stays
    stays = replace(first, is_restart=True, steps_from_s=(first.begin_s + first.end_s) / 2), *others
    episodes[0] = replace(episodes[0], timeline=replace(episodes[0].timeline, load=load, stays=stays))
    html = report_html(results, sections_of(message, episodes), command=f"meshwright evaluate '{HOSTILE}'")
    page = Page(html)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert not re.search(r"https?://", html)
    assert page.texts[2].startswith("Nobody beats <script>")  # after the title and the heading
    head, drawn = page.texts.index("All policies"), page.texts.index("Figures")
    table = " ".join(page.texts[head:drawn])
    tuned = found.results["tuned"]["best-fixed-entry"]["chosen"]
    assert all(name in table for name in ("fifo", f"best-fixed-entry ({tuned}", "<script>alert(1)</script>", "bound", "restarts"))
    figures = [json.loads(text) for text in scripts_of(html)[1]]
    said = {text for figure in figures for text in words(figure)}
    assert page.texts[page.texts.index("To repeat it") + 1].startswith("meshwright evaluate '<script>")
    assert {"Jobs waiting", "Jobs running", "l0-h0", "leaf 0, mean 50.0 %", "Time from arrival to end", "restart"} <= said
    assert page.tags.count("figure") == len(figures) == 6
    over_time, hosts, _, times = figures[2:]
    assert [len(one["layout"]["annotations"]) for one in (over_time, hosts, times)] == [3, len(shown), 2]
    held = [trace for trace in hosts["data"] if trace["type"] == "bar" and trace["yaxis"] == "y" and trace["name"] != "restart"]
    drawn_s = 3600 * sum(w / 0.94 * x for trace in held for w, x in zip(trace["width"], trace["x"], strict=True))
    assert drawn_s == pytest.approx(sum(len(stay.devices) * (stay.end_s - stay.begin_s) for stay in stays))


def test_loads_are_drawn_only_where_links_can_be_shared(found, small_fleet):
    network = small_fleet.network
    alone = network.arrays._replace(capacity_bytes_per_s=np.full_like(network.arrays.capacity_bytes_per_s, 1e300))
    fleet = replace(small_fleet, network=replace(network, arrays=alone))
    episodes = [watch_episode("fifo", fleet_player("fifo", small_fleet), small_fleet, 0)]
    for each in (small_fleet, fleet):
        drawn = sections_of(replace(found, world=EvaluatedFleet(found.world.benchmark, built=each)), episodes).drawn
        assert any("Load of the busiest links" in one.caption for one in drawn) == (each is small_fleet)


def test_who_is_shown_is_the_best_learned_policy_then_the_best_baseline_and_each_play_once():
    rows = [
        {"policy": name, "kind": kind, "per_case": {"mean_completion_s": [figure]}, "details": {}}
        for name, kind, figure in zip(
            "abcdefg", ["reference"] + ["baseline"] * 5 + ["learned"], [0, 4, 4, 5, 6, 7, 1], strict=True
        )
    ]
    assert shown_policies({"rows": rows, "best_baselines": ["b", "c"]}, MOST_SHOWN) == ["g", "b", "d", "e"]


def test_losses_are_told_by_pair_by_type_and_by_job(small_fleet):
    watched = watch_episode("<fifo>", fleet_player("fifo", small_fleet), small_fleet, 0)
    nobody = slowed(replace(watched, timeline=replace(watched.timeline, lost_s={})), small_fleet)
    assert nobody[1].startswith("No job was slowed")
    assert nobody[2] == []
    lost_s = {(3, 5): 90.0, (3, 4): 30.0, (5, 3): 240.0}
    record = replace(watched.record, job_type=np.where(np.arange(16) == 3, 0, 1))
    result = replace(watched, record=record, timeline=replace(watched.timeline, lost_s=lost_s))
    assert lost_by_type(result, small_fleet).tolist() == [[0.0, 120.0], [240.0, 0.0]]
    title, note, tables = slowed(result, small_fleet)
    by_pair, _, by_job = (table for _, table in tables)
    assert title == "<fifo>"
    assert note.replace("\u00a0", " ") == "2 of 16 jobs were slowed and lost 6.0 min in all."
    pairs = [[one[0], other[0], lost.replace("\u00a0", " ")] for one, other, lost, _ in by_pair.rows]
    assert pairs == [["job 5", "job 3", "4.0 min"], ["job 3", "job 5", "90.0 s"], ["job 3", "job 4", "30.0 s"]]
    each = {job[0]: others.replace("\u00a0", " ") for job, _, others in by_job.rows}
    assert each["job 3"] == "job 5: 90.0 s, job 4: 30.0 s"
