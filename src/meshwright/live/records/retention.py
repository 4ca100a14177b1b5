"""Retention: a store that serves for years does not grow without end, and the rest of it keeps its meaning.

Records older than ``keep_days`` are given up. Changes go up to a floor; its state replaces them, so the current state and every
later one are the same. Decisions without news for that long go with their history and steps. Decisions that hold devices or are
being prepared stay, however old. The key of a decision that is given up is refused for as long again (`OldKey`), so that a late
repetition is not decided anew. Texts go with the last decision that names them.

`Retention` works in steps, each a turn of some milliseconds, with turns of others between. Wherever it stops the store is
whole, and the next one continues.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ..ledger import Ledger
from ..state import ClusterState
from ..store import last_before

KEEP_DAYS = 90
"""Default days that a service keeps."""

CHANGES_AT_ONCE = 500
DECISIONS_AT_ONCE = 20
KEYS_AT_ONCE = 500
"""Of a step."""


class Retention:
    """A deletion of what is too old; `look`, then `step` until it says that nothing is left to do.

    Attributes:
        before: what is of this time (UTC) or later stays.
        num_changes, num_decisions, num_keys: given up or forgotten so far.

    Args:
        keep_days: days that are kept.
        now: the time.
    """

    def __init__(self, keep_days: float, now: datetime) -> None:
        self._before = (now - timedelta(days=keep_days)).astimezone(UTC)
        self.before = self._before.isoformat(timespec="seconds")
        self.num_changes = self.num_decisions = self.num_keys = 0
        self._floor, self._state = 0, ClusterState()
        self._after: int | None = 0

    def look(self, store: Ledger) -> None:
        """Find the last change that is too old; only reads."""
        self._floor = last_before(store, self._before)
        self._state = store.state_at(self._floor)

    def step(self, store: Ledger) -> bool:
        """Delete a little; whether there may be more.

        Raises:
            InputFileError: the store cannot be written; the step is undone.
        """
        with store.turn() as turn:
            floor = store.floor().seq
            if self._floor > floor:
                turn.raise_floor(self._floor, self.before, self._state)
                self.num_changes += self._floor - floor
                return True
            if turn.sweep(CHANGES_AT_ONCE):
                return True
            if self._after is not None:
                given_up, self._after = turn.give_up(self.before, self._after, DECISIONS_AT_ONCE)
                self.num_decisions += given_up
                return True
            forgotten = turn.forget_keys(self.before, KEYS_AT_ONCE)
            self.num_keys += forgotten
            return forgotten > 0


def give_up(store: Ledger, keep_days: float, now: datetime | None = None) -> Retention:
    """Delete all that is too old; returns what it was.

    Args:
        store: that is to keep less.
        keep_days: days that are kept.
        now: the time; by default the clock's.

    Raises:
        InputFileError: the store cannot be read or written; what was done before stays done.
    """
    result = Retention(keep_days, datetime.now(UTC) if now is None else now)
    result.look(store)
    while result.step(store):
        pass
    return result
