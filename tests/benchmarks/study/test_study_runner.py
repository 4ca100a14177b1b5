"""Carrying out a study: nothing twice, nothing lost, however it ends. A stand-in takes the place of meshwright."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.study.__main__ import resolved
from benchmarks.study.places import Places
from benchmarks.study.plan import tasks
from benchmarks.study.runner import carry_out, record, standing
from benchmarks.study.study import load_study
from meshwright import files

from .small_study import PlayedHere, results, write

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("rules-A", "rules-B", "nets-A", "nets-B", "parts-played"):
        files.write_json(tmp_path / f"{name}.json", results("pair", {"max": [0.5, 0.5]}))
    return tmp_path


@pytest.fixture
def program(folder):
    return write(folder)


@pytest.fixture
def places(folder):
    return Places(folder / "out")


def found(folder, places):
    return tasks(load_study(folder / "study.yaml"), places, resolved)


def play(folder, places, program, **options):
    """What became of each task, in the order in which it was told."""
    told = []
    report = options.pop("report", lambda name, word, note: None)

    def note(name, word, why):
        told.append((name, word, why))
        report(name, word, why)

    words = carry_out(found(folder, places), places, program=program, report=note, **options)
    return words, told


def calls(folder):
    return (folder / "calls").read_text().splitlines() if (folder / "calls").exists() else []


def test_everything_is_done_once_trainings_before_what_needs_them(folder, places, program):
    words, told = play(folder, places, program, num_processes=2)
    assert set(words.values()) == {"done"}
    assert len(words) == len(calls(folder)) == 11
    ended = [name for name, word, _ in told if word == "done"]
    began = [name for name, word, _ in told if word == "begun"]
    assert max(ended.index(f"net-A-seed-{seed}") for seed in (0, 1)) < ended.index("nets-A")
    assert set(began) == set(words)
    again, told = play(folder, places, program)
    assert set(again.values()) == {"done already"}
    assert len(calls(folder)) == 11
    task = found(folder, places)[0]
    assert standing(task, places) == "done"
    assert record(task, places)["command"][:2] == ["meshwright", "train"]
    assert record(task, places)["elapsed_s"] > 0


@pytest.mark.usefixtures("no_processes")
def test_other_settings_are_done_anew_with_all_that_hangs_on_them_and_the_former_run_is_kept(folder, places, program):
    play(folder, places, program)
    text = (folder / "study.yaml").read_text()
    (folder / "study.yaml").write_text(text.replace("variants: {full: []", "variants: {full: [total_steps=48]"))
    states = {task.name: standing(task, places) for task in found(folder, places)}
    assert [name for name, state in states.items() if state == "stale"] == ["parts-full-seed-0"]
    words, _ = play(folder, places, program)
    assert [name for name, word in words.items() if word == "done"] == ["parts-full-seed-0", "parts-played"]
    former, new = places.out / "former" / "parts-full-seed-0-1", places.out / "training" / "parts-full-seed-0"
    assert "total_steps: 48\n" not in (former / "config.yaml").read_text()
    assert "total_steps: 48\n" in (new / "config.yaml").read_text()


@pytest.mark.usefixtures("no_processes")
def test_what_was_done_with_other_settings_may_be_kept(folder, places, program):
    play(folder, places, program)
    text = (folder / "study.yaml").read_text()
    (folder / "study.yaml").write_text(text.replace("total_steps=64", "total_steps=48"))
    words, told = play(folder, places, program, keeps_stale=True)
    assert set(words.values()) == {"done already"}
    assert ("net-A-seed-0", "done already", "with other settings") in told
    assert len(calls(folder)) == 11


def test_what_fails_is_told_with_its_last_line_and_the_rest_is_done(folder, places, program):
    (folder / "break-net-A-seed-1").touch()
    words, told = play(folder, places, program)
    assert words["net-A-seed-1"] == "failed"
    assert words["nets-A"] == "left out"
    assert sorted(set(words.values()) - {"done"}) == ["failed", "left out"]
    assert [note.partition(" (see")[0] for name, word, note in told if word == "failed"] == ["no such luck"]
    assert ("nets-A", "left out", "needs net-A-seed-1") in told
    (folder / "break-net-A-seed-1").unlink()
    words, told = play(folder, places, program)
    assert ("net-A-seed-1", "resumed", "") in told  # its run folder had been begun
    assert [name for name, word in words.items() if word == "done"] == ["net-A-seed-1", "nets-A"]


def test_a_task_whose_node_is_lost_is_resumed_as_often_as_that_happens(folder, places, program):
    lost = folder / "lost"
    lost.mkdir()
    # The node of the first task is lost twice: before the run folder is there, and after.
    on_a_node = f'n=$(ls {lost} | wc -l); touch {lost}/$n; [ $n -gt 0 ] || exit 75; "$@" || exit; [ $n -gt 1 ] || exit 75'
    told = []
    options = {"program": ["bash", "-c", on_a_node, "on-a-node", *program], "report": lambda name, word, note: told.append(word)}
    carry_out(found(folder, places)[:1], places, **options)
    assert told == ["begun", "begun", "resumed", "done"]


@pytest.mark.usefixtures("no_processes")
def test_a_run_that_somebody_began_by_hand_is_taken_up_and_one_of_other_settings_moved_aside(folder, places, program):
    task, other, *_ = found(folder, places)
    PlayedHere([*program, *task.command(places)])
    PlayedHere([*program, *other.command(places), "--set", "total_steps=32"])
    (folder / "calls").unlink()
    _, told = play(folder, places, program)
    assert told[0] == (task.name, "resumed", "")
    assert (other.name, "begun", "") in told
    assert calls(folder)[0] == f"train --resume {places.out}/training/{task.name}"
    assert (places.out / "former" / f"{other.name}-1" / "policy.pt").is_file()


RUNNER = """
import sys
from pathlib import Path
from benchmarks.study.__main__ import resolved
from benchmarks.study.study import load_study
from benchmarks.study.runner import carry_out
from benchmarks.study.places import Places
from benchmarks.study.plan import tasks
places = Places(Path(sys.argv[1]))
carry_out(tasks(load_study("study.yaml"), places, resolved), places, program=sys.argv[2:])
"""


def wait_for(is_so):
    deadline = time.monotonic() + 200
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_killed_runner_takes_its_processes_with_it_and_the_next_one_does_only_what_is_left(folder, places, program):
    hang = folder / "hang-net-A-seed-1"
    hang.touch()
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    runner = subprocess.Popen([sys.executable, "-c", RUNNER, str(places.out), *program], env=os.environ | {"PYTHONPATH": path})
    begun = places.out / "training" / "net-A-seed-1" / "config.yaml"
    wait_for(lambda: runner.poll() is not None or begun.is_file())
    assert runner.poll() is None
    os.kill(runner.pid, signal.SIGKILL)
    runner.wait()
    words, told = play(folder, places, program, report=lambda name, word, note: hang.unlink(missing_ok=True))
    assert words["net-A-seed-0"] == "done already"
    assert ("net-A-seed-1", "resumed", "") in told
    assert set(words.values()) == {"done", "done already"}
    of_seed = [call for call in calls(folder) if "net-A-seed-1" in call and call.startswith("train")]
    assert [call.split()[1] == "--resume" for call in of_seed] == [False, True]


@pytest.mark.usefixtures("no_processes")
def test_a_second_runner_waits_for_the_first_and_does_nothing_twice(folder, places, program):
    (places.out / "tasks").mkdir(parents=True)
    held = (places.out / "tasks" / "lock").open("ab")
    fcntl.flock(held, fcntl.LOCK_EX)
    told = play(folder, places, program, report=lambda name, word, note: held.close())[1]
    assert told[0] == (str(places.out), "waits", "another process is at work there")
    assert len(calls(folder)) == 11


def test_an_interrupt_ends_the_processes_that_were_begun(folder, places, program):
    (folder / "hang-net-A-seed-0").touch()
    begun = []

    def watch(running, num_waiting):
        if (places.out / "training" / "net-A-seed-0" / "config.yaml").is_file():
            begun.append(dict(running))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(folder, places, program, watch=watch)
    assert begun == [{"net-A-seed-0": None}]
    (folder / "hang-net-A-seed-0").unlink()
    _, told = play(folder, places, program)  # nobody holds its lock
    assert told[0] == ("net-A-seed-0", "resumed", "")
    assert not any(word == "waits" for _, word, _ in told)


def test_a_folder_that_cannot_be_written_is_told(folder, program):
    (folder / "file").write_text("")
    from meshwright.errors import InputFileError

    with pytest.raises(InputFileError, match="cannot be written"):
        play(folder, Places(Path(folder / "file")), program)
    assert not calls(folder)
