"""`submit` into a real Slurm of eight hosts: ranks run where they were planned, no device is held twice, and what fails is seen.

``MESHWRIGHT_SLURM_JOBS`` sets the number of jobs; nobody answers Slurm's hooks meanwhile, so that all jobs also show that the
hooks fail open.
"""

import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from meshwright.clusters.cluster import Cluster
from meshwright.errors import InputFileError
from meshwright.export import ExportOptions, read_places, verify
from meshwright.live.actuators import slurm, submission
from meshwright.live.controller import Controller
from meshwright.live.deciding import Planners
from meshwright.live.decisions import JobRequest
from meshwright.live.state import occupancy

from ..conftest import EIGHT
from ..processes import wait_for
from ..slurm import DEVICES_PER_HOST

pytestmark = pytest.mark.scheduler("slurm")

NUM_JOBS = int(os.environ.get("MESHWRIGHT_SLURM_JOBS", "40"))
LONG = 200
POLICY = "max@best-fit"
JOB = "zoo:squeezenet"
DEVICES = (1, 2, 1, 4, 2, 1, 2, 8)
RANK_S = 0.2


class Runs:
    """Jobs by `submit` on a ledger; some hold their hosts whole."""

    def __init__(self, slurm_of_test, folder: Path, planners: Planners) -> None:
        self.slurm = slurm_of_test
        self.logs = folder / "ranks"
        self.logs.mkdir()
        self.folder = folder
        self.sbatch = slurm.SbatchOptions(time_minutes=5, work_dir=folder)
        self.controllers = [Controller(folder / "state.db", planners, whole_hosts=whole) for whole in (False, True)]
        self.plans = {}
        self.whole = {}

    def submit(self, devices: int, *, whole: bool = False, run_s: float = RANK_S, key: str | None = None):
        """Submit a job, once devices are free for it; Slurm's id of it and its decision's."""
        controller = self.controllers[whole]
        command = f"{Path(__file__).parent}/rank.sh {self.logs} {run_s}"
        request = JobRequest(job=JOB, max_devices=devices)
        done = None

        def is_placed() -> bool:
            nonlocal done
            submission.look(controller)
            done = submission.submit(
                controller, request, lambda name: self.folder / name, ExportOptions(command=command), key=key, sbatch=self.sbatch
            )
            return done.job is not None

        wait_for(is_placed, "free devices", told=lambda: self.slurm.run("squeue").stdout + self.slurm.run("sinfo").stdout)
        self.plans[done.job] = controller.whole_plan(done.record.decision)
        self.whole[done.job] = whole
        return done.job, done.record.decision.id

    def state(self):
        """Slurm's own listing."""
        submission.look(self.controllers[0])
        return self.controllers[0].store.last()[1]

    def log_of(self, job: str) -> str:
        """The log of a job's ranks."""
        return "".join(path.read_text() for path in sorted(self.logs.glob(f"{job}.*")))

    def num_ended(self, job: str) -> int:
        """How many ranks of a job logged their end."""
        return sum(len(path.read_text().splitlines()) == 3 for path in self.logs.glob(f"{job}.*"))

    def intervals(self):
        """``(begin, end, job)`` of each device of each host, as the ranks that ran there logged them."""
        result = defaultdict(list)
        for path in self.logs.iterdir():
            place, began, *ended = path.read_text().splitlines()
            (rank,) = read_places(place)
            end = float(ended[0]) if ended else float("inf")
            result[rank.host, rank.device].append((float(began.split()[0]), end, path.name))
        return result

    def queued(self) -> set[str]:
        """Ids of the jobs that have not ended."""
        return set(self.slurm.run("squeue", "--noheader", "--format=%i").stdout.split())


@pytest.fixture(scope="module")
def planners(tmp_path_factory) -> Planners:
    made = Planners(Cluster.from_data(EIGHT), POLICY, scratch=tmp_path_factory.mktemp("scratch"))
    for devices in sorted(set(DEVICES)):
        made.make_ready(JobRequest(job=JOB, max_devices=devices))
    return made


@pytest.fixture
def runs(hooked_slurm, planners, tmp_path, monkeypatch) -> Iterator[Runs]:
    if not hooked_slurm.has_devices:
        pytest.skip("slurmd names the devices of a job only where root made them")
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, hooked_slurm.environment[name])
    made = Runs(hooked_slurm, tmp_path, planners)
    try:
        yield made
    finally:
        for controller in made.controllers:
            controller.close()


def test_a_job_whose_submitter_died_before_confirming_is_found_by_its_comment(runs, planners):
    """``kill -9`` between sbatch and confirm, in a process of its own; asked again by its key, nothing is submitted twice."""
    pid = os.fork()
    if pid == 0:
        runs.controllers = [Controller(runs.folder / "state.db", planners)]
        runs.controllers[0].confirm = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        with suppress(BaseException):
            runs.submit(4, run_s=600, key="once")
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    (job,) = runs.queued()
    (stored,) = runs.controllers[0].store.decisions(None, 9)
    assert [mention.status for mention in runs.controllers[0].mentions(stored.decision.id)] == ["reserved"]
    assert runs.submit(4, key="once") == (job, stored.decision.id)
    last = runs.controllers[0].mentions(stored.decision.id)[-1]
    assert (last.status in ("confirmed", "running"), last.detail) == (True, job)
    assert runs.queued() == {job}
    slurm.cancel(job)
    if last.status == "confirmed":
        runs.controllers[0].release(stored.decision.id, "cancelled")
    wait_for(lambda: not runs.state().jobs, "the end of the job")
    assert runs.controllers[0].mentions(stored.decision.id)[-1].status in ("released", "ended")


def test_what_slurm_refuses_holds_nothing(runs):
    runs.sbatch = slurm.SbatchOptions(partition="no; such 'one")
    with pytest.raises(InputFileError, match=r"sbatch: ended with status 1: .*Invalid partition"):
        runs.submit(2)
    (stored,) = runs.controllers[0].store.decisions(None, 9)
    last = runs.controllers[0].mentions(stored.decision.id)[-1]
    assert last.status == "released"
    assert "Invalid partition" in last.detail
    assert not runs.state().jobs
    assert not runs.queued()


def test_where_slurm_gives_other_devices_than_planned_slurm_is_right_and_both_sides_are_told(runs):
    """Invariant 6: another job has the planned devices when ours starts; a plan that is not submitted yet is dropped."""
    controller = runs.controllers[0]
    planned = [controller.decide(JobRequest(job=JOB, max_devices=2), f"key {number}").decision for number in range(3)]
    (host,) = {rank["host"] for one in planned[:2] for rank in one.plan["ranks"]}
    words = ("sbatch", "--parsable", "--output=/dev/null", "--nodes=1", "--gpus-per-node=2", f"--nodelist={host}")
    other = runs.slurm.run(*words, "--wrap=sleep 600").stdout.strip()
    wait_for(lambda: "RUNNING" in runs.slurm.run("scontrol", "show", "job", other).stdout, "the other job")
    job = submission.submit(
        controller,
        JobRequest(job=JOB, max_devices=2),
        lambda name: runs.folder / name,
        ExportOptions(command=f"{Path(__file__).parent}/rank.sh {runs.logs} 600"),
        key="key 0",
        sbatch=runs.sbatch,
    ).job
    wait_for(lambda: len(list(runs.logs.glob(f"{job}.*"))) == 2, "both ranks")
    reported = submission.look(controller)
    assert f"not as it was known: {job} runs on {host}/2-3, planned as {planned[0].id} was {host}/0-1" in reported
    assert f"not as it was known: {job} runs on devices of the plan {planned[1].id}, which is dropped: {host}/2-3" in reported
    held = {one.id: dict(one.devices) for one in controller.store.last()[1].jobs}
    assert held.keys() == {job, other, planned[2].id}
    assert (held[other], held[job]) == ({host: (0, 1)}, {host: (2, 3)})
    assert f"{host}: devices 2,3 were given, planned were 0,1" in (runs.folder / f"slurm-{job}.out").read_text()
    assert submission.look(controller) == ()
    controller.release(planned[2].id)
    runs.slurm.run("scancel", job, other)
    wait_for(lambda: not runs.state().jobs, "the end of the jobs")


def test_a_plan_that_takes_whole_hosts_holds_them_whole_in_the_state_and_in_slurm(runs):
    """Invariant 10: two of four devices; as the plan says, the others can be had or not."""
    job, name = runs.submit(2, whole=True, run_s=600)
    (held,) = runs.controllers[0].store.last()[1].jobs
    assert (held.id, held.whole_hosts) == (name, True)
    wait_for(lambda: "RUNNING" in runs.slurm.run("scontrol", "show", "job", job).stdout, "the job")
    (listed,) = runs.state().jobs
    assert (listed.id, listed.decision, listed.whole_hosts) == (job, name, True)
    assert sum(map(len, listed.devices.values())) == DEVICES_PER_HOST
    other, _ = runs.submit(2, run_s=600)
    wait_for(lambda: "RUNNING" in runs.slurm.run("scontrol", "show", "job", other).stdout, "the other job")
    by_id = {one.id: one for one in runs.state().jobs}
    assert sum(map(len, by_id[other].devices.values())) == 2
    assert not set(by_id[other].devices) & set(listed.devices)
    used = dict(line.split() for line in runs.slurm.run("sinfo", "-hN", "-O", "NodeList:20,GresUsed:40").stdout.splitlines())
    assert {host: int(used[host].split(":")[1][0]) for one in by_id.values() for host in one.devices} == {
        host: len(local) for one in by_id.values() for host, local in one.devices.items()
    }
    runs.slurm.run("scancel", job, other)
    wait_for(lambda: not runs.state().jobs, "the end of the jobs")


def test_jobs_run_as_planned_while_a_host_is_drained_and_another_one_dies(runs):
    began = time.monotonic()
    drained = dead = None
    for number in range(NUM_JOBS):
        if number == NUM_JOBS // 3:
            reserved = runs.controllers[0].decide(JobRequest(job=JOB, max_devices=1)).decision
            while reserved.outcome != "placed":
                submission.look(runs.controllers[0])
                reserved = runs.controllers[0].decide(JobRequest(job=JOB, max_devices=1)).decision
            drained = reserved.plan["ranks"][0]["host"]
            runs.slurm.run("scontrol", "update", f"nodename={drained}", "state=drain", "reason=a fan")
            assert f"given back: the devices of {reserved.id}" in submission.look(runs.controllers[0])
            last = runs.controllers[0].mentions(reserved.id)[-1]
            assert (last.status, last.detail) == ("released", f"{drained} is drained: a fan")
        if number == 2 * NUM_JOBS // 3:
            doomed, of_doomed = runs.submit(1, run_s=600)
            wait_for(lambda job=doomed: runs.log_of(job) != "", "the long job")
            (dead,) = {rank.host for rank in runs.plans[doomed].ranks}
            runs.slurm.daemons.kill(f"slurmd-{dead}")
        runs.submit(DEVICES[number % 8], whole=number % 5 == 0)
    closed = {drained, dead}
    pinned = {job for job, plan in runs.plans.items() if closed & set(plan.host_order)}

    if NUM_JOBS < LONG:  # Slurm itself takes half a minute to see it
        runs.slurm.run("scontrol", "update", f"nodename={dead}", "state=down", "reason=gone")
    wait_for(lambda: runs.state().hosts[dead].condition == "down", "the end of the host that died")
    for path in runs.logs.glob(f"{doomed}.*"):
        os.kill(int(path.read_text().splitlines()[1].split()[1]), signal.SIGKILL)
    wait_for(lambda: runs.queued() <= pinned, "the end of the jobs", told=lambda: runs.slurm.run("squeue").stdout)
    lost = {job for job in pinned if runs.num_ended(job) < runs.plans[job].num_ranks}
    for job in runs.queued():
        slurm.cancel(job)
    wait_for(lambda: not runs.queued(), "an empty queue")
    wait_for(lambda: not runs.state().jobs, "a free cluster", told=lambda: str(runs.state().jobs))

    others = []
    for job, plan in runs.plans.items():
        if job in lost:
            continue
        result = verify(plan, "slurm", read_places(runs.log_of(job)))
        printed = (runs.folder / f"slurm-{job}.out").read_text()
        if "were given, planned were" in printed:
            others.append(job)
            assert not runs.whole[job]
        else:
            assert result.first is None, (job, result.first, printed)
        by_rank = {place.rank: place.host for place in read_places(runs.log_of(job))}
        assert [by_rank[rank] for rank in range(plan.num_ranks)] == [rank.host for rank in plan.ranks]
    for device, intervals in runs.intervals().items():
        intervals.sort()
        for (_, end, first), (begin, _, second) in pairwise(intervals):
            assert end <= begin, (device, first, second)
    assert len(runs.plans) == NUM_JOBS + 1
    assert runs.controllers[0].mentions(of_doomed)[-1].status == "ended"

    state = runs.state()
    shown = dict(line.split() for line in runs.slurm.run("sinfo", "-hN", "--format=%N %T").stdout.splitlines())
    assert {host for host, word in shown.items() if word.strip("*") != "idle"} == closed
    assert {host for host, one in state.hosts.items() if one.condition != "up"} == closed
    free = occupancy(state, Cluster.from_data(EIGHT)).is_free.reshape(-1, DEVICES_PER_HOST)
    assert np.array_equal(free.all(axis=1), [host not in closed for host in EIGHT["host_names"]])
    sys.stdout.write(
        f"{NUM_JOBS} jobs in {time.monotonic() - began:.1f} s, {len(lost)} lost with hosts, "
        f"{len(others)} on other devices of the planned hosts\n"
    )
