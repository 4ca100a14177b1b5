"""Carries out the tasks of a study, some at a time, each as a process of its own, so that all of it can be killed and resumed.

Beside its product each task has two files in ``tasks/``: a log, and a record ``NAME.json`` of the settings (as a digest) that
it was begun or done with. A task is done where its record says so with the digest of today's settings. A training run that was
begun with them is resumed; one of other settings is moved to ``former/``, so that nothing that took hours is lost.

One runner works in a folder at a time: it holds a lock, which its processes inherit, and they end with it however it ends.
"""

from __future__ import annotations

import ctypes
import fcntl
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

from meshwright import files
from meshwright.errors import InputFileError, MeshwrightError

from .places import Places
from .tasks import EvaluationTask, Task, TrainingTask

TASKS, FORMER = "tasks", "former"
LOOK_EVERY_S = 0.2
PATIENCE_S = 10.0
AGAIN = 75
"""Status of a task that where it ran was lost: what is begun is resumed (EX_TEMPFAIL of BSD's sysexits)."""

PR_SET_PDEATHSIG = 1
"""Of Linux's ``prctl``: the signal that a process gets when its parent ends."""

Standing = Literal["done", "stale", "begun", "missing"]
Word = Literal["done already", "begun", "resumed", "done", "failed", "left out", "waits"]
Report = Callable[[str, Word, str], None]
Watch = Callable[[Mapping[str, float | None], int], None]


def standing(task: Task, places: Places) -> Standing:
    """How far a task is; ``stale``: done with other settings than those of today, or with policies that have changed.

    What cannot be told, because what it needs is not there, is not stale.
    """
    noted = record(task, places)
    if noted.get("state") != "done" or task.product(places) is None:
        return "begun" if noted else "missing"
    try:
        return "done" if noted.get("digest") == task.digest(places) else "stale"
    except MeshwrightError:
        return "done"


def record(task: Task, places: Places) -> dict[str, Any]:
    """What a task's record says; empty where there is none."""
    path = record_file(task, places)
    noted = files.read_json(path) if path.is_file() else {}
    return noted if isinstance(noted, dict) else {}


def record_file(task: Task, places: Places) -> Path:
    """Where a task's record lies."""
    return places.out / TASKS / f"{task.name}.json"


def carry_out(
    tasks: Sequence[Task],
    places: Places,
    *,
    program: Sequence[str],
    num_processes: int = 1,
    keeps_stale: bool = False,
    report: Report = lambda name, word, note: None,
    watch: Watch = lambda running, num_waiting: None,
) -> dict[str, Word]:
    """Do what is not done.

    Args:
        tasks: in the order in which they begin; what they need is among them.
        places: where things lie.
        program: a command in front of that of each task, the program that knows ``train`` and ``evaluate``.
        num_processes: how many run at a time; one that ends with `AGAIN` is resumed.
        keeps_stale: whether what was done with other settings counts as done.
        report: called with the task's name, what became of it, and a note.
        watch: called now and then with the share done of each running task, and how many wait.

    Returns:
        The last word on each task.

    Raises:
        MeshwrightError: a folder cannot be written.
    """
    words: dict[str, Word] = {}
    pending, running = list(tasks), dict[str, _Process]()

    def settle(task: Task, word: Word, note: str) -> None:
        words[task.name] = word
        report(task.name, word, note)

    with _alone(places, report) as lock:
        try:
            while pending or running:
                for task in [task for task in pending if all(need in words for need in task.needs)]:
                    if len(running) == num_processes:
                        break
                    pending.remove(task)
                    missing = [need for need in task.needs if words[need] in ("failed", "left out")]
                    lacks, now = f"needs {missing[0]}" if missing else task.lacks(places), standing(task, places)
                    if lacks is not None:
                        settle(task, "left out", lacks)
                    elif now == "done" or (now == "stale" and keeps_stale):
                        settle(task, "done already", "with other settings" if now == "stale" else "")
                    else:
                        running[task.name] = _Process(task, places, program, lock)
                        report(task.name, running[task.name].word, "")
                watch({name: one.task.share_done(places) for name, one in running.items()}, len(pending))
                for name, one in list(running.items()):
                    if one.process.poll() == AGAIN:
                        pending.insert(0, running.pop(name).task)
                    elif one.process.returncode is not None:
                        settle(one.task, *one.outcome())
                        del running[name]
                if pending or running:
                    time.sleep(LOOK_EVERY_S)
        finally:  # trainings go on from their last checkpoints the next time
            for one in running.values():
                one.process.terminate()
            for one in running.values():
                try:
                    one.process.wait(PATIENCE_S)
                except subprocess.TimeoutExpired:
                    one.process.kill()
                    one.process.wait()
    return words


class _Process:
    """A task that is begun or resumed.

    Attributes:
        task: what it does.
        word: ``begun`` or ``resumed``.
        process: does it.
    """

    def __init__(self, task: Task, places: Places, program: Sequence[str], lock: IO[bytes]) -> None:
        self.task, self._places, self._digest = task, places, task.digest(places)
        self.word: Word = "begun"
        self._command = command = task.command(places)
        folder = task.folder(places)
        if isinstance(task, EvaluationTask):
            folder.mkdir(parents=True, exist_ok=True)
        elif folder.exists() and task.digest_found(places) == self._digest:
            self.word, command = "resumed", task.resuming(places)
        elif folder.exists():
            _move_aside(folder, places.out / FORMER)
        self._note("begun")
        self._log, self._began = record_file(task, places).with_suffix(".log"), time.perf_counter()
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*program, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock.fileno(),),
                preexec_fn=_end_with_parent,
                start_new_session=True,  # Ctrl-C is for the runner, which then stops all others
            )

    def outcome(self) -> tuple[Word, str]:
        """What became of a process that has ended, noted in the task's record, and a note."""
        status, elapsed_s = self.process.returncode, time.perf_counter() - self._began
        if status != 0 or self.task.product(self._places) is None:
            lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
            last = next((line.strip() for line in reversed(lines) if line.strip()), f"status {status}")
            return "failed", f"{last} (see {self._log})"
        if isinstance(self.task, TrainingTask):
            self.task.keep_pretrained(self._places)
        self._note("done", elapsed_s)
        return "done", f"{elapsed_s:,.0f} s"

    def _note(self, state: str, elapsed_s: float | None = None) -> None:
        noted = {"task": self.task.name, "digest": self._digest, "state": state, "elapsed_s": elapsed_s}
        files.write_json(record_file(self.task, self._places), noted | {"command": ["meshwright", *self._command]})


@contextmanager
def _alone(places: Places, report: Report) -> Iterator[IO[bytes]]:
    """Hold the lock of a study's folder; where a runner or a process that it left behind holds it, wait."""
    path = places.out / TASKS / "lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("ab")
    except OSError as error:
        raise InputFileError(f"cannot be written ({error.strerror})", file=path) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(str(places.out), "waits", "another process is at work there")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _move_aside(folder: Path, former: Path) -> None:
    if not any(folder.iterdir()):
        folder.rmdir()
        return
    former.mkdir(parents=True, exist_ok=True)
    number = 1
    while (former / f"{folder.name}-{number}").exists():
        number += 1
    folder.rename(former / f"{folder.name}-{number}")
