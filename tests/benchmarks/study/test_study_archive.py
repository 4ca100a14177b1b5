"""Results of a study as one file: the same tables from it elsewhere, the same bytes again, and nothing overwritten."""

import io
import tarfile
from pathlib import Path

import pytest

from benchmarks.study import archive
from benchmarks.study.__main__ import main, resolved
from benchmarks.study.archive import pack, unpack
from benchmarks.study.findings import read
from benchmarks.study.page import part
from benchmarks.study.places import Places
from benchmarks.study.plan import selected, tasks
from benchmarks.study.runner import carry_out, standing
from benchmarks.study.study import load_study
from meshwright import files
from meshwright.errors import InputFileError

from .small_study import results, write

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def folder(tmp_path, monkeypatch, no_processes):
    monkeypatch.chdir(tmp_path)
    for name, rate in (("rules-A", 0.5), ("rules-B", 0.4), ("nets-A", 0.3), ("nets-B", 0.2), ("parts-played", 0.1)):
        learned = {f"net-{name[-1]}-seed-{seed}": [rate, rate] for seed in (0, 1)}
        files.write_json(tmp_path / f"{name}.json", results("pair", {"max": [rate, rate]} | learned, learned=learned))
    return tmp_path


@pytest.fixture
def program(folder):
    return write(folder)


@pytest.fixture
def study(folder, program):
    return load_study(folder / "study.yaml")


def play(study, places, program, *only):
    every = tasks(study, places, resolved)
    return carry_out(selected(every, study, only), places, program=program)


def shown(study, places):
    found = read(study, tasks(study, places, resolved), places)
    return {name: part(found, name, table, set()) for name, table in study.tables.items()}


def test_what_is_put_back_elsewhere_fills_the_same_tables(folder, study, program):
    here, there = Places(folder / "here"), Places(folder / "there")
    play(study, here, program)
    every = tasks(study, here, resolved)
    assert pack(every, here, folder / "results.tar.xz") == [task.name for task in every]
    assert unpack(folder / "results.tar.xz", every, there) == [task.name for task in every]
    assert shown(study, there) == shown(study, here)
    assert {standing(task, there) for task in every if task.needs} == {"done"}
    assert not list((folder / "there").rglob("policy.pt"))


def test_the_same_results_give_the_same_bytes_and_no_folder_of_this_machine(folder, study, program):
    here = Places(folder / "here")
    play(study, here, program)
    every = tasks(study, here, resolved)
    for name in ("one", "two"):
        pack(every, here, folder / name)
    assert (folder / "one").read_bytes() == (folder / "two").read_bytes()
    with tarfile.open(folder / "one", "r:xz") as tar:
        texts = [tar.extractfile(member).read().decode() for member in tar]
    assert len(texts) == 2 * len(every)
    assert not any(str(folder / "here") in text for text in texts)


def test_only_what_is_done_is_packed_and_what_is_there_stays(folder, study, program):
    here, there = Places(folder / "here"), Places(folder / "there")
    play(study, here, program, "rules-A")
    every = tasks(study, here, resolved)
    assert pack(every, here, folder / "one") == ["rules-A"]
    files.write_json(folder / "rules-A.json", results("pair", {"max": [0.9, 0.9]}))
    play(study, there, program, "rules-A", "rules-B")
    assert unpack(folder / "one", every, there) == []
    assert files.read_json(there.out / "evaluations/rules-A/results.json")["rows"][0]["per_seed"]["blocking_rate"] == [0.9, 0.9]


def test_a_policy_that_is_needed_is_trained_anew(folder, study, program):
    here, there = Places(folder / "here"), Places(folder / "there")
    play(study, here, program, "net-A")
    every = tasks(study, here, resolved)
    pack(every, here, folder / "one")
    unpack(folder / "one", every, there)
    words = play(study, there, program, "nets-A")
    assert words == {"net-A-seed-0": "done", "net-A-seed-1": "done", "nets-A": "done"}


def test_nothing_done_is_told(folder, study):
    places = Places(folder / "here")
    with pytest.raises(InputFileError, match="nothing is done that could be packed"):
        pack(tasks(study, places, resolved), places, folder / "one")
    assert not (folder / "one").exists()


@pytest.mark.parametrize("name", ["../outside.json", "/outside.json", "tasks/../../outside.json"])
def test_a_member_that_leaves_the_folder_is_refused(folder, study, name):
    with tarfile.open(folder / "one", "w:xz") as tar:
        member = tarfile.TarInfo(name)
        member.size = 2
        tar.addfile(member, io.BytesIO(b"{}"))
    with pytest.raises(InputFileError, match="something else than the results of a study"):
        unpack(folder / "one", tasks(study, Places(folder / "here"), resolved), Places(folder / "here"))
    assert not (folder / "outside.json").exists()


@pytest.mark.parametrize("limit", ["MAX_BYTES", "MAX_DECODER_BYTES"])
def test_an_archive_that_asks_for_more_memory_than_results_need_is_refused(folder, study, program, monkeypatch, limit):
    here, there = Places(folder / "here"), Places(folder / "there")
    play(study, here, program, "rules-A")
    every = tasks(study, here, resolved)
    pack(every, here, folder / "one")
    monkeypatch.setattr(archive, limit, 1_000)
    with pytest.raises(InputFileError, match="is no archive of a study's results"):
        unpack(folder / "one", every, there)
    assert not there.out.exists()


def test_a_sparse_member_is_refused_before_it_is_filled(folder, study):
    sparse = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "a.json",
        "GNU.sparse.realsize": f"{8 * 10**11}",
    }
    content = b"1\n0\n2\n".ljust(512, b"\0") + b"{}"
    with tarfile.open(folder / "one", "w:xz", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("a.json")
        member.size, member.pax_headers = len(content), sparse
        tar.addfile(member, io.BytesIO(content))
    with pytest.raises(InputFileError, match="something else than the results of a study"):
        unpack(folder / "one", tasks(study, Places(folder / "here"), resolved), Places(folder / "here"))


@pytest.mark.parametrize("content", [b"", b"no archive", None])
def test_what_is_no_archive_is_told(folder, study, content):
    if content is not None:
        (folder / "one").write_bytes(content)
    told = "no such file" if content is None else "is no archive of a study's results"
    with pytest.raises(InputFileError, match=told):
        unpack(folder / "one", tasks(study, Places(folder / "here"), resolved), Places(folder / "here"))


def test_a_truncated_archive_is_told(folder, study, program):
    here = Places(folder / "here")
    play(study, here, program, "rules-A")
    every = tasks(study, here, resolved)
    pack(every, here, folder / "one")
    (folder / "one").write_bytes((folder / "one").read_bytes()[:-40])
    with pytest.raises(InputFileError, match="is no archive of a study's results"):
        unpack(folder / "one", every, Places(folder / "there"))


@pytest.mark.slow
def test_the_page_of_the_documentation_is_that_of_its_archive(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("MESHWRIGHT_REFERENCE", raising=False)
    page = tmp_path / "results.md"
    options = ["--unpack", "docs/results.tar.xz", "--out", str(tmp_path / "out"), "--tables", "--page", str(page)]
    assert main(options) == 0
    assert page.read_text() == (ROOT / "docs" / "results.md").read_text()
    for drawing in (tmp_path / "_static").iterdir():
        assert drawing.read_text() == (ROOT / "docs" / "_static" / drawing.name).read_text()
