"""``meshwright export``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import ExportError
from .. import output
from ..options import JsonFile, argument, option

if TYPE_CHECKING:
    from rich.console import Console

    from ...export import ExportOptions
    from ...plans.document import PlacementPlan

Framework = Annotated[
    str | None, option("NAME", "Framework whose arguments the ranks get, or none; by default that of plan --search --for.")
]
"""``--framework``."""


def export_plan(
    source: Annotated[Path | None, argument("PLAN|RUN", "A plan's JSON file, or a folder of evaluate --out.")] = None,
    target: Annotated[str | None, option("NAME", "One of those that --list names.", "--format")] = None,
    framework: Framework = None,
    changes: Annotated[
        list[str] | None,
        option("KEY=VALUE", "A key of the format that --list names, as script=train.py; may be repeated.", "--set"),
    ] = None,
    out: Annotated[Path | None, option("DIR", "Folder to write; one of an earlier export is replaced.")] = None,
    cluster: Annotated[
        str | None, option("CLUSTER", "Refuse plans for another cluster than this: preset:NAME or a path to YAML.")
    ] = None,
    list_targets: Annotated[bool, typer.Option("--list", help="List the formats, their keys and guarantees.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Write a plan in the form of a scheduler or launcher.

    Examples:
      meshwright export plan.json --format slurm --out job --set script=train.py
      meshwright export runs/quickstart --format kubernetes --out deploy
      meshwright export --list
    """
    from ... import settings
    from ...export import ExportOptions, export, export_run, target_of, targets, write
    from ...export.frameworks.model_arguments import LEFT_OUT
    from ...export.options import TEXTS, refuse_unread
    from ...export.writer import check_replaceable
    from ...plans import load_plan

    if list_targets:
        _list(json_file)
        return
    if source is None:
        raise ExportError("name a plan's JSON file or a run folder", field="PLAN|RUN")
    if target is None:
        raise ExportError("name a format", field="--format", choices=targets)
    target_of(target, field="--format")
    if out is None:
        raise ExportError("name the folder to write", field="--out")
    output.check_folder("--out", out, is_replaced=True)
    check_replaceable(out)
    choice: dict[str, Any] = {}
    for change in changes or ():
        key, equals, words = change.partition("=")
        if equals and key in TEXTS:  # YAML would take quotation marks away, and what follows " #", and make numbers
            choice[key] = words
        else:
            choice = settings.override(choice, change)
    refuse_unread([target], choice)  # before their values are looked at
    options = settings.build_settings(ExportOptions, choice, file="--set" if changes else None)
    paths = {source.name: source}
    if source.is_dir():
        from ...planning.plans_of_episode import plan_files

        paths = plan_files(source / "plans")
    plans = {name: load_plan(path) for name, path in paths.items()}
    if cluster is not None:
        from ...clusters import load_cluster
        from ...plans import check_cluster

        required = load_cluster(cluster)
        for name, plan in plans.items():
            check_cluster(plan, required, file=paths[name])
    console = output.console(json_file)
    if source.is_dir():
        done = export_run(plans, target, out, options, framework)
        output.write_json(
            json_file, {"out": str(out), "written": {k: list(v) for k, v in done.written.items()}, "refused": done.refused}
        )
        console.print(f"{len(done.written)} plans written for {target} to {out}")
        for name, reason in list(done.refused.items())[:10]:
            console.print(f"  not written: {name}: {reason}")
        _print_remarks(console, target, [plans[name] for name in done.written], options)
        return
    files = export(plans[source.name], target, options, framework)
    write(files, out)
    output.write_json(json_file, {"out": str(out), "files": sorted(files)})
    console.print(f"{', '.join(sorted(files))} written for {target} to {out}")
    lines = [line for text in files.values() if isinstance(text, str) for line in text.splitlines()]
    output.print_remarks(console, [line.removeprefix("# ") for line in lines if line.startswith(LEFT_OUT)])
    _print_remarks(console, target, list(plans.values()), options)


def _print_remarks(console: Console, target: str, plans: Sequence[PlacementPlan], options: ExportOptions) -> None:
    """Print the remarks of the format on the plans and options, and where a plan's memory is tight, each once."""
    from ...export import targets
    from ...plans.memory import tight_in

    notes = [targets[target].remark(plan, options) for plan in plans]
    notes += [f"{plan.job.name}: {text}" for plan in plans if (text := tight_in(plan.why)) is not None]
    output.print_remarks(console, list(dict.fromkeys(one for one in notes if one is not None)))


def _list(json_file: str | None) -> None:
    """Print every format with what it guarantees and what not, and the keys that it reads."""
    from ...export import targets
    from ...export.options import keys_of

    described = {
        entry.name: {
            "summary": entry.summary,
            "guaranteed": list(entry.guaranteed),
            "not_guaranteed": list(entry.not_guaranteed),
            "keys": list(keys_of(entry.name)),
        }
        for entry in targets.values()
    }
    output.write_json(json_file, described)
    console = output.console(json_file)
    for entry in targets.values():
        console.print(f"{entry.name}: {entry.summary}")
        for line in entry.guaranteed:
            console.print(f"  + {line}")
        for line in entry.not_guaranteed:
            console.print(f"  - {line}")
        console.print(f"  --set {', '.join(keys_of(entry.name))}")
