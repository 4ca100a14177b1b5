"""Laws of asking slurmrestd: any answer gives a listing or one line without the token; `tests/schedulers` asks a real one."""

import asyncio
import base64
import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from meshwright.errors import ConfigError, InputFileError, MeshwrightError
from meshwright.live.service import Service
from meshwright.live.sources.listings import EMPTY
from meshwright.live.sources.slurmrestd import Slurmrestd
from meshwright.live.sources.source import source

from ..controller_samples import controller
from .test_slurm_json import BY_HAND, LISTING, RECORDED, parts

PATHS = {name: {f"/slurm/{name}/{kind}/": {} for kind in ("jobs", "nodes", "ping")} for name in ("v0.0.38", *BY_HAND, "v0.0.99")}
LATEST = PATHS["v0.0.38"] | PATHS["v0.0.41"] | PATHS["v0.0.99"]


def http(body: str, status: str = "200 OK", length: int | None = None) -> bytes:
    """An answer."""
    data = body.encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(data) if length is None else length}\r\n\r\n".encode() + data


def answers(form: str = "v0.0.41", paths: dict | None = None, names: dict[str, str] | None = None) -> dict[str, bytes]:
    """Answers of a slurmrestd, by path; ``names`` of hosts are replaced."""
    jobs, nodes = parts({"v0.0.38": RECORDED, **BY_HAND}[form])
    figures = {"/openapi/v3": http(json.dumps({"paths": paths or LATEST}))}
    for kind, answer in (("jobs", jobs), ("nodes", nodes)):
        text = json.dumps(answer)
        for name, other in (names or {}).items():
            text = text.replace(name, other)
        figures[f"/slurm/{form}/{kind}/"] = http(text)
    return figures


@contextmanager
def served(folder: Path, told: dict[str, bytes]) -> Iterator[tuple[str, list[str]]]:
    """Whoever answers on a socket file; yields its address and the heads of what it is asked."""
    request: list[str] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            head = ""
            while not head.endswith("\r\n\r\n"):
                head += self.rfile.readline().decode()
            request.append(head)
            self.wfile.write(told.get(head.split()[1], http("Unable find requested URL.", "404 NOT FOUND")))

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True

        def handle_error(self, *_):  # who asked has gone
            pass

    path = folder / "rest"
    with Server(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"unix:{path}", request
        finally:
            server.shutdown()
            thread.join()
            path.unlink()


@pytest.fixture(autouse=True)
def _no_token(monkeypatch):
    monkeypatch.delenv("SLURM_JWT", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")  # no scontrol whose text could be read in its place


@pytest.mark.parametrize("form", ["v0.0.38", *BY_HAND])
def test_the_latest_known_form_is_asked_for_once_it_is_known(tmp_path, form):
    paths = {path: {} for name in PATHS if name == "v0.0.99" or name <= form for path in PATHS[name]}
    with served(tmp_path, answers(form, paths)) as (url, request):
        one = source(f"slurm:{url}")
        assert (one.name, one.program) == ("slurm", f"slurmrestd {url}")
        assert one.listing(EMPTY) == one.listing(EMPTY) == LISTING
    expected = ["/openapi/v3", *[f"/slurm/{form}/jobs/", f"/slurm/{form}/nodes/"] * 2]
    assert [head.split()[1] for head in request] == expected
    assert not any("TOKEN" in head for head in request)


def test_another_release_that_runs_there_later_is_asked_in_its_own_form(tmp_path):
    reported = answers("v0.0.38", PATHS["v0.0.38"])
    with served(tmp_path, reported) as (url, _):
        one = source(f"slurm:{url}")
        one.listing(EMPTY)
        reported.clear()
        reported.update(answers("v0.0.40", PATHS["v0.0.40"]))
        with pytest.raises(InputFileError, match="answers with status 404: Unable find requested URL"):
            one.listing(EMPTY)
        assert one.listing(EMPTY) == LISTING


@pytest.mark.parametrize("user", ["ada", None, "a\nb: c"])
def test_a_token_goes_into_the_head_with_the_user_that_it_names(tmp_path, user):
    body = base64.urlsafe_b64encode(json.dumps({"exp": 1, "sun": user}).encode()).decode().rstrip("=")
    token = f"eyJh.{body}.c2ln"
    (tmp_path / "token").write_text(f"SLURM_JWT={token}\n")
    with served(tmp_path, answers()) as (url, request):
        source(f"slurm:{url}", slurm_token_file=tmp_path / "token").listing(EMPTY)
    lines = request[0].split("\r\n")
    assert f"X-SLURM-USER-TOKEN: {token}" in lines
    (named,) = [line for line in lines if line.startswith("X-SLURM-USER-NAME: ")]
    assert (named == "X-SLURM-USER-NAME: ada") == (user == "ada")
    assert len(named) > len("X-SLURM-USER-NAME: ")


BAD = {
    "401": ({"/openapi/v3": http("Authentication failure", "401 UNAUTHORIZED")}, "refuses the token, or that there is none"),
    "403 later": ({"/slurm/v0.0.41/nodes/": http("", "403 FORBIDDEN")}, "refuses the token"),
    "500": ({"/openapi/v3": http("<html>\n" * 99, "500 INTERNAL ERROR")}, "answers with status 500: <html> <html>"),
    "500 of Slurm": (
        {"/slurm/v0.0.41/jobs/": http('{"errors": [{"description": "Failed while looking for jobs"}]}', "500 INTERNAL ERROR")},
        "answers with status 500: Failed while looking for jobs",
    ),
    "a redirect": ({"/openapi/v3": http("", "302 FOUND")}, "answers with status 302"),
    "errors in a good answer": (
        {"/slurm/v0.0.41/jobs/": http(json.dumps({**parts()[0], "jobs": [], "errors": [{"error": "Unspecified error"}]}))},
        "Slurm says: Unspecified error",
    ),
    "cut short": ({"/slurm/v0.0.41/jobs/": http('{"jobs": [', length=5000)}, "the answer is cut short"),
    "half of an answer": ({"/slurm/v0.0.41/jobs/": http('{"jobs": [')}, "is no JSON, or is cut short"),
    "no HTTP": ({"/openapi/v3": b"220 mail.example.org ESMTP\r\n"}, "no answer: BadStatusLine"),
    "nothing": ({"/openapi/v3": b""}, "no answer: RemoteDisconnected"),
    "no JSON": ({"/openapi/v3": http("hello")}, "/openapi/v3 holds no paths; is this slurmrestd?"),
    "other JSON": ({"/openapi/v3": http('{"paths": 3}')}, "/openapi/v3 holds no paths; is this slurmrestd?"),
    "no paths": ({"/openapi/v3": http('{"paths": {}}')}, "slurmrestd writes none, which are not known"),
    "unknown forms": (
        {"/openapi/v3": http(json.dumps({"paths": PATHS["v0.0.99"]}))},
        "slurmrestd writes v0.0.99, which are not known; known are v0.0.38 to v0.0.44; nor can its text be read: scontrol: ",
    ),
    "another form than asked for": (
        {"/slurm/v0.0.41/jobs/": http(json.dumps(parts()[0]).replace("v0.0.41", "v0.0.98"))},
        "Slurm writes JSON as data_parser/v0.0.98, which is not known",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_whatever_answers_is_refused_in_one_line_that_tells_no_token(tmp_path, case):
    message, why = BAD[case]
    (tmp_path / "token").write_text("secret.of.mine")
    with served(tmp_path, {**answers(), **message}) as (url, _), pytest.raises(MeshwrightError) as error:
        source(f"slurm:{url}", slurm_token_file=tmp_path / "token").listing(EMPTY)
    assert why in str(error.value)
    assert str(error.value).isprintable()
    assert "secret" not in str(error.value)
    assert "slurmrestd" in str(error.value)


def test_nobody_there_no_socket_no_answer_in_time(tmp_path):
    (tmp_path / "file").write_text("")
    for path, message in (("absent", "No such file or directory"), ("file", "Connection refused"), ("x" * 200, "OSError")):
        with pytest.raises(InputFileError, match=f"no answer: {message}; is slurmrestd running"):
            Slurmrestd(f"unix:{tmp_path}/{path}").ask()

    class Silent(socketserver.StreamRequestHandler):
        def handle(self):
            until.wait(5)

    until = threading.Event()
    with socketserver.ThreadingUnixStreamServer(str(tmp_path / "silent"), Silent) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        with pytest.raises(InputFileError, match=r"no answer within 0\.2 s"):
            Slurmrestd(f"unix:{tmp_path}/silent", wait_s=0.2).ask()
        until.set()
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("text", ["", "a b", "a\nX-Other: 1", "é", "x" * 20_000])
def test_what_is_no_token_is_sent_to_nobody(tmp_path, text, monkeypatch):
    (tmp_path / "token").write_text(text)
    with served(tmp_path, answers()) as (url, request):
        with pytest.raises(InputFileError, match="is no token, as `scontrol token` writes it"):
            Slurmrestd(url, tmp_path / "token").ask()
        with pytest.raises(InputFileError, match="no such file"):
            Slurmrestd(url, tmp_path / "absent").ask()
    assert request == []
    with pytest.raises(InputFileError, match="an address wants a token, in SLURM_JWT or a file"):
        Slurmrestd("http://127.0.0.1:1").ask()


@pytest.mark.parametrize(
    ("by", "token", "message"),
    [
        ("ftp://here", None, "no such way to ask Slurm"),
        ("jsn", None, "did you mean 'json'"),
        ("http://", None, "must be http://HOST:PORT"),
        ("http://ada:secret@here", None, "must be http://HOST:PORT"),
        ("http://here:port", None, "must be http://HOST:PORT"),
        ("unix:", None, "must be http://HOST:PORT"),
        ("json", "token", "--set slurm_token_file: goes with slurmrestd"),
        ("text", "token", "--set slurm_token_file: goes with slurmrestd"),
    ],
)
def test_a_way_that_there_is_not_is_refused(by, token, message):
    with pytest.raises(ConfigError) as error:
        source(f"slurm:{by}", slurm_token_file=None if token is None else Path(token))
    assert message in str(error.value)


def test_a_service_counts_what_fails_and_goes_on_when_it_is_well_again(tmp_path, planners):
    made = controller(tmp_path / "s.db", planners)
    well = answers(names={"gpu-[03,07]": "a,c", "gpu-03": "a", "gpu-05": "b", "gpu-07": "c"})
    figures = {**well, **BAD["401"][0]}

    async def until(condition):
        for _ in range(500):
            if condition():
                return
            await asyncio.sleep(0.02)
        raise AssertionError("ten seconds were not enough")

    async def listed() -> set[str]:
        service = Service(made, tmp_path / "s.db", [one], resync_s=0.05)
        await service.start()
        (status,) = service.statuses
        await until(lambda: status.num_failures >= 3)
        assert status.num_listings == 0
        assert status.problem.startswith(f"slurmrestd {url}: /openapi/v3: refuses the token")
        figures.update(well)
        await until(lambda: status.num_listings > 0)
        assert status.problem is None
        held = {job.id for job in made.store.last()[1].jobs}
        await service.stop()
        return held

    with served(tmp_path, figures) as (url, _):
        one = source(f"slurm:{url}")
        assert asyncio.run(listed()) == {job.id for job in LISTING.state.jobs}
