"""A controller that is killed without a word: what a client was answered is there, and nothing is half there."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import pytest

from meshwright.live.decisions import JobRequest
from meshwright.live.state import occupancy

from ..draws import FACTOR
from .controller_samples import controller, forget_snapshots

NUM_KILLS, NUM_REQUESTS = (6, 40) if FACTOR <= 1 else (200, 500)


class KilledAt:
    """A database that ends its process before its n-th statement."""

    def __init__(self, database, statements):
        self._database, self._left = database, statements

    def execute(self, *words):
        self._left -= 1
        if self._left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return self._database.execute(*words)

    def executemany(self, *words):
        return self._database.executemany(*words)

    def __getattr__(self, name):
        return getattr(self._database, name)


def request(number: int) -> JobRequest:
    return JobRequest(job="zoo:alexnet", steps=1 + number, max_devices=1 + number % 4)


def play(path, planners, answered, statements=None):
    """Requests, some of them given back or handed over, until the end or the kill; each answer is written once it is there."""
    made = controller(path, planners)
    if statements is not None:
        made.store._db = KilledAt(made.store._db, statements)
    known = {json.loads(line)[0] for line in answered.read_text().splitlines()} if answered.exists() else set()
    with answered.open("a") as out:
        for number in range(NUM_REQUESTS):
            record = made.decide(request(number), f"k{number}")
            if f"k{number}" not in known:
                out.write(json.dumps([f"k{number}", record.decision.model_dump_json()]) + "\n")
                out.flush()
            if number % 3 == 1:
                made.release(record.decision.id, "done")
            elif number % 3 == 2 and made.store.mentions(record.decision.id) and number > 5:
                made.release(record.decision.id)
    made.close()


@pytest.mark.parametrize("seed", [0])
def test_a_controller_that_is_killed_at_any_statement_keeps_what_it_answered(tmp_path, planners, seed):
    for number in range(4):
        planners.make_ready(request(number))
    rng = np.random.default_rng(seed)
    num_killed = 0
    for turn in range(NUM_KILLS):
        path, answered = tmp_path / f"{turn}.db", tmp_path / f"{turn}.jsonl"
        at = int(rng.integers(1, 8 * NUM_REQUESTS))
        child = os.fork()
        if child == 0:
            play(path, planners, answered, at)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        num_killed += os.WIFSIGNALED(status)
        lines = answered.read_text().splitlines() if answered.exists() else []
        answers = dict(map(json.loads, lines))
        again = controller(path, planners)
        before = again.store.last()
        occupancy(before[1], again.cluster)  # refuses two jobs on one device
        forget_snapshots(again.store)
        assert again.store.last() == before
        for key, answer in answers.items():
            number = int(key[1:])
            assert again.decide(request(number), key).decision.model_dump_json() == answer
        held = {job.id for job in before[1].jobs}
        decisions = {kept.decision.id for kept in again.store.decisions(None, 10_000) if kept.decision.outcome == "placed"}
        assert held <= decisions
        mentioned = {name for name in decisions if again.store.mentions(name)[-1].status == "reserved"}
        assert mentioned == held
        again.close()
    assert num_killed >= NUM_KILLS // 2
