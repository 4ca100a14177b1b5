"""The application: all routes of a service, one error form, a limit on what is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ... import __version__
from ...errors import MeshwrightError
from ..service import Service
from .access import COOKIE, Access
from .cluster_routes import cluster_routes
from .context import JSON, Context, body, open_to
from .decision_routes import decision_routes
from .hook_routes import hook_routes
from .metrics import Metrics
from .pages.routes import page_routes
from .problems import ProblemDocument, ProblemError, add_problems, answer
from .replay_routes import replay_routes
from .views import Health

MOST_BYTES = 8 * 2**20
MOST_UNKNOWN_BYTES = 16 * 2**10
"""Of the body of a request; of one without a token that is known, and of a page's form."""


def build_app(service: Service, access: Access) -> FastAPI:
    """Return the application of a service that has not started; the service starts and stops with it."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    app = FastAPI(
        title="meshwright",
        version=__version__,
        summary="Decides for jobs of a live cluster on which devices they run.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    context = Context(service, access, Metrics(service))
    for routes in (decision_routes, cluster_routes, replay_routes, hook_routes, health_routes, page_routes):
        app.include_router(routes(context))
    add_problems(app)
    document = app.openapi

    def with_problems() -> dict[str, Any]:
        schema = document()
        schema["components"]["schemas"].setdefault(ProblemDocument.__name__, ProblemDocument.model_json_schema())
        return schema

    app.openapi = with_problems  # type: ignore[method-assign]
    app.add_middleware(_Limited, access=access)
    return app


def health_routes(context: Context) -> APIRouter:
    """Return the routes; the first two are open to everybody and say nothing of the cluster."""
    service = context.service
    routes = APIRouter(tags=["health"])

    @routes.get("/healthz", response_model=Health)
    async def alive() -> Response:
        """Report that the process answers."""
        return Response(body(Health(status="ok")), media_type=JSON)

    @routes.get("/readyz", response_model=Health, responses={503: {"model": Health}})
    async def ready() -> Response:
        """Report whether a decision can be kept and listings are fresh; degraded where something other than decisions fails."""
        try:
            await service.read(lambda store: store.last())
        except MeshwrightError:
            return Response(body(Health(status="starting", detail="the store cannot be read")), 503, media_type=JSON)
        if (why := await service.write_problem()) is not None:
            return Response(body(Health(status="full", detail=f"nothing can be kept: {why}")), 503, media_type=JSON)
        late = [statuse.name for statuse in service.statuses if statuse.age_s > service.max_age_s]
        if late:
            return Response(body(Health(status="stale", detail=f"too old: {', '.join(late)}")), 503, media_type=JSON)
        if service.problems:
            return Response(body(Health(status="degraded", detail=f"fails: {', '.join(service.problems)}")), media_type=JSON)
        return Response(body(Health(status="ok")), media_type=JSON)

    @routes.get("/metrics", **open_to(context, "read"), response_class=Response)
    async def metrics() -> Response:
        """Return counters, for Prometheus."""
        text = await service.read(context.metrics.text)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    return routes


class _Limited:
    """Refuses two hosts, bodies that are too long, and long ones of those who may do nothing, before they are read as a whole."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        if len(request.headers.getlist("host")) > 1:
            problem = ProblemDocument(title="cannot be read", status=400, detail="the request has more than one Host")
            await answer(problem)(scope, receive, send)
            return
        credentials = request.headers.get("authorization"), request.cookies.get(COOKIE)
        may_send = scope["path"].startswith("/v1/") and self._access.scope_of(*credentials) is not None
        most = MOST_BYTES if may_send else MOST_UNKNOWN_BYTES
        length = request.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > most:
            message = f"the body is longer than {most >> 10} KiB" + ("" if may_send else ", more than without a token")
            await answer(ProblemDocument(title="too long", status=413, detail=message))(scope, receive, send)
            return
        taken = 0

        async def limited() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > most:
                raise ProblemError(413, "too long", f"the body is longer than {most >> 10} KiB")
            return message

        await self._app(scope, limited, send)
