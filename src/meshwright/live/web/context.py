"""The context of every route: the service, the scopes, the counters; and common parts of routes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Header, Request, Response
from pydantic import BaseModel

from ..service import Service
from .access import COOKIE, SCOPES, Access, Scope
from .metrics import Metrics
from .problems import RETRY_AFTER_S, ProblemDocument, ProblemError

JSON = "application/json"

PROBLEMS: dict[int, str] = {
    400: "cannot be read",
    401: "no token, or none that is known",
    403: "the token may not do this, or the request comes from another site",
    404: "there is none of this name",
    409: "contradicts what was decided",
    413: "the body is too long",
    429: "too many of these run already",
    421: "the request names another host",
    422: "cannot be done as asked; the field is named",
    503: "the store cannot be used, or what is known of the cluster is too old",
}


@dataclass(frozen=True)
class Context:
    """See the module."""

    service: Service
    access: Access
    metrics: Metrics


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the problems with which a route may answer, for its documentation."""
    content = {"application/problem+json": {"schema": {"$ref": f"#/components/schemas/{ProblemDocument.__name__}"}}}
    result = sorted({400, 401, 403, 421, 422, 503, *statuses})
    return {status: {"description": PROBLEMS[status], "content": content} for status in result}


def needs(context: Context, required: Scope) -> Any:
    """Return a dependency that lets only those in who may do something."""

    async def check(request: Request) -> Scope:
        check_site(context, request)
        scope = context.access.scope_of(request.headers.get("authorization"), request.cookies.get(COOKIE))
        if scope is None:
            message = "a bearer token that the service knows is wanted"
            raise ProblemError(401, "not known", message, {"WWW-Authenticate": "Bearer"})
        if SCOPES.index(scope) < SCOPES.index(required):
            raise ProblemError(403, "not allowed", f"a token of scope {required} is wanted, this one has {scope}")
        return scope

    return Depends(check)


def open_to(context: Context, scope: Scope, *statuses: int, more: dict[int | str, Any] | None = None) -> dict[str, Any]:
    """Return the options of a route for authorised callers: its problems besides those of every route, and more answers."""
    return {"responses": problems(*statuses) | (more or {}), "dependencies": [needs(context, scope)]}


def check_site(context: Context, request: Request) -> None:
    """Refuse what is meant for another host, or comes from a page of another site.

    Raises:
        ProblemError: so it is.
    """
    if not context.access.is_known_host(request.headers.get("host")):
        raise ProblemError(421, "another host", "the request names another host; --set names=[NAME] adds a name of this one")
    if not context.access.is_own_origin(request.headers.get("origin"), request.headers.get("host")):
        raise ProblemError(403, "another site", "the request comes from a page of another site")


def check_fresh(service: Service) -> None:
    """Refuse to decide on what is too old.

    Raises:
        ProblemError: a source has listed nothing for too long.
    """
    if service.is_stale():
        late = next(statuse for statuse in service.statuses if statuse.age_s > service.max_age_s)
        since = f"{late.age_s:.0f} s" if late.num_listings else "its start"
        message = f"{late.name} has listed nothing since {since}" + (f": {late.problem}" if late.problem else "")
        raise ProblemError(503, "the state is too old", message, {"Retry-After": str(RETRY_AFTER_S)})


def tagged(tag: str, if_none_match: str | None, content: bytes, media_type: str = JSON) -> Response:
    """Return an answer with an ``ETag``; without its content where the client has it already."""
    etag = f'W/"{tag}"'
    if if_none_match is not None and etag in (part.strip() for part in if_none_match.split(",")):
        return Response(status_code=304, headers={"ETag": etag})
    return Response(content, media_type=media_type, headers={"ETag": etag})


def digest_of(*parts: object) -> str:
    """Return a short tag of some values."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def body(model: BaseModel) -> bytes:
    """Return a model as JSON."""
    return model.model_dump_json(exclude_none=True).encode()


Match = Annotated[str | None, Header(alias="If-None-Match", max_length=1000)]
