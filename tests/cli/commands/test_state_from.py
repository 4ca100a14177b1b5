"""Laws of the commands that read a scheduler's state from files: their output, and that a bad state is not stored."""

import json
from pathlib import Path

import pytest

from meshwright.live.keeping import KeptState
from meshwright.live.state import load_state

DATA = Path(__file__).resolve().parents[2] / "live" / "sources" / "data"
SAVED = {"slurm": "slurm-22.05.txt", "kubernetes": "kubernetes.json", "ray": "ray-2.60.json"}


@pytest.mark.parametrize("source", SAVED)
def test_a_listing_is_kept_once_and_by_both_kinds_of_files(meshwright, work, source):
    words = ("state", "read", source, "--from", DATA / SAVED[source], "--state")
    result = meshwright(*words, "now.db")
    assert (result.status, result.err) == (0, "")
    assert "now.db: " in result.out
    assert ("indices are assumed" in result.out) == (source != "slurm")
    assert "nothing changed" in meshwright(*words, "now.db").out
    ledger = KeptState(work / "now.db")
    assert len(ledger.changes()) == 1
    assert meshwright(*words, "now.json").status == 0
    assert load_state("now.json") == ledger.read()
    assert ledger.read().source == source


def test_a_planned_job_is_kept_until_a_listing_names_it_and_both_sides_are_told(meshwright, work):
    def job(name, host):
        return {"id": name, "devices": {host: [0]}, "source": "plan"}

    Path("now.json").write_text(json.dumps({"schema_version": 1, "jobs": [job("3f2a", "gpu-11"), job("later", "gpu-99")]}))
    result = meshwright("state", "read", "slurm", "--from", DATA / SAVED["slurm"], "--state", "now.json")
    assert "not as it was known: 1 runs on gpu-03/0, planned as 3f2a was gpu-11/0" in result.out
    stored = {one.id: one.source for one in load_state("now.json").jobs}
    assert "3f2a" not in stored
    assert stored["later"] == "plan"


@pytest.mark.parametrize("source", SAVED)
def test_of_a_listing_that_is_cut_short_nothing_is_kept(refused, work, source):
    text = (DATA / SAVED[source]).read_text()
    (work / "cut").write_text(text[: len(text) // 3])
    line = refused("state", "read", source, "--from", "cut", "--state", "now.db")
    assert line.startswith("cut:")
    assert not (work / "now.db").exists()


def test_a_program_that_is_not_there_is_named(refused, work, monkeypatch):
    monkeypatch.setenv("PATH", str(work))
    for source, program in (("slurm", "scontrol"), ("kubernetes", "kubectl")):
        assert f"{program}: no such program on this machine" in refused("state", "read", source, "--state", "now.db")
    assert "squeue: no such program on this machine" in refused("state", "read", "slurm:json", "--state", "now.db")
    assert not (work / "now.db").exists()


def test_slurm_is_asked_in_ways_that_there_are_and_a_saved_answer_is_known_by_itself(meshwright, refused, work, monkeypatch):
    monkeypatch.delenv("SLURM_JWT", raising=False)
    keep = ("state", "read", "slurm", "--state", "now.db")
    for way, message in (
        ("jsno", "source: no such way to ask Slurm (got 'jsno'); did you mean 'json'?"),
        ("http://ada:secret@here", "source: must be http://HOST:PORT"),
        ("http://127.0.0.1:1", "SLURM_JWT: an address wants a token"),
        ("unix:none", "slurmrestd unix:none: no answer: No such file or directory; is slurmrestd running?"),
    ):
        assert message in refused("state", "read", f"slurm:{way}", "--state", "now.db")
    assert "--set slurm_token_file: goes with slurmrestd" in refused(*keep, "--set", "slurm_token_file=token")
    assert not (work / "now.db").exists()
    assert meshwright(*keep, "--from", DATA / "slurm-22.05-again.txt").status == 0
    assert "nothing changed" in meshwright(*keep, "--from", DATA / "slurm-22.05-again.json").out
    assert "nothing changed" in meshwright(*keep, "--from", DATA / "slurm-v0.0.41-by-hand.json").out


def test_kubectl_is_asked_once_for_everything(meshwright, work, monkeypatch):
    (work / "kubectl").write_text(f'#!/bin/sh\necho "$*" >>asked\nexec cat {DATA / SAVED["kubernetes"]}\n')
    (work / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{work}:/usr/bin:/bin")
    assert meshwright("state", "read", "kubernetes", "--state", "now.db", "--set", "context=-x y").status == 0
    request = "get nodes,pods --all-namespaces --output=json --request-timeout=45s --context=-x y\n"
    assert (work / "asked").read_text() == request


def test_another_resource_and_label_are_read(meshwright, work):
    words = ("--from", DATA / SAVED["kubernetes"], "--state", "now.json")
    assert meshwright("state", "read", "kubernetes", *words, "--set", "resource=cpu").status == 0
    assert {host.num_devices for host in load_state("now.json").hosts.values()} == {96}
    refused = meshwright("state", "read", "ray", "--from", DATA / SAVED["ray"], "--state", "ray.db", "--set", "host_label=rack")
    assert refused.status == 2
    assert "two Ray nodes of one host; start each with the label rack=HOST (got '10.0.0.1')" in refused.err
