"""The state that is read from a real Slurm: what ``sinfo`` and ``squeue`` say, and nothing new while nothing changes."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.cli import run_command_line as meshwright
from meshwright.clusters.cluster import Cluster
from meshwright.live.changes import drift
from meshwright.live.keeping import KeptState
from meshwright.live.sources.host_lists import hosts_in
from meshwright.live.state import occupancy

from ..draws import draws
from ..live.sources.test_host_lists import lists
from . import processes
from .conftest import CLUSTER
from .slurm import DEVICES_PER_HOST

pytestmark = pytest.mark.scheduler("slurm")


@pytest.fixture
def busy(loopback_slurm, monkeypatch) -> Iterator[dict[str, str]]:
    """Jobs on parts of hosts and on whole ones, one host drained; the jobs' ids by what they are."""
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, loopback_slurm.environment[name])
    jobs = {}
    for name, words in {
        "part": ("--nodes=1", "--gpus-per-node=1", "--nodelist=gpu-03", "--time=30", "--comment=mw:mine then more"),
        "two": ("--nodes=2", "--ntasks=2", "--gpus-per-node=2", "--nodelist=gpu-03,gpu-07", "--job-name=x NodeList=gpu-11"),
        "whole": ("--nodes=1", "--exclusive", "--nodelist=gpu-05"),
        "no device": ("--nodes=1", "--nodelist=gpu-07"),
        "array": ("--nodes=1", "--gpus-per-node=1", "--nodelist=gpu-07", "--array=0-1"),
        "waits": ("--nodes=1", "--gpus-per-node=4", "--nodelist=gpu-05", "--comment=JobState=RUNNING\n   Other=1"),
    }.items():
        # where no limit is asked for, the backfill scheduler sets one of a year, the main one none
        ran = loopback_slurm.run("sbatch", "--parsable", "--output=/dev/null", "--time=unlimited", *words, "--wrap=sleep 600")
        assert ran.returncode == 0, ran.stderr
        jobs[name] = ran.stdout.strip()
    loopback_slurm.run("scontrol", "update", "nodename=gpu-11", "state=drain", "reason=a fan, State=IDLE")

    def are_running() -> bool:
        return len(loopback_slurm.run("squeue", "--noheader", "--states=running", "--format=%i").stdout.split()) == 6

    processes.wait_for(are_running, "six running jobs", told=loopback_slurm.daemons.told)
    try:
        yield jobs
    finally:
        loopback_slurm.run("scancel", "--me")
        loopback_slurm.run("scontrol", "update", "nodename=gpu-11", "state=resume")
        processes.wait_for(loopback_slurm.is_idle, "idle hosts")


def test_the_state_is_what_sinfo_and_squeue_say_and_a_second_listing_changes_nothing(loopback_slurm, busy, tmp_path, capsys):
    ledger = KeptState(tmp_path / "state.db")
    assert meshwright(["state", "read", "slurm", "--state", str(ledger.path)]) == 0
    assert "5 jobs on 11 devices, 1 host closed" in capsys.readouterr().out  # the job without a device holds none
    state = ledger.read()
    devices = {job.id: dict(job.devices) for job in state.jobs}
    assert devices == {
        busy["part"]: {"gpu-03": (0,)},
        busy["two"]: {"gpu-03": (1, 2), "gpu-07": (0, 1)},
        busy["whole"]: {"gpu-05": (0, 1, 2, 3)},
        f"{busy['array']}_0": {"gpu-07": (2,)},
        f"{busy['array']}_1": {"gpu-07": (3,)},
    }
    shown = loopback_slurm.run("squeue", "--noheader", "--array", "--states=running", "--Format=JobArrayID:40,NodeList:60").stdout
    where = {line[:40].strip(): set(hosts_in(line[40:].strip())) for line in shown.splitlines()}
    assert where.pop(busy["no device"]) == {"gpu-07"}
    assert where == {job: set(result) for job, result in devices.items()}
    assert [job.id for job in state.jobs if job.whole_hosts] == [busy["whole"]]
    assert [(job.id, job.decision) for job in state.jobs if job.decision] == [(busy["part"], "mine")]
    assert [job.id for job in state.jobs if job.ends_at is not None] == [busy["part"]]
    assert {name: host.condition for name, host in state.hosts.items() if host.condition != "up"} == {"gpu-11": "drained"}
    assert state.hosts["gpu-11"].reason == "a fan, State=IDLE"
    used = loopback_slurm.run("sinfo", "--noheader", "--Node", "--Format=NodeList:20,GresUsed:40").stdout
    counts = dict(line.split() for line in used.splitlines())
    free = occupancy(state, Cluster.from_data(CLUSTER)).is_free.reshape(-1, DEVICES_PER_HOST)
    for host, row in zip(CLUSTER["host_names"], free, strict=True):
        held = sum(len(device.get(host, ())) for device in devices.values())
        assert counts[host].startswith(f"gpu:{held}")
        assert row.sum() == (0 if host == "gpu-11" else DEVICES_PER_HOST - held)

    assert meshwright(["state", "read", "slurm", "--state", str(ledger.path)]) == 0
    assert "nothing changed" in capsys.readouterr().out
    assert len(ledger.changes()) == 1
    loopback_slurm.run("scancel", busy["part"])
    shown_job = ("scontrol", "show", "job", busy["part"])
    processes.wait_for(lambda: "CANCELLED" in loopback_slurm.run(*shown_job).stdout, "the end of a job")
    assert meshwright(["state", "read", "slurm", "--state", str(ledger.path)]) == 0
    assert {job.id for job in ledger.read().jobs} == set(devices) - {busy["part"]}
    assert drift(state, ledger.read()) == []
    assert [one["seq"] for one in ledger.changes()] == [1, 2]


def test_a_slurm_that_is_gone_leaves_the_state_as_it_was(tmp_path, monkeypatch, capsys):
    processes.require("slurm", "scontrol")
    (tmp_path / "slurm.conf").write_text("ClusterName=gone\nSlurmctldHost=localhost\nSlurmctldPort=1\nMessageTimeout=1\n")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    assert meshwright(["state", "read", "slurm", "--state", str(tmp_path / "state.db")]) == 2
    assert "scontrol: ended with status 1" in capsys.readouterr().err
    assert not (tmp_path / "state.db").exists()


@draws(4)
@given(texts=st.lists(lists, min_size=5, max_size=8))
def test_slurm_names_the_same_hosts(loopback_slurm, texts):
    """Of what Slurm 22.05 takes: a name ends with its last range."""
    text = ",".join(text.replace("]x", "]").replace("]-ib", "]") for text in texts)
    ran = loopback_slurm.run("scontrol", "show", "hostnames", text)
    assert (ran.stdout.split(), ran.returncode) == (hosts_in(text), 0), ran.stderr
