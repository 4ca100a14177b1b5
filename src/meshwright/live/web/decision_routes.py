"""``/v1/decisions``: ask for a decision, confirm, release, observe, and look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Response

from ..decisions import JobRequest, KeptDecision, Observation, Status
from ..ledger import Ledger
from ..plan_parts import whole_plan
from .context import JSON, Context, Match, body, check_fresh, digest_of, open_to, tagged
from .problems import ProblemError, not_found
from .views import (
    Confirmation,
    Counted,
    DecisionAnswer,
    DecisionList,
    DecisionView,
    ReasonGiven,
    StatusAnswer,
    answer_of,
    decision_list,
    view_of,
)

MOST_OBSERVATIONS = 1000

NEW = {"model": DecisionAnswer, "description": "its job is new and is priced first; ask again at Location"}

Id = Annotated[str, Path(max_length=100, pattern=r"^[0-9a-z-]+$")]
Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$")]


def decision_routes(context: Context) -> APIRouter:
    """Return the routes."""
    service, metrics = context.service, context.metrics
    routes = APIRouter(tags=["decisions"])

    async def kept(name: str) -> KeptDecision:
        result = await service.read(lambda store: store.decision(name))
        if result is None:
            raise not_found("decision")
        return result

    async def after(name: str, change: Callable[[], object]) -> Response:
        """Return the status of a decision after a change of its job."""

        def changed() -> tuple[Status, str]:
            store = service.controller.store
            record = store.decision(name)
            if record is None:
                raise not_found("decision")
            change()
            return record.decision.status(store.mentions(name))

        status, detail = await service.write(changed)
        await service.notify()
        return Response(body(StatusAnswer(id=name, status=status, detail=detail)), media_type=JSON)

    asked = open_to(context, "decide", 409, 413, more={202: NEW})

    @routes.post("/v1/decisions", status_code=201, response_model=DecisionAnswer, **asked)
    async def decide(request: JobRequest, key: Key = None) -> Response:
        """Decide for a job and hold its devices; the same key gets the same answer again."""
        if service.is_stale() and await service.write(service.controller.known, request, key) is None:
            check_fresh(service)
        result = await service.decide(request, key)
        metrics.decisions.labels(result.decision.outcome, service.controller.planners.policy).inc()
        is_new = result.decision.outcome == "preparing"
        headers = {"Location": f"/v1/decisions/{result.decision.id}"} | ({"Retry-After": "1"} if is_new else {})
        return Response(body(answer_of(result.decision)), 202 if is_new else 201, headers, JSON)

    @routes.post("/v1/plans", response_model=DecisionAnswer, **open_to(context, "decide", 413))
    async def plan(request: JobRequest) -> Response:
        """Return the decision that a job would get now; nothing is held or kept. A new job may take minutes."""
        check_fresh(service)
        return Response(body(answer_of(await service.try_plan(request))), media_type=JSON)

    @routes.get("/v1/decisions", response_model=DecisionList, **open_to(context, "read"))
    async def decisions(
        before: Annotated[int | None, Query(ge=1, le=2**53)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        match: Match = None,
    ) -> Response:
        """List decisions, the last one first."""

        def read(store: Ledger) -> tuple[str, DecisionList]:
            listed = decision_list(store, before, limit)
            return digest_of(store.last()[0], before, limit, [(one.number, one.status) for one in listed.decisions]), listed

        tag, listed = await service.read(read)
        return tagged(tag, match, body(listed))

    @routes.get("/v1/decisions/{decision}", response_model=DecisionView, **open_to(context, "read", 404))
    async def decision(decision: Id, match: Match = None) -> Response:
        """Return a decision and what became of it."""
        result = await kept(decision)
        view = await service.read(lambda store: view_of(store, result))
        count = view.observed.count if view.observed else 0
        tag = digest_of(decision, view.status, view.history[-1].seq if view.history else 0, count)
        return tagged(tag, match, body(view))

    @routes.get("/v1/decisions/{decision}/plan", response_model=dict[str, Any], **open_to(context, "read", 404))
    async def whole(decision: Id, match: Match = None) -> Response:
        """Return the whole plan, as `meshwright export` takes it."""
        result = await kept(decision)
        made = await service.read(lambda store: whole_plan(store, result.decision))
        if made is None:
            raise not_found("plan: the decision has none")
        text = made.model_dump_json(exclude_none=True).encode()
        return tagged(digest_of(decision, "plan"), match, text)

    @routes.post("/v1/decisions/{decision}/confirm", response_model=StatusAnswer, **open_to(context, "decide", 404, 409, 413))
    async def confirm(decision: Id, confirmation: Confirmation) -> Response:
        """Note that the job was handed to the scheduler; once more is no change."""
        return await after(decision, lambda: service.controller.confirm(decision, confirmation.job_id))

    @routes.post("/v1/decisions/{decision}/release", response_model=StatusAnswer, **open_to(context, "decide", 404, 409, 413))
    async def release(decision: Id, reason: ReasonGiven | None = None) -> Response:
        """Give the devices back; once more is no change."""
        given_reason = None if reason is None else reason.reason
        return await after(decision, lambda: service.controller.release(decision, given_reason))

    @routes.post("/v1/decisions/{decision}/observations", response_model=Counted, **open_to(context, "decide", 404, 413))
    async def observe(decision: Id, observed: list[Observation]) -> Response:
        """Keep how long steps of the job took; each step of each rank counts once."""
        if len(observed) > MOST_OBSERVATIONS:
            raise ProblemError(422, "too many", f"{MOST_OBSERVATIONS} observations at most are taken at a time")
        result = await kept(decision)
        new = await service.write(service.controller.observe, decision, observed)
        predicted_s = result.decision.predicted.get("step_s")
        if predicted_s:
            for one in observed:
                metrics.ratio.observe(one.step_s / predicted_s)
        return Response(body(Counted(new=new)), media_type=JSON)

    return routes
