"""Problems as pages, for those who ask for HTML; whoever is not known is led to the sign-in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from .rendering import page

if TYPE_CHECKING:
    from ..problems import ProblemDocument

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


def wants_page(request: Request) -> bool:
    """Whether a request asks for HTML, as browsers do."""
    return "text/html" in request.headers.get("accept", "")


def problem_page(request: Request, problem: ProblemDocument, headers: dict[str, str]) -> Response:
    """A problem as a page, or the way to the sign-in."""
    if problem.status == 401 and request.method == "GET":
        return RedirectResponse(f"{SIGN_IN}?next={quote(own_path(request.url.path), safe='')}", 303, HEADERS)
    shown = page("problem.html", title=problem.title.capitalize(), here="problem", seq=0, problem=problem)
    return HTMLResponse(shown.encode(errors="replace"), problem.status, {**headers, **HEADERS})


def own_path(path: str) -> str:
    """A path of this service, to which a sign-in may lead on: the first page for any other, above all for another host."""
    return path if _OWN_PATH.fullmatch(path) else "/"
