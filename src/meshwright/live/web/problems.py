"""Errors as answers: ``application/problem+json``, with file, field, value and nearest as everywhere.

For clients that ask for HTML they are pages; a client that is not known is sent to the sign-in.

Source:
    RFC 9457, "Problem Details for HTTP APIs".
"""

from __future__ import annotations

import json
import logging
import re
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException

from ... import settings
from ...errors import ConfigError, ConflictError, InputFileError, MeshwrightError, in_our_words, nearest
from .pages.rendering import page

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 5
LOG = logging.getLogger("meshwright.serve")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Of every page: it runs and loads what this service serves, and nothing else. A stricter Referrer-Policy would hide from the
service that its own forms are its own."""
SIGN_IN = "/sign-in"
_OWN_PATH = re.compile(r"/(?:[\w-][\w/-]*)?", re.ASCII)


class ProblemDocument(BaseModel):
    """The problem with a request.

    Attributes:
        title: in a few words.
        status: of the answer.
        detail: the whole sentence.
        file, field, value: its place, as far as known.
        nearest: the valid value that is most like it.
    """

    model_config = ConfigDict(extra="allow")

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    file: str | None = None
    field: str | None = None
    value: Any = None
    nearest: str | None = None


class ProblemError(HTTPException):
    """A problem that is not the user's input."""

    def __init__(self, status: int, title: str, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(status, detail, headers)
        self.problem = ProblemDocument(title=title, status=status, detail=detail)


def not_found(what: str) -> ProblemError:
    """Return the problem that nothing of that name exists."""
    return ProblemError(404, "not found", f"there is no such {what}")


def answer(problem: ProblemDocument, headers: dict[str, str] | None = None) -> Response:
    """Return a problem as an answer."""
    text = json.dumps(problem.model_dump(exclude_none=True), ensure_ascii=False, default=str)
    return Response(
        text.encode(errors="backslashreplace"), problem.status, headers, MEDIA_TYPE
    )  # half a letter is \udc00 in JSON


def of_error(error: MeshwrightError) -> ProblemDocument:
    """Return the problem document of an error."""
    status = 409 if isinstance(error, ConflictError) else 422
    value = None if error.value is None else str(error.value)
    near = nearest(value, error.choices) if value is not None and error.choices else None
    title = {409: "contradicts what was decided", 422: "cannot be done as asked"}[status]
    problem = ProblemDocument(title=title, status=status, detail=str(error), field=error.field, value=value, nearest=near)
    return problem.model_copy(update={"file": error.file})


def add_problems(app: FastAPI) -> None:
    """Answer every error of an app as a problem; as a page, where one is asked for."""

    @app.exception_handler(ProblemError)
    async def as_problem(request: Request, error: ProblemError) -> Response:
        return _response(request, error.problem, dict(error.headers or {}))

    @app.exception_handler(InputFileError)
    async def not_kept(request: Request, error: InputFileError) -> Response:
        if error.field == "job":
            return _response(request, of_error(error))
        LOG.error("%s", error)
        problem = ProblemDocument(title="the store cannot be used", status=503, detail=error.problem)
        return _response(request, problem, {"Retry-After": str(RETRY_AFTER_S)})

    @app.exception_handler(MeshwrightError)
    async def wrong(request: Request, error: MeshwrightError) -> Response:
        return _response(request, of_error(error))

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        problem = of_error(_as_our_error(request, error))
        shown = None if problem.value is None else str(problem.value)[:200]
        return _response(request, problem.model_copy(update={"title": "cannot be read", "value": shown}))

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        problem = ProblemDocument(title=str(error.detail).lower(), status=error.status_code, detail=str(error.detail))
        return _response(request, problem, dict(error.headers or {}))

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> Response:
        LOG.exception("%s %s", request.method, request.url.path, exc_info=error)
        problem = ProblemDocument(title="internal error", status=500, detail="something is wrong here, not in the request")
        return _response(request, problem)


def _as_our_error(request: Request, error: RequestValidationError) -> MeshwrightError:
    """Return the first complaint about a request as the error that it would be in a file."""
    first = error.errors()[0]
    part, *place = first["loc"]
    if part != "body":
        field = ".".join(map(str, place)) or None
        return ConfigError(in_our_words(str(first["msg"])), field=field, value=first.get("input"))
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not place and not re.fullmatch(r"application/(.+\+)?json", kind):
        return ConfigError("JSON is wanted, with the head Content-Type: application/json", field="Content-Type", value=kind)
    if first["type"] == "json_invalid":
        text, at = str(error.body), int(place[0])
        line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        return ConfigError(f"not valid JSON: {first['ctx']['error']} (line {line}, column {column})")
    if not place and first["type"] == "missing":
        return ConfigError("a body of JSON is wanted")
    body = getattr(request.scope.get("route"), "body_field", None)
    complaints = [{**one, "loc": tuple(one["loc"][1:])} for one in error.errors() if one["loc"][0] == "body"]
    return settings.as_config_error(complaints, None if body is None else body.field_info.annotation, error.body)


def _response(request: Request, problem: ProblemDocument, headers: dict[str, str] | None = None) -> Response:
    """Return a problem as a document or, for browsers, as a page or the way to the sign-in."""
    if "text/html" not in request.headers.get("accept", ""):
        return answer(problem, headers)
    if problem.status == 401 and request.method == "GET":
        return RedirectResponse(f"{SIGN_IN}?next={quote(own_path(request.url.path), safe='')}", 303, HEADERS)
    shown = page("problem.html", title=problem.title.capitalize(), here="problem", seq=0, problem=problem)
    return HTMLResponse(shown.encode(errors="replace"), problem.status, {**(headers or {}), **HEADERS})


def own_path(path: str) -> str:
    """Return a path of this service, to which a sign-in may lead on: the first page for any other, above all for another host."""
    return path if _OWN_PATH.fullmatch(path) else "/"
