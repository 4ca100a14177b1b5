"""``meshwright validate strategies``."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from ....errors import InputFileError
from ... import output
from ...options import JsonFile
from .published import show_figures


def validate_strategies(
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="One family of figures; may be given more than once.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Compute the published figures of training strategies and communication techniques again.

    Exit 1 where a figure disagrees.
    """
    from ....evaluation.validation.strategies.families import FAMILIES, validate

    output.check_file("--json", json_file)
    for name in only or ():
        if name not in FAMILIES:
            raise InputFileError("no such family", field="--only", value=name, choices=FAMILIES)
    show_figures(partial(validate, tuple(only or FAMILIES)), json_file)
