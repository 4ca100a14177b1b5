"""The interface of all workers: tasks in, results out in the order of the tasks, however they are shared out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


class Workers(Protocol):
    """Does tasks; results do not depend on who, on how many, or on which of them die meanwhile."""

    def do(self, play: Callable[[Task], Result], tasks: Sequence[Task], keep: Callable[[Task, Result], None]) -> None:
        """Do tasks and hand each result to a function.

        Args:
            play: does one task; can be pickled with all that it needs, as a scenario.
            tasks: can be pickled too.
            keep: called with each task and its result in the order of the tasks, as soon as those before it are there.

        Raises:
            MeshwrightError: no worker is left that could do a task, or what ``play`` raises.
        """
