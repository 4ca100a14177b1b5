"""The script that starts a command on every host: it ends as its hosts do, also where they end together.

``make stress`` starts 2,000 jobs of each format in place of the few here.
"""

import os
import random
import re
import select
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from meshwright.export import export, write
from meshwright.plans import Layout

from ..grids import plan_of

LAUNCHES = int(os.environ.get("MESHWRIGHT_LAUNCHES", "8"))
"""Jobs of each format whose hosts end at once."""
AT_ONCE = 8
"""So many of them run side by side."""
HOSTS = (2, 3, 6)

# Stand in for ssh. The first one's hosts gpu-09, gpu-08, ... end at once, each with its own status.
ENDS = '#!/bin/bash\nread -r -a statuses <<<"$STATUSES"\nexit "${statuses[9 - 10#${1#gpu-}]}"\n'
# The second one's hosts wait until they are ended, or told with which status to end.
WAITS = """#!/bin/bash
exec 4>alive 5<>"$1"
echo "$1 runs" >&4
read -r status <&5
exit "$status"
"""


FORMATS = ("torchrun", "megatron", "deepspeed")


def exported(form, folder):
    """``exported(...)(hosts)``: the script of a job with one rank on each of so many hosts."""
    for hosts in HOSTS:
        plan = plan_of(Layout(dp=hosts, micro_batch=1, global_batch=hosts), num_hosts=hosts)
        write(export(plan, form, {"command": "true"}), folder / str(hosts))
    return lambda hosts: folder / str(hosts) / "launch.sh"


@pytest.fixture(params=FORMATS)
def script_for(request, tmp_path):
    return exported(request.param, tmp_path)


@pytest.fixture
def script(tmp_path):
    """The script for three hosts, for laws of how it waits."""
    return exported("torchrun", tmp_path)(3)


def test_the_scripts_of_all_formats_wait_alike(tmp_path):
    begun = "trap 'exit 143' TERM\n", "\nleft=$node\n"
    texts = [exported(form, tmp_path / form)(3).read_text() for form in FORMATS]
    assert len({text.partition(begun[1])[1:] for text in texts}) == 1
    # hosts are started by words of the format's own, in between no command is substituted
    for text in texts:
        assert begun[1] in text
        assert not re.search(r"\$\((?!\()|`", text.partition(begun[0])[2])


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


def test_so_it_does_where_the_shell_was_given_its_commands_in_words(script, tmp_path):
    """There bash 5.2 forgets all children but one that have ended before ``wait -n``."""
    environment = _with_remote_shell(ENDS, tmp_path)
    for statuses, expected in (("0 0 0", 0), ("0 0 9", 9)):
        ran = subprocess.run(
            ["bash", "-c", '. "$0"', script], cwd=tmp_path, env=environment | {"STATUSES": statuses}, timeout=100
        )
        assert ran.returncode == expected


def test_the_failure_of_one_host_ends_the_others(script, tmp_path):
    with Waiting(script, tmp_path) as job:
        job.let_end("gpu-08", 7)
        assert job.end() == (7, "launch.sh: gpu-08 ended with status 7\n")


def test_a_host_that_ends_well_ends_no_other(script, tmp_path):
    with Waiting(script, tmp_path) as job:
        job.let_end("gpu-09", 0)
        with pytest.raises(subprocess.TimeoutExpired):  # several rounds of the script later
            job.process.wait(0.5)
        job.let_end("gpu-07", 7)
        assert job.end() == (7, "launch.sh: gpu-07 ended with status 7\n")


def test_without_its_list_of_hosts_the_script_fails(script_for, tmp_path):
    script = script_for(2)
    for name in ("commands.txt", "hosts.txt", "hostfile"):
        (script.parent / name).unlink(missing_ok=True)
    ran = subprocess.run([script], cwd=tmp_path, env=_with_remote_shell(ENDS, tmp_path), capture_output=True, timeout=100)
    assert ran.returncode == 1


def test_variables_of_the_users_that_are_called_as_its_own_change_nothing(script_for, tmp_path):
    taken = dict.fromkeys(("hosts", "pids", "node", "left", "pauses", "status", "running", "program", "launch"), "taken")
    environment = _with_remote_shell(ENDS, tmp_path) | taken | {"STATUSES": "0 9"}
    ran = subprocess.run([script_for(2)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    assert (ran.returncode, ran.stderr) == (9, "launch.sh: gpu-08 ended with status 9\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_script_ends_every_host(script, tmp_path, number):
    """Bash 5.2 itself loses one such signal in some thousands, so it is sent once more where nothing has ended for long."""
    with Waiting(script, tmp_path) as job:
        job.process.send_signal(number)
        try:
            job.process.wait(10)
        except subprocess.TimeoutExpired:
            job.process.send_signal(number)
        assert job.end() == (128 + number, "")


def test_every_host_is_told_its_name_and_its_devices(script_for, tmp_path):
    for program in ("torchrun", "deepspeed"):
        message = '"$ON_HOST $MESHWRIGHT_HOST $CUDA_DEVICE_ORDER ${CUDA_VISIBLE_DEVICES-}"'
        (tmp_path / program).write_text(f"#!/bin/bash\necho {message}\n")
        (tmp_path / program).chmod(0o755)
    environment = _with_remote_shell('#!/bin/bash\nON_HOST=$1 exec bash -c "$2"\n', tmp_path)
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    ran = subprocess.run([script_for(3)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    assert (ran.returncode, ran.stderr) == (0, "")
    devices = "" if (script_for(3).parent / "ds_config.json").exists() else "0"  # DeepSpeed sets them itself, by --include
    assert sorted(ran.stdout.splitlines()) == [f"{host} {host} PCI_BUS_ID {devices}" for host in ("gpu-07", "gpu-08", "gpu-09")]


def test_a_signal_while_hosts_are_started_ends_those_that_run(script, tmp_path):
    """The second host sends it as soon as it runs, and the script, slowed down, has not yet taken note of that host.

    It sends another every five seconds, for bash 5.2 itself loses one in some thousands.
    """
    os.mkfifo(tmp_path / "alive")
    alive = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    sends = '[ "$1" != gpu-08 ] || while kill "$PPID"; do sleep 5 4>&-; done'
    environment = _with_remote_shell(f"#!/bin/bash\nexec 4>alive\n{sends}\nexec sleep 100\n", tmp_path)
    slowed = ["bash", "-c", 'set -T; trap "sleep 0.01" DEBUG; . "$0"', script]
    ran = subprocess.run(slowed, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL, timeout=60)
    assert ran.returncode == 128 + signal.SIGTERM
    have_ended, _, _ = select.select([alive], [], [], 10)  # nobody holds it any more
    os.close(alive)
    assert have_ended


class Waiting:
    """A job on three hosts; every rank runs until it is ended."""

    def __init__(self, script: Path, folder: Path) -> None:
        hosts = ("gpu-09", "gpu-08", "gpu-07")
        for name in ("alive", *hosts):
            os.mkfifo(folder / name)
        # Open in both directions, a pipe waits for nobody; opened for reading, it ends when no host holds it any more.
        first = os.open(folder / "alive", os.O_RDWR)
        self._ends = {host: os.open(folder / host, os.O_RDWR) for host in hosts}
        self.process = subprocess.Popen(
            [script], cwd=folder, env=_with_remote_shell(WAITS, folder), stderr=subprocess.PIPE, text=True
        )
        said = b""
        while said.count(b"\n") < len(hosts):
            have_said, _, _ = select.select([first], [], [], 60)
            if not have_said:
                self.process.kill()
                pytest.fail(f"of three hosts these run: {said.decode()!r}")
            said += os.read(first, 100)
        self._alive = os.open(folder / "alive", os.O_RDONLY)
        os.close(first)

    def let_end(self, host: str, status: int) -> None:
        os.write(self._ends[host], f"{status}\n".encode())

    def end(self) -> tuple[int, str]:
        """The script's status and output, once every host has ended."""
        _, message = self.process.communicate(timeout=60)
        have_ended, _, _ = select.select([self._alive], [], [], 60)
        assert have_ended
        return self.process.returncode, message

    def __enter__(self) -> "Waiting":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()
        for descriptor in (self._alive, *self._ends.values()):
            os.close(descriptor)


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
