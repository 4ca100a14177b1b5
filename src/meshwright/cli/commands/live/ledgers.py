"""``--state LEDGER``: a ledger that is read, or added to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ....live.ledger import Ledger

LedgerFile = Annotated[
    Path, typer.Option("--state", metavar="FILE", help="The ledger, FILE.db, that `meshwright state` and the service keep.")
]


@contextmanager
def opened(path: Path, *, is_read: bool = True) -> Iterator[Ledger]:
    """A ledger that is there.

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
