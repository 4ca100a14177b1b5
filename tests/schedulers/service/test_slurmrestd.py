"""Real Slurm asked in all its ways: text, JSON, and slurmrestd by a socket file and by an address give the same records."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshwright.cli import run_command_line as meshwright
from meshwright.errors import InputFileError
from meshwright.live.sources.listings import EMPTY
from meshwright.live.sources.slurmrestd import TOKEN_VARIABLE
from meshwright.live.sources.source import source

from ..processes import require, wait_for
from ..slurm import PROGRAMS
from .slurmrestd import RestfulSlurm, require_slurmrestd

pytestmark = pytest.mark.scheduler("slurmrestd")


@pytest.fixture(scope="module")
def restful() -> Iterator[RestfulSlurm]:
    require("slurm", *PROGRAMS)
    require_slurmrestd()
    with tempfile.TemporaryDirectory(prefix="meshwright-slurm-") as folder:
        running = RestfulSlurm(Path(folder))
        try:
            yield running
        finally:
            running.slurm.stop()


@pytest.fixture
def asked(restful, monkeypatch) -> RestfulSlurm:
    """The Slurm that is asked from this process, with a token."""
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, restful.slurm.environment[name])
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    return restful


@pytest.fixture
def ways(asked, tmp_path) -> list[str]:
    """How it is asked."""
    return ["slurm", "slurm:json", f"slurm:{asked.socket}", f"slurm:{asked.url}"]


@pytest.fixture
def token_file(asked, tmp_path) -> Path:
    """Of a good token, as ``scontrol`` prints it."""
    path = tmp_path / "token"
    path.write_text(f"SLURM_JWT={asked.token()}\n")
    return path


def listing(way: str, token_file: Path):
    return source(way, slurm_token_file=token_file if "://" in way else None).listing(EMPTY)


@pytest.fixture(scope="module")
def busy(restful) -> None:
    """Jobs of every kind, and hosts closed in several ways."""
    run = restful.slurm.run
    for words in (
        ("--gpus-per-node=1", "--nodelist=gpu-03", "--time=30", "--comment=mw:mine then more", "--job-name=x NodeList=gpu-11"),
        ("--nodes=2", "--ntasks=2", "--gpus=3", "--nodelist=gpu-03,gpu-07", "--time=1-02:03:00", "--comment=two\nlines"),
        ("--exclusive", "--nodelist=gpu-05", '--job-name="quoted" \\ \té\nJobState=PENDING Reason=None'),
        ("--nodelist=gpu-07",),
        ("--gpus-per-node=1", "--nodelist=gpu-07", "--array=0-3%2", "--comment=mw:array"),
        ("--gpus-per-node=4", "--nodelist=gpu-05", "--comment=mw:waits"),
        ("--gpus-per-node=1", "--nodelist=gpu-05", "--comment=mw:ends"),
        ("--oversubscribe", "--gpus-per-node=4", "--nodelist=gpu-05", "--begin=now+10hours", "--comment=mw:auto steps=3"),
    ):
        ran = run("sbatch", "--parsable", "--output=/dev/null", *words, "--wrap=sleep 600")
        assert ran.returncode == 0, ran.stderr
        last = ran.stdout.strip()
    parts = (*("--gpus-per-node=1", "--exclusive=user", "--nodelist=gpu-11", "--comment=mw:parts"), ":", "--gpus-per-node=1")
    ran = run("sbatch", "--parsable", "--output=/dev/null", *parts, "--comment=mw:parts", "--wrap=sleep 600")
    assert ran.returncode == 0, ran.stderr
    run("scancel", str(int(last) - 1))  # the one that ends

    def are_running() -> bool:
        return len(run("squeue", "--noheader", "--array", "--states=running", "--format=%i").stdout.split()) == 8

    wait_for(are_running, "eight running jobs", told=lambda: run("squeue", "--array").stdout)
    run("scontrol", "suspend", "1")
    run("scontrol", "update", "nodename=gpu-07", "state=drain", "reason=a fan, State=IDLE [x@y]")
    run("scontrol", "update", "nodename=gpu-11", "state=fail", "reason=smoke\nand fire")


def test_all_ways_give_the_same_records(ways, busy, token_file):
    results = [listing(way, token_file) for way in ways]
    assert results[0].state.jobs
    assert results[0].queued == {"array": results[0].queued["array"], "waits": results[0].queued["waits"]}
    for way, one in zip(ways, results, strict=True):
        assert one == results[0], way
    held = {job.id: job for job in results[0].state.jobs}
    assert {"1", "2", "3", "5_0", "5_1"} <= held.keys()
    assert held["3"].whole_hosts
    assert {name: host.condition for name, host in results[0].state.hosts.items()} == {
        "gpu-03": "up",
        "gpu-05": "up",
        "gpu-07": "drained",
        "gpu-11": "drained",
    }


def test_the_command_asks_in_each_way_and_the_second_listing_changes_nothing(asked, ways, busy, token_file, tmp_path, capsys):
    state = str(tmp_path / "now.db")
    assert meshwright(["state", "read", "slurm", "--state", state]) == 0
    capsys.readouterr()
    for way in ways[1:]:
        options = ["--set", f"slurm_token_file={token_file}"] if "://" in way else []
        assert meshwright(["state", "read", way, "--state", state, *options]) == 0
        assert "nothing changed" in capsys.readouterr().out


def test_a_slurm_whose_jobs_have_ended_is_the_same_in_all_ways(restful, busy, ways, token_file):
    restful.slurm.run("scontrol", "resume", "1")
    restful.slurm.restore()
    results = [listing(way, token_file) for way in ways]
    for way, one in zip(ways, results, strict=True):
        assert one == results[0], way
    assert not results[0].state.jobs


def test_an_address_without_a_token_is_refused_and_a_socket_file_wants_none(asked):
    with pytest.raises(InputFileError, match="an address wants a token, in SLURM_JWT or a file"):
        source(f"slurm:{asked.url}").listing(EMPTY)
    assert source(f"slurm:{asked.socket}").listing(EMPTY).state.hosts


def test_a_token_in_the_environment_will_do_and_a_new_one_in_the_file_is_seen(asked, tmp_path, monkeypatch):
    file = tmp_path / "token"
    file.write_text("of yesterday")
    one = source(f"slurm:{asked.url}", slurm_token_file=file)
    with pytest.raises(InputFileError):
        one.listing(EMPTY)
    token = asked.token()
    file.write_text(token)
    result = one.listing(EMPTY)
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    assert source(f"slurm:{asked.url}").listing(EMPTY) == result


@pytest.mark.parametrize("token", ["wrong", "of another key", "ended"])
def test_a_wrong_token_is_refused_in_one_line_that_does_not_tell_it(asked, token, tmp_path):
    good = asked.token(lifespan_s=1 if token == "ended" else 3600)
    head, _, signature = good.rpartition(".")
    given = {"wrong": "wrong", "of another key": f"{head}.{signature[::-1]}", "ended": good}[token]
    (tmp_path / "token").write_text(given)
    if token == "ended":
        time.sleep(2)
    with pytest.raises(InputFileError, match="is its token good, and its time not over") as error:
        source(f"slurm:{asked.url}", slurm_token_file=tmp_path / "token").listing(EMPTY)
    assert "\n" not in str(error.value)
    assert given not in str(error.value)
