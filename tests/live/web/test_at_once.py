"""Many clients at once; half of them hang up before the answer: one decision a key, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress

import pytest

from meshwright.live.decisions import JobRequest
from meshwright.live.service import Service
from meshwright.live.state import occupancy
from meshwright.live.web.access import access
from meshwright.live.web.app import build_app

from ...draws import FACTOR
from ..controller_samples import Clock, controller
from .web_samples import serving

NUM_REQUESTS, NUM_CLIENTS, TIMES = round(40 * max(1.0, FACTOR)), 8, 3


@pytest.fixture
def served(tmp_path, planners):
    path = tmp_path / "s.db"
    planners.make_ready(request(0))
    service = Service(controller(path, planners, Clock()), path)
    with serving(build_app(service, access("127.0.0.1", None))) as port:
        yield path, port


def request(number: int) -> JobRequest:
    return JobRequest(job="zoo:alexnet", steps=1 + number, max_devices=2)


async def ask(port: int, number: int, hangs_up: bool) -> bytes | None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = request(number).model_dump_json(exclude_none=True).encode()
    head = "POST /v1/decisions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    writer.write(f"{head}Idempotency-Key: k{number}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()
    if hangs_up:
        writer.transport.abort()
        return None
    answer = await reader.read()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    status, _, content = answer.partition(b"\r\n\r\n")
    assert b" 201 " in status.splitlines()[0], answer
    return content


async def all_of(port: int) -> dict[int, set[bytes]]:
    """The answers to each request."""
    expected = [number for number in range(NUM_REQUESTS) for _ in range(TIMES)]
    random.Random(0).shuffle(expected)
    answers: dict[int, set[bytes]] = {number: set() for number in range(NUM_REQUESTS)}
    left = iter(expected)

    async def client(own: random.Random) -> None:
        for number in left:
            results = await ask(port, number, own.random() < 0.5)
            if results is not None:
                answers[number].add(results)

    await asyncio.gather(*(client(random.Random(seed)) for seed in range(NUM_CLIENTS)))
    for number in range(NUM_REQUESTS):
        result = await ask(port, number, hangs_up=False)
        assert result is not None
        answers[number].add(result)
    return answers


def test_the_same_requests_from_many_at_once_get_one_answer_each(served, planners):
    path, port = served
    answers = asyncio.run(all_of(port))
    assert all(len(answer) == 1 for answer in answers.values())
    again = controller(path, planners)
    record = again.store.decisions(None, 10_000)
    assert len(record) == NUM_REQUESTS
    assert {one.key for one in record} == {f"k{number}" for number in range(NUM_REQUESTS)}
    occupancy(again.store.last()[1], again.cluster)
    placed = [json.loads(next(iter(answer))) for answer in answers.values()]
    assert sum(one["outcome"] == "placed" for one in placed) == len(again.store.last()[1].jobs)
    again.close()
