"""Laws of replays of a past that a controller kept: what happened is played back, and policies do as they would have done."""

import json
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import settings
from meshwright.envs.fleet.batch import FleetBatch
from meshwright.envs.fleet.fleet import Jobs, build_fleet
from meshwright.envs.fleet.settings import FleetSettings
from meshwright.errors import PlanError, PolicyError, StateError
from meshwright.evaluation.fleet.policies import fleet_player
from meshwright.live.decisions import JobRequest, Observation
from meshwright.live.feedback.runs import JobRun
from meshwright.live.replay.durations import RealDurations
from meshwright.live.replay.fleet_world import FleetWorld, real_menu
from meshwright.live.replay.report import RECORDED, ReplayRequest, replay
from meshwright.live.replay.service_world import ServiceWorld
from meshwright.live.replay.span import Arrival, Mark, PastSpan, read_span
from meshwright.live.state import HostState
from meshwright.planners.menu.build import build_menu
from meshwright.planners.menu.settings import JobTypeSettings, MenuSettings
from meshwright.planning.menu_plan import MenuPlanner
from meshwright.simulation.cluster.interruptions import RESTART_S
from tests.draws import draws

from .past import BEGIN, DAY_S, POLICY, Past, planners, request, week

RULES = ("fastest-feasible+backfill", "sjf:fastest-feasible+backfill", "least-device-seconds", "fixed-4")
SAME = "menu:fastest-feasible+backfill"


@pytest.fixture(scope="module")
def busy(folder):
    """Half a day with more work than the cluster does at once, a third slower than predicted; what each job took is known."""
    return Past(planners(folder), truth=lambda case, devices: 1.3, observed=60).play(week(num=20, days=0.5, seed=2))


def replayed(past, folder, *policies, since=0.0, until=60 * DAY_S, queue=10_000, as_served=False):
    """Rows by policy, and the whole."""
    begin, end = BEGIN + timedelta(seconds=since), BEGIN + timedelta(seconds=until)
    requested = ReplayRequest.model_construct(since=begin, until=end, policies=policies, queue=queue, as_served=as_served)
    result = replay(past.store, planners(folder).cluster, requested, lambda spec: planners(folder, spec), cache=folder)
    return {row["policy"]: row for row in result["rows"]}, result


def test_what_happened_is_played_back_and_the_policy_that_decided_does_it_again(busy, folder):
    rows, result = replayed(busy, folder, SAME)
    truth_s = np.mean(list(busy.completion_s.values()))
    assert result["is_trusted"]
    assert result["recorded_mean_completion_s"] == pytest.approx(truth_s, rel=1e-9)
    assert rows[RECORDED]["mean_completion_s"]["mean"] == pytest.approx(truth_s, rel=1e-9)
    assert rows[RECORDED]["mean_waiting_s"]["mean"] > 0
    for figure, key in (("mean_completion_s", "mean"), ("mean_waiting_s", "mean"), ("device_hours", "total")):
        assert rows[SAME][figure][key] == pytest.approx(rows[RECORDED][figure][key], rel=1e-9)
    assert rows[SAME]["num_on_devices_never_observed"] == 0


def test_policies_do_as_in_a_direct_evaluation_of_the_same_arrivals(busy, folder):
    arrivals = week(num=20, days=0.5, seed=2)
    begin_s = arrivals[0][0]
    rows, result = replayed(busy, folder, *(f"menu:{rule}" for rule in RULES))
    types = [{"name": name, "job": f"zoo:{name}", "global_batch": 256} for name in ("resnet18", "vgg16")]
    degrees = (1, 2, 4, 8, 16)
    options = {
        "cluster": "tiny",
        "job_types": types,
        "menu": {"degrees": degrees},
        "num_jobs": len(arrivals),
        "load": 1.0,
        "duration": {"median_s": 300, "sigma": 0, "most_s": 300},
        "requested": dict.fromkeys(degrees, 1.0),
        "queue_capacity": 100,
        "sharing": "none",
    }
    fleet = build_fleet(settings.build_settings(FleetSettings, options), cluster=planners(folder).cluster, cache=folder)
    jobs = Jobs(
        np.array([at_s - begin_s for at_s, _ in arrivals]),
        np.array([one.job == "zoo:vgg16" for _, one in arrivals]).astype(np.int64),
        np.full(len(arrivals), 4),
        np.array([1.3 * one.steps for _, one in arrivals]),  # as long as if each step took so much longer
        np.full(len(arrivals), np.inf),
    )
    means = {}
    for rule in RULES:
        batch = FleetBatch(fleet, 1, observes=False)
        batch.begin_with(0, jobs)
        fleet_player(rule, fleet).play(batch, [0])
        means[rule] = float((batch.state.finish_s[0] - batch.state.arrival_s[0]).mean())
        assert rows[f"menu:{rule}"]["mean_completion_s"]["mean"] == pytest.approx(means[rule], rel=1e-9)
    assert len(set(means.values())) == len(RULES), "the rules differ, so their order says something"
    assert result["is_trusted"]


def test_devices_that_never_ran_take_what_the_job_showed_elsewhere_and_are_marked(folder):
    past = Past(planners(folder), truth=lambda case, devices: 1.5, observed=60).play([(0.0, request(0, 1000))])
    row = replayed(past, folder, "menu:fixed-2")[0]["menu:fixed-2"]
    alone = Past(planners(folder, "menu:fixed-2")).play([(0.0, request(0, 1000))])
    assert row["num_on_devices_never_observed"] == 1
    assert row["mean_completion_s"]["mean"] == pytest.approx(1.5 * alone.completion_s["job-0"])


def test_both_worlds_agree_where_others_hold_devices_and_hosts_are_closed(folder):
    names = planners(folder).cluster.host_names
    past = Past(planners(folder, "menu:least-device-seconds"))
    past.hosts = past.hosts | {names[3]: HostState(condition="drained", num_devices=4)}
    others = [(900.0 * k, 900.0 * k + 600.0, f"other-{k}", {names[k % 3]: (0, 1)}) for k in range(20)]
    past.play(week(num=25, days=0.3, seed=3), others)
    fleet = replayed(past, folder, "menu:least-device-seconds+backfill", "menu:fixed-4+backfill", SAME)[0]
    span = read_span(past.store, planners(folder).cluster, BEGIN, BEGIN + timedelta(days=9))
    assert len(span.marks) > 10
    for rule in ("least-device-seconds", "fixed-4", "fastest-feasible"):
        played, _ = ServiceWorld(span, RealDurations(span.runs), planners(folder, f"menu:{rule}"), queue=100).play()
        mean_s = fleet[f"menu:{rule}+backfill"]["mean_completion_s"]["mean"]
        assert played.completion_s.mean() == pytest.approx(mean_s, rel=1e-9)


def test_a_job_waits_for_what_others_hold(folder):
    names = planners(folder).cluster.host_names
    whole = dict.fromkeys(names, (0, 1, 2, 3))
    past = Past(planners(folder)).play([(10.0, request(0, 1000))], [(0.0, 500.0, "theirs", whole)])
    rows, result = replayed(past, folder, SAME)
    assert result["num_jobs"] == 1, "a request that comes again is one job that waits"
    assert rows[RECORDED]["mean_waiting_s"]["mean"] == rows[SAME]["mean_waiting_s"]["mean"] == pytest.approx(490.0)


def test_jobs_from_before_the_span_hold_their_devices(folder):
    past = Past(planners(folder)).play([(0.0, request(0, 20_000)), (50.0, request(1, 500))])
    rows, result = replayed(past, folder, SAME, since=20.0)
    assert result["num_jobs"] == 1
    expected = past.completion_s["job-0"] - 50.0
    assert expected > 0
    assert rows[SAME]["mean_waiting_s"]["mean"] == pytest.approx(expected)


def test_without_a_queue_jobs_are_refused_as_the_service_does(folder):
    past = Past(planners(folder)).play([(0.0, request(0, 20_000)), (50.0, request(1, 500))])
    assert replayed(past, folder, SAME, queue=0)[0][SAME]["blocked"]["mean"] == 0.5


def test_jobs_on_a_host_that_goes_down_go_on_elsewhere_from_their_last_whole_step(folder):
    past = Past(planners(folder, "menu:fixed-4"), observed=60)
    past.take()
    past.at_s = 5.0
    name, runs_s = past.start(5.0, request(0, 1000, devices=4))
    step_s, host = runs_s / 1000, next(iter(past.running[name].devices))
    past.at_s = 5.0 + 100.5 * step_s
    past.running.clear()
    past.hosts = past.hosts | {host: HostState(condition="down", num_devices=4)}
    past.take()
    rows, result = replayed(past, folder, "menu:fixed-4")
    assert rows["menu:fixed-4"]["mean_completion_s"]["mean"] == pytest.approx(RESTART_S + (100.5 + 900) * step_s)
    assert not result["is_trusted"]
    assert "it ended before its last step" in result["why"]


def test_jobs_cut_op_by_op_are_replayed_as_the_service_decides(folder):
    made = planners(folder, "fastest-feasible@best-fit")
    arrivals = [(100.0 * k, JobRequest(job="zoo:resnet18", name=f"job-{k}", steps=1000 * (k + 1))) for k in range(12)]
    past = Past(made, truth=lambda case, devices: 1.2, observed=60).play(arrivals)
    rows, result = replayed(past, folder, "fastest-feasible@best-fit", "min@best-fit")
    assert result["is_trusted"]
    same = rows["fastest-feasible@best-fit"]
    assert same["mean_completion_s"]["mean"] == pytest.approx(rows[RECORDED]["mean_completion_s"]["mean"], rel=1e-9)
    assert rows["min@best-fit"]["mean_completion_s"]["mean"] != same["mean_completion_s"]["mean"]
    with pytest.raises(PlanError, match="has no batch, so that no menu"):
        replayed(past, folder, SAME)


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        ((), "name a policy"),
        ((SAME, SAME), "appears twice"),
        (("rollout:sjf",), "looks at what is to come"),
        (("min@best-fit",), "says its batch, which only menus take"),
        (("menu:sjff",), "did you mean"),
    ],
)
def test_policies_that_cannot_be_replayed_are_told(busy, folder, policies, message):
    with pytest.raises(PolicyError, match=message):
        replayed(busy, folder, *policies)


def test_a_span_without_jobs_is_told(busy, folder):
    with pytest.raises(StateError, match="no job came between"):
        replayed(busy, folder, SAME, since=50 * DAY_S)


def test_a_past_that_is_no_steps_times_step_time_cannot_be_trusted(folder):
    """The first job is cancelled after a fifth of its steps; in the playback the second waits for its devices as long again."""
    past = Past(planners(folder), truth=lambda case, devices: 1.0 if case.steps < 2000 else 0.2)
    past.play([(0.0, request(1, 5000)), (1.0, request(0, 1000))])
    for kept in past.store.decisions(None, 10):
        if kept.decision.plan is not None:
            step_s = kept.decision.predicted["step_s"]
            past.controller.observe(kept.decision.id, [Observation(step=k, step_s=step_s) for k in range(50)])
    result = replayed(past, folder, SAME)[1]
    assert not result["is_trusted"]
    assert result["played_mean_completion_s"] == pytest.approx((5000 + 6000) / 2 * step_s - 0.5)
    assert "1 of 2 jobs ran more than 5 % longer or shorter" in result["why"]
    assert "ended before its last step" in result["why"]


def test_where_jobs_hold_whole_hosts_every_policy_decides_as_the_service(folder):
    past = Past(planners(folder, "menu:fixed-2"), whole_hosts=True)
    past.play([(float(k), request(k, 1000)) for k in range(5)])  # a job a host: the fifth waits for the first to end
    rows, result = replayed(past, folder, "menu:fixed-2")
    assert result["is_trusted"]
    assert rows[RECORDED]["mean_waiting_s"]["mean"] > 0
    for figure, key in (("mean_completion_s", "mean"), ("mean_waiting_s", "mean"), ("device_hours", "total")):
        assert rows["menu:fixed-2"][figure][key] == pytest.approx(rows[RECORDED][figure][key], rel=1e-6)


def test_a_trained_policy_of_fleets_sees_as_in_training_and_what_it_was_not_trained_for_is_told(folder):
    past = Past(planners(folder)).play([(0.0, request(0, 1000)), (1.0, request(1, 1000))])
    rows, result = replayed(past, folder, "shipped:uneven-64")
    assert rows["shipped:uneven-64"]["num_completed"] == 2
    assert "was not trained for this fleet, but for another cluster" in result["remarks"][0]


def test_what_others_had_less_than_they_really_had_is_told(folder):
    """The job ran on another host than planned; on the planned one, where the replay puts it, came somebody else."""
    past = Past(planners(folder, "menu:fixed-4"))
    past.take()
    name, runs_s = past.start(0.0, request(0, 100_000))
    (planned,), message = past.running[name].devices, past.running[name]
    other = next(host for host in past.hosts if host != planned)
    past.running[name] = message.model_copy(update={"devices": {other: (0, 1, 2, 3)}})
    past.take()
    past.at_s = 100.0
    past.foreign["theirs"] = message.model_copy(update={"id": "theirs", "decision": None})
    past.take()
    past.at_s = runs_s
    past.running.clear()
    past.take()
    rows, result = replayed(past, folder, "menu:fixed-4")
    assert result["is_trusted"]
    assert rows["menu:fixed-4"]["mean_waiting_s"]["mean"] == 0
    less = 4 * (runs_s - 100.0) / 3600
    message = f"menu:fixed-4 gave its jobs devices that others really had: these had {less:.3g} device-hours less"
    assert result["remarks"] == ["1 other job runs on, and nobody says until when: held to the end", message]


def hold_to_each_other(folder, jobs, later, rule):
    """Play jobs, ``(at_s, steps)``, in both worlds; from each ``(at_s, words)`` on the hosts are as the words say."""
    cluster = planners(folder).cluster
    marks = [Mark(0.0, np.zeros(16, np.bool_), np.zeros(4, np.bool_), np.zeros(4, np.bool_))]
    for at_s, hosts in [*sorted(later), (700.0, ["free"] * 4)]:
        is_held, is_down = (np.array([host == word for host in hosts]) for word in ("held", "down"))
        marks.append(Mark(at_s, is_held[cluster.device_host], is_down | [host == "closed" for host in hosts], is_down))
    nowhere = np.zeros(0, np.int64)
    arrivals = tuple(Arrival(str(k), request(k, steps), at_s, None, nowhere) for k, (at_s, steps) in enumerate(sorted(jobs)))
    span = PastSpan(BEGIN, BEGIN, cluster, arrivals, tuple(marks), whole_hosts=False, earlier=(), remarks=())
    made, real = planners(folder, f"menu:{rule}"), RealDurations(())
    world = FleetWorld.from_span(span, real, made.spec_of, cache=folder)
    simulated, missed_h = world.play(world.before(f"{rule}+backfill")[1])
    served, missed_too_h = ServiceWorld(span, real, made, queue=100).play()
    np.testing.assert_allclose(simulated.completion_s, served.completion_s, rtol=1e-9)
    np.testing.assert_allclose(simulated.device_s, served.device_s, rtol=1e-9)
    assert missed_h == pytest.approx(missed_too_h)
    return served


@draws(40, deadline=None)
@given(st.data())
def test_the_queue_of_the_simulator_does_what_clients_do_that_ask_again(folder, data):
    """Both worlds, with hosts that others hold, that are closed and that go down: each job ends at the same instant."""
    jobs = data.draw(st.lists(st.tuples(st.floats(0, 300), st.integers(50, 3000)), min_size=1, max_size=5))
    of_host = st.lists(st.sampled_from(["free", "held", "closed", "down"]), min_size=4, max_size=4)
    later = data.draw(st.lists(st.tuples(st.floats(1, 600), of_host), max_size=3))
    hold_to_each_other(folder, jobs, later, data.draw(st.sampled_from(["fastest-feasible", "least-device-seconds"])))


def test_a_job_whose_hosts_went_down_comes_before_those_that_came_after_it(folder):
    jobs = [(0.0, 30_000), (1.0, 30_000)]
    played = hold_to_each_other(folder, jobs, [(5.0, ["down"] * 4), (6.0, ["free"] * 4)], "fastest-feasible")
    assert played.completion_s[0] + 0.0 < played.completion_s[1] + 1.0


def test_jobs_for_a_framework_are_played_with_its_menu_as_they_were_decided_on(folder):
    keys = {"batch": 2, "devices": 2}
    # Of two in one menu neither changes the other's prices.
    asked = [keys | {"batch": 1}, keys | {"framework": "deepspeed"}, keys]
    shape = {"model_type": "gpt2", "n_embd": 256, "n_layer": 1, "n_head": 4, "n_positions": 256, "vocab_size": 1024}
    (folder / "config.json").write_text(json.dumps(shape))
    jobs = [(float(k), JobRequest(job=shape, steps=9, **one)) for k, one in enumerate(asked)]
    span = read_span(Past(planners(folder)).play(jobs).store, planners(folder).cluster, BEGIN, BEGIN + timedelta(days=1))
    world = FleetWorld.from_span(span, RealDurations(()), planners(folder).spec_of, cache=folder)
    menu, first = world.fleet.menu, world.fleet.menu.table.first_entry
    for kind, one in zip(world.kind.tolist(), asked, strict=True):
        own = MenuPlanner.from_job(str(folder / "config.json"), span.cluster, POLICY, cache=folder, **one).fleet.menu
        entries = slice(first[kind], first[kind + 1])
        assert menu.entries[entries] == tuple(entry._replace(job_type=kind) for entry in own.entries)
        np.testing.assert_array_equal(menu.table.step_s[entries], own.table.step_s)
    assert len({menu.entries[start].layout for start in first[:-1].tolist()}) == 3


def test_what_is_left_out_of_a_replay_is_told(folder):
    past = Past(planners(folder)).play([(0.0, request(0, 100))])
    past.controller.finish(past.controller.decide_or_prepare(JobRequest(job="zoo:nothing", batch=1)).decision.id)
    past.controller.release(past.controller.decide(request(1, 100)).decision.id)
    assert replayed(past, folder, SAME)[1]["remarks"] == [
        "left out: 1 job that could not be read or was not decided",
        "left out: 1 job whose devices were given back before it was handed over",
    ]


def test_as_served_a_rule_takes_what_is_free_and_in_the_queue_it_waits_for_what_it_wants(folder):
    theirs = (0.0, 500.0, "theirs", {planners(folder).cluster.host_names[0]: (0, 1, 2, 3)})
    past = Past(planners(folder)).play([(1.0, request(0, 2000))], [theirs])
    waiting_s = {
        served: replayed(past, folder, "menu:fixed-16", as_served=served)[0]["menu:fixed-16"]["mean_waiting_s"]["mean"]
        for served in (False, True)
    }
    assert waiting_s[False] > waiting_s[True] == 0


def test_the_menu_has_real_times_by_devices_and_hosts_and_the_devices_that_are_wanted(folder):
    def run(hosts, ratio):
        return JobRun("d", request(0, 10), None, hosts, 1.0, ratio, None, None, "")

    durations = RealDurations([run(("a",) * 4, 1.2), run(("a", "a", "b", "b"), 1.6), run(("a",) * 2, 1.4)])
    cluster = planners(folder).cluster
    types = [settings.build_settings(JobTypeSettings, {"name": n, "job": "zoo:resnet18", "global_batch": 256}) for n in "ab"]
    plain = build_menu(types, cluster, MenuSettings(degrees=(1, 2, 4, 8, 16)), cache=folder)
    real = real_menu(plain, [request(0, 10), request(1, 10, max_devices=4)], durations)
    table, first = real.table, real.table.first_entry
    assert set(table.degree[: first[1]]) == {1, 2, 4, 8, 16}
    assert set(table.degree[first[1] :]) == {1, 2, 4}
    assert [entry.layout.world for entry in real.entries] == table.degree.tolist()
    predicted = plain.table.step_s[: first[1]]
    possible = np.isfinite(predicted)
    for entry, degree in enumerate(table.degree[: first[1]]):
        for part in range(3):
            one = {4: 1.2, 2: 1.4}.get(degree, 1.4) if 1 << part == degree else {4: 1.6, 2: 1.4}.get(degree, 1.4)
            where = possible[entry, :, part]
            np.testing.assert_allclose(table.step_s[entry, :, part][where], one * predicted[entry, :, part][where])
    for number in range(2):
        of_type = slice(first[number], first[number + 1])
        cheapest = (table.degree[of_type] * table.step_s[of_type].min(axis=(1, 2, 3))).min()
        assert table.work_device_s[number] == cheapest
