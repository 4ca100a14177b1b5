"""The Open MPI export under a real mpirun: each rank prints its own host name, and it is the plan's."""

import os

import pytest

from meshwright.cli import run_command_line as meshwright
from meshwright.export import export, read_places, verify, write

pytestmark = pytest.mark.scheduler("openmpi")

BLOCK = ["gpu-07/3", "gpu-07/0", "gpu-03/1", "gpu-03/2", "gpu-11/0", "gpu-11/1", "gpu-05/2", "gpu-05/3"]
INTERLEAVED = ["gpu-07/1", "gpu-03/0", "gpu-07/0", "gpu-11/3", "gpu-03/2", "gpu-11/2", "gpu-05/0", "gpu-05/1"]
UNEQUAL = ["gpu-07/0", "gpu-07/1", "gpu-07/2", "gpu-03/0", "gpu-11/1", "gpu-11/0"]
TAGGED = {"MPIRUN": "mpirun --tag-output"}


@pytest.mark.parametrize("devices", [BLOCK, INTERLEAVED, UNEQUAL], ids=["block", "interleaved", "unequal"])
def test_the_ranks_run_where_the_plan_puts_them(loopback_mpi, plan_on, tmp_path, capsys, devices):
    plan = plan_on(devices)
    plan.save(tmp_path / "plan.json")
    write(export(plan, "openmpi", {"probe": True}), tmp_path / "job")
    ran = loopback_mpi.run(tmp_path / "job" / "run.sh", cwd=tmp_path, **TAGGED)
    assert ran.returncode == 0, ran.stderr
    places = {place.rank: place for place in read_places(ran.stdout)}
    assert [f"{places[rank].host}/{places[rank].device}" for rank in range(len(devices))] == devices
    (tmp_path / "log").write_text(ran.stdout)
    assert meshwright(["verify-export", "--format", "openmpi", str(tmp_path / "plan.json"), str(tmp_path / "log")]) == 0
    assert "compared with the host: device, world" in capsys.readouterr().out


def test_the_allocation_of_a_batch_job_around_it_changes_nothing(loopback_mpi, plan_on, tmp_path):
    plan = plan_on(BLOCK)
    write(export(plan, "openmpi", {"probe": True}), tmp_path / "job")
    slurm = {"SLURM_JOBID": "7", "SLURM_NODELIST": "gpu-03,gpu-05", "SLURM_TASKS_PER_NODE": "4(x2)"}
    ran = loopback_mpi.run(tmp_path / "job" / "run.sh", cwd=tmp_path, **TAGGED, **slurm)
    assert ran.returncode == 0, ran.stderr
    assert verify(plan, "openmpi", read_places(ran.stdout)).agrees
    # The negative control: without our settings mpirun takes the hosts of the job.
    script = tmp_path / "job" / "run.sh"
    script.write_text(script.read_text().replace("OMPI_MCA_ras=^slurm,tm,lsf,gridengine OMPI_MCA_plm=rsh", ""))
    ran = loopback_mpi.run(script, cwd=tmp_path, **TAGGED, **slurm)
    assert ran.returncode != 0


def test_the_map_that_mpirun_displays_is_the_plan(loopback_mpi, plan_on, tmp_path):
    plan = plan_on(INTERLEAVED)
    write(export(plan, "openmpi", {"command": "true"}), tmp_path / "job")
    ran = loopback_mpi.run(tmp_path / "job" / "run.sh", cwd=tmp_path, MPIRUN="mpirun --display-map")
    assert ran.returncode == 0, ran.stderr
    assert verify(plan, "openmpi", read_places(ran.stdout)).agrees


def test_ranks_under_another_plan_are_seen(loopback_mpi, plan_on, tmp_path):
    """The negative control."""
    write(export(plan_on(BLOCK), "openmpi", {"probe": True}), tmp_path / "job")
    ran = loopback_mpi.run(tmp_path / "job" / "run.sh", cwd=tmp_path, **TAGGED)
    result = verify(plan_on(INTERLEAVED), "openmpi", read_places(ran.stdout))
    assert result.first.startswith("rank 0 uses device 3 of gpu-07, the plan gives it device 1")
    assert result.elsewhere[1].startswith("is on gpu-07, the plan puts it on gpu-03")


def test_the_failure_of_a_rank_is_the_failure_of_the_script(loopback_mpi, plan_on, tmp_path):
    write(export(plan_on(BLOCK), "openmpi", {"command": "false"}), tmp_path / "job")
    assert loopback_mpi.run(tmp_path / "job" / "run.sh", cwd=tmp_path).returncode != 0


def test_the_rankfile_says_the_same(loopback_mpi, plan_on, tmp_path):
    """Ranks are bound to cores, so there are no more on a host than this machine has cores."""
    cores = len(os.sched_getaffinity(0))
    devices = INTERLEAVED if cores >= 2 else ["gpu-07/1", "gpu-03/0", "gpu-11/3", "gpu-05/0"]
    plan = plan_on(devices)
    write(export(plan, "openmpi"), tmp_path / "job")
    slots = ",".join(f"{host}:{sum(rank.host == host for rank in plan.ranks)}" for host in plan.host_order)
    words = ["--tag-output", "-H", slots, "--rankfile", tmp_path / "job" / "rankfile", "-np", str(len(devices)), "hostname"]
    ran = loopback_mpi.run("mpirun", *words, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert verify(plan, "openmpi", read_places(ran.stdout)).agrees
