"""Old records are dropped, and the rest keeps its meaning: the same state, answers, plans and past from then on."""

from __future__ import annotations

import lzma
import os
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from meshwright.errors import ConflictError, StateError
from meshwright.live.decisions import JobRequest, Observation
from meshwright.live.ledger import Ledger
from meshwright.live.plan_parts import whole_plan
from meshwright.live.records import retention
from meshwright.live.records.ledger_file import COUNT_DOCUMENTS
from meshwright.live.records.retention import Retention, give_up
from meshwright.live.replay.exact import replay_decisions
from meshwright.live.replay.span import read_span
from meshwright.live.store import every_decision

from ...draws import FACTOR
from ..controller_samples import JOB, Clock, controller, forget_snapshots, written_to
from ..test_kills import KilledAt

NUM_KILLS = 3 if FACTOR <= 1 else 200
LAST = datetime(2026, 1, 9, 6, tzinfo=UTC)
"""The time of the last change of the old ledger; its first one is eight days before."""


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """A ledger of 297 changes and 101 decisions that was written once: one job runs from the first day on."""
    path = tmp_path_factory.mktemp("old") / "old.db"
    packed = Path(__file__).parent / "data" / "ledger.db.xz"
    path.write_bytes(lzma.decompress(packed.read_bytes()))
    return path


@pytest.fixture
def old(written, tmp_path) -> Path:
    return Path(shutil.copy(written, tmp_path / "s.db"))


def contents(store):
    """All that a store says."""
    every = every_decision(store)
    names = [record.decision.id for record in every]
    return {
        "last": store.last(),
        "changes": store.changes_after(0, 10**6),
        "decisions": every,
        "plans": [whole_plan(store, record.decision) for record in every],
        "mentions": [store.mentions(name) for name in names],
        "observations": [store.observations(name) for name in names],
        "observed": store.observed(),
        "preparing": store.preparing(),
    }


@pytest.fixture(scope="module")
def said(written, tmp_path_factory):
    """All that the old ledger says, and the state after each of its changes."""
    with Ledger(Path(shutil.copy(written, tmp_path_factory.mktemp("said") / "s.db"))) as ledger:
        before = contents(ledger)
        return before, {seq: ledger.state_at(seq) for seq in range(before["last"][0] + 1)}


def rows(path, table):
    return written_to(path, f"SELECT count(*) FROM {table}")[0]


@pytest.mark.parametrize("keep_days", [7.9, *(pytest.param(days, marks=pytest.mark.slow) for days in (0.5, 30))])
def test_what_is_kept_means_what_it_meant(old, said, keep_days):
    before, states = said
    with Ledger(old) as ledger:
        result = give_up(ledger, keep_days, LAST)
        after, floor = contents(ledger), ledger.floor()
        assert result.num_changes == floor.seq == sum(one.at < result.before for one in before["changes"])
        assert after["last"] == before["last"]
        assert after["changes"] == before["changes"][floor.seq :]
        forget_snapshots(ledger)
        for seq, state in states.items():
            if seq >= floor.seq:
                assert ledger.state_at(seq) == state
            else:
                with pytest.raises(StateError, match=f"after change {seq} is kept no more"):
                    ledger.state_at(seq)
        is_kept = [ledger.decision(kept.decision.id) is not None for kept in before["decisions"]]
        for part in ("decisions", "plans", "mentions", "observations"):
            assert after[part] == [one for one, stays in zip(before[part], is_kept, strict=True) if stays]
        holding = {job.of_decision for job in before["last"][1].jobs} | set(before["preparing"])
        for stored, mentions, stays in zip(before["decisions"], before["mentions"], is_kept, strict=True):
            heard_at = max([stored.at, *(mention.at for mention in mentions)])
            assert stays == (heard_at >= result.before or stored.decision.id in holding)
        assert "1004" in [job.id for job in after["last"][1].jobs]  # it runs since the first day
        assert give_up(ledger, keep_days, LAST).num_decisions == 0
        assert (result.num_decisions > 0) == (keep_days < 8)
        assert (floor.at is None) == (keep_days > 8)
        uses = dict(ledger._db.execute("SELECT digest, count FROM document_use"))
        kept = [stored.decision for stored, stays in zip(before["decisions"], is_kept, strict=True) if stays]
        brought = sum(isinstance(decision.request.job, dict) for decision in kept)
        assert sum(uses.values()) == brought + sum(len(decision.documents) for decision in kept)
    with closing(sqlite3.connect(old)) as database:  # as `repair` counts them anew
        database.execute("CREATE TEMP TABLE document_use (digest TEXT PRIMARY KEY, count INTEGER NOT NULL)")
        database.execute(COUNT_DOCUMENTS)
        assert dict(database.execute("SELECT digest, count FROM temp.document_use")) == uses
    assert rows(old, "change") == len(after["changes"])
    assert rows(old, "mention") == sum(map(len, after["mentions"]))
    with Ledger(old) as again:
        assert contents(again) == after


def test_keys_are_answered_then_refused_then_free_again(old, planners):
    clock = Clock()
    made = controller(old, planners, clock)
    planners.make_ready(JobRequest(job="zoo:alexnet", max_devices=1))
    decisions = {kept.key: kept.decision for kept in every_decision(made.store) if kept.key}
    first, last = decisions["key-8"], decisions["key-98"]
    assert made.decide(first.request, "key-8").decision == first
    made.store.now = lambda: LAST.isoformat()
    give_up(made.store, 3, LAST)
    assert made.decide(last.request, "key-98").decision == last
    with pytest.raises(ConflictError, match=f"decision of this key, {first.id}, is kept no more; ask under another key"):
        made.decide(first.request, "key-8")
    with pytest.raises(ConflictError, match="of another request with this key"):
        made.decide(JOB, "key-8")
    with pytest.raises(ConflictError):
        made.decide_or_prepare(JOB, "key-8")
    assert give_up(made.store, 3, LAST + timedelta(days=2)).num_keys == 0
    later = give_up(made.store, 3, LAST + timedelta(days=4))
    assert later.num_keys > 0
    assert made.decide(first.request, "key-8").decision.id != first.id
    made.close()


def test_what_comes_after_goes_on_where_it_was(old, planners):
    made = controller(old, planners)
    seq, _ = made.store.last()
    number = made.store.decisions(None, 1)[0].number
    give_up(made.store, 1, LAST + timedelta(days=10))
    assert made.store.floor().seq == seq
    assert made.store.changes_after(0, 10) == []
    record = made.decide(JOB, "new")
    assert (record.number, made.store.last()[0]) == (number + 1, seq + 1)
    assert made.store.mentions(record.decision.id)[-1].seq == seq + 1
    made.close()
    with Ledger(old, is_read=True) as ledger:
        assert ledger.last()[0] == seq + 1


def test_texts_that_no_decision_names_go_and_come_back_with_the_next_that_does(tmp_path, planners):
    made = controller(tmp_path / "s.db", planners)
    one = made.decide(JOB).decision
    assert made.store.document(one.documents["graph"]) is not None
    twin = controller(tmp_path / "s.db", planners)
    made.release(one.id)
    later = datetime.now(UTC) + timedelta(days=2)
    assert give_up(twin.store, 1, later).num_decisions == 1  # by another process
    assert made.store.document(one.documents["graph"]) is None
    assert rows(tmp_path / "s.db", "document") == rows(tmp_path / "s.db", "document_use") == 0
    again = made.decide(JOB).decision
    assert again.documents == one.documents
    assert made.whole_plan(again) is not None
    made.close()
    twin.close()


def test_killed_anywhere_a_ledger_is_whole_and_the_next_time_goes_on(old, said, tmp_path):
    before, _ = said
    done = Path(shutil.copy(old, tmp_path / "done.db"))
    now = LAST.isoformat()
    with Ledger(done, now=lambda: now) as ledger:
        give_up(ledger, 2, LAST)
        expected, floor = contents(ledger), ledger.floor()
        keys = {kept.key: ledger.old_key(kept.key) for kept in before["decisions"] if kept.key}
    was = {retained.decision.id: n for n, retained in enumerate(before["decisions"])}
    rng, num_killed, num_partly = np.random.default_rng(0), 0, 0
    for turn in range(NUM_KILLS):
        path = Path(shutil.copy(old, tmp_path / f"{turn}.db"))
        child = os.fork()
        if child == 0:
            ledger = Ledger(path, now=lambda: now)
            ledger._db = KilledAt(ledger._db, int(rng.integers(1, 750)))
            give_up(ledger, 2, LAST)
            os._exit(0)
        rng.integers(1, 750)
        _, status = os.waitpid(child, 0)
        num_killed += os.WIFSIGNALED(status)
        with Ledger(path, now=lambda: now) as ledger:
            result = contents(ledger)
            assert result["last"] == before["last"]
            assert result["changes"] == before["changes"][ledger.floor().seq :]
            num_partly += len(expected["decisions"]) < len(result["decisions"]) < len(before["decisions"])
            for n, stored in enumerate(result["decisions"]):
                place = was[stored.decision.id]
                for part in ("decisions", "plans", "mentions", "observations"):
                    assert result[part][n] == before[part][place]
            for stored in before["decisions"]:
                is_there = ledger.decision(stored.decision.id) is not None
                assert stored.key is None or (ledger.old_key(stored.key) is None) == is_there
            give_up(ledger, 2, LAST)
            assert contents(ledger) == expected
            assert ledger.floor() == floor
            assert {key: ledger.old_key(key) for key in keys} == keys
        assert rows(path, "change") == rows(done, "change")
        assert rows(path, "mention") == rows(done, "mention")
    assert num_killed >= NUM_KILLS // 2
    assert num_partly > 0


def test_a_ledger_that_is_used_for_long_stays_as_large_as_what_it_keeps(tmp_path, planners):
    at = datetime(2026, 1, 1, tzinfo=UTC)
    ledger = Ledger(tmp_path / "s.db", now=lambda: at.isoformat(timespec="seconds"))
    made = controller(ledger, planners)
    forever = made.decide(JOB.model_copy(update={"devices": 4})).decision.id
    pages = []
    for number in range(120 if FACTOR <= 1 else 240):
        at += timedelta(hours=1)
        decision = made.decide(JobRequest(job="zoo:alexnet", steps=1 + number, max_devices=4), f"k{number}").decision
        made.observe(decision.id, [Observation(step=step, step_s=0.1) for step in range(40)])
        made.release(decision.id)
        if number % 12 == 0:
            give_up(ledger, 2, at)
            pages.append(ledger._db.execute("PRAGMA page_count").fetchone()[0])
    assert max(pages) <= 1.3 * pages[len(pages) // 2]
    counts = {table: rows(tmp_path / "s.db", table) for table in ("change", "decision", "mention", "observation", "old_key")}
    assert counts["decision"] <= 62  # two days, what came since, and the one that holds devices
    assert counts["observation"] == 40 * (counts["decision"] - 1)
    assert counts["old_key"] <= 62
    assert counts["change"] <= 124
    assert made.store.decision(forever) is not None
    made.close()


def test_a_past_that_is_kept_no_more_is_told_in_a_line(old, cluster):
    with Ledger(old) as ledger:
        first = datetime(2026, 1, 1, tzinfo=UTC)
        whole = read_span(ledger, cluster, first, LAST)
        give_up(ledger, 3, LAST)
        with pytest.raises(StateError, match="the time before 2026-01-06 06:00 is kept no more") as error:
            read_span(ledger, cluster, first, first + timedelta(days=2))
        assert "\n" not in str(error.value)
        cut = read_span(ledger, cluster, first, LAST)
        assert cut.remarks[0] == "the time before 2026-01-06 06:00 is kept no more: the span begins then"
        assert cut.begin == LAST - timedelta(days=3)
        assert [arrival.decision for arrival in cut.arrivals] == [
            arrival.decision for arrival in whole.arrivals if whole.begin + timedelta(seconds=arrival.asked_s) >= cut.begin
        ]
        later = LAST - timedelta(days=2)
        assert not any("kept no more" in remark for remark in read_span(ledger, cluster, later, LAST).remarks)


def test_decisions_that_are_kept_are_decided_the_same_again(old, planners):
    """Those of today's cost model; the old ledger's devices had other memory, which their digest says."""
    made = controller(old, planners)
    for _ in range(3):
        made.release(made.decide(JobRequest(job="zoo:alexnet", max_devices=1)).decision.id)
    made.close()
    with Ledger(old) as ledger:
        give_up(ledger, 3, LAST)
        result = replay_decisions(ledger, planners)
        assert result["num_identical"] == 3
        assert result["num_others"] == result["num_decided"] - 3 > 20


def test_steps_are_short_and_others_have_their_turns_between_them(old, planners, monkeypatch):
    monkeypatch.setattr(retention, "CHANGES_AT_ONCE", 50)
    monkeypatch.setattr(retention, "DECISIONS_AT_ONCE", 5)
    made = controller(old, planners)
    result, num_steps = Retention(2, LAST), 0
    result.look(made.store)
    while result.step(made.store):
        num_steps += 1
        if num_steps % 7 == 0:
            made.release(made.decide(JobRequest(job="zoo:alexnet", max_devices=1)).decision.id)
    assert num_steps >= 5 + 15
    state = made.store.last()
    forget_snapshots(made.store)
    assert made.store.last() == state
    made.close()
