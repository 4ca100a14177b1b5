"""``--server URL``: a service elsewhere in place of a ledger here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ....live.client import Client

TOKEN = "MESHWRIGHT_TOKEN"  # noqa: S105 - the name of a variable
"""Environment variable of the token; none stands on a command line, where others see it."""

ServerOption = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help=f"A service (`meshwright serve`); its token is read from {TOKEN}."),
]


def service_client(url: str) -> Client:
    """A client of a service.

    Raises:
        ConfigError: no such URL.
    """
    from ....live.client import Client

    return Client(url, os.environ.get(TOKEN) or None)
