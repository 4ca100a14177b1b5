"""Laws of reading Slurm's JSON: the same records as its text, in every known form, and one line for what cannot be read."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import InputFileError, MeshwrightError, StateError
from meshwright.live.sources import slurm, slurm_json
from meshwright.live.sources.listings import EMPTY
from meshwright.live.sources.slurm_json import FormError
from meshwright.live.sources.source import Source

from ...draws import draws

DATA = Path(__file__).parent / "data"
TEXT = (DATA / "slurm-22.05-again.txt").read_text()
RECORDED = (DATA / "slurm-22.05-again.json").read_text()
"""``squeue --json`` and ``sinfo --json`` of a loopback Slurm 22.05.8, and the text of the same moment; slurmrestd answered the
same bytes. The names of user and machine are replaced."""

BY_HAND = {name: (DATA / f"slurm-{name}-by-hand.json").read_text() for name in ("v0.0.39", "v0.0.40", "v0.0.41")}
"""The same in the formats of Slurm 23.02, 23.11 and 24.05, written by hand from the release notes and OpenAPI documents. No such
Slurm was asked."""

LISTING = slurm.read(TEXT)
NUMBER = {"set": True, "infinite": False, "number": 3}


def parts(text: str = BY_HAND["v0.0.41"]) -> tuple[dict, dict]:
    """The answers about jobs and nodes."""
    jobs, place = json.JSONDecoder().raw_decode(text)
    return jobs, json.loads(text[place:])


def read(*answers: dict):
    return slurm_json.read("\n".join(map(json.dumps, answers)))


def changed(place: int, key: str, value: object, text: str = BY_HAND["v0.0.41"]):
    """The state read with another value in one field of the second job or node."""
    answers = parts(text)
    answers[place]["jobs" if place == 0 else "nodes"][1][key] = value
    return read(*answers)


def test_json_of_a_real_slurm_gives_what_its_text_gives():
    assert {job.id for job in LISTING.state.jobs} == {"1", "2", "4", "5_0", "5_1", "10+0", "10+1"}
    assert slurm_json.read(RECORDED) == LISTING


@pytest.mark.parametrize("name", BY_HAND)
def test_later_forms_give_the_same(name):
    assert slurm_json.read(BY_HAND[name]) == LISTING
    first, second = parts(BY_HAND[name])
    assert read(second, first) == LISTING


@pytest.mark.parametrize("name", ["v0.0.42", "v0.0.43", "v0.0.44"])
def test_the_latest_releases_write_what_is_read_here_as_24_05_did(name):
    assert slurm_json.read(BY_HAND["v0.0.41"].replace("v0.0.41", name)) == LISTING


def test_each_form_is_refused_where_it_calls_itself_another():
    texts = {"v0.0.38": RECORDED, **BY_HAND}
    for name, text in texts.items():
        for other in set(texts) - {name}:
            with pytest.raises(StateError):
                slurm_json.read(text.replace(name, other))


@pytest.mark.parametrize(
    "name", ["v0.0.37", "v0.0.99", "data_parser/v0.0.45", "v0.0.41+complex", "v1.0.0", "x" * 500, "\x1b[31m"]
)
def test_an_unknown_form_is_refused_by_its_name_and_the_text_is_read_in_its_place(name):
    answers = parts()
    for answer in answers:
        answer["meta"]["plugin"]["data_parser"] = name
    with pytest.raises(FormError, match=r"which is not known; known are v0\.0\.38 to v0\.0\.44") as error:
        read(*answers)
    if name.isprintable() and len(name) < 60:
        assert name.removeprefix("data_parser/") in str(error.value)
    assert str(error.value).isprintable()
    text = Source("slurm", "scontrol", lambda: TEXT, slurm.read)
    said = "\n".join(map(json.dumps, answers))
    result = Source("slurm", "squeue --json", lambda: said, slurm_json.read, text).listing(EMPTY)
    assert result.state == LISTING.state
    assert result.remarks[0].startswith("Slurm writes JSON as ")
    assert result.remarks[0].endswith("its text was read in place of it")

    def gone():
        raise InputFileError("no such program on this machine", file="scontrol")

    alone = Source("slurm", "squeue --json", lambda: said, slurm_json.read, Source("slurm", "scontrol", gone, slurm.read))
    with pytest.raises(FormError, match="nor can its text be read: scontrol: no such program on this machine") as error:
        alone.listing(EMPTY)
    assert "\n" not in str(error.value)


def test_what_is_wrong_is_not_read_as_text_in_its_place():
    def never():
        raise AssertionError

    text = Source("slurm", "scontrol", never, slurm.read)
    with pytest.raises(StateError, match="squeue --json: is no JSON, or is cut short"):
        Source("slurm", "squeue --json", lambda: RECORDED[:3000], slurm_json.read, text).listing(EMPTY)


def test_an_answer_that_says_what_went_wrong_is_not_taken_for_an_empty_cluster():
    jobs, nodes = parts()
    for problem, message in (
        (
            [{"description": "Failed while\nlooking for jobs", "error": "Unspecified error", "error_number": -1}],
            "Failed while looking",
        ),
        ([{"error": "Unspecified error", "errno": -1}], "Slurm says: Unspecified error"),
        (["x"], "Slurm says: x"),
        ([{}], "Slurm says: something went wrong"),
        ({"error": "one"}, "Slurm says: one"),
    ):
        with pytest.raises(StateError, match=message) as error:
            read({**jobs, "jobs": [], "errors": problem}, nodes)
        assert "\n" not in str(error.value)


def test_a_job_that_runs_on_gpus_nobody_tells_wants_the_text():
    for answer, asks in ((RECORDED, "gres:gpu:2"), (BY_HAND["v0.0.41"], "gres/gpu:h100:2")):
        jobs, nodes = parts(answer)
        jobs["jobs"][1]["gres_detail"], jobs["jobs"][1]["tres_per_node"] = [], asks
        with pytest.raises(FormError, match="job 2 runs on devices, and Slurm's JSON does not say which"):
            read(jobs, nodes)
        for none in ("gres:gpu:0", "gres/gpu:h100:0", "gres:nic:2", ""):
            jobs["jobs"][1]["tres_per_node"] = none
            assert "2" not in {job.id for job in read(jobs, nodes).state.jobs}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no JSON, or is cut short"),
        ("slurm_load_jobs error: Unable to contact slurm controller", "is no JSON, or is cut short"),
        ("[]", "is no answer of Slurm, which is an object"),
        ("[" * 100_000, "is no JSON, or is cut short"),
        ("{}", "it does not name its form"),
        ('{"meta": {"plugin": {"type": 3}}}', "it does not name its form"),
        (json.dumps(parts()[0]), "holds no node"),
        (json.dumps(parts()[1]), "holds no list of jobs"),
        (json.dumps({**parts()[1], "sinfo": []}), "the answer of `scontrol show node --json` is wanted"),
        (json.dumps({**parts()[0], "jobs": {}}), "jobs: is no list of objects"),
        (json.dumps({**parts()[0], "jobs": [3]}), "jobs: is no list of objects"),
        (BY_HAND["v0.0.41"] * 2, "the node appears twice"),
    ],
)
def test_what_is_no_answer_is_refused(text, message):
    with pytest.raises(MeshwrightError) as error:
        slurm_json.read(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("place", "key", "values"),
    [
        (0, "job_id", ["2", True, -1]),
        (0, "job_state", ["RUNNING", [], ["A\nB"]]),
        (0, "end_time", [3, {"set": 1, "infinite": False, "number": 3}, {**NUMBER, "number": 1e300}, {**NUMBER, "number": -1}]),
        (0, "time_limit", [None]),
        (0, "shared", [None]),
        (0, "name", [None]),
        (0, "comment", [{}]),
        (0, "gres_detail", ["gpu:2", [3, 4], ["gpu:2(IDX:0-1)"]]),
        (0, "job_resources", [[1], {"nodes": "gpu-03"}, None]),
        (1, "name", [3]),
        (1, "state", ["IDLE"]),
        (1, "gres", [None]),
        (1, "reason", [[]]),
    ],
)
def test_fields_of_another_kind_and_those_that_are_missing_are_refused_by_name(place, key, values):
    for value in values:
        with pytest.raises(StateError, match=rf"{key}.*: (job|node|a )") as error:
            changed(place, key, value)
        assert str(error.value).isprintable()
    answers = parts()
    del answers[place]["jobs" if place == 0 else "nodes"][1][key]
    with pytest.raises(StateError, match=rf"{key}: .*the key is missing|no word of its hosts"):
        read(*answers)


@pytest.mark.parametrize(
    ("place", "key", "value", "message"),
    [
        (0, "job_id", 1, "the job appears twice"),
        (0, "gres_detail", ["gpu:2(IDX:7-8)", ""], "the host has devices 0..3"),
        (0, "job_resources", {"nodes": {"list": "n["}}, "is no list of hosts"),
        (1, "name", "gpu-03", "the node appears twice"),
        (1, "gres", "gpu:99999999", "so many devices cannot be"),
    ],
)
def test_what_contradicts_the_rest_is_refused(place, key, value, message):
    with pytest.raises(StateError, match=re.escape(message)):
        changed(place, key, value)


@draws(30)
@given(st.text(max_size=40), st.sampled_from(["v0.0.38", *BY_HAND]))
def test_no_name_comment_or_reason_says_anything_else(words, form):
    answers = parts({"v0.0.38": RECORDED, **BY_HAND}[form])
    answers[0]["jobs"][1]["name"] = words
    answers[0]["jobs"][1]["comment"] = f"x {words}"
    answers[1]["nodes"][0]["reason"] = words
    state = read(*answers).state
    plain = {job.id: job for job in LISTING.state.jobs}
    assert state.hosts == LISTING.state.hosts
    for job in state.jobs:
        assert job.model_copy(update={"name": None}) == plain[job.id].model_copy(update={"name": None})
        assert job.name is None or job.name.isprintable()


def test_commands_are_asked_in_the_form_that_they_write(tmp_path, monkeypatch):
    """Programs of these names that print what was recorded: in the first form nodes are sinfo's, later scontrol's."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name, text, request in (
        ("v0.0.38", RECORDED, ["squeue --json", "sinfo --json"]),
        ("v0.0.40", BY_HAND["v0.0.40"], ["squeue --json", "scontrol show node --json"]),
    ):
        jobs, nodes = parts(text)
        for program, answer in (("squeue", jobs), ("sinfo", nodes), ("scontrol", nodes)):
            (tmp_path / program).write_text(
                f'#!/bin/sh\necho {program} "$*" >>{tmp_path}/{name}\ncat <<"END"\n{json.dumps(answer)}\nEND\n'
            )
            (tmp_path / program).chmod(0o755)
        assert slurm_json.read(slurm_json.ask()) == LISTING
        assert (tmp_path / name).read_text().splitlines() == request
    (tmp_path / "squeue").write_text("#!/bin/sh\necho squeue: unrecognized option >&2\nexit 1\n")
    with pytest.raises(InputFileError, match="squeue: ended with status 1: squeue: unrecognized option"):
        slurm_json.ask()


def test_of_several_states_of_a_job_the_one_counts_that_the_text_tells():
    jobs, nodes = parts()
    job = next(one for one in jobs["jobs"] if one["job_state"] == ["CANCELLED", "COMPLETING"])
    job["comment"] = "mw:a"
    result = read(jobs, nodes)
    assert (result.queued, result.ended) == ({"a": str(job["job_id"])}, {})  # it has not quite ended
    job["job_state"] = ["CANCELLED"]
    result = read(jobs, nodes)
    assert (result.queued, result.ended) == ({}, {"a": str(job["job_id"])})


def test_an_array_whose_tasks_never_began_is_called_alike():
    """Slurm's text has the largest number for no task, its JSON none."""
    head = "JobId=15 ArrayJobId=15 ArrayTaskId=4294967294 JobName=over"
    lines = TEXT.replace("JobId=15 JobName=over", head).split("\n")
    place = lines.index(head)
    state = next(number for number in range(place, len(lines)) if lines[number].startswith("   JobState="))
    lines[state : state + 1] = ["   JobState=CANCELLED Reason=None", "   Comment=mw:a"]
    jobs, nodes = parts()
    (job,) = [one for one in jobs["jobs"] if one["job_id"] == 15]
    job.update(array_job_id={**NUMBER, "number": 15}, job_state=["CANCELLED"], comment="mw:a")
    assert slurm.read("\n".join(lines)).ended == read(jobs, nodes).ended == {"a": "15_15"}
