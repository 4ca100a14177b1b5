"""``meshwright submit``, ``decisions`` and ``slurm-hooks``: their output, and one line for bad input."""

import json

import pytest

from meshwright.live.decisions import Observation
from meshwright.live.ledger import Ledger

from ....live.live_samples import CLUSTER

POLICY = "max@best-fit"
SUBMIT = ("submit", "--cluster", "three.yaml", "--policy", POLICY, "--state", "now.db", "--to", "none")


@pytest.fixture
def cluster(work):
    (work / "three.yaml").write_text(CLUSTER)
    return work


def decision_of(told):
    return told.out.split("decision ")[1].split()[0]


def test_jobs_one_after_another_share_no_device_and_each_lies_in_a_folder_of_its_own(cluster, meshwright):
    held = set()
    for number in range(3):
        words = ("--job", "graph.txt", "--set", "max_devices=4", "--json", "done.json", "--", "train.py", "a b")
        result = meshwright(*SUBMIT, *words)
        assert result.status == 0, result.err
        done = json.loads((cluster / "done.json").read_text())
        devices = {(host, local) for host, some in done["devices"].items() for local in some}
        assert devices
        assert not devices & held
        held |= devices
        script = (cluster / done["out"] / "job.sbatch").read_text()
        assert done["out"] == f"meshwright-{done['decision']}"
        assert "exec python -u train.py '\"'\"'a b'\"'\"'" in script
        assert "for 600 s" in result.out
        assert f"meshwright state remove {done['decision']} --state now.db" in result.out
        assert number or "--exclusive" not in script
    with Ledger(cluster / "now.db", is_read=True) as ledger:
        request = ledger.decision(done["decision"]).decision.request
    assert isinstance(request.job, dict)  # the file's content


def test_a_job_that_gets_no_devices_is_told_why_with_status_1_and_nothing_is_written(cluster, meshwright):
    job = ("--job", "zoo:squeezenet", "--set", "max_devices=16")
    assert meshwright(*SUBMIT, *job, "--set", "sharing=hosts", "--", "train.py").status == 0
    before = sorted(cluster.iterdir())
    result = meshwright(*SUBMIT, *job, "--", "train.py")
    assert result.status == 1
    (line,) = result.out.splitlines()
    assert "no devices now: " in line
    assert line.endswith("0 of 12 devices are free; when others come free is not known")
    assert sorted(cluster.iterdir()) == before


def test_when_devices_come_free_is_told_where_limits_are_known(cluster, meshwright, capsys):
    state = {"schema_version": 1, "source": "slurm", "hosts": {host: {"num_devices": 4} for host in "abc"}, "jobs": []}
    for number, host in enumerate("abc"):
        end = f"2126-11-24T1{number}:00:00Z"
        state["jobs"].append({"id": str(number), "source": "slurm", "devices": {host: [0, 1, 2, 3]}, "ends_at": end})
    from meshwright.live.changes import listed
    from meshwright.live.state import ClusterState

    with Ledger(cluster / "now.db") as ledger:
        ledger.append(lambda before: listed(before, ClusterState.model_validate(state)))
    result = meshwright(*SUBMIT, "--job", "zoo:squeezenet", "--set", "max_devices=4", "--", "train.py")
    assert result.status == 1
    assert "; 4 are free in 365" in result.out
    assert result.out.rstrip().endswith("days at the latest")


def test_the_same_key_is_decided_once_and_another_job_under_it_is_refused(cluster, meshwright):
    job = ("--job", "zoo:squeezenet", "--set", "max_devices=4", "--set", "key=k")
    first, again = (meshwright(*SUBMIT, *job, "--", "train.py") for _ in range(2))
    assert decision_of(first) == decision_of(again)
    other = meshwright(*SUBMIT, *job, "--steps", "7", "--", "train.py")
    assert (other.status, "steps: the key is that of another request" in other.err) == (2, True)


@pytest.mark.parametrize("width", [80, 120])
def test_decisions_are_listed_and_shown(cluster, meshwright, monkeypatch, width):
    monkeypatch.setattr("meshwright.cli.output.console", _console_of(width))
    placed = meshwright(*SUBMIT, "--job", "zoo:squeezenet", "--set", "owner=ada", "--", "train.py")
    meshwright(*SUBMIT, "--job", "zoo:squeezenet", "--", "train.py")
    name = decision_of(placed)
    with Ledger(cluster / "now.db") as ledger, ledger.turn() as turn:
        turn.observe(name, [Observation(step=step, step_s=0.5 + step) for step in range(3)])
    shown = meshwright("history", "decisions", "--state", "now.db").out
    assert all(word in shown for word in (name, "reserved", "refused", "squeezenet"))
    assert max(map(len, shown.splitlines())) <= width
    one = meshwright("history", "decisions", name, "--state", "now.db").out
    assert all(word in one for word in ("a/0-3", "1500 ms a step in the median of 3", "ada", POLICY, "->", "Its changes"))
    assert max(map(len, one.splitlines())) <= width
    result = meshwright("history", "decisions", name, "--state", "now.db", "--json", "one.json")
    assert result.status == 0
    data = json.loads((cluster / "one.json").read_text())
    assert (data["observed_step_s"], data["num_observed"], data["status"]) == (1.5, 3, "reserved")
    assert [row["status"] for row in data["history"]] == ["reserved"]
    assert sum(row["is_chosen"] for row in data["candidates"]) == 1
    assert len(json.loads(meshwright("history", "decisions", "--state", "now.db", "--json", "-").out)) == 2
    assert (
        "written: one.html"
        in meshwright("history", "decisions", name, "--state", "now.db", "--cluster", "three.yaml", "--html", "one.html").out
    )
    assert f"decision {name}" in (cluster / "one.html").read_text()
    assert meshwright("history", "decisions", "--state", "now.db", "--html", "other.html").status == 2


def _console_of(width):
    from meshwright.cli import output

    plain = output.console

    def made(json_file=None):
        out = plain(json_file)
        out.width = width
        return out

    return made


def test_hooks_are_written_and_replaced(cluster, meshwright):
    for _ in range(2):
        result = meshwright("serve", "hooks", "--server", "unix:/run/meshwright.sock", "--out", "hooks")
        assert result.status == 0
        assert f"PrologSlurmctld={cluster}/hooks/prolog_slurmctld.sh" in result.out
    names = sorted(path.name for path in (cluster / "hooks").iterdir())
    assert names == ["README", "epilog_slurmctld.sh", "export.json", "job_submit.lua", "prolog_slurmctld.sh"]
    assert "--unix-socket /run/meshwright.sock" in (cluster / "hooks" / "job_submit.lua").read_text()


BAD = {
    "a path of no file": (("submit", "--job", "no.json", "--", "t.py"), "no.json: "),
    "a folder that is not there": (("submit", "--job", "a/b", "--", "t.py"), "no such file or folder"),
    "no number of devices": (("submit", "--job", "zoo:vgg16", "--devices", "0", "--", "t.py"), "--devices: "),
    "too few devices": (
        ("submit", "--job", "zoo:vgg16", "--devices", "8", "--set", "max_devices=4", "--", "t.py"),
        "devices: 8 is above max_devices 4",
    ),
    "a program's option": (("submit", "--job", "zoo:vgg16", "--", "-x"), "begins with an option"),
    "words of slurm": (
        ("submit", "--job", "zoo:vgg16", "--set", "time_minutes=3", "--", "t.py"),
        "--set time_minutes: goes with --to slurm only",
    ),
    "a state that is no ledger": (("submit", "--job", "zoo:vgg16", "--state", "a.json", "--", "t.py"), "--state: decisions are"),
    "a menu's option": (("submit", "--job", "zoo:vgg16", "--batch", "8", "--", "t.py"), "batch: goes with policies that pick"),
    "no ledger": (("history", "decisions", "--state", "no.db"), "--state: no such file (got 'no.db')"),
    "a state of another kind": (("history", "decisions", "--state", "graph.txt"), "--state: decisions are kept in a ledger"),
    "no address": (("serve", "hooks", "--out", "hooks"), "--server: the option is missing"),
    "an address for a shell": (
        ("serve", "hooks", "--out", "hooks", "--server", "http://a;b"),
        "--server: is no http://HOST:PORT",
    ),
    "a folder of others": (
        ("serve", "hooks", "--out", "full", "--server", "http://a"),
        "full: the folder holds a file that no export",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_told_in_one_line_and_nothing_is_written(cluster, refused, case):
    (cluster / "full").mkdir()
    (cluster / "full" / "mine").write_text("")
    words, message = BAD[case]
    if words[0] == "submit":
        others = [word for pair in zip(SUBMIT[1::2], SUBMIT[2::2], strict=True) if pair[0] not in words for word in pair]
        words = ("submit", *others, *words[1:])
    assert message in refused(*words)


def test_an_unknown_decision_is_told_with_the_nearest(cluster, meshwright):
    name = decision_of(meshwright(*SUBMIT, "--job", "zoo:squeezenet", "--", "train.py"))
    result = meshwright("history", "decisions", name.replace("-1", "-11"), "--state", "now.db")
    assert (result.status, "ID: there is no such decision" in result.err) == (2, True)
