"""A ledger that others may read and not write, as in a folder of the administrator's."""

import os
import subprocess
import sys
from pathlib import Path

from meshwright.live.changes import JobAdded
from meshwright.live.keeping import kept_state
from meshwright.live.state import HeldJob

READS = """
import os, sys
from meshwright.live.keeping import kept_state
os.geteuid() or os.seteuid(65534)
print(*(job.id for job in kept_state(sys.argv[1]).read().jobs))
"""


def test_a_ledger_that_may_only_be_read_is_read(tmp_path):
    """By a user without the right to write there, for whom SQLite cannot make its files beside it."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    kept_state(folder / "s.db").apply(lambda before: JobAdded(job=HeldJob(id="j", devices={"a": (0,)})))
    for one in (tmp_path, *tmp_path.parents[:3], folder):
        if one.stat().st_uid == os.geteuid() and one != Path("/tmp"):
            one.chmod(0o755)
    folder.chmod(0o555)
    done = subprocess.run([sys.executable, "-c", READS, folder / "s.db"], capture_output=True, text=True, check=False)
    folder.chmod(0o755)
    assert done.stdout.split() == ["j"], done.stderr
    assert [path.name for path in folder.iterdir()] == ["s.db"]
