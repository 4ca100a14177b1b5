"""``meshwright dev validate strategies``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...key_models import StrategyKeys


from ....errors import InputFileError
from ... import output
from ...kinds import no_source
from .published import show_figures


def validate_strategies(sources: Sequence[str], keys: StrategyKeys, json_file: str | None) -> None:
    """Compute the published figures of training strategies and communication techniques again.

    Exit 1 where a figure disagrees.
    """
    from ....evaluation.validation.strategies.families import FAMILIES, OF_REFERENCE, validate

    output.check_file("--json", json_file)
    no_source(sources)
    only, reference = keys.only, keys.reference
    for name in only:
        if name not in FAMILIES | OF_REFERENCE:
            raise InputFileError("no such family", field="--set only", value=name, choices=FAMILIES | OF_REFERENCE)
        if name in OF_REFERENCE and reference is None:
            raise InputFileError(f"is missing: {name!r} reads files of the folder of reference data", field="--set reference")
    show_figures(partial(validate, tuple(only or FAMILIES | OF_REFERENCE), reference=reference), json_file)
    if reference is None and not only:
        left_out = ", ".join(OF_REFERENCE)
        output.print_remarks(output.console(json_file), [f"left out, as they read files of --set reference=DIR: {left_out}"])
