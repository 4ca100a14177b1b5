"""``meshwright dev validate elastic``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ... import output
from ...kinds import one_source
from .published import show_families

if TYPE_CHECKING:
    from ...key_models import NoKeys


def validate_elastic(sources: Sequence[str], keys: NoKeys, json_file: str | None) -> None:
    """Play the published workloads under the published schedulers Tiresias and Optimus.

    Exit 1 where a job under Tiresias ends more than a round apart, or a mean of a load is more than 1 % off.
    """
    output.check_file("--json", json_file)
    from ....evaluation.validation.elastic import validate

    with output.progress() as bars:
        found = validate(Path(one_source(sources)), output.phases(bars))
    out = output.console(json_file)
    lines = [
        [each.policy, each.load, each.workload, f"{each.published_mean_s:.1f}", f"{each.mean_s:.1f}"]
        + [str(number) for number in (each.num_jobs, each.num_equal, each.num_within_round, each.num_off)]
        for each in found.workloads
    ]
    columns = ["scheduler", "load", "workload", "published mean s", "mean s", "jobs", "equal", "within a round", "off"]
    output.table(out, "Completion times", columns, lines, numbers_from=3)
    show_families(out, found.comparison)
    output.write_json(json_file, found.to_data())
    if not found.comparison.agrees:
        raise typer.Exit(1)
