"""``/v1/cluster``, ``/v1/events`` and ``/v1/hosts``: who holds what, what happened, and hosts that take no jobs."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Response
from fastapi.responses import StreamingResponse

from ..changes import HostChanged, host_changed
from ..ledger import Ledger
from ..service import Service, SourceStatus
from ..state import ClusterState, devices_by_state, occupancy
from ..store import KeptChange
from .context import JSON, Context, Match, body, digest_of, open_to, tagged
from .problems import not_found
from .views import ClusterView, EventList, EventView, HostDevices, HostView, JobView, ReasonGiven, SourceView, host_views

KEEP_ALIVE_S = 15.0
EVENTS_AT_A_TIME = 500

HostName = Annotated[str, Path(max_length=253, pattern=r"^[A-Za-z0-9.-]+$")]


def cluster_routes(context: Context) -> APIRouter:
    """Return the routes."""
    service = context.service
    routes = APIRouter(tags=["cluster"])

    @routes.get("/v1/cluster", response_model=ClusterView, **open_to(context, "read"))
    async def cluster(match: Match = None) -> Response:
        """Return who holds which devices, which hosts take no jobs, and how old that is."""
        seq, state = await service.read(lambda store: store.last())
        listings = [(statuse.num_listings, statuse.num_failures, statuse.problem) for statuse in service.statuses]
        tag = digest_of(service.began, seq, listings, service.is_stale(), service.problems)
        return tagged(tag, match, body(cluster_view(service, seq, state)))

    streams = open_to(context, "read", more={200: {"content": {"text/event-stream": {}}}})

    @routes.get("/v1/events", response_model=EventList, **streams)
    async def events(
        after: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = EVENTS_AT_A_TIME,
        accept: Annotated[str | None, Header()] = None,
        match: Match = None,
    ) -> Response:
        """Return the changes, oldest first; as server-sent events where the client accepts them."""
        if accept is not None and "text/event-stream" in accept:
            return StreamingResponse(_stream(service, after), media_type="text/event-stream")
        last, floor, result = await service.read(
            lambda store: (store.last()[0], store.floor().seq, store.changes_after(after, limit))
        )
        listed = EventList(events=[_view(one) for one in result], last=last, floor=floor)
        return tagged(f"{last}-{floor}-{after}-{limit}", match, body(listed))

    @routes.post("/v1/hosts/{host}/drain", response_model=HostView, **open_to(context, "admin", 404, 413))
    async def drain(host: HostName, reason: ReasonGiven | None = None) -> Response:
        """Drain a host: it takes no new jobs; those on it run on. The next listing of a scheduler decides again."""
        return await changed(host_changed(_known(service, host), "drained", None if reason is None else reason.reason))

    @routes.post("/v1/hosts/{host}/resume", response_model=HostView, **open_to(context, "admin", 404, 413))
    async def resume(host: HostName) -> Response:
        """Let a host take jobs again."""
        return await changed(host_changed(_known(service, host), "up"))

    async def changed(change: HostChanged) -> Response:
        def apply() -> tuple[int, ClusterState]:
            with service.controller.store.turn() as turn:
                state = turn.state
                if change.state.condition != "up" or change.host in state.hosts:
                    state = turn.change(change)
                return turn.seq, state

        seq, state = await service.write(apply)
        await service.notify()
        view = cluster_view(service, seq, state)
        return Response(body(next(one for one in view.hosts if one.name == change.host)), media_type=JSON)

    return routes


def cluster_view(service: Service, seq: int, state: ClusterState) -> ClusterView:
    """Return the state of a service's cluster as a document.

    Raises:
        StateError: the state is not of the cluster.
    """
    cluster = service.cluster
    taken = occupancy(state, cluster)
    jobs = [
        JobView(
            id=job.id,
            name=job.name,
            source=job.source,
            decision=job.of_decision,
            confirmed_as=job.confirmed_as,
            places=[HostDevices(host=host, devices=list(local)) for host, local in job.devices.items()],
            whole_hosts=job.whole_hosts,
            ends_at=job.ends_at,
        )
        for job in state.jobs
    ]
    return ClusterView(
        name=cluster.name,
        seq=seq,
        policy=service.controller.planners.policy,
        devices=devices_by_state(state, cluster),
        is_stale=service.is_stale(),
        sources=[source_view(statuse) for statuse in service.statuses],
        hosts=host_views(cluster, state, taken),
        jobs=jobs,
        remarks=list(taken.remarks),
        problems=[f"{name}: {problem}" for name, problem in service.problems.items()],
    )


def source_view(status: SourceStatus) -> SourceView:
    """Return a source as a document."""
    shown = {name: getattr(status, name) for name in SourceView.model_fields}
    age_s = round(status.age_s, 1) if math.isfinite(status.age_s) else None
    return SourceView(**shown | {"age_s": age_s, "remarks": list(status.remarks)})


def _known(service: Service, host: str) -> str:
    if host not in service.cluster.host_names:
        raise not_found("host in the cluster")
    return host


def _view(change: KeptChange) -> EventView:
    return EventView(seq=change.seq, at=change.at, change=change.change.model_dump(mode="json", exclude_none=True))


async def _stream(service: Service, after: int) -> AsyncIterator[str]:
    """Yield the changes as they come; a comment now and then, so that nothing between takes the connection for dead.

    What changes no state, as a listing without news or a refused decision, is an event of its own name, ``other``.
    """
    while not service.is_stopping:
        seen = service.num_notices

        def read(store: Ledger, after: int = after) -> list[KeptChange]:
            return store.changes_after(after, EVENTS_AT_A_TIME)

        result = await service.read(read)
        for one in result:
            after = one.seq
            yield f"id: {one.seq}\ndata: {json.dumps(_view(one).model_dump(mode='json'))}\n\n"
        if result:
            continue
        try:
            async with asyncio.timeout(KEEP_ALIVE_S), service.changed:
                while service.num_notices == seen:
                    await service.changed.wait()
        except TimeoutError:
            yield ": still here\n\n"
        else:
            yield "event: other\ndata: {}\n\n"
