"""Laws of submitting: what fails holds nothing, what may have been accepted stays held, and a key is submitted once."""

import shlex
from unittest.mock import Mock

import pytest

from meshwright.errors import ConflictError, ExportError, InputFileError
from meshwright.export import ExportOptions
from meshwright.live.actuators import slurm, submission
from meshwright.live.controller import Controller
from meshwright.live.deciding import Planners
from meshwright.live.decisions import JobRequest
from meshwright.live.sources.listings import Listing
from meshwright.live.state import ClusterState, HeldJob, HostState

from ..live_samples import HOSTS

REQUEST = JobRequest(job="zoo:squeezenet", max_devices=4)
OPTIONS = ExportOptions(script="train.py 'a b'")
UP = {host: HostState(num_devices=4) for host in HOSTS}


@pytest.fixture(scope="module")
def planners(cluster, tmp_path_factory):
    return Planners(cluster, "max@best-fit", scratch=tmp_path_factory.mktemp("scratch"))


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """``fake(name, answer, status)`` makes a program; ``fake.calls(name)`` are the words of each call."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def make(name, answer="", status=0):
        to = "2" if status else "1"
        log = shlex.quote(str(folder / f"{name}.calls"))
        text = f"#!/bin/bash\nprintf '%s\\0' \"$@\" $'\\n' >>{log}\nprintf %s {shlex.quote(answer)} >&{to}\nexit {status}\n"
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)

    def calls(name):
        log = folder / f"{name}.calls"
        text = log.read_text() if log.exists() else ""
        return [call.split("\0")[:-1] for call in text.split("\n\0")[:-1]]

    make.calls = calls
    return make


def submit(controller, folder, request=REQUEST, options=OPTIONS, key=None, **told):
    return submission.submit(
        controller, request, lambda name: folder / f"jobs '{name}", options, key=key, sbatch=slurm.SbatchOptions(**told)
    )


def statuses(controller, name):
    return [(mention.status, mention.detail) for mention in controller.mentions(name)]


def test_sbatch_gets_one_word_for_each_option_whatever_it_holds(controller, fake, tmp_path):
    fake("sbatch", "17;cluster\n")
    done = submit(
        controller, tmp_path, time_minutes=30, partition="--wrap=x; touch y", account="$(a b)", qos="'", work_dir=tmp_path
    )
    name = done.record.decision.id
    assert fake.calls("sbatch") == [
        [
            *("--parsable", "--no-requeue", f"--comment=mw:{name}", "--time=30", "--partition=--wrap=x; touch y"),
            *("--account=$(a b)", "--qos='", f"--chdir={tmp_path}", "--", str(tmp_path / f"jobs '{name}" / "job.sbatch")),
        ]
    ]
    assert (done.job, done.remarks) == ("17", ())
    assert statuses(controller, name) == [("reserved", ""), ("confirmed", "17")]
    script = (done.folder / "job.sbatch").read_text()
    assert "--exclusive" not in script
    assert "#SBATCH --gpus-per-node=4" in script


def test_a_decision_for_whole_hosts_is_exported_so_and_with_the_limit_of_the_caller(planners, fake, tmp_path):
    fake("sbatch", "17\n")
    done = submit(Controller(tmp_path / "s.db", planners, whole_hosts=True), tmp_path, options=ExportOptions(time="2-12"))
    assert {"#SBATCH --exclusive", "#SBATCH --time=2-12"} <= {*(done.folder / "job.sbatch").read_text().splitlines()}


def test_the_same_key_is_submitted_once(controller, fake, tmp_path):
    fake("sbatch", "17\n")
    first, again = (submit(controller, tmp_path, key="k") for _ in range(2))
    assert (again.job, again.record.decision.id) == (first.job, first.record.decision.id)
    assert again.remarks == ("was submitted before, as job 17",)
    assert len(fake.calls("sbatch")) == 1
    with pytest.raises(ConflictError, match="key"):
        submit(controller, tmp_path, JobRequest(job="zoo:squeezenet"), key="k")


def test_what_cannot_be_submitted_holds_nothing(controller, fake, tmp_path, monkeypatch):
    fake("sbatch", "sbatch: error: Batch job submission failed: Invalid account", 1)
    (tmp_path / "file").write_text("")
    for request, options, folder, error in (
        (REQUEST, OPTIONS, tmp_path, "Invalid account"),
        (REQUEST, ExportOptions(script=f"x.py {'y' * 140_000}"), tmp_path, "too long"),
        (REQUEST, OPTIONS, tmp_path / "file", "file"),
        (JobRequest(job="zoo:squeezenet", steps=10**9), OPTIONS, tmp_path, r"^--set time_minutes: .* that; \d+ would do"),
    ):
        with pytest.raises((InputFileError, ExportError), match=error):
            submit(controller, folder, request, options, time_minutes=900)
        (stored, *_) = controller.store.decisions(None, 1)
        (_, (status, why)) = statuses(controller, stored.decision.id)
        assert (status, why[:15]) == ("released", "not submitted: ")
        assert not controller.store.last()[1].jobs
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputFileError, match="sbatch: no such program on this machine; --to none decides and exports alone"):
        submit(controller, tmp_path)
    with pytest.raises(InputFileError, match="scontrol: no such program on this machine; --to none decides and exports alone"):
        submission.look(controller)
    assert not controller.store.last()[1].jobs


@pytest.mark.parametrize(("answer", "status"), [("Socket timed out on send/recv operation", 1), ("what?\n", 0), ("", 0)])
def test_what_slurm_may_have_accepted_stays_held_until_a_listing_tells(controller, fake, tmp_path, answer, status):
    fake("sbatch", answer, status)
    with pytest.raises(slurm.MaybeSubmittedError, match="Slurm may have the job: its devices stay held"):
        submit(controller, tmp_path, key="k")
    (job,) = controller.store.last()[1].jobs
    controller.take(Listing(ClusterState(source="slurm", hosts=UP), waiting=(job.id,), queued={job.id: "17"}))
    assert submit(controller, tmp_path, key="k").job == "17"
    assert len(fake.calls("sbatch")) == 1


def test_a_job_whose_devices_were_given_back_meanwhile_is_cancelled(controller, fake, tmp_path, monkeypatch):
    fake("sbatch", "17\n")
    fake("scancel")
    export = submission.export

    def with_a_drained_host(plan, *others):
        controller.take(Listing(ClusterState(source="slurm", hosts={host: HostState(condition="drained") for host in HOSTS})))
        return export(plan, *others)

    monkeypatch.setattr(submission, "export", with_a_drained_host)
    with pytest.raises(ConflictError, match=r"is released: a is drained; job 17 is cancelled"):
        submit(controller, tmp_path)
    assert fake.calls("scancel") == [["--", "17"]]


def test_a_listing_says_what_became_of_a_job_that_nobody_confirmed(controller):
    """Its submitter died: the job waits, runs, or has come and gone before anybody looked."""
    names = [controller.decide(REQUEST).decision.id for _ in range(3)]
    held = {job.id: job.devices for job in controller.store.last()[1].jobs}
    runs = HeldJob(id="22", devices=held[names[1]], source="slurm", decision=names[1])
    state = ClusterState(source="slurm", hosts=UP, jobs=(runs,))
    listing = Listing(state, waiting=(names[0],), queued={names[0]: "21"}, ended={names[2]: "23"})
    controller.take(listing, controller.handed_over())
    assert [statuses(controller, name)[1:] for name in names] == [
        [("confirmed", "21")],
        [("running", "22")],
        [("confirmed", "23"), ("ended", "23 is known no more")],
    ]
    seq = controller.store.last()[0]
    controller.take(listing, controller.handed_over())
    assert controller.store.last()[0] == seq
    controller.confirm(names[1], "22")  # comes late, and is true
    assert controller.end("22", "ended with exit code 0:0")
    controller.confirm(names[1], "22")
    assert not controller.end("22", "ended with exit code 0:0")
    assert statuses(controller, names[1])[-1] == ("ended", "ended with exit code 0:0")


def test_looking_asks_again_only_for_a_job_that_slurm_was_handed_and_does_not_know(controller, fake, tmp_path):
    fake("sbatch", "17\n")
    nodes = "".join(f"NodeName={host} \n   Gres=gpu:4\n   State=IDLE \n\n" for host in HOSTS)
    ask = Mock(return_value=f"No jobs in the system\n{nodes}")
    assert submission.look(controller, ask) == ()
    assert ask.call_count == 1
    name = submit(controller, tmp_path).record.decision.id
    submission.look(controller, ask)
    assert ask.call_count == 3
    assert statuses(controller, name)[-1] == ("ended", "17 is known no more")
