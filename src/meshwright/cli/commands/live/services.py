"""``--state URL``: a service elsewhere in place of a ledger here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ....errors import ConfigError
from ...occupied import is_service

if TYPE_CHECKING:
    from ....live.client import Client

TOKEN = "MESHWRIGHT_TOKEN"  # noqa: S105 - the name of a variable
"""Environment variable of the token; it is on no command line, where others see it."""

LedgerOrService = Annotated[
    str | None,
    typer.Option("--state", metavar="FILE|URL", help=f"The ledger, FILE.db, or a service; its token is read from {TOKEN}."),
]


def ledger_or_service(state: str | None) -> tuple[Path, None] | tuple[None, Client]:
    """The ledger, or a client of the service, that ``--state`` names; one of the two is None.

    Raises:
        ConfigError: the option is missing, or no such URL.
    """
    if state is None:
        raise ConfigError("name a ledger, FILE.db, or the URL of a service", field="--state")
    return (None, service_client(state)) if is_service(state) else (Path(state), None)


def service_client(url: str) -> Client:
    """A client of a service, whose address ``--state`` named.

    Raises:
        ConfigError: no such URL.
    """
    from ....live.client import Client

    try:
        return Client(url, os.environ.get(TOKEN) or None)
    except ConfigError as error:
        raise ConfigError(error.problem, field="--state", value=error.value) from None
