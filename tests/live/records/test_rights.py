"""A ledger that others may read and not write, as in a folder of the administrator's."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from meshwright.live.changes import JobAdded
from meshwright.live.keeping import KeptState
from meshwright.live.state import HeldJob

READS = """
import os, sys
from meshwright.live.keeping import KeptState
os.geteuid() or os.seteuid(65534)
print(*(job.id for job in KeptState(sys.argv[1]).read().jobs))
"""


@pytest.fixture
def folder():
    """Not below pytest's own folder: another run of this user's takes from that what others may do there."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def test_a_ledger_that_may_only_be_read_is_read(folder):
    """By a user without the right to write there, for whom SQLite cannot make its own files."""
    KeptState(folder / "s.db").apply(lambda before: JobAdded(job=HeldJob(id="j", devices={"a": (0,)})))
    folder.chmod(0o555)
    done = subprocess.run([sys.executable, "-c", READS, folder / "s.db"], capture_output=True, text=True, check=False)
    folder.chmod(0o755)
    assert done.stdout.split() == ["j"], done.stderr
    assert [path.name for path in folder.iterdir()] == ["s.db"]
