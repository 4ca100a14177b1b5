"""Records of every store, by hand: in order, once, and none of a transaction that failed."""

import pytest

from meshwright.errors import ConflictError, StateError
from meshwright.live.changes import JobAdded, JobConfirmed, JobRemoved
from meshwright.live.decisions import JobDecision, JobRequest, Mention, Observation
from meshwright.live.ledger import Ledger
from meshwright.live.state import HeldJob

from ...oracles.memory_store import MemoryStore

REQUEST = JobRequest(job="zoo:alexnet")
AT = [f"2026-03-01T00:00:{second:02d}+00:00" for second in range(60)]


class Seconds:
    """A clock that advances by a second at each reading."""

    def __init__(self):
        self.number = -1

    def __call__(self):
        self.number += 1
        return AT[self.number]


@pytest.fixture(params=["ledger", "memory"])
def store(request, tmp_path):
    made = Ledger(tmp_path / "s.db", now=Seconds()) if request.param == "ledger" else MemoryStore(Seconds())
    yield made
    made.close()


def decided(store, key=None, outcome="refused", **more):
    """A decision in a turn of its own; its id."""
    with store.turn() as turn:
        return turn.keep(JobDecision(id=turn.next_id(), request=REQUEST, outcome=outcome, **more), key).decision.id


def job(name, *devices):
    return JobAdded(job=HeldJob(id=name, devices={"a": devices}, source="plan"))


def test_decisions_are_numbered_in_order_and_found_by_id_by_key_and_from_the_last_one_on(store):
    one, two, three = decided(store, "k"), decided(store, outcome="preparing"), decided(store, "m")
    assert [name.rpartition("-")[2] for name in (one, two, three)] == ["1", "2", "3"]
    assert len({name.rpartition("-")[0] for name in (one, two, three)}) == 1
    record = store.decisions(None, 10)
    assert [(each.number, each.key, each.decision.id) for each in record] == [(3, "m", three), (2, None, two), (1, "k", one)]
    assert [each.at for each in record] == sorted((each.at for each in record), reverse=True)
    assert [each.number for each in store.decisions(3, 10)] == [2, 1]
    assert [each.number for each in store.decisions(None, 2)] == [3, 2]
    assert store.decisions(3, 1) == [store.decision(two)] == [record[1]]
    assert store.decisions(1, 10) == []
    assert store.decision_of_key("m") == store.decision(three) == record[0]
    assert store.decision_of_key("n") is store.decision("none") is store.old_key("k") is None
    assert store.preparing() == [two]


def test_what_is_prepared_is_decided_once_and_keeps_its_number_key_and_time(store):
    first, second = decided(store, "k", "preparing"), decided(store, outcome="preparing")
    assert store.preparing() == [first, second]
    was = store.decision(first)
    made = was.decision.model_copy(update={"outcome": "failed", "why": "no such job"})
    with store.turn() as turn:
        assert turn.keep(made) == was._replace(decision=made)
    assert store.decision(first) == store.decision_of_key("k") == was._replace(decision=made)
    assert store.preparing() == [second]
    with pytest.raises(ConflictError) as error, store.turn() as turn:
        turn.keep(was.decision)
    assert (error.value.field, error.value.value) == (f"decision {first}", "failed")
    assert store.decision(first).decision == made


def test_a_key_is_that_of_one_decision_and_a_turn_that_fails_leaves_nothing(store):
    first, lost = decided(store, "k"), []

    def fails():
        with store.turn() as turn:
            turn.change(job("lost", 0))
            turn.keep_document("d", "text")
            turn.observe(first, [Observation(step=0, step_s=1.0)])
            lost.append(turn.next_id())
            turn.keep(JobDecision(id=lost[0], request=REQUEST, outcome="refused"), "k")

    with pytest.raises(ConflictError) as error:
        fails()
    assert (error.value.field, error.value.value) == ("key", "k")
    assert store.last()[0] == 0
    assert store.changes_after(0, 10) == store.mentions("lost") == store.observations(first) == store.observed() == []
    assert store.document("d") is store.decision(lost[0]) is None
    assert [decided(store)] == lost  # its number was not taken


def test_of_turns_that_are_done_together_all_or_the_ones_that_did_not_fail_are_kept(store):
    def twice():
        with store.turn() as turn:
            turn.change(job("x", 0))
            turn.change(job("y", 0))

    def undone():
        with store.group():
            second.append(decided(store))
            with store.turn() as turn:
                turn.change(JobRemoved(id="z"))
            raise KeyError

    with store.group():
        first, second = decided(store), []
        with pytest.raises(StateError):
            twice()
        with store.turn() as turn:
            turn.change(job("z", 0))
    for _ in range(2):
        assert [each.id for each in store.last()[1].jobs] == ["z"]
        assert [each.decision.id for each in store.decisions(None, 10)] == [first]
        assert len(store.changes_after(0, 10)) == store.last()[0] == 1
        with pytest.raises(KeyError):
            undone()
    assert [decided(store)] * 2 == second


def test_changes_their_states_and_what_they_say_of_a_decision(store):
    name = decided(store)
    steps = [job(name, 0, 1), JobConfirmed(id=name, confirmed_as="7"), job("other", 2), JobRemoved(id=name, has_ended=True)]
    states = [store.last()[1]]
    for change in steps:
        with store.turn() as turn:
            assert turn.change(change) == turn.state != states[-1]
            states.append(turn.state)
            assert turn.seq == len(states) - 1
    assert store.last() == (4, states[4])
    assert [store.state_at(seq) for seq in range(5)] == states
    stored = store.changes_after(0, 10)
    assert [(one.seq, one.change) for one in stored] == list(enumerate(steps, start=1))
    assert store.changes_after(1, 2) == stored[1:3]
    assert store.changes_after(4, 10) == []
    rows = [(1, "reserved", ""), (2, "confirmed", "7"), (4, "ended", "")]
    assert store.mentions(name) == [Mention(seq, stored[seq - 1].at, status, detail) for seq, status, detail in rows]
    assert [one.status for one in store.mentions("other")] == ["reserved"]
    assert store.floor() == (0, None)


def test_steps_are_kept_once_the_first_time_they_are_told_and_in_order(store):
    names = [decided(store), decided(store)]

    def observe(name, *steps):
        with store.turn() as turn:
            return turn.observe(name, [Observation(step=step, rank=rank, step_s=step_s) for step, rank, step_s in steps])

    assert observe(names[1], (5, 0, 1.0), (4, 1, 2.0), (4, 0, 3.0)) == 3
    assert observe(names[1], (5, 0, 9.0), (6, 0, 4.0), (6, 0, 8.0)) == 1
    assert observe(names[0], (0, 0, 7.0)) == 1
    assert [(one.step, one.rank, one.step_s) for one in store.observations(names[1])] == [
        *((4, 0, 3.0), (4, 1, 2.0), (5, 0, 1.0), (6, 0, 4.0))
    ]
    assert store.observed() == sorted(names)
    assert store.observations("none") == []


def test_texts_are_kept_under_their_digests_as_long_as_a_decision_names_them(store):
    with store.turn() as turn:
        turn.keep_document("d", "one")
        turn.keep_document("d", "two")
        turn.keep_document("e", "three")
    first, second = (decided(store, documents={"graph": "d"}) for _ in range(2))
    third = decided(store, documents={"graph": "e", "cluster": "d"})
    assert (store.document("d"), store.document("e"), store.document("f")) == ("one", "three", None)
    with store.turn() as turn:
        assert turn.has_documents(["d", "e"])
        assert not turn.has_documents(["d", "f"])
        assert turn.has_documents([])
    dates = {name: store.decision(name).at for name in (first, second, third)}
    with store.turn() as turn:
        assert turn.give_up(dates[second], 0, 10)[0] == 1  # the first one alone is older
    assert (store.decision(first), store.document("d")) == (None, "one")
    with store.turn() as turn:
        assert turn.give_up(AT[-1], 0, 10)[0] == 2
    assert store.document("d") is store.document("e") is None
    assert store.decisions(None, 10) == []


def test_what_is_heard_of_holds_devices_or_is_prepared_is_not_given_up(store):
    held, prepared, heard, old = decided(store), decided(store, outcome="preparing"), decided(store), decided(store, "k")
    for name, number in ((held, 0), (heard, 1)):
        with store.turn() as turn:
            turn.change(job(name, number))
    limit = store.now()
    with store.turn() as turn:
        turn.change(JobRemoved(id=heard, has_ended=True))
    with store.turn() as turn:
        given_up = turn.give_up(limit, 0, 10)
    assert given_up == (1, None)
    assert [each.decision.id for each in store.decisions(None, 10)] == [heard, prepared, held]
    gone = store.old_key("k")
    assert (gone.decision, gone.request) == (old, REQUEST.digest)
    assert store.floor() == (0, limit)
    with store.turn() as turn:
        assert turn.forget_keys(gone.at, 10) == 0
        assert turn.forget_keys(AT[-1], 10) == 1
    assert store.old_key("k") is None


def test_a_turn_is_on_the_disk_when_it_ends_in_a_ledger_that_is_made_and_in_one_that_is_there(tmp_path):
    for _ in range(2):
        with Ledger(tmp_path / "s.db") as ledger:
            assert ledger._db.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
