"""``/v1/extender`` and ``/v1/slurm``: what schedulers ask by themselves, in their own forms."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from fastapi import APIRouter, Response

from ...errors import MeshwrightError, StateError
from ..actuators.kubernetes_binding import ExtenderBindingArgs, ExtenderBindingResult, PodToBind, confirmed, refusal
from ..actuators.kubernetes_extender import (
    ExtenderArgs,
    FilterResult,
    HostPriority,
    decision_named,
    filtered,
    hosts_of,
    prioritized,
)
from ..actuators.slurm_hooks import EpilogBody, HookAnswer, PrologBody, SubmitBody, on_epilog, on_prolog, on_submit
from ..controller import Controller
from ..sources.source import KUBERNETES
from .context import JSON, Context, open_to

Body = TypeVar("Body")


def hook_routes(context: Context) -> APIRouter:
    """Return the routes."""
    service = context.service
    routes = APIRouter(tags=["hooks"])

    async def planned(request: ExtenderArgs) -> tuple[str, ...]:
        """Return the hosts of a pod's decision; none where it names no decision."""
        name = decision_named(request.pod)
        return () if name is None else await service.read(lambda store: hosts_of(store, name))

    @routes.post("/v1/extender/filter", response_model=FilterResult, **open_to(context, "read", 413))
    async def only_planned(asked: ExtenderArgs) -> Response:
        """Filter for kube-scheduler: the planned hosts for the pods of a decision, all nodes for others."""
        result = filtered(asked, await planned(asked))
        return Response(result.model_dump_json(by_alias=True), media_type=JSON)

    @routes.post("/v1/extender/prioritize", response_model=list[HostPriority], **open_to(context, "read", 413))
    async def planned_first(asked: ExtenderArgs) -> Response:
        """Prioritise for kube-scheduler: planned hosts before others."""
        result = prioritized(asked, await planned(asked))
        return Response(f"[{','.join(one.model_dump_json(by_alias=True) for one in result)}]", media_type=JSON)

    @routes.post("/v1/extender/bind", response_model=ExtenderBindingResult, **open_to(context, "decide", 413))
    async def bound(asked: ExtenderBindingArgs) -> Response:
        """Bind a pod to a node for kube-scheduler; the pods of a decision to planned hosts alone, others where it says."""
        try:
            if all(status.name != KUBERNETES for status in service.statuses):
                raise StateError("the service does not read Kubernetes", field="--source")
            pod = await asyncio.to_thread(PodToBind.from_request, asked)
            why_not = await service.write(refusal, service.controller, pod.decision, asked.node)
            if why_not is None:
                await asyncio.to_thread(pod.bind)
        except MeshwrightError as error:
            why_not = str(error)
        else:
            with suppress(MeshwrightError):  # it is bound, and the next listing says so
                if why_not is None and await service.write(confirmed, service.controller, pod):
                    service.ask_now()
                    await service.notify()
        result = ExtenderBindingResult(error=why_not or "")
        return Response(result.model_dump_json(by_alias=True), media_type=JSON)

    async def answered(hook: Callable[[Controller, Body], HookAnswer], body: Body) -> dict[str, str]:
        answer = await service.write(hook, service.controller, body)
        if answer.prepare is not None:
            service.prepare(answer.prepare)
        if answer.look:
            service.ask_now()
        await service.notify()
        return answer.body

    @routes.post("/v1/slurm/submit", response_model=dict[str, str], **open_to(context, "decide", 413))
    async def submitted(body: SubmitBody) -> dict[str, str]:
        """Answer job_submit.lua: comment and hosts of a job that asks to be planned, or why it continues unchanged."""
        if service.is_stale():
            return {"why": "the state of the cluster is too old"}
        return await answered(on_submit, body)

    @routes.post("/v1/slurm/prolog", response_model=dict[str, str], **open_to(context, "decide", 413))
    async def started(body: PrologBody) -> dict[str, str]:
        """Note for PrologSlurmctld that a job starts."""
        return await answered(on_prolog, body)

    @routes.post("/v1/slurm/epilog", response_model=dict[str, str], **open_to(context, "decide", 413))
    async def ended(body: EpilogBody) -> dict[str, str]:
        """Note for EpilogSlurmctld that a job has ended."""
        return await answered(on_epilog, body)

    return routes
