"""Laws of temporaries: however a writer ends, what it began goes, by itself or with the next write; nothing else goes."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from meshwright import files, temporaries

WRITERS = {
    "file": "with files.atomic_file('out') as file:\n    file.write(b'half')\n    file.flush()\n    wait()\n",
    "folder": "with files.atomic_folder('out', marker='a') as folder:\n    files.write_text(folder / 'a', 'half')\n    wait()\n",
    # Stops where the former folder is moved aside and the new one is not yet in its place.
    "between": (
        "from pathlib import Path\nrename = Path.rename\n"
        "def slow(path, target):\n    wait() if path.name == 'new' else rename(path, target)\n"
        "Path.rename = slow\n"
        "with files.atomic_folder('out', marker='a') as folder:\n    files.write_text(folder / 'a', 'new')\n"
    ),
}
WAIT = "import sys\nfrom meshwright import files\n\ndef wait():\n    print('begun', flush=True)\n    sys.stdin.read()\n\n"


def names(folder):
    return sorted(os.listdir(folder))


@pytest.fixture
def writer(tmp_path):
    """``writer(kind)`` is another process that waits in the midst of a write to ``out``."""
    begun = []

    def begin(kind):
        process = subprocess.Popen(
            [sys.executable, "-c", WAIT + WRITERS[kind]],
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        begun.append(process)
        assert process.stdout.readline() == b"begun\n"
        return process

    yield begin
    for process in begun:
        process.kill()
        process.communicate()


def former(tmp_path, kind):
    """Put something under the name ``out`` before the write; return a function that checks whether it is still there."""
    if kind == "file":
        (tmp_path / "out").write_text("old")
        return lambda: (tmp_path / "out").read_text() == "old"
    with files.atomic_folder(tmp_path / "out", marker="a") as folder:
        files.write_text(folder / "a", "old")
    return lambda: (tmp_path / "out" / "a").read_text() == "old"


@pytest.mark.parametrize("kind", WRITERS)
def test_what_a_killed_writer_left_goes_with_the_next_write_and_the_former_is_there(tmp_path, writer, kind):
    is_there = former(tmp_path, kind)
    process = writer(kind)
    process.kill()
    process.wait()
    assert len([name for name in names(tmp_path) if name.startswith(".out.")]) == 1
    files.write_text(tmp_path / "other", "")
    assert names(tmp_path) == ["other", "out"]
    assert is_there()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("kind", ["file", "between"])
def test_a_writer_that_is_asked_to_end_cleans_up_first(tmp_path, writer, kind, number):
    is_there = former(tmp_path, kind)
    process = writer(kind)
    process.send_signal(number)
    assert process.wait() == -number
    assert names(tmp_path) == ["out"]
    assert is_there()


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_living_process_writes_stays(tmp_path, writer, kind):
    process = writer(kind)
    (temporary,) = names(tmp_path)
    files.write_text(tmp_path / "other", "")
    with files.atomic_folder(tmp_path / "more"):
        pass
    assert names(tmp_path) == [temporary, "more", "other"]
    process.communicate(b"")
    assert process.returncode == 0
    assert names(tmp_path) == ["more", "other", "out"]


def test_what_is_not_ours_stays(tmp_path):
    ours = ".a.0123abcd.meshwright-tmp"
    (tmp_path / ours).write_text("left behind")
    stored = ["a.0123abcd.meshwright-tmp", ".a.meshwright-tmp", ".a.0123abcd.tmp", ".a.0123ABCD.meshwright-tmp"]
    for name in stored:
        (tmp_path / name).write_text("mine")
    (tmp_path / ".link.0123abcd.meshwright-tmp").symlink_to(stored[0])
    os.mkfifo(tmp_path / ".pipe.0123abcd.meshwright-tmp")
    (tmp_path / ".thesis.0123abcd.meshwright-tmp").mkdir()
    (tmp_path / ".thesis.0123abcd.meshwright-tmp" / "chapter.tex").write_text("mine")
    before = names(tmp_path)
    files.write_text(tmp_path / "b", "")
    assert names(tmp_path) == sorted({*before, "b"} - {ours})
    assert (tmp_path / ".thesis.0123abcd.meshwright-tmp" / "chapter.tex").read_text() == "mine"


def test_nothing_is_removed_where_the_file_system_has_no_locks(tmp_path, monkeypatch):
    def no_locks(file, operation):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", no_locks)
    (tmp_path / ".a.0123abcd.meshwright-tmp").write_text("somebody's")
    files.write_text(tmp_path / "b", "text")
    assert names(tmp_path) == [".a.0123abcd.meshwright-tmp", "b"]


@pytest.mark.parametrize("number", [0, 1])
def test_a_writer_whose_temporary_was_taken_for_a_stale_one_makes_another(tmp_path, monkeypatch, number):
    answers, is_open_at = [False] * (number + 1), temporaries._is_open_at
    monkeypatch.setattr(temporaries, "_is_open_at", lambda *values: answers.pop() if answers else is_open_at(*values))
    files.write_text(tmp_path / "file", "text")
    answers += [False] * (number + 1)
    with files.atomic_folder(tmp_path / "folder") as folder:
        files.write_text(folder / "a", "text")
    assert names(tmp_path) == ["file", "folder"]


def test_signals_are_handled_as_before_outside_a_write_and_where_somebody_handles_them(tmp_path):
    def mine(number, frame):
        raise AssertionError

    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    before = signal.signal(signal.SIGHUP, mine)
    try:
        with files.atomic_folder(tmp_path / "a") as folder:
            files.write_text(folder / "b", "")
            assert signal.getsignal(signal.SIGTERM) == temporaries._remove_and_end
            assert signal.getsignal(signal.SIGHUP) == mine
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        assert signal.getsignal(signal.SIGHUP) == mine
    finally:
        signal.signal(signal.SIGHUP, before)


def test_another_thread_writes_too(tmp_path):
    thread = threading.Thread(target=files.write_text, args=(tmp_path / "a", "text"))
    thread.start()
    thread.join()
    assert names(tmp_path) == ["a"]


def test_a_fork_leaves_alone_what_its_parent_writes(tmp_path):
    with files.atomic_folder(tmp_path / "a"):
        child = os.fork()
        if child == 0:  # ends as a fork does that is asked to
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        assert len(names(tmp_path)) == 1
    assert names(tmp_path) == ["a"]
