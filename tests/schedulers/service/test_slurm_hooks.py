"""Our hooks under a real slurmctld: a job that asks for it is planned, its start and end are known, and nothing stops a job."""

import json
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from meshwright import settings
from meshwright.clusters.cluster import Cluster
from meshwright.live.actuators import slurm_hooks
from meshwright.live.controller import Controller
from meshwright.live.deciding import Planners
from meshwright.live.decisions import JobRequest

from ..conftest import EIGHT
from ..processes import wait_for

pytestmark = pytest.mark.scheduler("slurm")

ENDS = {
    "/v1/slurm/submit": (slurm_hooks.SubmitBody, slurm_hooks.on_submit),
    "/v1/slurm/prolog": (slurm_hooks.PrologBody, slurm_hooks.on_prolog),
    "/v1/slurm/epilog": (slurm_hooks.EpilogBody, slurm_hooks.on_epilog),
}
AUTO = "--comment=mw:auto job=zoo:squeezenet steps=2000"


@contextmanager
def service(
    socket: Path, controller: Controller, to_prepare: list[JobRequest], delay_s: float = 0.0
) -> Iterator[list[tuple[str, dict[str, object]]]]:
    """A service on a Unix socket that answers Slurm's hooks; yields what it is asked.

    Jobs to price go to a list: pricing takes longer than a hook waits, and later questions need answers meanwhile.
    """
    request = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            data = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            request.append((self.path, data))
            time.sleep(delay_s)
            body, act = ENDS[self.path]
            answer = act(controller, settings.build_settings(body, data))
            if answer.prepare is not None:
                to_prepare.append(answer.prepare)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer.body).encode())

        def log_message(self, *_):
            pass

    class Server(socketserver.UnixStreamServer):
        def handle_error(self, *_):  # who asked has gone
            pass

    with Server(str(socket), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield request
        finally:
            server.shutdown()
            thread.join()
            socket.unlink()


@pytest.fixture
def controller(tmp_path):
    return Controller(tmp_path / "s.db", Planners(Cluster.from_data(EIGHT), "max@best-fit", scratch=tmp_path))


def test_a_job_that_asks_for_it_is_planned_and_its_start_and_end_are_told(hooked_slurm, controller, tmp_path):
    injected = tmp_path / "injected"
    name = f"a'; touch {injected}; $(touch {injected}) `touch {injected}` \"\\ }}%s%n\né"
    words = ("sbatch", "--parsable", f"--job-name={name}", "--output=/dev/null", "--nodes=1", "--gpus-per-node=4")
    to_prepare = []
    with service(hooked_slurm.folder / "service", controller, to_prepare) as server:

        def is_told(path: str, job: str) -> bool:
            return any(end == f"/v1/slurm/{path}" and data["job_id"] == job for end, data in server)

        first = hooked_slurm.run(*words, AUTO, "--wrap=exit 0")
        assert first.returncode == 0
        assert "meshwright: runs unplanned: its kind of job is made ready now" in first.stderr
        wait_for(lambda: is_told("epilog", first.stdout.strip()), "the end of the first job", told=lambda: f"{server}")
        controller.planners.make_ready(to_prepare.pop())
        ran = hooked_slurm.run(*words, AUTO, "--wrap=exit 7")
        (stored,) = controller.store.decisions(None, 9)
        (host,) = {rank["host"] for rank in stored.decision.plan["ranks"]}
        assert f"meshwright: planned on {host} as decision {stored.decision.id}" in ran.stderr
        job = ran.stdout.strip()
        shown = hooked_slurm.run("scontrol", "show", "job", job).stdout
        assert f"ReqNodeList={host} " in shown
        assert f"Comment=mw:{stored.decision.id} " in shown
        wait_for(
            lambda: is_told("epilog", job),
            "the end of the job",
            told=lambda: f"{server} {hooked_slurm.run('scontrol', 'show', 'job', job).stdout}",
        )
        wait_for(lambda: len(controller.mentions(stored.decision.id)) == 3, "the end of the job in the ledger")
        plain = hooked_slurm.run("sbatch", "--parsable", "--output=/dev/null", "--comment=mw:autopilot", "--wrap=exit 0")
        assert (plain.returncode, plain.stderr) == (0, "")
        wait_for(lambda: is_told("epilog", plain.stdout.strip()), "the end of a job of others", told=lambda: f"{server}")
    messages = [(mention.status, mention.detail) for mention in controller.mentions(stored.decision.id)]
    assert messages == [("reserved", ""), ("confirmed", job), ("ended", "ended with exit code 7:0")]
    assert not controller.store.last()[1].jobs
    assert not injected.exists()
    submits = [data for path, data in server if path.endswith("submit")]
    assert len(submits) == 2
    assert {(data["name"], data["gpus_per_node"], data["nodes"]) for data in submits} == {(name, 4, 1)}
    started = {data["job_id"]: data["name"] for path, data in server if path.endswith("prolog")}
    ours, others = {first.stdout.strip(), job}, {plain.stdout.strip()}
    assert started.keys() == ours | others
    assert {started[our] for our in ours} == {name.replace("\n", " ")}


def test_a_service_that_is_slow_stops_no_job(hooked_slurm, controller):
    with service(hooked_slurm.folder / "service", controller, [], delay_s=2.5):
        ran = hooked_slurm.run("sbatch", "--parsable", "--output=/dev/null", "--nodes=1", "--gpus-per-node=1", AUTO, "--wrap=:")
        assert ran.returncode == 0
        assert "meshwright: runs unplanned: no answer within 2 s" in ran.stderr
        job = ran.stdout.strip()
        wait_for(lambda: "COMPLETED" in hooked_slurm.run("scontrol", "show", "job", job).stdout, "the job")


def test_a_job_that_asks_for_what_no_plan_has_goes_on_and_nothing_is_held(hooked_slurm, controller):
    words = ("sbatch", "--parsable", "--output=/dev/null", "--nodes=2", "--gpus-per-node=1", "--wrap=:")
    to_prepare = []
    with service(hooked_slurm.folder / "service", controller, to_prepare):
        hooked_slurm.run(*words, AUTO)
        controller.planners.make_ready(to_prepare.pop())
        for comment, why in (
            (AUTO, "the plan takes 1 hosts, the job asks for 2"),
            (f"{AUTO} stepz=3", "did you mean 'steps'?"),
            ("--comment=mw:auto job=../secret", "is no zoo:NAME"),
        ):
            ran = hooked_slurm.run(*words, comment)
            assert ran.returncode == 0
            assert "meshwright: runs unplanned: " in ran.stderr
            assert why in ran.stderr.replace("''", "'")
    assert not controller.store.last()[1].jobs
