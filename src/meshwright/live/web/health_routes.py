"""``/healthz``, ``/readyz`` and ``/metrics``, for those who watch the service."""

from __future__ import annotations

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from ...errors import MeshwrightError
from .context import JSON, Context, body, open_to
from .views import Health


def health_routes(context: Context) -> APIRouter:
    """The routes; the first two are open to everybody and say nothing of the cluster."""
    service = context.service
    routes = APIRouter(tags=["health"])

    @routes.get("/healthz", response_model=Health)
    async def alive() -> Response:
        """The process answers."""
        return Response(body(Health(status="ok")), media_type=JSON)

    @routes.get("/readyz", response_model=Health, responses={503: {"model": Health}})
    async def ready() -> Response:
        """A decision can be kept, and the listings are fresh; degraded where something other than decisions fails."""
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
        """Counters, for Prometheus."""
        text = await service.read(context.metrics.text)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    return routes
