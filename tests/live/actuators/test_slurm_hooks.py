"""Laws of the hooks: what is decided for a job that Slurm asks about, and scripts that quote every text and fail open."""

import json
import os
import shutil
import socket
import subprocess
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import settings
from meshwright.errors import InputFileError
from meshwright.live.actuators.slurm_hook_files import hook_files
from meshwright.live.actuators.slurm_hooks import EpilogBody, PrologBody, SubmitBody, on_epilog, on_prolog, on_submit
from meshwright.live.controller import Controller
from meshwright.live.deciding import Planners

from ...draws import draws

ASKED = {"comment": "mw:auto job=zoo:squeezenet steps=2000", "nodes": 1, "gpus_per_node": 4, "user": "ada", "name": "n"}


@pytest.fixture(scope="module")
def planners(cluster, tmp_path_factory):
    folder = tmp_path_factory.mktemp("scratch")
    made = Planners(cluster, "max@best-fit", scratch=folder)
    first = on_submit(Controller(folder / "s.db", made), settings.build_settings(SubmitBody, ASKED))
    assert first.body == {"why": "its kind of job is made ready now, later ones will be planned"}
    made.make_ready(first.prepare)
    return made


def submit(controller, **changes):
    return on_submit(controller, settings.build_settings(SubmitBody, {**ASKED, **changes})).body


def test_a_job_goes_through_its_life(controller):
    answer = submit(controller)
    (stored,) = controller.store.decisions(None, 9)
    (host,) = {rank["host"] for rank in stored.decision.plan["ranks"]}
    assert answer == {"comment": f"mw:{stored.decision.id}", "req_nodes": host, "why": stored.decision.why}
    assert (stored.decision.request.steps, stored.decision.request.owner, stored.decision.request.devices) == (2000, "ada", 4)
    reported = on_prolog(controller, PrologBody(job_id="7", comment=f"{answer['comment']} \n"))
    assert reported.look
    assert on_prolog(controller, PrologBody(job_id="8", comment=answer["comment"])).body["why"].endswith("(got '8')")
    assert on_prolog(controller, PrologBody(job_id="9", comment="mw:other")).body == {"why": "it was not planned here"}
    end = EpilogBody(job_id="7", exit_code="0:0")
    assert (on_epilog(controller, end).look, on_epilog(controller, end).look) == (False, True)
    mentions = [(mention.status, mention.detail) for mention in controller.mentions(stored.decision.id)]
    assert mentions == [("reserved", ""), ("confirmed", "7"), ("ended", "ended with exit code 0:0")]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"comment": "mw:automatic"}, "its comment does not begin with mw:auto"),
        ({"comment": "mw:auto step=3"}, "comment: has no such word (got 'step'); did you mean 'steps'?"),
        ({"comment": "mw:auto job=zoo:squeezenet steps=many"}, "steps: is no number (got 'many')"),
        ({"comment": "mw:auto job=zoo:squeezenet steps=0"}, "steps: "),
        ({"gpus_per_node": None}, "it asks for no GPUs, by --gpus-per-node or --gpus"),
        ({"whole_hosts": True}, "it asks for whole hosts, and here parts of hosts are planned"),
        ({"nodes": 2, "gpus_per_node": 2}, "the plan takes 1 hosts, the job asks for 2"),
        ({"nodes": 4, "gpus_per_node": 4}, "12 of 12 devices are free"),
    ],
)
def test_what_cannot_be_planned_goes_on_and_holds_nothing(controller, changes, why):
    answer = submit(controller, **changes)
    if "kind of job" in answer["why"]:  # of another number of devices
        controller.planners.make_ready(on_submit(controller, settings.build_settings(SubmitBody, {**ASKED, **changes})).prepare)
        answer = submit(controller, **changes)
    assert answer["why"].startswith(why)
    assert set(answer) == {"why"}
    assert not controller.store.last()[1].jobs


@draws(60)
@given(text=st.text(max_size=600))
def test_no_reason_ends_the_text_that_lua_looks_for(text):
    from meshwright.live.actuators.slurm_hooks import _answer

    why = _answer(text)["why"]
    assert json.dumps(why) == f'"{why}"'


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ({"server": "http://a'; touch x"}, "--server: is no http://HOST:PORT"),
        ({"server": "ftp://a"}, "--server: is no http"),
        ({"server": "unix:a b"}, "--server: is no absolute path of plain letters"),
        ({"server": "unix:/a'b"}, "--server: is no absolute path"),
        ({"server": "http://a", "header_file": "token"}, "--header-file: is no absolute path"),
    ],
)
def test_an_address_that_a_shell_would_read_is_refused(address, message):
    with pytest.raises(InputFileError, match=message.replace("(", r"\(")):
        hook_files("/etc", **address)


NAME = "a\"b\\c'; touch injected; $(touch injected) `touch injected`\n{é"


def hook(tmp_path, name, **endpoint):
    """Run a script of a hook in an empty folder; what it says."""
    folder = tmp_path / "ran"
    folder.mkdir()
    (tmp_path / name).write_text(hook_files(str(tmp_path), **endpoint)[name])
    variables = {"SLURM_JOB_ID": "13", "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "1", "SLURM_JOB_NAME": NAME}
    variables |= {"SLURM_JOB_COMMENT": "mw:x", "SLURM_JOB_EXIT_CODE2": "1:0", "HOME": str(tmp_path)}
    (tmp_path / ".curlrc").write_text("output = injected\n")
    ran = subprocess.run(["/bin/bash", tmp_path / name], cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert ran.returncode == 0
    assert not list(folder.iterdir())
    return ran.stderr


@pytest.mark.parametrize("name", ["prolog_slurmctld.sh", "epilog_slurmctld.sh"])
def test_a_script_whose_service_is_gone_lets_the_job_go_on_and_says_so(tmp_path, name):
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    (line,) = hook(tmp_path, name, server=f"unix:{tmp_path / 'nobody'}").splitlines()
    assert line.startswith("job 12_1 continues, its ")
    assert "curl: (7)" in line


@pytest.mark.parametrize("name", ["prolog_slurmctld.sh", "epilog_slurmctld.sh"])
def test_a_script_posts_what_the_user_wrote_as_text(tmp_path, name):
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    got = []

    def serve(listener):
        connection, _ = listener.accept()
        with connection:
            data = b""
            while b"\r\n\r\n" not in data or len(data.partition(b"\r\n\r\n")[2]) < int(
                data.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
            ):
                data += connection.recv(4096)
            got.append(data)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    path = os.path.relpath(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        (tmp_path / "header").write_text("Authorization: Bearer secret\n")
        assert hook(tmp_path, name, server=f"unix:{tmp_path / 's'}", header_file=str(tmp_path / "header")) == ""
        thread.join()
    head, _, body = got[0].partition(b"\r\n\r\n")
    assert b"\r\nAuthorization: Bearer secret\r\n" in head
    end = name.split("_")[0]
    assert head.startswith(f"POST /v1/slurm/{end} HTTP/1.1\r\n".encode())
    kind = PrologBody if end == "prolog" else EpilogBody
    read = settings.build_settings(kind, json.loads(body))
    assert (read.job_id, read.comment, read.name) == ("12_1", "mw:x", NAME.replace("\n", " "))
    assert getattr(read, "exit_code", "1:0") == "1:0"
