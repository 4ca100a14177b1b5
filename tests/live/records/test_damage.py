"""One wrong byte in a ledger: it is refused in a line, or all is read as it was written; `repair` keeps what is whole."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing

import pytest

from meshwright.cli import run_command_line
from meshwright.errors import InputFileError, MeshwrightError
from meshwright.live.decisions import Observation
from meshwright.live.ledger import Ledger
from meshwright.live.records import ledger_turn
from meshwright.live.records.repair import repair

from ...draws import FACTOR
from ..controller_samples import JOB, controller, written_to
from .test_retention import contents

NUM_FLIPS = round(60 * max(1.0, FACTOR))


@pytest.fixture(scope="module")
def written(planners, tmp_path_factory) -> bytes:
    """A ledger with every kind of record, but few of each."""
    path = tmp_path_factory.mktemp("whole") / "s.db"
    made = controller(path, planners)
    names = [made.decide(JOB, f"k{number}").decision.id for number in range(3)]
    made.observe(names[0], [Observation(step=step, step_s=0.25 + step / 7) for step in range(40)])
    made.confirm(names[0], "7")
    made.release(names[1])
    made.close()
    return path.read_bytes()


@pytest.fixture
def whole(written, tmp_path):
    """The path of the ledger, and all that it says."""
    path = tmp_path / "s.db"
    path.write_bytes(written)
    with Ledger(path, is_read=True) as ledger:
        return path, all_of(ledger)


def all_of(store) -> dict:
    return contents(store) | {"keys": [store.decision_of_key(f"k{number}") for number in range(4)], "floor": store.floor()}


def all_or_refusal(path) -> dict | str:
    """All that a ledger says, or the line that refuses it."""
    try:
        with Ledger(path, is_read=True) as ledger:
            return all_of(ledger)
    except MeshwrightError as error:
        (line,) = str(error).splitlines()
    return line


@pytest.mark.parametrize(("version", "change"), [(3, "DROP COLUMN sum"), (5, "ADD COLUMN by TEXT")])
def test_a_ledger_of_another_version_is_refused_and_left_as_it_is(whole, version, change):
    path, _ = whole
    with closing(sqlite3.connect(path)) as database:
        database.executescript(f"ALTER TABLE change {change}; PRAGMA user_version = {version}")
    before = path.read_bytes()
    for action in (lambda: Ledger(path), lambda: Ledger(path, is_read=True), lambda: repair(path)):
        with pytest.raises(InputFileError, match=f"is a ledger of version {version}; version 4 is known"):
            action()
    assert path.read_bytes() == before


def test_a_wrong_byte_is_refused_in_a_line_or_all_is_read_as_it_was_written(written, whole):
    path, said = whole
    rng, num_refused = random.Random(0), 0
    for place in rng.sample(range(len(written)), NUM_FLIPS) + list(range(16, 100)):
        wrong = bytearray(written)
        wrong[place] ^= 1 << rng.randrange(8)
        path.write_bytes(wrong)
        result = all_or_refusal(path)
        if isinstance(result, str):
            assert result.startswith(str(path)), place
            num_refused += 1
        else:
            assert result == said, place
        for beside in path.parent.glob("s.db-*"):
            beside.unlink()
    assert num_refused > NUM_FLIPS / 5  # many bytes are of pages that are free


@pytest.mark.parametrize(
    ("table", "key", "lost"),
    [
        ("decision", "number = 2", {"decisions": 1}),
        ("mention", "seq = 4", {"mentions": 1}),
        ("observation", "step = 3", {"observations": 1}),
        ("change", "seq = 4", {"changes": 4}),
    ],
)
def test_a_repair_keeps_what_is_whole_and_says_what_is_lost(whole, capsys, table, key, lost):
    path, said = whole
    column = "step_s" if table == "observation" else "detail" if table == "mention" else "body"
    written_to(path, f"UPDATE {table} SET {column} = replace({column}, '0', '1') || ' ' WHERE {key}")
    with Ledger(path, is_read=True) as ledger, pytest.raises(InputFileError, match=f"{table} .*state repair"):
        all_of(ledger)
    damaged = path.read_bytes()
    assert run_command_line(["state", "repair", "--state", str(path)]) == 0
    assert f"lost: {table} " in capsys.readouterr().out
    assert path.with_name("s.db.damaged").read_bytes() == damaged
    with Ledger(path) as ledger:
        result = all_of(ledger)
        for part in ("changes", "decisions", "mentions", "observations"):
            was, now = (sum(len(one) if isinstance(one, list) else 1 for one in side[part]) for side in (said, result))
            gone = lost.get(part, 0) + (2 * ("decisions" in lost) if part == "mentions" else 0)
            assert was - now == gone, part
        assert result["last"][0] == said["last"][0]
        assert table == "change" or result["last"] == said["last"]
        with ledger.turn() as turn:
            assert turn.next_id().endswith("-4")  # no id is given twice
    assert run_command_line(["state", "repair", "--state", str(path)]) == 2  # the damaged file is not written over
    path.with_name("s.db.damaged").unlink()
    assert repair(path).damaged is None


@pytest.mark.parametrize(
    ("word", "lost", "parts"),
    [
        (b"INDEX preparing", (), ""),
        (b"TABLE sqlite_s", (), ""),
        (b"TABLE observation", ("observation",), "observations observed"),
        (b"TABLE document ", ("document", *(f"decision {n}" for n in (1, 2, 3))), "decisions keys mentions observations plans"),
    ],
)
def test_a_damaged_definition_costs_no_record_that_does_not_need_its_table(whole, word, lost, parts):
    path, said = whole
    path.write_bytes(path.read_bytes().replace(b"CREATE " + word, b"CREATE?" + word))
    assert "state repair" in all_or_refusal(path)
    assert repair(path).lost == lost
    result = all_or_refusal(path)
    assert {part for part in said if result[part] != said[part]} == set(parts.split())


def test_the_state_after_a_lost_change_is_that_of_the_next_whole_snapshot(tmp_path, planners, monkeypatch):
    monkeypatch.setattr(ledger_turn, "SNAPSHOT_EVERY", 2)
    path = tmp_path / "s.db"
    made = controller(path, planners)
    for _ in range(3):
        made.decide(JOB)
    last = made.store.last()
    made.close()
    written_to(path, "UPDATE change SET body = '{}' WHERE seq = 1")
    result = repair(path)
    assert (result.lost, result.floor) == (("change 1",), 2)
    with Ledger(path, is_read=True) as ledger:
        assert ledger.last() == last
