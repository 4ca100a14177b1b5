"""``meshwright verify-export``: exit 0 where a job is as planned, 1 with the first rank that is elsewhere, 2 for bad input."""

import io
import json
import sys

import pytest

RANKS = [("b", 1), ("b", 0), ("a", 0), ("a", 1)]
VERIFY = ("verify-export", "--format", "slurm", "plan.json")


def said(rank, host, device):
    return f"{rank}: meshwright-rank[rank={rank} world=4 host={host} local_rank=0 visible={device}]\n"


@pytest.fixture
def launched(work):
    """A plan by hand and what its ranks print; ``launched(places)`` writes another log."""
    ranks = [{"rank": r, "host": host, "local_rank": device, "device": device} for r, (host, device) in enumerate(RANKS)]
    (work / "plan.json").write_text(json.dumps({"schema_version": 2, "job": {"name": "mine"}, "ranks": ranks}))

    def write(places):
        (work / "log").write_text("starting\n" + "".join(said(rank, *place) for rank, place in enumerate(places)))

    write(RANKS)
    return write


def test_a_job_that_is_as_planned_exits_with_0(meshwright, launched):
    result = meshwright(*VERIFY, "log")
    assert result.status == 0
    assert result.out == "all 4 ranks are where the plan puts them (compared with the host: device, world)\n"
    assert json.loads(meshwright(*VERIFY, "log", "--json", "-").out) == {
        "agrees": True,
        "compared": ["device", "world"],
        "elsewhere": [],
        "num_ranks": 4,
    }


def test_the_first_rank_that_is_elsewhere_is_named_and_exits_with_1(meshwright, launched):
    launched([("b", 1), ("a", 0), ("b", 0), ("a", 1)])
    result = meshwright(*VERIFY, "log")
    assert result.status == 1
    assert result.out.splitlines() == [
        "rank 1 is on a, the plan puts it on b (log:3)",
        "2 of 4 ranks are not as planned (compared with the host: device, world)",
    ]
    both = meshwright(*VERIFY, "log", "--json", "-")
    assert both.status == 1
    assert [row["rank"] for row in json.loads(both.out)["elsewhere"]] == [1, 2]


def test_a_rank_that_the_plan_does_not_have_is_counted_apart(meshwright, launched):
    launched([*RANKS, ("c", 0)])
    assert meshwright(*VERIFY, "log").out.splitlines() == [
        "rank 4 is none of the plan's 4 ranks (log:6)",
        "0 of 4 ranks are not as planned, ranks beyond the plan's: 1 (compared with the host: device, world)",
    ]


def test_logs_of_several_hosts_are_read_together_and_standard_input_too(meshwright, launched, work, monkeypatch):
    lines = (work / "log").read_text().splitlines(keepends=True)
    (work / "first").write_text("".join(lines[:3]))
    assert meshwright(*VERIFY, "first").out.startswith("rank 2 says nothing")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("".join(lines[3:]).encode())))
    assert meshwright(*VERIFY, "first", "-").status == 0


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (b"", "log: no rank says where it is"),
        (b"gpu-07 says hello\n", "log: no rank says where it is"),
        (b"\xff\xfe\x00", "log: not a UTF-8 text file"),
        (b"meshwright-rank[rank=0 world=4 ho", "log:1: a line of the probe is torn"),
        (b"\nmeshwright-rank[rank=0 hots=a]", "log:2: no key=value of the probe (got 'hots=a')"),
        (b"meshwright-rank[host=a]", "log:1: a line of the probe has no rank"),
        (b"meshwright-rank[rank=1 host=]", "log:1: a line of the probe has no host"),
        (b"meshwright-rank[rank=-1 host=a]", "log:1: rank is no whole number (got '-1')"),
        (b"meshwright-rank[rank=0 host=a local_rank=2 visible=0,1]", "log:1: rank 0 has LOCAL_RANK 2 and fewer visible devices"),
    ],
)
def test_an_unreadable_log_is_told(refused, launched, work, log, message):
    (work / "log").write_bytes(log)
    assert refused(*VERIFY, "log").startswith(message)


def test_what_is_missing_or_unknown_is_told(refused, launched, monkeypatch):
    assert refused("verify-export", "plan.json", "log").startswith("--format: name a format; valid: ")
    assert refused("verify-export", "--format", "slrum", "plan.json", "log").endswith("did you mean 'slurm'?")
    assert refused(*VERIFY) == "LOG...: is missing"
    assert refused(*VERIFY, "lgo").startswith("lgo: no such file (got 'lgo'); did you mean 'log'?")
    assert refused("verify-export", "--format", "slurm", "log", "log").startswith("log:1: not valid JSON")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    assert refused(*VERIFY, "-") == "-: not UTF-8 text (got 'byte 0')"
