"""The pages without a browser: nothing that others named is obeyed, they say how old they are, a sign-in keeps secrets."""

import asyncio
import re
from datetime import timedelta

import pytest
from fastapi.testclient import TestClient

from meshwright.clusters.topologies.topology import is_host_name
from meshwright.live.changes import HostChanged, JobRemoved
from meshwright.live.decisions import JobRequest
from meshwright.live.service import Service
from meshwright.live.sources.listings import Listing
from meshwright.live.state import ClusterState, HeldJob, HostState
from meshwright.live.web.access import COOKIE, Token, new_token
from meshwright.live.web.cluster_routes import _stream
from meshwright.live.web.pages import decision_page, state_page
from meshwright.live.web.pages.rendering import duration, figure

from .page_samples import NOW, Fixed, app_of, busy, clos, controller_of, lived

HTML = {"accept": "text/html,application/xhtml+xml"}
SCRIPT = "<script>alert('&')</script>"


def text_of(html):
    """The text of a page as a reader sees it."""
    return " ".join(re.sub(r"<[^>]*>", " ", html).replace("&#39;", "'").replace("&amp;", "&").split())


def main_of(html):
    return html[html.index("<main") :]


def client_of(controller, sources=(), tokens=None, **options):
    app, service = app_of(controller, sources, tokens, **options)
    return TestClient(app), service


# --- hostile names ---


def hostile(folder):
    """A controller where everything that somebody may name is a script."""
    cluster = clos(4)
    first, second = cluster.host_names[2:]
    state = ClusterState(
        source="slurm",
        hosts={name: HostState(num_devices=8) for name in cluster.host_names}
        | {first: HostState(condition="drained", reason=SCRIPT), second: HostState(condition="down", reason=SCRIPT)},
        jobs=(HeldJob(id=SCRIPT, name=SCRIPT, source="slurm", devices={first: (0,)}, decision=SCRIPT),),
    )
    controller = controller_of(cluster, folder)
    controller.take(Listing(state))
    stored = [controller.decide(JobRequest(job=SCRIPT, name=SCRIPT, owner=SCRIPT, devices=1)) for _ in range(3)]
    controller.confirm(stored[0].decision.id, SCRIPT)
    controller.release(stored[1].decision.id, SCRIPT)
    return controller, stored, state


def test_names_reasons_and_owners_are_shown_and_never_obeyed(tmp_path):
    controller, stored, state = hostile(tmp_path)
    state = controller.store.last()[1].model_copy(update={"jobs": state.jobs})
    source = Fixed(state)
    source.name = SCRIPT
    client, service = client_of(controller, [source])
    with client:
        service.statuses[0].problem, service.statuses[0].remarks = SCRIPT, (SCRIPT,)
        paths = [
            "/",
            "/decisions",
            *(f"/decisions/{one.decision.id}" for one in stored),
            f"/decisions/{SCRIPT}",
            "/sign-in?next=/",
        ]
        pages = [client.get(path, headers=HTML).text for path in paths]
        written = decision_page(controller.store, controller.cluster, stored[0])
    for html in [*pages, written]:
        assert "<script>" not in html
        assert "alert('" not in html
    assert [page.count("&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;") >= 1 for page in pages[:5]] == [True] * 5
    assert not is_host_name(SCRIPT)  # what a host is called stands in addresses, so it is plain from the start


def test_what_cannot_be_printed_is_no_part_of_a_page(tmp_path):
    controller = controller_of(clos(2), tmp_path)
    record = controller.decide(JobRequest(job="zoo:gpt2-small", name="a\u202eb\u200bc"))
    assert "a?b?c" in decision_page(controller.store, controller.cluster, record)


# --- how old it is ---


@pytest.mark.parametrize(
    ("sources", "max_age_s", "message", "is_alarm"),
    [
        ([], 120, "No source. Nobody lists the hosts and jobs", True),
        ([Fixed(busy(clos(4)))], 120, "slurm listed just now.", False),
        ([Fixed(busy(clos(4)))], 1e-9, "Stale: slurm listed just now. This page may be wrong, and nothing is decided", True),
    ],
)
def test_the_age_of_what_is_known_comes_first_and_in_words(sources, max_age_s, message, is_alarm, tmp_path):
    client, _ = client_of(controller_of(clos(4), tmp_path), sources, max_age_s=max_age_s)
    with client:
        main = main_of(client.get("/", headers=HTML).text)
    assert text_of(main).startswith(message)
    assert ('class="alarm"' in main) == is_alarm


def test_a_listing_that_fails_is_told_beside_the_age_of_the_last_good_one(tmp_path):
    client, service = client_of(controller_of(clos(4), tmp_path), [Fixed(busy(clos(4)))])
    with client:
        service.statuses[0].problem = "squeue: no route to host"
        shown = text_of(main_of(client.get("/", headers=HTML).text))
    assert shown.startswith("slurm listed just now. Then it failed: squeue: no route to host")


# --- what stands on the pages ---


def test_hosts_jobs_and_decisions_are_named_with_who_holds_what_until_when(tmp_path):
    controller = controller_of(clos(16), tmp_path)
    controller.take(Listing(busy(controller.cluster)))
    stored = lived(controller, 4)
    client, _ = client_of(controller)
    with client:
        shown = text_of(client.get("/", headers=HTML).text)
    assert "Drained: takes no new jobs; a fan is broken" in shown
    assert "Down : Not responding" in shown
    until = NOW + timedelta(minutes=37 * 3 - 30)
    assert f"until {until:%Y-%m-%d %H:%M:%S} UTC" in shown
    assert f"lm-1 {stored[1].decision.id} · ann handed to the scheduler as 4711, which has not started it yet" in shown
    assert f"lm-2 {stored[2].decision.id} · ann reserved; nobody has handed it to the scheduler yet" in shown
    assert "nobody says" in shown


def test_a_decision_tells_why_what_else_there_was_and_how_it_ran(tmp_path):
    controller = controller_of(clos(4), tmp_path)
    stored = lived(controller)
    client, _ = client_of(controller)
    with client:
        shown = text_of(client.get(f"/decisions/{stored[0].decision.id}", headers=HTML).text)
    assert "running lm-0 runs (1190). Why: the first devices that were free." in shown
    assert "step 42 ms" in shown
    assert "400 measured step times" in shown
    assert "1 of them took longer than the axis, up to 1.9 s." in shown
    name = stored[0].decision.id
    assert f"curl -f -o {name}.json http://testserver/v1/decisions/{name}/plan meshwright export {name}.json" in shown
    assert "reserved" in shown.partition("Its changes")[2].partition("running")[0]
    assert shown.count("3.6 GB tight") == 1


def test_pages_of_every_outcome_can_be_read(tmp_path):
    controller = controller_of(clos(1), tmp_path)
    request = [
        JobRequest(job="zoo:gpt2-small", devices=9),
        JobRequest(job="zoo:never"),
        JobRequest(job="zoo:gpt2-small", devices=8),
    ]
    stored = [controller.decide_or_prepare(request) for request in request]
    controller.release(stored[2].decision.id)
    messages = [
        text_of(decision_page(controller.store, controller.cluster, controller.stored(one.decision.id))) for one in stored
    ]
    assert "got no devices. Why: 8 of 8 devices are free." in messages[0]
    assert "is being prepared: its job is read and priced first." in messages[1]
    assert "gave its devices back" in messages[2]


def test_the_list_of_decisions_goes_back_to_the_first_one(tmp_path):
    controller = controller_of(clos(16), tmp_path)
    for number in range(53):
        controller.decide(JobRequest(job="zoo:gpt2-small", name=f"job-{number}", devices=2))
    client, _ = client_of(controller)
    with client:
        last = client.get("/decisions", headers=HTML).text
        first = client.get(re.search(r'rel="next" href="([^"]*)"', last)[1], headers=HTML).text
    names = re.findall(r">(job-\d+)<", last + first)
    assert names == [f"job-{number}" for number in range(52, -1, -1)]
    assert 'rel="next"' not in first


@pytest.mark.parametrize(("num_hosts", "most_bytes"), [(512, 700_000), pytest.param(2048, 2_000_000, marks=pytest.mark.slow)])
def test_large_clusters_make_pages_that_a_browser_bears(num_hosts, most_bytes, tmp_path):
    controller = controller_of(clos(num_hosts), tmp_path)
    controller.take(Listing(busy(controller.cluster)))
    client, _ = client_of(controller)
    with client:
        html = client.get("/", headers=HTML).text
    assert len(html.encode()) < most_bytes
    assert html.count('class="host ') == num_hosts


# --- pages as files ---


def test_a_page_in_a_file_loads_nothing_and_leads_nowhere(tmp_path):
    controller = controller_of(clos(4), tmp_path)
    stored = lived(controller)
    path = tmp_path / "now.json"
    path.write_text(controller.store.last()[1].model_dump_json())
    for html in (decision_page(controller.store, controller.cluster, stored[0]), state_page(path, controller.cluster)):
        assert not re.search(r'\ssrc=|href="/|<link rel="stylesheet"|<script|<form|@import', html)
        links = {link for link in re.findall(r'href="([^"]*)"', html) if link != "data:,"}
        assert {link[0] for link in links} == {"#"}
        assert {f'id="{link[1:]}"' for link in links if f'id="{link[1:]}"' not in html} == set()


def test_served_pages_hold_nothing_that_their_policy_forbids(tmp_path):
    controller = controller_of(clos(4), tmp_path)
    first, *_ = lived(controller)
    client, _ = client_of(controller)
    with client:
        for path in ("/", "/decisions", f"/decisions/{first.decision.id}", "/decisions/none"):
            answer = client.get(path, headers=HTML)
            policy = answer.headers["content-security-policy"]
            assert policy.startswith(
                "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:"
            )
            assert "unsafe" not in policy
            assert not re.search(r"<script(?! src=\"/static/page.js\" defer></script>)|<style|\sstyle=|\son\w+=", answer.text)
            assert all(client.get(one).status_code == 200 for one in re.findall(r'"(/static/[^"]*)"', answer.text))
        assert client.get("/static/page.css").headers["x-content-type-options"] == "nosniff"
        assert client.get("/static/base.html").status_code == 404


# --- errors ---


def test_browsers_get_errors_as_pages_and_programs_as_problems(tmp_path):
    client, _ = client_of(controller_of(clos(1), tmp_path))
    with client:
        page = client.get("/decisions?before=zero", headers=HTML)
        assert (page.status_code, page.headers["content-type"]) == (422, "text/html; charset=utf-8")
        assert "before" in text_of(page.text)
        for accept in ("application/json", "*/*"):
            problem = client.get("/decisions?before=zero", headers={"accept": accept})
            assert (problem.status_code, problem.headers["content-type"]) == (422, "application/problem+json")
            assert problem.json()["field"] == "before"
        assert client.get("/nowhere", headers=HTML).status_code == 404


# --- signing in ---


@pytest.fixture
def guarded(tmp_path):
    """A client of a service that wants tokens, and a token."""
    token, line = new_token("read")
    scope, digest = line.split()
    client, _ = client_of(controller_of(clos(1), tmp_path), tokens=[Token(scope, digest)])
    client.follow_redirects = False
    with client:
        yield client, token


def test_a_page_leads_to_the_sign_in_and_back(guarded):
    client, token = guarded
    request = client.get("/decisions", headers=HTML)
    assert (request.status_code, request.headers["location"]) == (303, "/sign-in?next=%2Fdecisions")
    assert 'name="next" value="/decisions"' in client.get(request.headers["location"], headers=HTML).text
    wrong = client.post("/sign-in", data={"token": token + "x", "next": "/decisions"}, headers=HTML)
    assert (wrong.status_code, COOKIE in wrong.cookies, "no token that this service knows" in wrong.text) == (401, False, True)
    assert token not in wrong.text
    right = client.post("/sign-in", data={"token": token, "next": "/decisions"}, headers=HTML)
    assert (right.status_code, right.headers["location"]) == (303, "/decisions")
    reported = right.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(reported.split("; "))
    assert "Secure" not in reported
    assert token not in reported
    assert client.get("/decisions", headers=HTML).status_code == 200
    assert client.get("/sign-in", headers=HTML).status_code == 303
    assert client.post("/v1/decisions", json={"job": "zoo:gpt2-small"}).status_code == 403  # the token may only look


def test_signing_out_ends_the_session_on_the_side_of_the_service(guarded):
    client, token = guarded
    client.post("/sign-in", data={"token": token})
    secret = client.cookies[COOKIE]
    assert client.get("/", headers=HTML).status_code == 200
    out = client.post("/sign-out", headers=HTML)
    assert (out.status_code, out.headers["location"]) == (303, "/sign-in")
    again = client.get("/", headers={**HTML, "cookie": f"{COOKIE}={secret}"})
    assert again.headers["location"].startswith("/sign-in")


def test_a_cookie_of_a_service_with_tls_never_travels_without(tmp_path):
    token, line = new_token("read")
    app, _ = app_of(controller_of(clos(1), tmp_path), tokens=[Token(*line.split())])
    with TestClient(app, base_url="https://testserver", follow_redirects=False) as client:
        assert "Secure" in client.post("/sign-in", data={"token": token}).headers["set-cookie"].split("; ")


@pytest.mark.parametrize("path", ["/sign-in", "/sign-out"])
@pytest.mark.parametrize("header", [{"origin": "https://elsewhere.example"}, {"origin": "null"}, {"host": "elsewhere.example"}])
def test_forms_of_other_sites_are_refused(guarded, path, header):
    client, token = guarded
    assert client.post(path, data={"token": token}, headers={**HTML, **header}).status_code in (403, 421)


@pytest.mark.parametrize(
    "to", ["//elsewhere.example", "https://elsewhere.example", "/\\elsewhere.example", "/a\r\nb", "javascript:1", ""]
)
def test_a_sign_in_leads_to_no_other_site(guarded, to):
    client, token = guarded
    assert client.post("/sign-in", data={"token": token, "next": to}).headers["location"] == "/"


def test_a_service_without_tokens_asks_nobody_to_sign_in(tmp_path):
    client, _ = client_of(controller_of(clos(1), tmp_path))
    with client:
        assert client.get("/sign-in", headers=HTML, follow_redirects=False).headers["location"] == "/"
        assert "Sign out" not in client.get("/", headers=HTML).text


# --- events ---


def test_a_stream_tells_of_what_is_no_change_of_the_state_and_misses_nothing_that_comes_while_it_reads(tmp_path):
    controller = controller_of(clos(1), tmp_path)
    record = controller.decide(JobRequest(job="zoo:gpt2-small", devices=1))

    async def told():
        service = Service(controller, controller.store.path)
        stream = _stream(service, 0)
        first = await anext(stream)
        read = service.read

        async def told_meanwhile(function):
            result = await read(function)
            service.read = read
            await service.notify()
            return result

        service.read = told_meanwhile
        second = await asyncio.wait_for(anext(stream), 5)
        with controller.store.turn() as turn:
            turn.change(JobRemoved(id=record.decision.id))
            turn.change(HostChanged(host="l0-h0", state=HostState(condition="drained")))
        third = [await anext(stream), await anext(stream)]
        await service.stop()
        return first, second, third

    first, second, third = asyncio.run(told())
    assert first.startswith("id: 1\ndata: ")
    assert second == "event: other\ndata: {}\n\n"
    assert [one.partition("\n")[0] for one in third] == ["id: 2", "id: 3"]


# --- numbers in words ---


def test_times_and_figures_are_said_in_two_units_at_most():
    said = {
        0.0: "0 s",
        4.15e-5: "41.5 µs",
        0.0415: "41.5 ms",
        9.99: "9.99 s",
        59.6: "1 min",
        831: "13 min 51 s",
        7260: "2 h 1 min",
    }
    assert {seconds: duration(seconds) for seconds in said} == said
    assert [duration(90_061), duration(-75), duration(None)] == ["1 d 1 h", "-1 min 15 s", "unknown"]
    assert figure("samples_per_s", 1540.67) == ("samples a second", "1,541")
    assert figure("memory_bytes", 3.66e9) == ("memory", "3.66 GB")
    assert figure("communication_share", 0.25) == ("communication share", "25 %")
