"""``/``, ``/decisions`` and ``/sign-in``: pages for people, who sign in once with a token and then have a cookie."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from ...ledger import Ledger
from ..access import COOKIE
from ..context import Context, Match, check_site, digest_of, needs, tagged
from ..problems import HEADERS, SIGN_IN, not_found, own_path
from ..views import decision_list
from .cluster_page import cluster_page
from .decision_page import decision_page
from .rendering import MEDIA_TYPES, loaded, page

ON_A_PAGE = 50
"""Decisions on one page of their list."""


def page_routes(context: Context) -> APIRouter:
    """Return the routes; they are no part of the documented interface."""
    service, access = context.service, context.access
    routes = APIRouter(include_in_schema=False)
    has_session = access.tokens is not None
    may_read = [needs(context, "read")]

    @routes.get("/", dependencies=may_read)
    async def cluster() -> Response:
        return _html(await service.read(lambda store: cluster_page(service, store, has_session=has_session)))

    @routes.get("/decisions", dependencies=may_read)
    async def decisions(before: Annotated[int | None, Query(ge=1, le=2**53)] = None) -> Response:
        def read(store: Ledger) -> str:
            listed = decision_list(store, before, ON_A_PAGE)
            return page(
                "decisions.html",
                title="Decisions",
                here="decisions",
                seq=store.last()[0],
                listed=listed,
                before=before,
                has_session=has_session,
            )

        return _html(await service.read(read))

    @routes.get("/decisions/{name}", dependencies=may_read)
    async def decision(request: Request, name: Annotated[str, Path(max_length=100)]) -> Response:
        url = str(request.base_url).rstrip("/")

        def read(store: Ledger) -> str:
            record = store.decision(name)
            if record is None:
                raise not_found("decision")
            return decision_page(store, service.cluster, record, url=url, wants_token=has_session)

        return _html(await service.read(read))

    @routes.get("/static/{name}")
    async def static(name: str, match: Match = None) -> Response:
        if name not in MEDIA_TYPES:
            raise not_found("file")
        text = loaded(name)
        answer = tagged(digest_of(text), match, text.encode(), MEDIA_TYPES[name])
        answer.headers.update({**HEADERS, "Cache-Control": "no-cache"})
        return answer

    @routes.get(SIGN_IN)
    async def ask(request: Request) -> Response:
        check_site(context, request)
        to = own_path(request.query_params.get("next", "/"))
        if access.scope_of(None, request.cookies.get(COOKIE)) is not None:
            return RedirectResponse(to, 303, HEADERS)
        return _asking(to)

    @routes.post(SIGN_IN)
    async def sign_in(request: Request) -> Response:
        check_site(context, request)
        form = parse_qs((await request.body()).decode("utf-8", "replace"))
        token, to = form.get("token", [""])[0].strip(), own_path(form.get("next", ["/"])[0])
        if access.scope_of_token(token) is None:
            return _asking(to, "That is no token that this service knows.", 401)
        answer = RedirectResponse(to, 303, HEADERS)
        is_tls = request.url.scheme == "https"
        answer.set_cookie(COOKIE, access.begin_session(token), secure=is_tls, httponly=True, samesite="strict", path="/")
        return answer

    @routes.post("/sign-out")
    async def sign_out(request: Request) -> Response:
        check_site(context, request)
        access.end_session(request.cookies.get(COOKIE))
        answer = RedirectResponse(SIGN_IN, 303, HEADERS)
        answer.delete_cookie(COOKIE, path="/")
        return answer

    return routes


def _asking(to: str, problem: str = "", status: int = 200) -> Response:
    return _html(page("sign_in.html", title="Sign in", here="sign-in", seq=0, to=to, problem=problem), status)


def _html(text: str, status: int = 200) -> Response:
    return HTMLResponse(text, status, HEADERS)
