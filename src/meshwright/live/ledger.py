"""The ledger: every change of a state in one SQLite file, none of which is lost or half there after a crash.

One table of changes, only ever appended to; the state is the fold over them. A snapshot is a cache of the fold: it names the
last change in it, and every state is the same without it. A change is decided on inside its writer's turn. The order is the
number of a change, never a clock. Beside them lie decisions, what became of each (an index of the changes), and measurements.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..errors import InputFileError, StateError
from .changes import CHANGE, Change, changed
from .decision_bodies import packed, unpacked
from .decisions import JobDecision, KeptDecision, Mention, Observation, mentioned, status_after
from .ledger_file import open_ledger, told
from .state import ClusterState
from .store import KeptChange, check_undecided, key_taken, utc_now

SNAPSHOT_EVERY = 256
"""Changes between two snapshots."""

REMEMBERED = 256
"""Decisions that are kept at hand."""

SNAPSHOT_STAYS = 16 * SNAPSHOT_EVERY
"""Changes between two snapshots that are kept, from which a state of the past is folded."""


_ALONE = ("BEGIN IMMEDIATE", "COMMIT", ("ROLLBACK",))
_IN_A_GROUP = ("SAVEPOINT turn", "RELEASE turn", ("ROLLBACK TO turn", "RELEASE turn"))
"""How a turn begins, ends and is undone."""


class Ledger:
    """An open ledger; a context manager, and a `store.Store`. It serves one thread at a time.

    Args:
        path: of the file; made where it is absent.
        is_read: whether nothing will be written; the file must be there then.
        now: the time, for people and for replays; by default the clock's.

    Raises:
        InputFileError: as `ledger_file.open_ledger`.
    """

    def __init__(self, path: Path, *, is_read: bool = False, now: Callable[[], str] | None = None) -> None:
        self.path = path
        self.now = now or utc_now
        self._db, self._version = open_ledger(path, is_read=is_read)
        self._known: tuple[int, ClusterState] | None = None
        self._is_group = self._is_dead = False
        self._recent: dict[str, KeptDecision] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """See `Store.close`."""
        self._db.close()

    def state(self) -> ClusterState:
        """The state now.

        Raises:
            InputFileError: the file is damaged.
        """
        return self.last()[1]

    def last(self) -> tuple[int, ClusterState]:
        """See `Store.last`."""
        with self._telling():
            self._known = self._folded()
            return self._known

    def state_at(self, seq: int) -> ClusterState:
        """See `Store.state_at`."""
        with self._telling():
            return self._folded(seq)[1]

    @contextmanager
    def group(self) -> Iterator[None]:
        """See `Store.group`."""
        with self._telling():
            self._db.execute("BEGIN IMMEDIATE")
            self._is_group = True
            try:
                yield
                self._check_alive()
                self._db.execute("COMMIT")
            except BaseException:
                self._forget()
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            finally:
                self._is_group = self._is_dead = False

    @contextmanager
    def turn(self) -> Iterator[_LedgerTurn]:
        """See `Store.turn`."""
        begin, end, undo = _IN_A_GROUP if self._is_group else _ALONE
        with self._telling():
            self._check_alive()
            self._db.execute(begin)
            try:
                turn = _LedgerTurn(self, self._db, *self._folded())
                yield turn
                self._db.execute(end)
            except BaseException:
                self._recent.clear()
                if self._db.in_transaction:
                    for statement in undo:
                        self._db.execute(statement)
                elif self._is_group:  # a full disk undoes all of a group at once, not the turn alone
                    self._is_dead = True
                    self._forget()
                raise
            self._known = turn.seq, turn.state

    def append(self, made: Callable[[ClusterState], Change]) -> tuple[ClusterState, ClusterState]:
        """Make a change of the state as it is, and keep it; it is on the disk when this returns.

        Args:
            made: what is to change; what it raises changes nothing.

        Returns:
            The state before and after.

        Raises:
            InputFileError: the file is damaged or cannot be written.
            MeshwrightError: as ``made``, or the change contradicts the state.
        """
        with self.turn() as turn:
            before = turn.state
            turn.change(made(before))
            return before, turn.state

    def changes(self) -> list[dict[str, Any]]:
        """Every change with its number and the time at which it was kept (UTC, for people).

        Raises:
            InputFileError: the file is damaged.
        """
        return [
            {"seq": seq, "at": at, **change.model_dump(mode="json", exclude_none=True)}
            for seq, at, change in self.changes_after(0, -1)
        ]

    def changes_after(self, seq: int, limit: int) -> list[KeptChange]:
        """See `Store.changes_after`; a limit below 0 is none."""
        with self._telling():
            asked = "SELECT seq, at, body FROM change WHERE seq > ? ORDER BY seq LIMIT ?"
            rows = self._db.execute(asked, (seq, limit)).fetchall()
        return [KeptChange(number, at, self._read(CHANGE.validate_json, body)) for number, at, body in rows]

    def decision(self, name: str) -> KeptDecision | None:
        """See `Store.decision`."""
        if name in self._recent:
            return self._recent[name]
        found = next(iter(self._decisions("id = ?", (name,), 1)), None)
        if found is not None:
            self._remember(found)
        return found

    def decision_of_key(self, key: str) -> KeptDecision | None:
        """See `Store.decision_of_key`."""
        return next(iter(self._decisions("key = ?", (key,), 1)), None)

    def decisions(self, before: int | None, limit: int) -> list[KeptDecision]:
        """See `Store.decisions`."""
        return self._decisions("number < ?", (2**62 if before is None else before,), limit)

    def preparing(self) -> list[str]:
        """See `Store.preparing`."""
        return [str(name) for (name,) in self._rows("SELECT id FROM decision WHERE outcome = 'preparing' ORDER BY number", ())]

    def mentions(self, decision: str) -> list[Mention]:
        """See `Store.mentions`."""
        asked = "SELECT seq, at, status, detail FROM mention WHERE decision = ? ORDER BY seq"
        return [Mention(*row) for row in self._rows(asked, (decision,))]

    def document(self, digest: str) -> str | None:
        """See `Store.document`."""
        return next((str(body) for (body,) in self._rows("SELECT body FROM document WHERE digest = ?", (digest,))), None)

    def observations(self, decision: str) -> list[Observation]:
        """See `Store.observations`."""
        asked = "SELECT step, step_s, rank FROM observation WHERE decision = ? ORDER BY step, rank"
        return [
            Observation.model_construct(step=step, step_s=step_s, rank=rank)
            for step, step_s, rank in self._rows(asked, (decision,))
        ]

    def observed(self) -> list[str]:
        """See `Store.observed`; found by leaps, as there are many observations of each."""
        asked = """WITH RECURSIVE leap (name) AS (
            SELECT min(decision) FROM observation
            UNION ALL SELECT (SELECT min(decision) FROM observation WHERE decision > name) FROM leap WHERE name IS NOT NULL
        ) SELECT name FROM leap WHERE name IS NOT NULL"""
        return [str(name) for (name,) in self._rows(asked, ())]

    def _check_alive(self) -> None:
        """Refuse to go on in a group that SQLite has undone.

        Raises:
            InputFileError: so it is.
        """
        if self._is_dead:
            raise InputFileError("the disk failed; nothing of what was done together is kept", file=self.path)

    def _remember(self, kept: KeptDecision) -> None:
        """Keep a decision at hand; once it is made it stays as it is."""
        if kept.decision.outcome == "preparing":
            return
        if len(self._recent) >= REMEMBERED:
            del self._recent[next(iter(self._recent))]
        self._recent[kept.decision.id] = kept

    def _forget(self) -> None:
        """Forget what was to be kept and is not."""
        self._known = None
        self._recent.clear()

    def _decisions(self, where: str, values: tuple[Any, ...], limit: int) -> list[KeptDecision]:
        asked = f"SELECT number, key, at, body FROM decision WHERE {where} ORDER BY number DESC LIMIT {limit}"  # noqa: S608
        return [
            KeptDecision(number, key, at, self._read(lambda text: unpacked(text, self.document), body))
            for number, key, at, body in self._rows(asked, values)
        ]

    def _rows(self, asked: str, values: tuple[Any, ...]) -> list[Any]:
        """What a question finds; nothing in a file of version 1, which has no such tables."""
        if self._version < 2:
            return []
        with self._telling():
            return self._db.execute(asked, values).fetchall()

    def _folded(self, until: int | None = None) -> tuple[int, ClusterState]:
        """Number of the last change, or of the one asked for, and the state after it."""
        end = 2**62 if until is None else until
        row = self._db.execute("SELECT seq FROM snapshot WHERE seq <= ? ORDER BY seq DESC LIMIT 1", (end,)).fetchone()
        newest = 0 if row is None else int(row[0])
        if self._known is not None and newest <= self._known[0] <= end:
            last, state = self._known
        elif row is None:
            last, state = 0, ClusterState()
        else:
            asked = "SELECT seq, body FROM snapshot WHERE seq <= ? ORDER BY seq DESC LIMIT 1"  # it may be another one by now
            last, body = self._db.execute(asked, (end,)).fetchone()
            state = self._read(ClusterState.model_validate_json, body)
        for seq, body in self._db.execute("SELECT seq, body FROM change WHERE seq > ? AND seq <= ? ORDER BY seq", (last, end)):
            change = self._read(CHANGE.validate_json, body)
            try:
                state = changed(state, change)
            except StateError as error:
                raise InputFileError(f"change {seq} contradicts those before it: {error}", file=self.path) from None
            last = int(seq)
        return last, state

    def _read(self, reader: Callable[[str], Any], body: str) -> Any:
        try:
            return reader(body)
        except ValueError:
            raise InputFileError("the ledger is damaged: a change in it cannot be read", file=self.path) from None

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise told(error, self.path) from None


class _LedgerTurn:
    """See `store.Turn`."""

    def __init__(self, ledger: Ledger, database: sqlite3.Connection, seq: int, state: ClusterState) -> None:
        self._ledger, self._db = ledger, database
        self.seq, self.state = seq, state

    def change(self, change: Change) -> ClusterState:
        before = self.state
        after = changed(before, change)
        if after == before:
            return after
        at, last = self._ledger.now(), self.seq
        seq = self._db.execute("INSERT INTO change (body, at) VALUES (?, ?)", (change.model_dump_json(), at)).lastrowid
        assert seq is not None, "a row that was inserted has a number"
        rows = [(name, seq, at, *status_after(name, change, before, after)) for name in mentioned(before, after)]
        self._db.executemany("INSERT INTO mention VALUES (?, ?, ?, ?, ?)", rows)
        if seq // SNAPSHOT_EVERY > last // SNAPSHOT_EVERY:
            kept = last // SNAPSHOT_STAYS * SNAPSHOT_STAYS + SNAPSHOT_EVERY
            self._db.execute("DELETE FROM snapshot WHERE seq >= ? AND seq <= ?", (kept, last))
            self._db.execute("INSERT INTO snapshot (seq, body) VALUES (?, ?)", (seq, after.model_dump_json()))
        self.seq, self.state = seq, after
        return after

    def next_id(self) -> str:
        (name,) = self._db.execute("SELECT name FROM name").fetchone()
        row = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'decision'").fetchone()
        return f"{name}-{1 if row is None else int(row[0]) + 1}"

    def keep(self, decision: JobDecision, key: str | None = None) -> KeptDecision:
        (body, documents), old, at = packed(decision), self._ledger.decision(decision.id), self._ledger.now()
        for digest, text in documents.items():
            self.keep_document(digest, text)
        if old is not None:
            check_undecided(old.decision)
            self._db.execute("UPDATE decision SET outcome = ?, body = ? WHERE id = ?", (decision.outcome, body, decision.id))
            kept = old._replace(decision=decision)
            self._ledger._remember(kept)
            return kept
        columns = "INSERT INTO decision (id, key, outcome, body, at) VALUES (?, ?, ?, ?, ?)"
        try:
            number = self._db.execute(columns, (decision.id, key, decision.outcome, body, at)).lastrowid
        except sqlite3.IntegrityError:
            raise key_taken(str(key)) from None
        assert number is not None, "a row that was inserted has a number"
        kept = KeptDecision(number, key, at, decision)
        self._ledger._remember(kept)
        return kept

    def keep_document(self, digest: str, body: str) -> None:
        self._db.execute("INSERT OR IGNORE INTO document VALUES (?, ?)", (digest, body))

    def observe(self, decision: str, observed: Sequence[Observation]) -> int:
        before = self._db.total_changes
        rows = [(decision, one.step, one.rank, one.step_s) for one in observed]
        self._db.executemany("INSERT OR IGNORE INTO observation VALUES (?, ?, ?, ?)", rows)
        return self._db.total_changes - before
