"""How the file of a ledger is opened."""

from meshwright.live.records.ledger_file import open_ledger

FULL = 2


def test_a_turn_is_on_the_disk_when_it_ends_in_a_ledger_that_is_made_and_in_one_that_is_there(tmp_path):
    for _ in range(2):
        database, _ = open_ledger(tmp_path / "s.db")
        assert database.execute("PRAGMA synchronous").fetchone() == (FULL,)
        database.close()
