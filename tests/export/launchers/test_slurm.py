"""The batch script, run under stand-ins for srun that place tasks as Slurm's arbitrary distribution does."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters.cluster import load_cluster
from meshwright.errors import ExportError
from meshwright.export import export
from meshwright.jobs.graph import JobGraph
from meshwright.jobs.job import Job
from meshwright.plans import OpSplits, op_split_plan, place
from meshwright.plans.document import Figure

from ...draws import draws

# One task after another: the k-th line of the hostfile is the host of task k, as `--distribution=arbitrary` places them. The
# first task that fails ends the step where `--kill-on-bad-exit=1` asks for that; the step's status is the highest of its tasks.
SRUN = r"""#!/bin/bash
set -eu
touch started
options=()
while [[ "$1" == --* ]]; do options+=("$1"); shift; done
[[ " ${options[*]} " == *" --distribution=arbitrary "* ]] || { echo "not arbitrary" >&2; exit 9; }
[[ " ${options[*]} " == *" --ntasks=$(wc -l <"$SLURM_HOSTFILE") "* ]] || { echo "another number of tasks" >&2; exit 8; }
declare -A seen
task=0 highest=0
while read -r host; do
  node=${SWAPPED:-$host}
  status=0
  SLURM_PROCID=$task SLURM_LOCALID=${seen[$host]:-0} SLURMD_NODENAME=$node "$@" </dev/null || status=$?
  [ "$status" -le "$highest" ] || highest=$status
  [[ "$status" -eq 0 || " ${options[*]} " != *" --kill-on-bad-exit=1 "* ]] || break
  seen[$host]=$((${seen[$host]:-0} + 1))
  task=$((task + 1))
done <"$SLURM_HOSTFILE"
exit "$highest"
"""
SHOW = (
    "bash -c 'echo $RANK $LOCAL_RANK $WORLD_SIZE $SLURMD_NODENAME "
    "$CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER $MASTER_ADDR:$MASTER_PORT'"
)


def test_directives_of_the_running_example(running_example):
    script = export(running_example, "slurm", {"name": "gpt7b"})["job.sbatch"]
    directives = [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH")]
    assert directives == [
        "--job-name=gpt7b",
        "--nodes=2",
        "--nodelist=gpu-03,gpu-07",
        "--ntasks=8",
        "--ntasks-per-node=4",
        "--gpus-per-node=4",
        "--exclusive",
    ]
    named = export(running_example, "slurm", {"name": "gpt7b", "decision": "run-1.b"})["job.sbatch"]
    assert named == script.replace("#SBATCH --exclusive\n", "#SBATCH --comment=mw:run-1.b\n#SBATCH --exclusive\n")


def test_ranks_come_back_on_the_planned_hosts_and_devices(running_example, tmp_path):
    ran = _submit(export(running_example, "slurm", {"command": SHOW})["job.sbatch"], tmp_path, tasks=8)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        *(f"{rank} {rank} 8 gpu-07 3,2,1,0 PCI_BUS_ID gpu-07:29500" for rank in range(4)),
        *(f"{rank} {rank - 4} 8 gpu-03 0,1,2,3 PCI_BUS_ID gpu-07:29500" for rank in range(4, 8)),
    ]


@draws(8)
@given(st.permutations(["b", "b", "a", "a", "c", "c"]))
def test_any_interleaving_of_hosts_comes_back(tmp_path_factory, make_plan, hosts):
    plan = make_plan(hosts)
    ran = _submit(export(plan, "slurm", {"command": SHOW})["job.sbatch"], tmp_path_factory.mktemp("job"), tasks=6)
    assert ran.returncode == 0, ran.stderr
    rows = [line.split() for line in ran.stdout.splitlines()]
    assert [row[3] for row in rows] == hosts
    # the local rank picks, among the visible devices, the planned one
    assert [int(row[4].split(",")[int(row[1])]) for row in rows] == [rank.local_rank for rank in plan.ranks]


def test_a_task_on_another_host_ends_the_job(running_example, tmp_path):
    script = export(running_example, "slurm", {"command": SHOW})["job.sbatch"]
    ran = _submit(script, tmp_path, tasks=8, SWAPPED="gpu-03")
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert "rank 0 is on gpu-03, the plan puts it on gpu-07" in ran.stderr


def test_the_first_rank_that_fails_ends_the_others(running_example, tmp_path):
    script = export(running_example, "slurm", {"command": "bash -c 'echo $RANK; exit $RANK'"})["job.sbatch"]
    ran = _submit(script, tmp_path, tasks=8)
    assert (ran.returncode, ran.stdout.split()) == (1, ["0", "1"])


PART = {"sharing": "devices", "command": SHOW.replace("$MASTER_ADDR", "${MESHWRIGHT_DEVICES:-none} $MASTER_ADDR")}


@pytest.mark.parametrize(
    ("given", "visible", "seen"),
    [
        ("0,1,2,3", "0,1,2,3", ("3,2,1,0", "0,1,2,3")),  # the plan's order on gpu-07 is 3, 2, 1, 0
        ("0,1,2,3", "4,5,6,7", ("7,6,5,4", "4,5,6,7")),  # as they are called where cgroups hide others
        ("0,2,5,7", "0,1,2,3", ("0,1,2,3", "0,1,2,3")),
    ],
)
def test_devices_that_were_given_are_put_into_the_order_of_the_plan(running_example, tmp_path, given, visible, seen):
    script = export(running_example, "slurm", PART)["job.sbatch"]
    assert "#SBATCH --gpus-per-node=4\n#\n" in script
    assert "#SBATCH --exclusive" not in script
    ran = _submit(script, tmp_path, tasks=8, SLURM_STEP_GPUS=given, CUDA_VISIBLE_DEVICES=visible)
    assert ran.returncode == 0, ran.stderr
    assert [line.split()[4] for line in ran.stdout.splitlines()] == [seen[0]] * 4 + [seen[1]] * 4
    others = [
        "gpu-07: devices 0,2,5,7 were given, planned were 3,2,1,0",
        "gpu-03: devices 0,2,5,7 were given, planned were 0,1,2,3",
    ]
    assert ran.stderr.splitlines() == (others if given == "0,2,5,7" else [])
    assert {line.split()[-1] for line in ran.stdout.splitlines()} == {"gpu-07:29507"}  # its number is 7


@pytest.mark.parametrize("given", [{}, {"SLURM_STEP_GPUS": "0,1", "CUDA_VISIBLE_DEVICES": "0,1"}, {"SLURM_STEP_GPUS": "0,1,2,3"}])
def test_a_job_that_was_given_fewer_devices_ends(running_example, tmp_path, given):
    ran = _submit(export(running_example, "slurm", PART)["job.sbatch"], tmp_path, tasks=8, **given)
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert f"devices 3,2,1,0 are planned, given were SLURM_STEP_GPUS='{given.get('SLURM_STEP_GPUS', '')}'" in ran.stderr


@pytest.mark.parametrize(("sharing", "other"), [("hosts", "devices"), ("devices", "hosts")])
def test_the_head_of_the_script_tells_what_is_not_guaranteed_of_what_is_asked_for(running_example, sharing, other):
    figures = {"hosts": "--exclusive keeps other jobs away", "devices": "Slurm itself picks which GPUs of a host the job gets"}
    files = {one: export(running_example, "slurm", {"name": "gpt7b", "sharing": one}) for one in figures}
    for name in ("job.sbatch", "export.json"):
        text = " ".join(files[sharing][name].replace("\n#", " ").split())
        assert figures[sharing] in text
        assert figures[other] not in text
    assert "# Job gpt7b; ranks: 8, hosts: 2.\n# Not guaranteed by Slurm:\n# - " in files[sharing]["job.sbatch"]


def test_of_a_host_only_the_devices_of_the_plan_are_asked_for(make_plan):
    plan = make_plan(["a", "b"], [5, 1])
    assert "#SBATCH --gpus-per-node=1\n" in export(plan, "slurm", {"sharing": "devices"})["job.sbatch"]
    assert "--exclusive" not in export(plan, "slurm", {"sharing": "devices", "topology_conf": False})["export.json"]
    high = export(plan, "slurm", {"sharing": "devices", "master_port": 65_535})["job.sbatch"]
    assert "MASTER_PORT=$((65535 + SLURM_JOB_ID % 1))" in high


def test_without_its_hostfile_the_job_starts_nothing(running_example, tmp_path):
    (tmp_path / "hosts.7").mkdir()  # in the hostfile's place
    ran = _submit(export(running_example, "slurm", {"command": SHOW})["job.sbatch"], tmp_path, tasks=8)
    assert ran.returncode == 1
    assert "hosts.7: Is a directory" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(("lines", "tasks"), [(8, 6), (7, 8)])
def test_another_number_of_tasks_or_a_hostfile_that_is_too_short_ends_the_job(running_example, tmp_path, lines, tasks):
    script = export(running_example, "slurm", {"command": SHOW})["job.sbatch"]
    ran = _submit(script.replace("gpu-03\nEND_OF_HOSTS", "gpu-03\n" * (lines - 7) + "END_OF_HOSTS"), tmp_path, tasks=tasks)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert f"{lines} lines in the hostfile, {tasks} tasks, 8 ranks in the plan" in ran.stderr


def test_outside_a_job_the_script_says_how_to_submit_it(running_example, tmp_path):
    (tmp_path / "job.sbatch").write_text(export(running_example, "slurm")["job.sbatch"])
    ran = subprocess.run(["bash", "job.sbatch"], cwd=tmp_path, capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    assert ran.returncode != 0
    assert "submit this script with sbatch" in ran.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.sbatch"]


def test_unequal_ranks_per_host_are_refused(make_plan):
    with pytest.raises(ExportError, match="ranks: Slurm wants the same number of ranks on every host: b has 2, a has 1"):
        export(make_plan(["b", "a", "b"]), "slurm")


def test_enough_devices_are_asked_for_to_reach_the_last_index(make_plan):
    script = export(make_plan(["a", "b"], [5, 1]), "slurm")["job.sbatch"]
    assert "#SBATCH --gpus-per-node=6" in script


def test_all_devices_of_a_known_host_are_asked_for():
    cluster = load_cluster("preset:dgx-a100-8x8")
    graph = JobGraph("g", ("a",), ("Linear",), *np.ones((7, 1)), np.empty((0, 2), np.int64))
    plan = op_split_plan(Job(graph, 1), cluster, OpSplits(np.array([2])), place(cluster, [9, 3]))
    assert "#SBATCH --gpus-per-node=8" in export(plan, "slurm")["job.sbatch"]


def test_a_map_too_long_for_one_command_is_refused(make_plan):
    hosts = [f"host-{number:050d}" for number in range(2_200)]
    with pytest.raises(ExportError, match="ranks: the rank map of 2200 ranks is too long for one srun command"):
        export(make_plan(hosts, [0] * 2_200), "slurm")


def _submit(script: str, folder: Path, *, tasks: int, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a batch script as slurmd would, with our srun first in the path."""
    (folder / "bin").mkdir()
    srun = folder / "bin" / "srun"
    srun.write_text(SRUN)
    srun.chmod(0o755)
    (folder / "job.sbatch").write_text(script)
    slurm = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": str(tasks), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    return subprocess.run(["bash", "job.sbatch"], cwd=folder, env=slurm | environment, capture_output=True, text=True, timeout=60)


ASKED = {
    "partition": ("gpu,debug", "#SBATCH --partition=gpu,debug"),
    "account": ("a-1", "#SBATCH --account=a-1"),
    "qos": ("high", "#SBATCH --qos=high"),
    "reservation": ("night", "#SBATCH --reservation=night"),
    "time": (90, "#SBATCH --time=90"),
    "requeue": (False, "#SBATCH --no-requeue"),
    "output": ("logs/%x-%j.out", "#SBATCH --output=logs/%x-%j.out"),
    "cpus_per_task": (2, "#SBATCH --cpus-per-task=2"),
    "mem": ("512M", "#SBATCH --mem=512M"),
    "gpu_bind": ("none", " --cpus-per-task=2 --gpu-bind=none "),  # srun asks for processors itself
    "srun": ("--mpi=none --comment='a b'", " --mpi=none '--comment=a b' "),
    "container": ("nvcr.io#nvidia/pytorch:25.01-py3", " --container-image='nvcr.io#nvidia/pytorch:25.01-py3' "),
    "mounts": ("/data:/data:ro,/home/a:/work", ' --container-mounts="$PWD:$PWD,/data:/data:ro,/home/a:/work" '),
}
"""By key a value and where it goes."""


def test_each_key_stands_where_slurm_reads_it(running_example):
    script = export(running_example, "slurm", {key: value for key, (value, _) in ASKED.items()})["job.sbatch"]
    for key, (_, message) in ASKED.items():
        assert message in (script.splitlines() if message.startswith("#") else script), key


@pytest.mark.parametrize("key", ["partition", "account", "qos", "time", "output", "mem", "gpu_bind", "container", "mounts"])
@pytest.mark.parametrize("text", ["a b", "'x'", 'a"b', "$(id)", "`id`", "a\n#SBATCH --wrap=x", "--help", "", "a;b", "\\"])
def test_other_words_of_slurm_are_refused(running_example, key, text):
    with pytest.raises(ExportError, match=f"{key}: .*wanted"):
        export(running_example, "slurm", {key: text})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"container": "nvcr.io/nvidia/pytorch:25.01-py3"}, "container: pyxis .* nvcr.io#nvidia/pytorch:25.01-py3 would do"),
        ({"container": "images/a.sqsh"}, "; ./images/a.sqsh would do"),
        ({"container": "a#b#c.sqsh"}, "; ./a#b#c.sqsh would do"),
        ({"container": "nvcr.io#a#b"}, "; nvcr.io#a/b would do"),
        ({"mounts": "/a:/b"}, "mounts: is read with a container"),
        ({"env": "A B=1"}, "env: NAME=VALUE is wanted"),
        ({"env": "RANK=1"}, "env: RANK is set by the export"),
        ({"srun": "-n 1"}, "srun: --NAME or --NAME=VALUE is wanted"),
        ({"srun": "--distrib=block"}, "srun: --distribution is set by the export"),
        ({"gpu_bind": "none", "sharing": "devices"}, "gpu_bind: hides from ranks which GPUs of a shared host are theirs"),
        ({"gpu_bind": "closest"}, "gpu_bind: none is wanted: a task that Slurm binds to GPUs sees others"),
        ({"time": "6-23"}, "run for 168 h, longer than that; time=7-0 would do, or requeue=true"),
    ],
)
def test_what_slurm_or_the_plan_would_not_take_is_told_what_would_do(running_example, options, problem):
    job = running_example.job.model_copy(update={"num_steps": 10**6})
    week = running_example.model_copy(update={"predicted": (Figure.predicted("step_s", 0.6048, "s"),), "job": job})
    with pytest.raises(ExportError, match=problem):
        export(week, "slurm", options)


@pytest.mark.parametrize("options", [{"time": "7-0"}, {"time": "UNLIMITED"}, {"time": "0"}, {"time": "10", "requeue": True}])
def test_a_limit_that_the_job_keeps_is_taken(running_example, options):
    week = running_example.model_copy(update={"predicted": (Figure.predicted("completion_s", 604_800.0, "s"),)})
    assert f"#SBATCH --time={options['time']}\n" in export(week, "slurm", options)["job.sbatch"]


@pytest.mark.parametrize("image", ["ubuntu:24.04", "a/b", "user@nvcr.io#a/b:1", "/images/a.sqsh", "./a.sqsh", "localhost:5000#a"])
def test_images_as_pyxis_names_them_are_taken(running_example, image):
    assert export(running_example, "slurm", {"container": image})
