"""Jobs that Slurm's accounting lists, as ``sacct -P`` prints them."""

import gzip

import pytest

from meshwright.errors import InputFileError
from meshwright.files import first_line
from meshwright.jobs.readers.trace_rows import TraceColumns, sacct_rows
from meshwright.jobs.trace import load_trace

HEADER = "JobID|JobName|Submit|Start|End|State|AllocTRES"
LISTED = f"""{HEADER}
12|bert|2026-11-01T10:00:00|2026-11-01T10:05:00|2026-11-01T11:05:00|COMPLETED|billing=16,cpu=16,gres/gpu:a100=8,gres/gpu=8,node=2
12.batch|batch|2026-11-01T10:05:00|2026-11-01T10:05:00|2026-11-01T11:05:00|COMPLETED|cpu=8,gres/gpu=4,node=1
13_4|"a,b"|2026-11-01T10:01:00|2026-11-01T10:01:30|2026-11-01T10:02:00|FAILED|cpu=4,gres/gpu:a100=2,gres/gpu:a100_1g.10gb=1,node=1
14|waits|2026-11-01T10:02:00|Unknown|Unknown|PENDING|
15|runs|2026-11-01T10:03:00|2026-11-01T10:03:00|Unknown|RUNNING|gres/gpu=4
17|parts|2026-11-01T10:03:00|2026-11-01T10:03:00|2026-11-01T10:04:00|COMPLETED|gres/gpu=3,gres/gpu:1g.10gb=2,node=1
16|cpu|2026-11-01T10:04:00|2026-11-01T10:04:00|2026-11-01T10:09:00|COMPLETED|billing=4,cpu=4,node=1
"""


@pytest.fixture
def listing(tmp_path):
    """``listing(text)`` writes a file and returns its path."""

    def written(text):
        path = tmp_path / "jobs.txt"
        path.write_text(text)
        return path

    return written


@pytest.mark.parametrize("turn", [1, -1])
def test_jobs_are_read_and_steps_and_what_has_not_ended_are_left_out(listing, turn):
    """Whatever the order of the columns, packed or not."""
    path = listing("\n".join("|".join(line.split("|")[::turn]) for line in LISTED.splitlines()))
    path.write_bytes(path.read_bytes() if turn == 1 else gzip.compress(path.read_bytes()))
    assert first_line(path) == "|".join(HEADER.split("|")[::turn])
    trace = load_trace(path, min_gpus=1, columns=TraceColumns(model="JobName"))
    assert trace.time_s.tolist() == [0.0, 60.0, 180.0]
    assert trace.duration_s.tolist() == [3600.0, 30.0, 60.0]
    assert trace.requested_gpus.tolist() == [8, 2, 1]
    assert trace.model == ("bert", '"a,b"', "parts")
    assert trace.work_s.tolist() == [8 * 3600.0, 2 * 30.0, 60.0]
    assert [row.steps for row in sacct_rows(path, TraceColumns(steps="JobName"))] == ["bert", '"a,b"', "parts", "cpu"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LISTED.replace("AllocTRES", "ReqMem"), r"jobs\.txt:1: AllocTRES: the column is missing"),
        (LISTED.replace("JobID", "Job"), r"jobs\.txt:1: JobID: the column is missing"),
        (LISTED.replace("|COMPLETED|billing", "|billing"), r"jobs\.txt:2: has 6 columns, not 7"),
        (LISTED.replace("T11:05:00|COMP", "T09:05:00|COMP"), r"jobs\.txt:2: End: a job ends before it begins"),
        (LISTED.replace("2026-11-01T10:00:00", "soon"), r"jobs\.txt:2: timestamp: must read"),
    ],
)
def test_what_cannot_be_is_refused_by_its_place(listing, text, message):
    with pytest.raises(InputFileError, match=message):
        load_trace(listing(text))
