"""Carries out the tasks of a study, some at a time, each as a process of its own, so that all of it can be killed and resumed.

Beside its product each task has three files in ``tasks/``: a record ``NAME.json`` of the settings (as a digest) that it was
begun or done with, a log, and a lock, which its process holds and which the system gives back when that process ends,
however it does. So whoever comes after a killed runner waits for processes that it left behind, and two runners beside
each other never do one thing twice.

A task is done where its record says so with the digest of today's settings. A training run that was begun with them is
resumed; one of other settings is moved to ``former/``, so that nothing that took hours is lost.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from meshwright import files
from meshwright.errors import InputFileError, MeshwrightError

from .runs import Places
from .tasks import EvaluationTask, Task, TrainingTask, pretrained_file

TASKS, FORMER = "tasks", "former"
LOOK_EVERY_S = 0.2
PATIENCE_S = 10.0

Standing = Literal["done", "stale", "begun", "missing"]
Word = Literal["done already", "begun", "resumed", "done", "failed", "left out", "waits"]
Report = Callable[[str, Word, str], None]
Watch = Callable[[Mapping[str, float | None], int], None]


def standing(task: Task, places: Places) -> Standing:
    """How far a task is; ``stale``: done with other settings than those of today, or with policies that have changed.

    What cannot be told, because what it needs is not there, is not stale.
    """
    told = record(task, places)
    if told.get("state") != "done" or task.product(places) is None:
        return "begun" if told else "missing"
    try:
        return "done" if told.get("digest") == task.digest(places) else "stale"
    except MeshwrightError:
        return "done"


def record(task: Task, places: Places) -> dict[str, Any]:
    """What a task's record says; empty where there is none."""
    path = record_file(task, places)
    told = files.read_json(path) if path.is_file() else {}
    return told if isinstance(told, dict) else {}


def record_file(task: Task, places: Places) -> Path:
    """Where a task's record lies."""
    return _beside(task, places, "json")


def carry_out(
    tasks: Sequence[Task],
    places: Places,
    *,
    program: Sequence[str],
    num_processes: int = 1,
    keeps_stale: bool = False,
    report: Report | None = None,
    watch: Watch | None = None,
) -> dict[str, Word]:
    """Do what is not done.

    Args:
        tasks: in the order in which they begin; what they need is among them.
        places: where things lie.
        program: a command in front of that of each task, the program that knows ``train`` and ``evaluate``.
        num_processes: how many run at a time.
        keeps_stale: whether what was done with other settings counts as done.
        report: called with the task's name, what became of it, and a note.
        watch: called now and then with the share done of each running task, and how many wait.

    Returns:
        The last word on each task.

    Raises:
        MeshwrightError: a folder cannot be written.
    """
    crew = WorkerPool(places, program, keeps_stale, report or (lambda name, word, note: None))
    pending, said_to_wait = list(tasks), set[str]()
    try:
        while pending or crew.running:
            for task in list(pending):
                if len(crew.running) >= num_processes:
                    break
                if any(need not in crew.words for need in task.needs):
                    continue
                began = crew.take_up(task)
                if began:
                    pending.remove(task)
                elif task.name not in said_to_wait:
                    said_to_wait.add(task.name)
                    crew.report(task.name, "waits", "another process is on it")
            if watch is not None:
                watch({name: crew.share_done(name) for name in crew.running}, len(pending))
            crew.look()
            if pending or crew.running:
                time.sleep(LOOK_EVERY_S)
    finally:
        crew.stop()
    return crew.words


@dataclass(frozen=True)
class _Running:
    task: Task
    digest: str
    process: subprocess.Popen[bytes]
    lock: IO[bytes]
    began: float


class WorkerPool:
    """The processes under way and what became of the others."""

    def __init__(self, places: Places, program: Sequence[str], keeps_stale: bool, report: Report) -> None:
        self.places, self.program, self.keeps_stale, self._report = places, list(program), keeps_stale, report
        self.running: dict[str, _Running] = {}
        self.words: dict[str, Word] = {}

    def report(self, name: str, word: Word, note: str) -> None:
        """Tell what became of a task."""
        if word in ("done already", "done", "failed", "left out"):
            self.words[name] = word
        self._report(name, word, note)

    def take_up(self, task: Task) -> bool:
        """Begin a task, or settle that it need not or cannot be done; False where another process is on it."""
        missing = [need for need in task.needs if self.words[need] in ("failed", "left out")]
        lacks = f"needs {missing[0]}" if missing else task.lacks(self.places)
        if lacks is not None:
            self.report(task.name, "left out", lacks)
            return True
        lock = _locked(_beside(task, self.places, "lock"))
        if lock is None:
            return False
        now = standing(task, self.places)
        if now == "done" or (now == "stale" and self.keeps_stale):
            lock.close()
            self.report(task.name, "done already", "with other settings" if now == "stale" else "")
            return True
        self._begin(task, lock)
        return True

    def _begin(self, task: Task, lock: IO[bytes]) -> None:
        digest = task.digest(self.places)
        command, word = task.command(self.places), "begun"
        folder = task.folder(self.places)
        if isinstance(task, EvaluationTask):
            folder.mkdir(parents=True, exist_ok=True)
        elif folder.exists():
            if task.digest_found(self.places) == digest:
                command, word = task.resuming(self.places), "resumed"
            else:
                _move_aside(folder, self.places.out / FORMER)
        self._note(task, digest, "begun", task.command(self.places))
        log = _beside(task, self.places, "log")
        with log.open("ab") as told:
            process = subprocess.Popen(
                [*self.program, *command],
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=told,
                pass_fds=(lock.fileno(),),
                start_new_session=True,  # Ctrl-C is for the runner, which then stops all others
            )
        self.running[task.name] = _Running(task, digest, process, lock, time.perf_counter())
        self.report(task.name, "resumed" if word == "resumed" else "begun", "")

    def look(self) -> None:
        """Settle what has ended."""
        for name, one in list(self.running.items()):
            status = one.process.poll()
            if status is None:
                continue
            del self.running[name]
            elapsed_s = time.perf_counter() - one.began
            if status == 0 and one.task.product(self.places) is not None:
                if isinstance(one.task, TrainingTask):
                    _keep_pretrained(one.task, self.places)
                self._note(one.task, one.digest, "done", one.task.command(self.places), elapsed_s)
                self.report(name, "done", f"{elapsed_s:,.0f} s")
            else:
                log = _beside(one.task, self.places, "log")
                self.report(name, "failed", f"{_last_line(log) or f'status {status}'} (see {log})")
            one.lock.close()

    def share_done(self, name: str) -> float | None:
        """How much of a running task is done; None where that is not known."""
        task = self.running[name].task
        return task.share_done(self.places) if isinstance(task, TrainingTask) else None

    def stop(self) -> None:
        """End what still runs; trainings go on from their last checkpoints the next time."""
        for one in self.running.values():
            one.process.terminate()
        for one in self.running.values():
            try:
                one.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                one.process.kill()
                one.process.wait()
            one.lock.close()

    def _note(self, task: Task, digest: str, state: str, command: list[str], elapsed_s: float | None = None) -> None:
        told = {"task": task.name, "digest": digest, "state": state, "command": ["meshwright", *command], "elapsed_s": elapsed_s}
        files.write_json(record_file(task, self.places), told)


def _beside(task: Task, places: Places, kind: str) -> Path:
    return places.out / TASKS / f"{task.name}.{kind}"


def _locked(path: Path) -> IO[bytes] | None:
    """A lock file, held; None where another process holds it. Processes that inherit it hold it too."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("ab")
    except OSError as error:
        raise InputFileError(f"cannot be written ({error.strerror})", file=path) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _move_aside(folder: Path, former: Path) -> None:
    if not any(folder.iterdir()):
        folder.rmdir()
        return
    former.mkdir(parents=True, exist_ok=True)
    number = 1
    while (former / f"{folder.name}-{number}").exists():
        number += 1
    os.rename(folder, former / f"{folder.name}-{number}")


def _keep_pretrained(task: TrainingTask, places: Places) -> None:
    source = task.folder(places) / "pretrained.pt"
    if source.is_file():
        with files.atomic_file(pretrained_file(places, task.name)) as copy, source.open("rb") as read:
            shutil.copyfileobj(read, copy)


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""
