"""A kept state: a ledger and a plain file do the same, nothing is lost or half there, and no device is promised twice."""

import sqlite3
import subprocess
import sys

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters.cluster import Cluster
from meshwright.errors import InputFileError, MeshwrightError, StateError
from meshwright.live.changes import JobAdded, JobRemoved, Listed, changed, drift, host_changed, listed
from meshwright.live.keeping import KeptState
from meshwright.live.ledger import Ledger
from meshwright.live.records import ledger_file, ledger_turn
from meshwright.live.records.ledger_file import file_system
from meshwright.live.state import ClusterState, HeldJob, HostState, occupancy

from ..draws import draws
from .controller_samples import written_to
from .live_samples import CLUSTER, changes, listings, made

THREE = Cluster.from_data(yaml.safe_load(CLUSTER))


def added(name, **devices):
    return JobAdded(job=HeldJob(id=name, devices=devices, source="plan"))


def applied(kept, change):
    """Whether a change was taken."""
    try:
        kept.apply(lambda before: made(change, before))
    except StateError:
        return False
    return True


@given(drawn=st.lists(changes, max_size=12))
@draws(12)
def test_a_ledger_a_file_and_the_fold_agree_and_no_device_is_held_twice(drawn, tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    ledger, file, folded = KeptState(folder / "s.db"), KeptState(folder / "s.json"), ClusterState()
    for change in drawn:
        try:
            folded, was_taken = changed(folded, made(change, folded)), True
        except StateError:
            was_taken = False
        assert applied(ledger, change) == applied(file, change) == was_taken
        occupancy(folded, THREE)  # refuses two jobs on one device
    assert ledger.read() == file.read() == folded


def test_a_snapshot_is_only_a_cache_and_an_unchanged_state_is_no_change(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger_turn, "SNAPSHOT_EVERY", 4)
    stored = KeptState(tmp_path / "s.db")
    for number in range(11):
        assert applied(stored, added(f"j{number}", **{f"h{number}": (0,)}))
    with_snapshot = stored.read()
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]  # nothing is left beside it
    assert written_to(tmp_path / "s.db", "SELECT count(*) FROM snapshot") == (1,)
    written_to(tmp_path / "s.db", "DELETE FROM snapshot")
    assert stored.read() == with_snapshot
    number = len(stored.changes())
    listing = ClusterState(source="slurm", hosts={"a": HostState()})
    assert [applied(stored, listing) for _ in range(3)] == [True] * 3
    assert len(stored.changes()) == number + 1


@given(drawn=st.lists(changes, max_size=8), listing=listings())
@draws(20)
def test_after_a_full_listing_nothing_that_was_lost_or_repeated_before_matters(drawn, listing):
    state = ClusterState()
    for change in drawn:
        try:
            state = changed(state, made(change, state))
        except StateError:
            continue
    after = changed(state, listed(state, listing))
    assert after.hosts == listing.hosts
    assert {job.id: job for job in after.jobs if job.source != "plan"} == {job.id: job for job in listing.jobs}
    again = listed(after, listing)
    assert (again.hosts, again.gone_hosts, again.jobs, again.gone_jobs) == ({}, (), (), ())
    assert changed(after, again) == after
    assert drift(after, listing) == []
    held = occupancy(after, THREE).holder  # what was planned stays only where nobody runs
    assert (held >= -1).all()


def test_the_listing_wins_and_both_sides_are_told():
    before = ClusterState(
        source="slurm",
        hosts={"a": HostState(), "b": HostState(), "c": HostState()},
        jobs=(
            HeldJob(id="p", devices={"a": (0, 1)}, source="plan"),
            HeldJob(id="q", devices={"b": (0,)}, source="plan"),
            HeldJob(id="r", devices={"c": (3,)}, source="plan"),
            HeldJob(id="7", devices={"c": (0,)}, source="slurm"),
        ),
    )
    listing = ClusterState(
        source="slurm",
        hosts={"a": HostState(), "b": HostState(condition="drained", reason="memory")},
        jobs=(
            HeldJob(id="8", devices={"a": (2, 3)}, source="slurm", decision="p"),
            HeldJob(id="9", devices={"b": (0, 1)}, source="slurm"),
            HeldJob(id="7", devices={"c": (1,)}, source="slurm"),
        ),
    )
    after = changed(before, listed(before, listing))
    assert {job.id for job in after.jobs} == {"8", "9", "7", "r"}
    assert drift(before, listing) == [
        "8 runs on a/2-3, planned as p was a/0-1",
        "9 runs on devices of the plan q, which is dropped: b/0",
        "7 runs on c/1, was on c/0",
        "b is drained, was up: memory",
        "c is listed no more, was up",
    ]


def test_a_drained_host_refuses_and_takes_jobs_again(tmp_path):
    stored = KeptState(tmp_path / "s.db")
    stored.apply(lambda before: host_changed("a", "drained", "a fan"))
    with pytest.raises(StateError, match=r"a is drained \(a fan\) and takes no jobs"):
        stored.apply(lambda before: added("j", a=(0,)))
    stored.apply(lambda before: host_changed("a", "up"))
    assert applied(stored, added("j", a=(0,)))


# Four words for each process: the state, the first job and the one after the last, and what their names begin with.
ADDS = """
import os, sys
from meshwright.live.changes import JobAdded
from meshwright.live.keeping import KeptState
from meshwright.live.state import HeldJob
for path, begin, end, letter in zip(*[iter(sys.argv[1:])] * 4):
    if len(sys.argv) == 5 or not os.fork():
        break
else:
    for _ in sys.argv[1::4]:
        os.wait()
    sys.exit()
kept = KeptState(path)
for number in range(int(begin), int(end)):
    job = HeldJob(id=f"{letter}{number}", devices={f"h{number}": (0,)}, source="plan")
    try:
        kept.apply(lambda before: JobAdded(job=job))
        line = number
    except Exception as error:
        line = f"refused {error}"
    os.write(1, f"{line}\\n".encode())  # at once, for others write there too
"""


LITTLE_ROOM = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
"""


def adding(*arguments):
    return subprocess.Popen([sys.executable, "-c", ADDS, *map(str, arguments)], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("ending", ["db", pytest.param("json", marks=pytest.mark.slow)])
def test_of_two_processes_that_want_one_device_one_gets_it_by_whatever_name_the_state_is_called(tmp_path, ending):
    (tmp_path / "real").mkdir()
    path, link = tmp_path / "real" / f"s.{ending}", tmp_path / f"link.{ending}"
    link.symlink_to(path)
    said = adding(path, 0, 15, "x", link, 0, 15, "y").communicate()[0].splitlines()
    assert sorted(int(line) for line in said if line.isdigit()) == list(range(15))
    assert [line for line in said if not line.isdigit() and "holds h" not in line] == []
    assert len(said) == 30
    assert len(KeptState(path).read().jobs) == 15


def test_a_full_disk_changes_nothing(tmp_path):
    path = tmp_path / "s.db"
    assert applied(KeptState(path), added("first", a=(0,)))
    code = LITTLE_ROOM + ADDS
    process = subprocess.run([sys.executable, "-c", code, path, "0", "60", "j"], capture_output=True, text=True, check=False)
    lines = process.stdout.splitlines()
    assert any(line.startswith("refused") for line in lines), process.stderr
    assert [job.id for job in KeptState(path).read().jobs] == ["first", *(f"j{line}" for line in lines if line.isdigit())]
    assert applied(KeptState(path), added("last", c=(0,)))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (b"no database at all, but long enough to be read as one" * 4, "is no ledger"),
        (b"", "holds nothing yet: its first change was not kept"),
        ("PRAGMA journal_mode = WAL", "holds nothing yet: its first change was not kept"),
        ("CREATE TABLE t (x)", "is a database, but no ledger of meshwright"),
        (f"PRAGMA application_id = {ledger_file.APPLICATION_ID}; PRAGMA user_version = 9", "of version 9; version 4 is known"),
    ],
)
def test_other_databases_are_refused_in_a_line(tmp_path, made, message):
    path = tmp_path / "s.db"
    if isinstance(made, bytes):
        path.write_bytes(made)
    else:
        database = sqlite3.connect(path)
        database.executescript(made)
        database.close()
    before = path.read_bytes()
    with pytest.raises(InputFileError, match=message):
        KeptState(path).read()
    assert path.read_bytes() == before
    if "nothing yet" in message:  # a crash while it was made
        assert applied(KeptState(path), added("j", a=(0,)))
        assert len(KeptState(path).read().jobs) == 1


def test_a_damaged_change_and_names_of_no_state_are_told(tmp_path):
    stored = KeptState(tmp_path / "s.db")
    assert applied(stored, added("j", a=(0,)))
    written_to(tmp_path / "s.db", "UPDATE change SET body = '{'")
    for read in (stored.read, stored.changes):
        with pytest.raises(
            InputFileError,
            match="change 1: the ledger is damaged: this record is not as it was written; `meshwright state repair`",
        ):
            read()
    for name in ("s", "s.csv"):
        with pytest.raises(InputFileError, match=r"which ends in \.db"):
            KeptState(tmp_path / name)
    with pytest.raises(MeshwrightError, match="no such folder"):
        applied(KeptState(tmp_path / "absent" / "s.db"), added("j", a=(0,)))


def test_a_ledger_that_many_make_at_once_refuses_nobody(tmp_path):
    path = tmp_path / "s.db"
    four = [word for number in range(4) for word in (path, 10 * number, 10 * number + 3, "j")]
    said = adding(*four).communicate()[0].splitlines()
    assert sorted(said) == sorted(str(10 * number + i) for number in range(4) for i in range(3))
    assert len(KeptState(path).read().jobs) == 12


def test_a_listing_replaces_a_plan_of_its_name_and_never_holds_a_device_twice():
    state = changed(ClusterState(), added("7", a=(0,)))
    listing = ClusterState(source="slurm", jobs=(HeldJob(id="7", devices={"b": (1,)}, source="slurm"),))
    assert changed(state, listed(state, listing)).jobs == listing.jobs
    twice = HeldJob(id="8", devices={"b": (0, 1)}, source="slurm")
    for wrong, message in (((*listing.jobs, twice), "7 and 8 hold one device"), (listing.jobs * 2, "the id appears twice")):
        with pytest.raises(StateError, match=message):
            listed(state, listing.model_copy(update={"jobs": wrong}))


def test_a_removed_job_holds_nothing_and_a_drained_host_keeps_its_number_of_devices():
    state = changed(changed(ClusterState(), added("j", a=(0,))), added("k", a=(1,)))
    after = changed(state, JobRemoved(id="j"))
    assert [job.id for job in after.jobs] == ["k"]
    assert changed(after, added("l", a=(0,))).jobs[-1].id == "l"
    listing = ClusterState(source="slurm", hosts={"a": HostState(num_devices=4)})
    assert changed(changed(state, listed(state, listing)), host_changed("a", "drained")).hosts["a"].num_devices == 4
    whole = HeldJob(id="9", devices={"a": (2,)}, source="slurm", whole_hosts=True)
    other = HeldJob(id="10", devices={"a": (3,)}, source="slurm")
    for jobs in ((whole, other), (other, whole)):
        with pytest.raises(StateError, match="hold one device"):
            listed(ClusterState(), listing.model_copy(update={"jobs": jobs}))
    with pytest.raises(StateError, match="k holds a/1; plan anew"):
        changed(state, added("m", a=(1, 2)))


def test_a_host_that_is_not_listed_is_no_host():
    state = changed(ClusterState(), Listed(source="slurm", hosts={"a": HostState()}))
    for change in (host_changed("A", "drained"), host_changed("A", "up")):
        with pytest.raises(StateError, match=r"slurm lists no such host \(got 'A'\); did you mean 'a'"):
            changed(state, change)
    with pytest.raises(StateError, match="there is no such host"):
        changed(ClusterState(), host_changed("a", "up"))


def test_ledgers_do_not_trust_network_file_systems(tmp_path, monkeypatch):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/home {tmp_path} nfs4 rw 0 0\n")
    assert file_system(tmp_path, str(mounts)) == "nfs4"
    assert file_system(tmp_path.parent, str(mounts)) == "ext4"
    assert file_system(tmp_path, str(tmp_path / "absent")) is None
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "s.db").symlink_to(tmp_path / "s.db")
    monkeypatch.setattr(ledger_file, "file_system", lambda folder: "nfs4" if folder == tmp_path else "ext4")
    with pytest.raises(InputFileError, match=r"a network file system \(nfs4\)"):
        Ledger(tmp_path / "here" / "s.db")
    with pytest.raises(InputFileError, match=r"a network file system \(nfs4\)"):
        Ledger(tmp_path / "s.db")
