"""``/v1/replays`` and ``/v1/calibration``: what other policies would have made of the past, and what measured steps teach."""

from __future__ import annotations

import asyncio
from concurrent.futures import BrokenExecutor
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel

from ...errors import MeshwrightError
from ...planners.own_policy import OWN
from ...worker_pool import WorkerPool
from ..feedback.calibration import ObservedCalibration, calibration
from ..feedback.runs import observed_runs
from ..replay.report import ReplayRequest, played
from .context import JSON, Context, body, open_to
from .problems import LOG, ProblemError, not_found

MOST_KEPT = 100
"""Replays whose results are kept at a time, while the service runs."""

MOST_WAITING = 8

Id = Annotated[int, Path(ge=1, le=2**31)]


class ReplayAnswer(BaseModel):
    """A replay: its result once it is done, or why there is none."""

    id: int
    status: Literal["running", "done", "failed"]
    result: dict[str, Any] | None = None
    why: str | None = None


def replay_routes(context: Context) -> APIRouter:
    """Return the routes."""
    service = context.service
    routes = APIRouter(tags=["replays"])
    answers: dict[int, ReplayAnswer] = {}
    tasks: set[asyncio.Task[None]] = set()

    async def run(number: int, request: ReplayRequest) -> None:
        """Replay in a process of low priority that ends with the service."""
        loop = asyncio.get_running_loop()
        recipe = service.controller.planners.recipe
        pool = WorkerPool(1)
        service.also_ends(pool)
        try:
            result = await loop.run_in_executor(pool, played, service.path, request, recipe)
            answers[number] = ReplayAnswer(id=number, status="done", result=result)
        except MeshwrightError as error:
            answers[number] = ReplayAnswer(id=number, status="failed", why=str(error))
        except BrokenExecutor:
            answers[number] = ReplayAnswer(id=number, status="failed", why="the process that played it was ended")
        except Exception as error:
            LOG.exception("replay %d", number)
            answers[number] = ReplayAnswer(id=number, status="failed", why=f"{type(error).__name__} while it was played")
        finally:
            await service.is_done(pool)

    @routes.post("/v1/replays", status_code=202, response_model=ReplayAnswer, **open_to(context, "admin", 413, 429))
    async def begin(request: ReplayRequest) -> Response:
        """Replay a span of the past under some policies, in parallel with the service and at low priority."""
        if sum(answer.status == "running" for answer in answers.values()) >= MOST_WAITING:
            raise ProblemError(429, "too many", f"{MOST_WAITING} replays are running", {"Retry-After": "60"})
        until = request.until or datetime.now(UTC)
        if own := [spec for spec in request.policies if OWN in spec]:
            raise ProblemError(422, "not over HTTP", f"policies: {own[0]} would import a module; replay it on the machine itself")
        if request.since >= until:
            raise ProblemError(422, "no span", "since: is not before the end")
        number = max(answers, default=0) + 1
        answers[number] = ReplayAnswer(id=number, status="running")
        while len(answers) > MOST_KEPT:
            del answers[next(iter(answers))]
        task = asyncio.get_running_loop().create_task(run(number, request.model_copy(update={"until": until})))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return Response(body(answers[number]), 202, {"Location": f"/v1/replays/{number}"}, JSON)

    @routes.get("/v1/replays/{number}", response_model=ReplayAnswer, **open_to(context, "read", 404))
    async def look(number: Id) -> Response:
        """Return a replay, and its result once it is done."""
        if number not in answers:
            raise not_found("replay")
        return Response(body(answers[number]), media_type=JSON)

    @routes.get("/v1/calibration", response_model=ObservedCalibration, **open_to(context, "read"))
    async def learnt() -> Response:
        """Return by how much steps took longer than predicted, and whether that makes predictions better."""
        result = await service.read(lambda store: calibration(observed_runs(store)))
        return Response(result.model_dump_json(), media_type=JSON)

    return routes
