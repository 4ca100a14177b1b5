"""The one thread that writes: what waits is done together and put on the disk together, then all of it is answered."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from .ledger import Ledger

MOST_TOGETHER = 64
"""Calls between two waits for the disk."""

Result = TypeVar("Result")


class _Call(NamedTuple):
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    answer: asyncio.Future[Any]


class Writer:
    """A thread that calls functions in the order in which they are asked for.

    A call is answered when its writes are on the disk. Each is kept or undone by itself. Only where the disk fails are all of a
    group undone, each with an error.

    Args:
        store: that they write.
        undone: called where the disk failed, before the calls are answered.
    """

    def __init__(self, store: Ledger, undone: Callable[[], None]) -> None:
        self._store = store
        self._undone = undone
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    async def call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function on the thread.

        Raises:
            InputFileError: the disk failed, and nothing of it is kept.
            BaseException: as the function.
        """
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._calls.put(_Call(function, arguments, answer))
        return await answer

    def stop(self) -> None:
        """End the thread once it has done what it was asked for."""
        self._calls.put(None)
        self._thread.join()

    def _run(self) -> None:
        is_over = False
        while not is_over:
            calls = [self._calls.get()]
            while len(calls) < MOST_TOGETHER and not self._calls.empty():
                calls.append(self._calls.get())
            is_over = None in calls
            self._do([call for call in calls if call is not None])

    def _do(self, calls: list[_Call]) -> None:
        """Do some calls together."""
        done: list[tuple[_Call, Any, BaseException | None]] = []
        try:
            with self._store.group():
                for call in calls:
                    try:
                        done.append((call, call.function(*call.arguments), None))
                    except Exception as error:
                        done.append((call, None, error))
        except Exception as error:
            self._undone()
            done = [(call, None, error) for call in calls]
        for loop in {call.answer.get_loop() for call in calls}:
            loop.call_soon_threadsafe(_answer, [one for one in done if one[0].answer.get_loop() is loop])


def _answer(done: list[tuple[_Call, Any, BaseException | None]]) -> None:
    for call, result, error in done:
        if call.answer.done():  # whoever asked is gone
            continue
        if error is None:
            call.answer.set_result(result)
        else:
            call.answer.set_exception(error)
