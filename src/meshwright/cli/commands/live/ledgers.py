"""``--state``: a ledger that is read, or added to, or a service elsewhere in place of one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ....errors import ConfigError
from ...occupied import is_service
from ...options import option

if TYPE_CHECKING:
    from ....live.client import Client
    from ....live.ledger import Ledger

TOKEN = "MESHWRIGHT_TOKEN"  # noqa: S105 - the name of a variable
"""Environment variable of the token; it is on no command line, where others see it."""

LedgerOrService = Annotated[
    str | None, option("FILE|URL", f"The ledger, FILE.db, or a service; its token is read from {TOKEN}.", "--state")
]

LedgerFile = Annotated[Path, option("FILE", "The ledger, FILE.db, that `meshwright state` and the service keep.", "--state")]


@contextmanager
def opened(path: Path, *, is_read: bool = True) -> Iterator[Ledger]:
    """Open a ledger that is there.

    Raises:
        InputFileError: it is missing, or no ledger.
    """
    from ....live.ledger import Ledger

    check_ledger(path)
    with Ledger(path, is_read=is_read) as ledger:
        yield ledger


def check_ledger(path: Path) -> None:
    """Refuse the path of another file than a ledger, or of none.

    Raises:
        InputFileError: so it is.
    """
    from ....errors import InputFileError
    from ....live.keeping import LEDGER_ENDINGS

    if path.suffix not in LEDGER_ENDINGS:
        raise InputFileError("decisions are kept in a ledger, which ends in .db", field="--state", value=str(path))
    if not path.exists():
        raise InputFileError("no such file", field="--state", value=str(path))


def ledger_or_service(state: str | None) -> tuple[Path, None] | tuple[None, Client]:
    """Return the ledger, or a client of the service, that ``--state`` names; one of the two is None.

    Raises:
        ConfigError: the option is missing, or no such URL.
    """
    if state is None:
        raise ConfigError("name a ledger, FILE.db, or the URL of a service", field="--state")
    return (None, service_client(state)) if is_service(state) else (Path(state), None)


def service_client(url: str) -> Client:
    """Return a client of a service, whose address ``--state`` named.

    Raises:
        ConfigError: no such URL.
    """
    from ....live.client import Client

    try:
        return Client(url, os.environ.get(TOKEN) or None)
    except ConfigError as error:
        raise ConfigError(error.problem, field="--state", value=error.value) from None
