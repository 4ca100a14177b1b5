"""A service when the disk fails in the middle of a group, listings come late, or a job cannot be priced."""

from __future__ import annotations

import asyncio
import functools
import sqlite3
import time

import pytest
from pydantic import ValidationError

from meshwright.errors import ConflictError, InputFileError
from meshwright.live.decisions import JobRequest
from meshwright.live.ledger import Ledger
from meshwright.live.state import occupancy
from meshwright.live.writer import Writer

from .controller_samples import JOB, Clock, all_up, controller, running


class Failing:
    """A database that undoes all that was begun at a chosen statement, as SQLite does where the disk is full."""

    def __init__(self, database):
        self._database, self.fails_at = database, None

    def execute(self, statement, *words):
        if self.fails_at is not None and statement.startswith(self.fails_at):
            self.fails_at = None
            self._database.execute("ROLLBACK")
            raise sqlite3.OperationalError("database or disk is full")
        return self._database.execute(statement, *words)

    def __getattr__(self, name):
        return getattr(self._database, name)


def together(made, *calls):
    """Calls of one group; what became of each."""

    async def ask():
        writer = Writer(made.store, made.forget)
        loop = asyncio.get_running_loop()
        blocked = loop.create_task(writer.call(time.sleep, 0.05))
        await asyncio.sleep(0.01)
        result = await asyncio.gather(*(writer.call(*call) for call in calls), return_exceptions=True)
        await blocked
        await asyncio.to_thread(writer.stop)
        return result

    return asyncio.run(ask())


@pytest.mark.parametrize("statement", ["INSERT INTO decision", "INSERT INTO change", "COMMIT"])
def test_where_the_disk_fails_in_a_group_all_of_it_is_undone_told_so_and_nothing_is_promised_twice(tmp_path, planners, statement):
    clock = Clock()
    made = controller(tmp_path / "s.db", planners, clock)
    held = [made.decide(JOB).decision.id for _ in range(3)]
    before = made.store.last()
    made.store._db = Failing(made.store._db)
    fail = (setattr, made.store._db, "fails_at", statement)
    result = together(
        made, fail, (made.release, held[0], "x"), (made.decide, JOB), (made.confirm, held[1], "7"), (made.decide, JOB)
    )
    assert all(isinstance(one, InputFileError) for one in result), result
    assert made.store.last() == before
    clock.elapsed_s = 20.0
    assert sorted(made.expire()) == sorted(held)  # none has lost its lease
    assert made.decide(JOB).decision.outcome == "placed"
    after = made.store.last()
    made.close()
    with Ledger(tmp_path / "s.db", is_read=True) as again:
        assert again.last() == after
        occupancy(after[1], made.cluster)


def test_an_expiry_that_could_not_be_written_is_written_the_next_time(tmp_path, planners):
    clock = Clock()
    made = controller(tmp_path / "s.db", planners, clock)
    name = made.decide(JOB).decision.id
    clock.elapsed_s = 20.0
    made.store._db = Failing(made.store._db)
    made.store._db.fails_at = "INSERT INTO change"
    with pytest.raises(InputFileError):
        made.expire()
    assert made.expire() == [name]
    made.close()


def test_a_listing_that_was_asked_for_before_a_job_ended_does_not_bring_it_back(tmp_path, planners):
    made = controller(tmp_path / "s.db", planners)
    first = made.decide(JOB).decision
    old = all_up(running("100", first.id, **{rank["host"]: (0, 1, 2, 3) for rank in first.plan["ranks"]}))
    made.take(old, made.handed_over())
    handed = made.handed_over()
    assert made.end("100", "0:0")
    second = made.decide(JOB).decision
    assert second.plan["ranks"] == first.plan["ranks"]
    made.confirm(second.id, "101")
    made.take(old, handed)
    assert [job.id for job in made.store.last()[1].jobs] == [second.id]
    made.take(all_up(waiting=[second.id]), made.handed_over())
    assert made.store.mentions(second.id)[-1].status == "confirmed"
    made.close()


def test_a_second_confirmation_after_the_end_is_no_change(tmp_path, planners):
    made = controller(tmp_path / "s.db", planners)
    name = made.decide(JOB).decision.id
    made.confirm(name, "100")
    made.end("100", "0:0")
    made.confirm(name, "100")
    made.close()


@pytest.mark.parametrize(
    "job",
    [
        {"op_names": [], "name": "\ud800"},
        {"x": float("nan")},
        {"x": float("inf")},
        {"x": functools.reduce(lambda inner, _: [inner], range(100), [])},
        {"x": "a" * (5 * 2**20)},
    ],
    ids=["half a letter", "nan", "infinite", "deep", "long"],
)
def test_jobs_that_are_no_json_are_refused_before_they_are_kept(job):
    with pytest.raises(ValidationError):
        JobRequest(job=job)


@pytest.mark.parametrize("is_ready", [True, False])
def test_of_two_processes_with_one_key_the_second_gets_the_first_ones_decision_or_is_told_where_it_differs(
    tmp_path, cluster, planners, is_ready
):
    from meshwright.live.deciding import Planners

    own = planners if is_ready else Planners(cluster, "fastest-feasible", scratch=tmp_path)
    first, second = controller(tmp_path / "s.db", own), controller(tmp_path / "s.db", own)
    for key, request in (("same", JOB), ("other", JOB.model_copy(update={"steps": 7}))):
        look = second.known

        def late(asked, name, look=look):
            """The other process comes in between the first look and the turn."""
            result = look(asked, name)
            second.known = look
            first.decide_or_prepare(JOB, name)
            return result

        second.known = late
        if request == JOB:
            assert second.decide_or_prepare(request, key) == first.known(JOB, key)
        else:
            with pytest.raises(ConflictError, match="which differs here"):
                second.decide_or_prepare(request, key)
    assert len(first.store.decisions(None, 10)) == 2
    first.close()
    second.close()
