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


def service_client(url: str, option: str = "--server") -> Client:
    """A client of a service, whose address an option named.

    Raises:
        ConfigError: no such URL.
    """
    from ....errors import ConfigError
    from ....live.client import Client

    try:
        return Client(url, os.environ.get(TOKEN) or None)
    except ConfigError as error:
        raise ConfigError(error.problem, field=option, value=error.value) from None
