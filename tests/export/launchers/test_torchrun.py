"""torchrun's commands and the launcher, up to really launching two agents on this machine."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from meshwright.errors import ExportError
from meshwright.export import export, read_places, verify, write

from ...schedulers.processes import free_ports

# Stands in for ssh: `remote HOST COMMAND` runs the command here and tells it which host it is.
REMOTE = '#!/bin/bash\nON_HOST="$1" exec bash -c "$2"\n'

SHOW = """
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(total)
devices = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
line = " ".join([str(dist.get_rank()), os.environ["ON_HOST"], devices[int(os.environ["LOCAL_RANK"])], str(total.item())])
os.write(1, (line + chr(10)).encode())
dist.destroy_process_group()
"""


def test_commands_of_the_running_example(running_example):
    rows = _commands(export(running_example, "torchrun", {"master_port": 1234}))
    assert [host for host, _ in rows] == ["gpu-07", "gpu-03"]
    assert rows[0][1] == [
        "env",
        "CUDA_DEVICE_ORDER=PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES=3,2,1,0",
        "torchrun",
        "--rdzv-backend=static",
        "--nnodes=2",
        "--node-rank=0",
        "--nproc-per-node=4",
        "--master-addr=gpu-07",
        "--master-port=1234",
        "train.py",
    ]
    assert "--node-rank=1" in rows[1][1]
    assert "--master-addr=gpu-07" in rows[1][1]


def test_a_command_of_the_users_own_runs_without_python(running_example):
    rows = _commands(export(running_example, "torchrun", {"command": "python -m train --note 'two words'"}))
    assert rows[0][1][-6:] == ["--no-python", "python", "-m", "train", "--note", "two words"]


def test_ranks_that_torchrun_would_renumber_are_refused(make_plan):
    with pytest.raises(ExportError, match="rank 1: torchrun numbers ranks host by host, 2 on each"):
        export(make_plan(["b", "a", "b", "a"]), "torchrun")
    with pytest.raises(ExportError, match="ranks: torchrun wants the same number of ranks on every host"):
        export(make_plan(["b", "b", "a"]), "torchrun")


def test_the_launcher_starts_every_host_in_the_right_folder(running_example, tmp_path):
    out, remote = _prepared(running_example, {"command": "true"}, tmp_path)
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "torchrun").write_text('#!/bin/bash\necho "$ON_HOST $PWD $CUDA_VISIBLE_DEVICES $3"\n')
    (fake / "torchrun").chmod(0o755)
    ran = _launch(out, remote, tmp_path, PATH=f"{fake}:{os.environ['PATH']}", WORK_DIR=str(folder))
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == [f"gpu-03 {folder} 0,1,2,3 --node-rank=1", f"gpu-07 {folder} 3,2,1,0 --node-rank=0"]


@pytest.mark.scheduler("torchrun")
def test_two_agents_form_the_planned_group(make_plan, tmp_path):
    # Alphabetically 127.0.0.1 would come first; the plan says otherwise.
    ran = launch_here(make_plan(["localhost", "127.0.0.1"], [2, 1]), SHOW, tmp_path)
    assert ran.returncode == 0, ran.stderr
    # rank, host, device, 1 + 2
    assert sorted(ran.stdout.splitlines()) == ["0 localhost 2 3", "1 127.0.0.1 1 3"]


@pytest.mark.scheduler("torchrun")
def test_the_probe_of_two_agents_agrees_with_the_plan(make_plan, tmp_path):
    plan = make_plan(["localhost", "localhost", "127.0.0.1", "127.0.0.1"], [2, 1, 0, 3])
    ran = launch_here(plan, "", tmp_path, {"probe": True})
    assert ran.returncode == 0, ran.stderr
    result = verify(plan, "torchrun", read_places(ran.stdout))
    assert result.agrees, result.first
    assert result.compared == ("device", "world")


def _commands(files: dict[str, str]) -> list[tuple[str, list[str]]]:
    lines = [line for line in files["commands.txt"].splitlines() if not line.startswith("#")]
    return [(line.split("\t")[0], shlex.split(line.split("\t")[1])) for line in lines]


def _prepared(plan, options, tmp_path: Path) -> tuple[Path, Path]:
    write(export(plan, "torchrun", options), tmp_path / "out")
    remote = tmp_path / "remote"
    remote.write_text(REMOTE)
    remote.chmod(0o755)
    return tmp_path / "out", remote


def launch_here(plan, program: str, folder: Path, options=None) -> subprocess.CompletedProcess[str]:
    """Launch a program as the plan says, all hosts being this machine."""
    [port] = free_ports(1)
    out, remote = _prepared(plan, {"script": "program.py", "master_port": port, **(options or {})}, folder)
    (folder / "program.py").write_text(program)
    fake = folder / "bin"
    fake.mkdir()
    (fake / "torchrun").write_text(f'#!/bin/bash\nexec {shlex.quote(sys.executable)} -m torch.distributed.run "$@"\n')
    (fake / "torchrun").chmod(0o755)
    # the stand-in for the remote shell finds Python's own folder first
    path = f"{fake}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return _launch(out, remote, folder, PATH=path, PYTHONPATH=str(out), OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")


def _launch(out: Path, remote: Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    assert os.access(out / "launch.sh", os.X_OK)
    environment = {**os.environ, "REMOTE_SHELL": str(remote), **environment}
    return subprocess.run([out / "launch.sh"], cwd=folder, env=environment, capture_output=True, text=True, timeout=100)
