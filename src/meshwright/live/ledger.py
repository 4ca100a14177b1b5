"""The ledger: every change of a state in one SQLite file; a crash loses or halves none.

One table of changes, only ever appended to; the state is the fold over them. A snapshot is a cache of the fold: it names the
last change in it, and every state is the same without it. A change is decided on inside its writer's turn. The order is the
number of a change, never a clock. It also holds decisions, their history (an index of the changes), and measurements.

Old records may be given up (`retention`). Then the fold begins at the floor, the state after the last change that was given up.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..errors import InputFileError, StateError
from .changes import CHANGE, Change, changed
from .decisions import KeptDecision, Mention, Observation
from .records.decision_bodies import unpacked
from .records.ledger_file import as_input_error, open_ledger
from .records.ledger_turn import LedgerTurn
from .records.sums import damaged, whole_rows
from .state import ClusterState
from .store import Floor, KeptChange, OldKey, utc_now

TRIED, TRIED_BYTES = "written to try the disk", 16384
REMEMBERED = 256
"""Decisions that are kept at hand."""


_ALONE = ("BEGIN IMMEDIATE", "COMMIT", ("ROLLBACK",))
_IN_A_GROUP = ("SAVEPOINT turn", "RELEASE turn", ("ROLLBACK TO turn", "RELEASE turn"))
"""How a turn begins, ends and is undone."""


class Ledger:
    """An open ledger; a context manager. It serves one thread at a time.

    Every method may raise `InputFileError` where the file cannot be read or written.

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
        self._db = open_ledger(path, is_read=is_read)
        self._known: tuple[int, ClusterState] | None = None
        self._is_group = self._is_dead = False
        self._recent: dict[str, KeptDecision] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close what is open."""
        self._db.close()

    def last(self) -> tuple[int, ClusterState]:
        """Return the number of the last change, and the state after it; raises `InputFileError` where the file is damaged."""
        with self._reporting_errors(), self._at_one_moment():
            self._known = self._folded()
            return self._known

    def state_at(self, seq: int) -> ClusterState:
        """Return the state after a change.

        Raises:
            StateError: it is kept no more.
        """
        with self._reporting_errors(), self._at_one_moment():
            floor = self.floor().seq
            if seq < floor:
                problem = f"the state after change {seq} is kept no more, only what came after change {floor}"
                raise StateError(problem, field="change", value=seq)
            return self._folded(seq)[1]

    def floor(self) -> Floor:
        """Return the point from which the past is kept."""
        return Floor(*self.floor_row()[:2])

    def floor_row(self) -> tuple[int, str | None, str | None]:
        """Return the point from which the past is kept, and the state there."""
        return next(iter(self._whole("floor")), (0, None, None))

    @contextmanager
    def group(self) -> Iterator[None]:
        """Write the turns inside to disk together, when the block ends; each is still undone by itself."""
        with self._reporting_errors():
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
    def turn(self) -> Iterator[LedgerTurn]:
        """Begin a writer's turn; others wait. An exception inside undoes all of it."""
        begin, end, undo = _IN_A_GROUP if self._is_group else _ALONE
        with self._reporting_errors():
            self._check_alive()
            self._db.execute(begin)
            try:
                turn = LedgerTurn(self, self._db, *self._folded())
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

    def try_writing(self) -> None:
        """Write a text of the size of a decision in place of the last one.

        Raises:
            InputFileError: the file cannot be written.
        """
        with self.turn() as turn:
            turn.keep_document(TRIED, secrets.token_hex(TRIED_BYTES // 2), is_new=True)

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
        """Return every change with its number and the time at which it was kept (UTC, for people).

        Raises:
            InputFileError: the file is damaged.
        """
        return [
            {"seq": seq, "at": at, **change.model_dump(mode="json", exclude_none=True)}
            for seq, at, change in self.changes_after(0, -1)
        ]

    def changes_after(self, seq: int, limit: int) -> list[KeptChange]:
        """Return changes after a number, the first one first; those given up are left out. A limit below 0 is none."""
        with self._reporting_errors():
            after = max(seq, self.floor().seq)
            rows = self._whole("change", "WHERE seq > ? ORDER BY seq LIMIT ?", (after, limit))
        return [KeptChange(number, at, self._read(CHANGE.validate_json, body, f"change {number}")) for number, body, at in rows]

    def decision(self, name: str) -> KeptDecision | None:
        """Return a decision by its id."""
        if name in self._recent and self._rows("SELECT 1 FROM decision WHERE id = ?", (name,)):  # others may have given it up
            return self._recent[name]
        self.forget(name)
        result = next(iter(self._decisions("id = ?", (name,), 1)), None)
        if result is not None:
            self.remember(result)
        return result

    def decision_of_key(self, key: str) -> KeptDecision | None:
        """Return a decision by the client's key."""
        return next(iter(self._decisions("key = ?", (key,), 1)), None)

    def decisions(self, before: int | None, limit: int) -> list[KeptDecision]:
        """Return the decisions before a number, the last one first."""
        return self._decisions("number < ?", (2**62 if before is None else before,), limit)

    def old_key(self, key: str) -> OldKey | None:
        """Return the record of the key of a decision that was given up, or None."""
        return next((OldKey(*row[1:]) for row in self._whole("old_key", "WHERE key = ?", (key,))), None)

    def preparing(self) -> list[str]:
        """Return the ids of the decisions that are being prepared, the first one first."""
        return [str(name) for (name,) in self._rows("SELECT id FROM decision WHERE outcome = 'preparing' ORDER BY number")]

    def mentions(self, decision: str) -> list[Mention]:
        """Return the changes about a decision, the first one first."""
        return [Mention(*row[1:]) for row in self._whole("mention", "WHERE decision = ? ORDER BY seq", (decision,))]

    def document(self, digest: str) -> str | None:
        """Return a text by its digest."""
        return next((str(body) for _, body in self._whole("document", "WHERE digest = ?", (digest,))), None)

    def observations(self, decision: str) -> list[Observation]:
        """Return the measurements, by step and rank."""
        return [
            Observation.model_construct(step=step, step_s=step_s, rank=rank)
            for _, step, rank, step_s in self._whole("observation", "WHERE decision = ? ORDER BY step, rank", (decision,))
        ]

    def observed(self) -> list[str]:
        """Return ids of the decisions with measurements; by leaps over the index, since each has many observations."""
        query = """WITH RECURSIVE leap (name) AS (
            SELECT min(decision) FROM observation
            UNION ALL SELECT (SELECT min(decision) FROM observation WHERE decision > name) FROM leap WHERE name IS NOT NULL
        ) SELECT name FROM leap WHERE name IS NOT NULL"""
        return [str(name) for (name,) in self._rows(query)]

    def _check_alive(self) -> None:
        """Refuse to go on in a group that SQLite has undone.

        Raises:
            InputFileError: so it is.
        """
        if self._is_dead:
            raise InputFileError("the disk failed; nothing of what was done together is kept", file=self.path)

    def remember(self, record: KeptDecision) -> None:
        """Cache a decision that was stored; once it is made it never changes."""
        if record.decision.outcome == "preparing":
            return
        if len(self._recent) >= REMEMBERED:
            del self._recent[next(iter(self._recent))]
        self._recent[record.decision.id] = record

    def forget(self, decision: str) -> None:
        """Remove a decision from the cache, as it is deleted."""
        self._recent.pop(decision, None)

    def _forget(self) -> None:
        """Forget what was to be kept and is not."""
        self._known = None
        self._recent.clear()

    def _decisions(self, where: str, values: tuple[Any, ...], limit: int) -> list[KeptDecision]:
        rows = self._whole("decision", f"WHERE {where} ORDER BY number DESC LIMIT {limit}", values)
        return [
            KeptDecision(number, key, at, self._read(lambda text: unpacked(text, self.document), body, f"decision {name}"))
            for number, name, key, _, body, at in rows
        ]

    def _whole(self, table: str, rest: str = "", values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Return the records of a table, each as it was written."""
        with self._reporting_errors():
            return list(whole_rows(self._db, self.path, table, rest, values))

    def _rows(self, request: str, values: tuple[Any, ...] = ()) -> list[Any]:
        with self._reporting_errors():
            return self._db.execute(request, values).fetchall()

    @contextmanager
    def _at_one_moment(self) -> Iterator[None]:
        """Let what is read belong together, whatever others write meanwhile."""
        if self._db.in_transaction:
            yield
            return
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.execute("COMMIT")

    def _folded(self, until: int | None = None) -> tuple[int, ClusterState]:
        """Return the number of the last change, or of the one asked for, and the state after it."""
        end = 2**62 if until is None else until
        (result,) = self._db.execute("SELECT max(seq) FROM snapshot WHERE seq <= ?", (end,)).fetchone()
        floor, _, body = self.floor_row()
        newest = max(result or 0, floor)
        if self._known is not None and newest <= self._known[0] <= end:
            last, state = self._known
        elif newest == 0:
            last, state = 0, ClusterState()
        else:
            name = "floor" if newest == floor else f"snapshot {newest}"
            if newest != floor:
                ((_, body),) = self._whole("snapshot", "WHERE seq = ?", (newest,))
            last, state = newest, self._read(ClusterState.model_validate_json, body, name)
        where = "WHERE seq > ? AND seq <= ? ORDER BY seq"
        for seq, body, _ in whole_rows(self._db, self.path, "change", where, (last, end)):
            if seq != last + 1:
                raise damaged(self.path, f"change {last + 1}", "is missing")
            change = self._read(CHANGE.validate_json, body, f"change {seq}")
            try:
                state = changed(state, change)
            except StateError as error:
                raise InputFileError(f"change {seq} contradicts those before it: {error}", file=self.path) from None
            last = seq
        return last, state

    def _read(self, reader: Callable[[Any], Any], body: str | None, record: str) -> Any:
        try:
            return reader(body)
        except (KeyError, TypeError, ValueError):
            raise damaged(self.path, record, "cannot be read") from None

    @contextmanager
    def _reporting_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise as_input_error(error, self.path) from None
