"""The invariants of a controller: no device twice, one answer a key, nothing acknowledged is lost, the listing wins."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
from pydantic import ValidationError

from meshwright.errors import ConflictError, MeshwrightError, StateError
from meshwright.live.changes import JobAdded
from meshwright.live.deciding import Planners
from meshwright.live.decisions import JobRequest, free_at_s, free_runs
from meshwright.live.keeping import KeptState
from meshwright.live.sources.listings import Listing
from meshwright.live.state import ClusterState, HeldJob, HostState

from .controller_samples import JOB, NOW, Clock, all_up, controller, devices_of, running
from .live_samples import HOSTS


@pytest.fixture
def kept(tmp_path, planners):
    made = controller(tmp_path / "state.db", planners)
    yield made
    made.close()


def test_the_same_key_gets_the_same_answer_and_another_request_is_told_where_it_differs(kept, tmp_path, planners):
    first = kept.decide(JOB, "mine")
    assert first.decision.outcome == "placed"
    assert kept.decide(JOB, "mine") == first
    assert kept.decide(JOB, "other").decision.id != first.decision.id
    with pytest.raises(ConflictError, match=r"steps: the key is that of another request, which differs here \(got '101'\)"):
        kept.decide(JOB.model_copy(update={"steps": 101}), "mine")
    kept.close()
    again = controller(tmp_path / "state.db", planners)
    assert again.decide(JOB, "mine") == first
    again.close()


def test_where_nothing_is_free_nothing_is_held_and_it_is_said_why(kept):
    outcomes = [kept.decide(JOB) for _ in range(4)]
    assert [outcome.decision.outcome for outcome in outcomes] == ["placed"] * 3 + ["refused"]
    assert outcomes[3].decision.why == "no block of free devices will do; 0 of 12 devices are free"
    held = [devices_of(one.decision.plan) for one in outcomes[:3]]
    assert sum(map(len, held)) == len(set.union(*held)) == 12
    assert kept.release(outcomes[1].decision.id, "no more wanted")
    assert devices_of(kept.decide(JOB).decision.plan) == held[1]


def test_whole_hosts_are_decided_on_as_wholes(tmp_path, planners):
    """Invariant 10: a plan on one device whose export takes the host leaves no other device of it free."""
    one = JobRequest(job="zoo:alexnet", steps=100, max_devices=1)
    made = controller(tmp_path / "state.db", planners, whole_hosts=True)
    hosts = [made.decide(one).decision for _ in range(4)]
    assert [decision.outcome for decision in hosts] == ["placed"] * 3 + ["refused"]
    assert {rank["host"] for decision in hosts[:3] for rank in decision.plan["ranks"]} == set(HOSTS)
    assert made.store.last()[1].jobs[0].whole_hosts
    for decision in hosts[:3]:
        made.release(decision.id)
    made.take(all_up(running("7", None, a=(3,)), running("8", None, c=(0,))))
    beside = [made.decide(one).decision for _ in range(2)]
    assert [{rank["host"] for rank in decision.plan["ranks"]} for decision in beside[:1]] == [{"b"}]
    assert beside[1].outcome == "refused"  # single devices of a and c are free, no whole host
    made.close()


def test_a_decision_keeps_all_it_was_made_from_and_is_made_the_same_again(kept):
    """Invariant 7."""
    kept.decide(JOB)
    kept.take(all_up(running("7", None, a=(0, 1, 2, 3)).model_copy(update={"ends_at": NOW + timedelta(seconds=90)})))
    decision = kept.decide(JOB, "k").decision
    at_s = free_at_s(decision.inputs.free)
    assert sorted(set(at_s.tolist())) == [0.0, 90.0, np.inf] or sorted(set(at_s.tolist())) == [0.0, 90.0]
    assert free_runs(at_s) == decision.inputs.free
    assert kept.stored(decision.id).decision == decision
    again = kept.planners.decide(decision.inputs)
    assert again.why == decision.why
    assert again.candidates == decision.candidates
    assert kept.whole_plan(decision) == again.plan
    assert decision.inputs.digest == kept.planners.digest(JOB)


def test_a_lease_that_runs_out_gives_the_devices_back_as_an_event_and_begins_anew_at_start(tmp_path, planners):
    clock = Clock()
    made = controller(tmp_path / "state.db", planners, clock)
    late, handed = made.decide(JOB).decision.id, made.decide(JOB).decision.id
    made.confirm(handed, "100")
    made.confirm(handed, "100")  # once more is no change
    with pytest.raises(ConflictError, match="was handed over as 100 already"):
        made.confirm(handed, "101")
    clock.elapsed_s = 9.0
    clock.now += timedelta(days=3)  # no clock of the wall counts
    assert made.expire() == []
    made.close()
    made = controller(tmp_path / "state.db", planners, clock)
    clock.elapsed_s = 18.0
    assert made.expire() == []
    clock.elapsed_s = 19.0
    assert made.expire() == [late]
    assert [(one.status, one.detail) for one in made.store.mentions(late)] == [
        ("reserved", ""),
        ("released", "not handed to the scheduler within 10 s"),
    ]
    with pytest.raises(ConflictError, match="is released: not handed to the scheduler within 10 s"):
        made.confirm(late, "102")
    assert not made.release(late)
    assert [job.confirmed_as for job in made.store.last()[1].jobs] == ["100"]
    made.close()


def test_who_was_added_by_hand_has_no_lease(tmp_path, planners):
    clock = Clock()
    KeptState(tmp_path / "state.db").apply(lambda before: JobAdded(job=HeldJob(id="mine", devices={"a": (0, 1)}, source="plan")))
    made = controller(tmp_path / "state.db", planners, clock)
    clock.elapsed_s = 10_000.0
    assert made.expire() == []
    assert [one.id for one in made.store.last()[1].jobs] == ["mine"]
    made.close()


def test_the_way_of_a_job_through_the_scheduler(kept):
    name = kept.decide(JOB).decision.id
    kept.confirm(name, "100")
    kept.take(all_up(waiting=[name]), kept.handed_over())
    assert kept.store.mentions(name)[-1].status == "confirmed"
    kept.take(all_up(running("100", name, a=(0, 1, 2, 3))), kept.handed_over())
    assert kept.store.mentions(name)[-1][2:] == ("running", "100")
    kept.confirm(name, "100")
    with pytest.raises(ConflictError, match="runs as 100: end it there"):
        kept.release(name)
    kept.take(all_up(), kept.handed_over())
    assert kept.store.mentions(name)[-1].status == "ended"
    assert kept.store.last()[1].jobs == ()
    assert not kept.release(name)


def test_a_job_that_was_handed_over_and_that_nobody_knows_any_more_ends_after_a_second_listing(kept):
    name = kept.decide(JOB).decision.id
    before = kept.handed_over()
    kept.confirm(name, "100")
    for _ in range(3):
        kept.take(all_up(), before)  # asked before it was handed over
    assert kept.store.mentions(name)[-1].status == "confirmed"
    kept.take(all_up(), kept.handed_over())  # it may have been asked between two records of the job
    assert kept.store.mentions(name)[-1].status == "confirmed"
    kept.take(all_up(), kept.handed_over())
    assert kept.store.mentions(name)[-1][2:] == ("ended", "100 is known no more")


def test_a_host_that_goes_gives_back_what_nobody_handed_over_and_the_scheduler_has_the_say_over_the_rest(kept):
    free, handed = kept.decide(JOB).decision, kept.decide(JOB).decision
    kept.confirm(handed.id, "100")
    gone = HostState(condition="down", num_devices=4, reason="a fan")
    hosts = {rank["host"]: gone for decision in (free, handed) for rank in decision.plan["ranks"]}
    taken = kept.take(all_up(waiting=[handed.id], **hosts), kept.handed_over())
    assert taken[1] == (free.id,)
    assert kept.store.mentions(free.id)[-1].detail.endswith("is down: a fan")
    assert kept.store.mentions(handed.id)[-1].status == "confirmed"
    assert not {rank["host"] for rank in kept.decide(JOB).decision.plan["ranks"]} & set(hosts)


def test_where_listing_and_state_disagree_the_listing_wins_and_both_sides_are_kept(kept):
    """Invariant 6."""
    name = kept.decide(JOB).decision.id
    taken = kept.take(all_up(running("100", name, b=(0, 1, 2, 3))))
    assert len(taken[0]) == 1
    assert "runs on b/0-3, planned as" in taken[0][0]
    (change,) = [kept_change.change for kept_change in kept.store.changes_after(1, 10)]
    assert change.drift == taken[0]
    other = kept.decide(JOB).decision
    stranger = running("200", None, **{rank["host"]: (0,) for rank in other.plan["ranks"]})
    taken = kept.take(all_up(running("100", name, b=(0, 1, 2, 3)), stranger))
    assert [one for one in taken[0] if other.id in one and "is dropped" in one]
    assert kept.store.mentions(other.id)[-1][2:] == ("released", "others run on its devices")


def test_a_listing_that_contradicts_itself_or_is_of_another_cluster_changes_nothing(kept):
    kept.decide(JOB)
    before = kept.store.last()
    twice = (running("1", None, a=(0,)), running("2", None, a=(0, 1)))
    for listing in (all_up(*twice), Listing(ClusterState(source="slurm", hosts={"x": HostState()}))):
        with pytest.raises(StateError):
            kept.take(listing)
    assert kept.store.last() == before


def test_jobs_that_requests_bring_along_and_those_that_cannot_be(kept):
    from meshwright.jobs.load import load_graph

    data = load_graph("zoo:alexnet").to_data()
    brought = kept.decide(JobRequest(job=data, name="mine", max_devices=2))
    assert brought.decision.plan["job"]["name"] == "mine"
    assert kept.whole_plan(brought.decision).num_ranks == 2
    assert kept.stored(brought.decision.id) == brought
    kept.decide(JobRequest(job=data, name="mine", max_devices=2, steps=7))
    (count,) = kept.store._db.execute("SELECT count(*) FROM document WHERE body LIKE '%\"op_names\"%'").fetchone()
    assert count <= 2  # once as it was brought, once as the plan has it, however many ask
    for wrong, message in (
        ({"job": "zoo:alexnot"}, "alexnet"),
        ({"job": "/etc/passwd"}, "a file's content goes in its place"),
        ({"job": "../x"}, "a file's content goes in its place"),
        ({"job": {"name": "x"}}, "job: neither a saved job graph"),
        ({"job": "zoo:alexnet", "batch": 3}, "goes with policies that pick from a menu"),
    ):
        with pytest.raises(MeshwrightError, match=message):
            kept.decide(JobRequest(**wrong))
    assert kept.decide(JobRequest(job="zoo:alexnet", devices=3)).decision.outcome == "refused"
    for wrong in ({"steps": 0}, {"devices": 4, "max_devices": 2}, {"deadline_s": -1}, {"name": "a\nb"}, {"other": 1}):
        with pytest.raises(ValidationError):
            JobRequest(**{"job": "zoo:alexnet", **wrong})


def test_a_new_job_is_decided_on_once_it_is_ready_and_a_wrong_one_says_so(kept, cluster, tmp_path):
    cold = controller(tmp_path / "s.db", Planners(cluster, "fastest-feasible", scratch=tmp_path))
    waits = cold.decide_or_prepare(JOB, "k")
    assert waits.decision.outcome == "preparing"
    assert cold.decide_or_prepare(JOB, "k") == waits
    assert cold.store.preparing() == [waits.decision.id]
    done = cold.finish(waits.decision.id)
    assert done.decision.outcome == "placed"
    assert done.decision.id == waits.decision.id
    assert cold.finish(waits.decision.id) == done == cold.decide(JOB, "k")
    assert cold.store.preparing() == []
    wrong = cold.finish(cold.decide_or_prepare(JobRequest(job="zoo:none")).decision.id)
    assert (wrong.decision.outcome, wrong.decision.field) == ("failed", "job")


def test_a_policy_of_a_fleet_and_a_rule_of_the_menu_decide_too(cluster, tmp_path):
    """Whoever chooses, it takes free devices alone, and as many as are asked for."""
    made = controller(tmp_path / "s.db", Planners(cluster, "menu:fastest-feasible", scratch=tmp_path))
    request = JobRequest(job="zoo:alexnet", batch=64, devices=4)
    first, second = made.decide(request).decision, made.decide(request).decision
    assert devices_of(first.plan) & devices_of(second.plan) == set()
    assert {len(one.plan["ranks"]) for one in (first, second)} == {4}
    assert made.planners.decide(second.inputs).candidates == second.candidates
    config = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": 128}
    brought = JobRequest(job=config, batch=8, devices=1)
    elsewhere = Planners(cluster, "menu:fastest-feasible", scratch=tmp_path / "elsewhere")
    assert elsewhere.digest(brought) == made.planners.digest(brought)  # wherever the job lies meanwhile
    assert made.whole_plan(first).layout() is not None
    made.close()
