"""The script that starts a command on every host: it ends as its hosts do, also where they end together.

``make stress`` starts 2,000 jobs of each format in place of the few here.
"""

import os
import random
import select
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from meshwright.export import export, write
from meshwright.plans import Layout

from .grids import plan_of

LAUNCHES = int(os.environ.get("MESHWRIGHT_LAUNCHES", "8"))
"""Jobs of each format whose hosts end at once."""
AT_ONCE = 8
"""So many of them run side by side."""
HOSTS = (2, 3, 6)

# Stand in for ssh. The first one's hosts gpu-09, gpu-08, ... end at once, each with its own status.
ENDS = '#!/bin/bash\nread -r -a statuses <<<"$STATUSES"\nexit "${statuses[9 - 10#${1#gpu-}]}"\n'
# The second one's hosts wait until they are ended; the one that is named gpu-08 fails once it is let to.
WAITS = """#!/bin/bash
exec 4>alive 5<>"$([ "$1" = gpu-08 ] && echo fails || echo never)"
echo "$1 runs" >&4
read -r _ <&5
exit 7
"""


@pytest.fixture(scope="module", params=["torchrun", "megatron", "deepspeed"])
def script_for(request, tmp_path_factory):
    """``script_for(hosts)``: the script of a job with one rank on each of so many hosts."""
    folder = tmp_path_factory.mktemp(request.param)
    for hosts in HOSTS:
        plan = plan_of(Layout(dp=hosts, micro_batch=1, global_batch=hosts), num_hosts=hosts)
        write(export(plan, request.param, {"command": "true"}), folder / str(hosts))
    return lambda hosts: folder / str(hosts) / "launch.sh"


def test_hosts_that_end_together_end_the_job_with_a_status_of_theirs(script_for, tmp_path):
    """All well in three cases of four; else any number of them fail, and the job's status is one of those."""
    draw = random.Random(0)
    cases = []
    for number in range(LAUNCHES):
        hosts = HOSTS[number % len(HOSTS)]
        num_failed = draw.randint(1, hosts) if number % 4 == 3 else 0
        cases.append(draw.sample([draw.randint(1, 255) for _ in range(num_failed)] + [0] * (hosts - num_failed), hosts))
    environment = _with_remote_shell(ENDS, tmp_path)

    def launch(statuses):
        env = environment | {"STATUSES": " ".join(map(str, statuses))}
        return subprocess.run([script_for(len(statuses))], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        ended = [(ran.returncode, ran.stderr) for ran in pool.map(launch, cases)]
    wrong = [(statuses, end) for statuses, end in zip(cases, ended, strict=True) if end not in _true_ends(statuses)]
    assert not wrong, f"{len(wrong)} of {LAUNCHES}"


def test_so_it_does_where_the_shell_was_given_its_commands_in_words(script_for, tmp_path):
    """There bash 5.2 forgets all children but one that have ended before ``wait -n``."""
    environment = _with_remote_shell(ENDS, tmp_path)
    for statuses, wanted in (("0 0 0", 0), ("0 0 9", 9)):
        ran = subprocess.run(
            ["bash", "-c", '. "$0"', script_for(3)], cwd=tmp_path, env=environment | {"STATUSES": statuses}, timeout=100
        )
        assert ran.returncode == wanted


def test_the_failure_of_one_host_ends_the_others(script_for, tmp_path):
    with Waiting(script_for(3), tmp_path) as job:
        job.let_it_fail()
        assert job.end() == (7, "launch.sh: gpu-08 ended with status 7\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_script_ends_every_host(script_for, tmp_path, number):
    with Waiting(script_for(3), tmp_path) as job:
        job.process.send_signal(number)
        status, told = job.end()
        assert (status % 256, told) in {(128 + number, ""), (256 - number, "")}  # that of a shell, or killed by the signal


class Waiting:
    """A job on three hosts, all of which run until they are ended."""

    def __init__(self, script: Path, folder: Path) -> None:
        for name in ("alive", "fails", "never"):
            os.mkfifo(folder / name)
        # Open in both directions, a pipe waits for nobody; opened for reading, it ends when no host holds it any more.
        first = os.open(folder / "alive", os.O_RDWR)
        self._fails = os.open(folder / "fails", os.O_RDWR)
        self.process = subprocess.Popen(
            [script], cwd=folder, env=_with_remote_shell(WAITS, folder), stderr=subprocess.PIPE, text=True
        )
        said = b""
        while said.count(b"\n") < 3:
            said += os.read(first, 100)
        self._alive = os.open(folder / "alive", os.O_RDONLY)
        os.close(first)

    def let_it_fail(self) -> None:
        os.write(self._fails, b"\n")

    def end(self) -> tuple[int, str]:
        """The script's status and what it told, once every host has ended."""
        _, told = self.process.communicate(timeout=60)
        have_ended, _, _ = select.select([self._alive], [], [], 60)
        assert have_ended
        return self.process.returncode, told

    def __enter__(self) -> "Waiting":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._alive)
        os.close(self._fails)


def _true_ends(statuses: list[int]) -> set[tuple[int, str]]:
    """Status and message with which a job may end whose hosts end with these statuses."""
    failed = {
        (status, f"launch.sh: gpu-{9 - rank:02d} ended with status {status}\n") for rank, status in enumerate(statuses) if status
    }
    return failed or {(0, "")}


def _with_remote_shell(body: str, folder: Path) -> dict[str, str]:
    remote = folder / "remote"
    remote.write_text(body)
    remote.chmod(0o755)
    return {"PATH": os.environ["PATH"], "REMOTE_SHELL": str(remote)}
