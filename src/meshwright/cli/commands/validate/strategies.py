"""``meshwright validate strategies``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
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
    reference: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Reference data, for the families that read files of it.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Compute the published figures of training strategies and communication techniques again.

    Exit 1 where a figure disagrees.
    """
    from ....evaluation.validation.strategies.families import FAMILIES, OF_REFERENCE, validate

    output.check_file("--json", json_file)
    for name in only or ():
        if name not in FAMILIES | OF_REFERENCE:
            raise InputFileError("no such family", field="--only", value=name, choices=FAMILIES | OF_REFERENCE)
        if name in OF_REFERENCE and reference is None:
            raise InputFileError(f"is missing: {name!r} reads files of the folder of reference data", field="--reference")
    show_figures(partial(validate, tuple(only or FAMILIES | OF_REFERENCE), reference=reference), json_file)
    if reference is None and not only:
        left_out = ", ".join(OF_REFERENCE)
        output.print_remarks(output.console(json_file), [f"left out, as they read files of --reference DIR: {left_out}"])
