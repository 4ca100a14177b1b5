"""A writer's turn of a ledger: what it keeps, and what it gives up, in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..changes import Change, changed
from ..decisions import JobDecision, KeptDecision, Observation, mentioned, status_after
from ..state import ClusterState
from ..store import check_undecided, key_taken
from .decision_bodies import named_documents, packed, request_of
from .sums import insert, sum_of, whole_rows, with_sum

if TYPE_CHECKING:
    from ..ledger import Ledger

SNAPSHOT_EVERY = 256
"""Changes between two snapshots."""

SNAPSHOT_STAYS = 16 * SNAPSHOT_EVERY
"""Changes between two snapshots that are kept, from which a state of the past is folded."""


class LedgerTurn:
    """A writer's turn: all of it is kept when it ends, or nothing.

    Attributes:
        seq: number of the last change.
        state: after it.
    """

    def __init__(self, ledger: Ledger, database: sqlite3.Connection, seq: int, state: ClusterState) -> None:
        self._ledger, self._db = ledger, database
        self.seq, self.state = seq, state

    def change(self, change: Change) -> ClusterState:
        """Change the state; the state after it. One that changes nothing is not kept.

        Raises:
            StateError: the change contradicts the state.
        """
        before = self.state
        after = changed(before, change)
        if after == before:
            return after
        at, last = self._ledger.now(), self.seq
        seq = last + 1
        self._db.execute(insert("change"), with_sum("change", seq, change.model_dump_json(), at))
        rows = [(name, seq, at, *status_after(name, change, before, after)) for name in mentioned(before, after)]
        self._db.executemany(insert("mention"), [with_sum("mention", *row) for row in rows])
        if seq // SNAPSHOT_EVERY > last // SNAPSHOT_EVERY:
            snapshot_seq = last // SNAPSHOT_STAYS * SNAPSHOT_STAYS + SNAPSHOT_EVERY
            self._db.execute("DELETE FROM snapshot WHERE seq >= ? AND seq <= ?", (snapshot_seq, last))
            self._db.execute(insert("snapshot"), with_sum("snapshot", seq, after.model_dump_json()))
        self.seq, self.state = seq, after
        return after

    def next_id(self) -> str:
        """Return the id of the next decision."""
        ((name,),) = whole_rows(self._db, self._ledger.path, "name")
        return f"{name}-{self._next_number()}"

    def _next_number(self) -> int:
        row = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'decision'").fetchone()
        return 1 if row is None else int(row[0]) + 1

    def keep(self, decision: JobDecision, key: str | None = None) -> KeptDecision:
        """Keep a decision, or in place of one that was being prepared what it became.

        Raises:
            ConflictError: the key is another decision's, or the decision is decided already.
        """
        (body, documents), old, at = packed(decision), self._ledger.decision(decision.id), self._ledger.now()
        for digest, text in documents.items():
            self.keep_document(digest, text)
        if old is not None:
            check_undecided(old.decision)
            self._count([*decision.documents.values(), *documents], 1)
            self._count(named_documents(packed(old.decision)[0]), -1)
            record = old._replace(decision=decision)
            total = sum_of("decision", record.number, decision.id, record.key, decision.outcome, body, record.at)
            changed_row = (decision.outcome, body, total, decision.id)
            self._db.execute("UPDATE decision SET outcome = ?, body = ?, sum = ? WHERE id = ?", changed_row)
            self._ledger.remember(record)
            return record
        number = self._next_number()
        try:
            self._db.execute(insert("decision"), with_sum("decision", number, decision.id, key, decision.outcome, body, at))
        except sqlite3.IntegrityError:
            raise key_taken(str(key)) from None
        self._count([*decision.documents.values(), *documents], 1)
        record = KeptDecision(number, key, at, decision)
        self._ledger.remember(record)
        return record

    def keep_document(self, digest: str, body: str, *, is_new: bool = False) -> None:
        """Keep a text under its digest, once; or a new one in place of the old."""
        verb = "INSERT OR REPLACE" if is_new else "INSERT OR IGNORE"
        self._db.execute(insert("document", verb), with_sum("document", digest, body))

    def observe(self, decision: str, observed: Sequence[Observation]) -> int:
        """Keep measured step times; how many are new, as each step of each rank is kept once."""
        before = self._db.total_changes
        rows = [with_sum("observation", decision, one.step, one.rank, one.step_s) for one in observed]
        self._db.executemany(insert("observation", "INSERT OR IGNORE"), rows)
        return self._db.total_changes - before

    def has_documents(self, digests: Iterable[str]) -> bool:
        """Return whether all these texts are kept, and named by a decision."""
        query = "SELECT 1 FROM document_use WHERE digest = ?"
        return all(self._db.execute(query, (digest,)).fetchone() is not None for digest in digests)

    def raise_floor(self, seq: int, before: str, state: ClusterState) -> None:
        """Give up the changes up to a number; `sweep` then removes those that are in a file.

        Args:
            seq: the last of them.
            before: all that is of this time or later is kept.
            state: after it.
        """
        was, at = self._ledger.floor()
        if was < seq:
            self._set_floor(seq, at, state.model_dump_json())
        self._db.execute("DELETE FROM snapshot WHERE seq < ?", (seq,))
        self._begin_at(before)

    def sweep(self, limit: int) -> int:
        """Remove a number of changes that were given up, with their parts of deleted decisions; how many were."""
        query = "SELECT max(seq) FROM (SELECT seq FROM change WHERE seq <= (SELECT seq FROM floor) ORDER BY seq LIMIT ?)"
        (last,) = self._db.execute(query, (limit,)).fetchone()
        if last is None:
            return 0
        unknown = "NOT EXISTS (SELECT 1 FROM decision WHERE id = mention.decision)"
        self._db.execute(f"DELETE FROM mention WHERE seq <= ? AND {unknown}", (last,))  # noqa: S608 - a text of ours
        return self._db.execute("DELETE FROM change WHERE seq <= ?", (last,)).rowcount

    def give_up(self, before: str, after: int, limit: int) -> tuple[int, int | None]:
        """Delete decisions that nothing was reported of for long; those that hold devices or are being prepared stay.

        Their keys stay as `OldKey`.

        Args:
            before: nothing of a decision may be of this time (UTC) or later.
            after: number of the decision after which it is looked for.
            limit: decisions that are looked at.

        Returns:
            How many were given up, and the number after which to go on; None where no older one is left.
        """
        where = "WHERE number > ? ORDER BY number LIMIT ?"
        rows = list(whole_rows(self._db, self._ledger.path, "decision", where, (after, limit)))
        holding = {job.of_decision for job in self.state.jobs}
        given_up = 0
        for _, name, key, outcome, body, at in rows:
            if at >= before:
                rows = []
                break
            late = self._db.execute("SELECT 1 FROM mention WHERE decision = ? AND at >= ? LIMIT 1", (name, before)).fetchone()
            if outcome == "preparing" or name in holding or late is not None:
                continue
            if key is not None:
                digest = request_of(body, self._ledger.document).digest
                self._db.execute(insert("old_key"), with_sum("old_key", key, name, digest, self._ledger.now()))
            for table in ("observation", "mention"):
                self._db.execute(f"DELETE FROM {table} WHERE decision = ?", (name,))  # noqa: S608 - names of ours
            self._db.execute("DELETE FROM decision WHERE id = ?", (name,))
            self._count(named_documents(body), -1)
            self._ledger.forget(name)
            given_up += 1
        if given_up:
            self._begin_at(before)
        return given_up, int(rows[-1][0]) if len(rows) == limit else None

    def forget_keys(self, before: str, limit: int) -> int:
        """Delete a number of keys of decisions that were deleted before a time (UTC); how many were."""
        old = "SELECT key FROM old_key WHERE at < ? LIMIT ?"
        return self._db.execute(f"DELETE FROM old_key WHERE key IN ({old})", (before, limit)).rowcount  # noqa: S608

    def _begin_at(self, before: str) -> None:
        """Keep all that is of a time or later, and drop what was before."""
        seq, at, body = self._ledger.floor_row()
        if at is None or at < before:
            self._set_floor(seq, before, body)

    def _set_floor(self, *row: int | str | None) -> None:
        self._db.execute("UPDATE floor SET seq = ?, at = ?, body = ?, sum = ?", with_sum("floor", *row))

    def _count(self, digests: Sequence[str], by: int) -> None:
        """Count the decisions that name documents; those that none names are given up."""
        add = "INSERT INTO document_use VALUES (?, ?) ON CONFLICT (digest) DO UPDATE SET count = count + excluded.count"
        self._db.executemany(add, [(digest, by) for digest in digests])
        for digest in digests if by < 0 else ():
            if self._db.execute("DELETE FROM document_use WHERE digest = ? AND count <= 0", (digest,)).rowcount:
                self._db.execute("DELETE FROM document WHERE digest = ?", (digest,))
