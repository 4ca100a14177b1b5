"""A job whose pricing takes too long is refused by name, its process ends, and nobody else waits for it."""

from __future__ import annotations

import asyncio
import time
from multiprocessing import active_children

import pytest

from meshwright.errors import TimeLimitError
from meshwright.live import pricing
from meshwright.live.deciding import Planners
from meshwright.live.decisions import JobRequest
from meshwright.live.pricing import JobPricing

from .controller_samples import JOB
from .slow_pricing import SLOW_JOB, price_or_sleep
from .web.web_samples import client, wait_for

SLOW = JobRequest(job=SLOW_JOB, steps=100, max_devices=2)


def test_a_job_that_takes_too_long_is_refused_now_and_soon_after_and_its_process_is_gone(cluster, tmp_path):
    async def ask():
        made = JobPricing(
            Planners(cluster, "fastest-feasible", scratch=tmp_path), limit_s=0.3
        )  # less than a process takes to begin
        before = active_children()
        request = asyncio.get_running_loop().create_task(made.make_ready(JOB))
        await asyncio.sleep(0.2)
        (process,) = set(active_children()) - set(before)
        assert process.is_alive()
        with pytest.raises(TimeLimitError, match=r"job: reading and pricing it took longer than 0\.3 s") as error:
            await request
        assert error.value.field == "job"
        assert not process.is_alive()
        began_s = time.monotonic()
        with pytest.raises(TimeLimitError):
            await made.make_ready(JOB.model_copy(update={"steps": 5}))  # the same job, as far as pricing goes
        assert time.monotonic() - began_s < 0.2
        assert made.num_timeouts == 1
        await made.stop()

    asyncio.run(ask())


def test_nobody_waits_for_a_job_that_takes_long_and_it_is_told_counted_and_ended(tmp_path, cluster, monkeypatch):
    monkeypatch.setattr(pricing, "price", price_or_sleep)
    own = Planners(cluster, "fastest-feasible", scratch=tmp_path)
    with client(tmp_path / "s.db", own, pricing_limit_s=120.0) as http:

        def ask(request, key):
            return http.post("/v1/decisions", json=request.model_dump(exclude_none=True), headers={"Idempotency-Key": key})

        slow = ask(SLOW, "slow").json()
        assert slow["outcome"] == "preparing"
        new = wait_for(http, ask(JOB, "new").json()["id"])
        assert new["decision"]["outcome"] == "placed"
        assert ask(JOB, "ready").json()["outcome"] == "placed"
        assert http.get(f"/v1/decisions/{slow['id']}").json()["status"] == "preparing"
        http.service.pricer._limit_s = 0.5
        other = wait_for(http, ask(SLOW.model_copy(update={"max_devices": 1}), "other").json()["id"])
        assert (other["status"], other["decision"]["field"]) == ("failed", "job")
        assert other["decision"]["why"].startswith("job: reading and pricing it took longer than 0.5 s")
        assert "meshwright_pricing_timeouts_total 1.0" in http.get("/metrics").text
        assert (
            http.post("/v1/plans", json=SLOW.model_copy(update={"max_devices": 1}).model_dump(exclude_none=True)).status_code
            == 422
        )
