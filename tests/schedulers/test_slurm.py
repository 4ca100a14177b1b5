"""The Slurm export under a real slurmctld and four slurmd: what the ranks say is what the plan says."""

import re
import signal

import pytest

from meshwright.cli import run_command_line as meshwright
from meshwright.export import export, read_places, verify, write

from .processes import wait_for

pytestmark = pytest.mark.scheduler("slurm")

BLOCK = ["gpu-07/3", "gpu-07/0", "gpu-03/1", "gpu-03/2", "gpu-11/0", "gpu-11/1", "gpu-05/2", "gpu-05/3"]
INTERLEAVED = ["gpu-07/1", "gpu-03/0", "gpu-07/0", "gpu-11/3", "gpu-03/2", "gpu-11/2", "gpu-05/0", "gpu-05/1"]
PROBE = {"probe": True}


@pytest.mark.parametrize("devices", [BLOCK, INTERLEAVED], ids=["block", "interleaved"])
def test_the_ranks_run_where_the_plan_puts_them(loopback_slurm, plan_on, tmp_path, capsys, devices):
    plan = plan_on(devices)
    plan.save(tmp_path / "plan.json")
    write(export(plan, "slurm", PROBE), tmp_path / "job")
    status, printed = loopback_slurm.submit(tmp_path / "job", "job.sbatch")
    assert status == 0, printed
    places = {place.rank: place for place in read_places(printed)}
    assert [f"{places[rank].host}/{places[rank].device}" for rank in range(8)] == devices
    arguments = ["verify-export", "--format", "slurm", str(tmp_path / "plan.json"), str(tmp_path / "job" / "printed.txt")]
    assert meshwright(arguments) == 0
    assert "all 8 ranks are where the plan puts them (compared with the host: device, world)" in capsys.readouterr().out


def test_the_order_is_not_the_one_that_slurm_gives_by_itself(loopback_slurm, plan_on):
    """The negative control: the same hosts without our hostfile come in sorted order, and that is seen."""
    plan = plan_on(BLOCK)
    ran = loopback_slurm.run(
        "srun", "--label", "--nodes=4", "--ntasks=8", "--nodelist=gpu-07,gpu-03,gpu-11,gpu-05", "printenv", "SLURMD_NODENAME"
    )
    assert ran.returncode == 0, ran.stderr
    result = verify(plan, "slurm", read_places(ran.stdout))
    assert result.first.startswith("rank 0 is on gpu-03, the plan puts it on gpu-07")


def test_a_task_that_finds_itself_elsewhere_ends_the_job(loopback_slurm, plan_on, tmp_path):
    text = export(plan_on(BLOCK), "slurm", PROBE)["job.sbatch"]
    hostfile = text[text.index("<<\\END_OF_HOSTS\n") + 16 : text.index("END_OF_HOSTS\n\n")]
    (tmp_path / "job.sbatch").write_text(text.replace(hostfile, "".join(sorted(hostfile.splitlines(keepends=True)))))
    status, printed = loopback_slurm.submit(tmp_path, "job.sbatch")
    assert status != 0
    assert "rank 0 is on gpu-03, the plan puts it on gpu-07" in printed


def test_a_rank_that_fails_ends_the_job_and_the_other_ranks(loopback_slurm, plan_on, tmp_path):
    command = "bash -c '[ $RANK != 5 ] || exit 7; exec sleep 600'"  # longer than any wait of these tests
    write(export(plan_on(BLOCK), "slurm", {"command": command}), tmp_path / "job")
    status, printed = loopback_slurm.submit(tmp_path / "job", "job.sbatch")
    assert status == 128 + signal.SIGTERM, printed  # srun ends with the highest status, that of the ranks it has ended
    assert "task 5: Exited with exit code 7" in printed


def test_a_hostfile_that_is_too_short_ends_the_job(loopback_slurm, plan_on, tmp_path):
    text = export(plan_on(BLOCK), "slurm", PROBE)["job.sbatch"]
    short = text.replace("gpu-05\nEND_OF_HOSTS", "END_OF_HOSTS")
    assert short != text
    (tmp_path / "job.sbatch").write_text(short)
    accepted = loopback_slurm.run("sbatch", "--test-only", "job.sbatch", cwd=tmp_path)
    assert accepted.returncode == 0  # Slurm itself sees nothing wrong
    status, printed = loopback_slurm.submit(tmp_path, "job.sbatch")
    assert status == 1
    assert "7 lines in the hostfile, 8 tasks, 8 ranks in the plan" in printed


def test_plans_share_a_host_and_each_says_which_devices_it_was_given(loopback_slurm, plan_on, tmp_path, capsys):
    """Two devices of each host are held; the plan's are the other two, and in its order. Then it is given others than planned."""
    if not loopback_slurm.has_devices:
        pytest.skip("slurmd names the devices of a job only where root made them")
    hosts = ["gpu-07", "gpu-03"]
    for planned, is_given in (([3, 2], True), ([0, 1], False)):
        devices = [f"{host}/{local}" for host in hosts for local in planned]
        plan, folder = plan_on(devices), tmp_path / str(is_given)
        plan.save(tmp_path / "plan.json")
        write(export(plan, "slurm", {**PROBE, "sharing": "devices"}), folder)
        holder = loopback_slurm.run(
            "sbatch", "--parsable", "--output=/dev/null", "--nodes=2", "--ntasks=2", "--gpus-per-node=2",
            f"--nodelist={','.join(hosts)}", "--wrap=sleep 600",
        ).stdout.strip()  # fmt: skip
        wait_for(lambda job=holder: "RUNNING" in loopback_slurm.run("scontrol", "show", "job", job).stdout, "the other job")
        job = loopback_slurm.run("sbatch", "--parsable", "--output=printed.txt", "job.sbatch", cwd=folder).stdout.strip()
        wait_for(lambda job=job: "COMPLETED" in loopback_slurm.run("scontrol", "show", "job", job).stdout, "the job")
        printed = (folder / "printed.txt").read_text()
        places = {place.rank: place for place in read_places(printed)}
        given = [f"{places[rank].host}/{places[rank].device}" for rank in range(4)]
        assert given == [f"{host}/{local}" for host in hosts for local in ([3, 2] if is_given else [2, 3])]
        messages = [f"{host}: devices 2,3 were given, planned were 0,1" in printed for host in hosts]
        assert messages == [not is_given] * 2
        arguments = ["verify-export", "--format", "slurm", str(tmp_path / "plan.json"), str(folder / "printed.txt")]
        assert meshwright(arguments) == (0 if is_given else 1)
        capsys.readouterr()
        loopback_slurm.run("scancel", holder)
        wait_for(loopback_slurm.is_idle, "idle hosts")


def test_the_switches_that_slurm_reads_are_those_of_the_cluster(loopback_slurm):
    stdout = loopback_slurm.run("scontrol", "show", "topology").stdout
    rows = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in stdout.splitlines()]
    hosts = [loopback_slurm.run("scontrol", "show", "hostnames", row["Nodes"]).stdout.split() for row in rows]
    shown = {row["SwitchName"]: (int(row["Level"]), frozenset(names)) for row, names in zip(rows, hosts, strict=True)}
    assert shown == {
        "group0": (0, frozenset({"gpu-07", "gpu-03"})),
        "group1": (0, frozenset({"gpu-11", "gpu-05"})),
        "top": (1, frozenset({"gpu-03", "gpu-05", "gpu-07", "gpu-11"})),
    }
