"""Tables of the pages that are made of the program itself: a line ``<!-- generated: NAME -->`` becomes the table NAME."""

from __future__ import annotations

import json
import re
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

from pydantic_core import PydanticUndefined
from typer.main import get_command

from meshwright import settings
from meshwright.cli.app import app
from meshwright.cli.help import attributes
from meshwright.costs.settings import LAYOUT_DEFAULTS, CostSettings
from meshwright.envs.fleet.settings import (
    DeadlineSettings,
    DurationSettings,
    ElasticSettings,
    FleetSettings,
    HostFailureSettings,
    SplitsSettings,
)
from meshwright.evaluation.metrics import LESS, METRICS
from meshwright.export import ExportOptions
from meshwright.packaged import Shipped
from meshwright.planners.operators.place import PLACEMENT_PLANNERS
from meshwright.plans.partition import Layout
from meshwright.settings import Settings

DOCS = Path(__file__).parent
PLACE = re.compile(r"^<!-- generated: ([\w-]+) -->$", re.M)


def commands() -> Iterator[list[str]]:
    """Yield every command with its line of help."""

    def below(command: Any, words: str) -> Iterator[list[str]]:
        for name, inner in getattr(command, "commands", {}).items():
            arguments = [str(param.metavar) for param in inner.params if param.param_type_name == "argument" and param.required]
            if not hasattr(inner, "commands") or name == "serve":
                yield [f"`{' '.join([words, name, *arguments])}`", inner.short_help]
            yield from below(inner, f"{words} {name}")

    yield ["command", "does"]
    yield from below(get_command(app), "meshwright")


def costs() -> Iterator[list[str]]:
    """Yield the keys of the cost model, the default first."""
    described = attributes(CostSettings)
    described["compute"] = "measured times where the job has them, else the roofline; `profiled`, `roofline`."
    files = {"collectives_table": "collectives", "kernels": "kernels"}
    yield ["key", "default, and the choices"]
    for name, field in CostSettings.model_fields.items():
        text = f"`{field.default}`: {described[name]}"
        if name in LAYOUT_DEFAULTS:
            text += f" `estimate` and `plan --search` take `{LAYOUT_DEFAULTS[name]}`."
        if name in files:
            text += f" Names: {', '.join(f'`{one}`' for one in Shipped(files[name], '').names())}."
        yield [f"`{name}`", text]


def fleet() -> Iterator[list[str]]:
    """Yield the keys of a fleet, the default first, and the keys of its parts."""
    described = attributes(FleetSettings)
    described["deadline"] = "of a job: its duration on the devices that its user asks for, times a uniform factor; absent: none."
    described["elastic"] = "running jobs are decided again in rounds; absent: a job keeps what it got."
    described["failures"] = "of hosts."
    parts = {
        part.__name__: part for part in (SplitsSettings, DurationSettings, DeadlineSettings, ElasticSettings, HostFailureSettings)
    }
    yield ["key", "default, and the choices"]
    for name, field in FleetSettings.model_fields.items():
        defaults = field.default if isinstance(field.default, tuple) else (field.default,)
        choices = [f"`{one}`" for one in _words(field.annotation) if one not in defaults]
        is_plain = field.default not in (None, ()) and not isinstance(field.default, Settings)
        default = ["must be there"] if field.is_required() else [f"`{_plain(field.default)}`"] if is_plain else []
        text = ", ".join([*default, *choices])
        inner = [part for word, part in parts.items() if word in str(field.annotation)]
        keys = f" Keys: {', '.join(f'`{key}`' for key in inner[0].model_fields)}." if inner else ""
        yield [f"`fleet.{name}`", f"{f'{text}: ' if text else ''}{described[name]}{keys}"]


def layout() -> Iterator[list[str]]:
    """Yield the keys of a layout, the default first."""
    yield ["key", "default, and the choices"]
    for name, field in Layout.model_fields.items():
        choices = [one for one in get_args(field.annotation) if isinstance(one, str | int) and one != field.default]
        default = "must be there" if field.default is PydanticUndefined else f"`{_plain(field.default)}`"
        others = f", {', '.join(f'`{choice}`' for choice in choices)}" if choices else ""
        yield [f"`{name}`", f"{default}{others}: {field.description}"]


def metrics() -> Iterator[list[str]]:
    """Yield the metrics of evaluations."""
    yield ["metric", "unit", "better", "worlds"]
    for name, one in METRICS.items():
        yield [f"`{name}`", one.unit or "-", "less" if one.sign == LESS else "more", ", ".join(one.worlds)]


def options() -> Iterator[list[str]]:
    """Yield the keys of ``export --set``."""
    yield ["key", "is"]
    for name, field in ExportOptions.model_fields.items():
        choices = ", ".join(f"`{one}`" for one in get_args(field.annotation) if isinstance(one, str))
        default = f"; default `{_plain(field.default)}`" if field.default not in (None, False) else ""
        yield [f"`{name}`", f"{field.description}{f': {choices}' if choices else ''}{default}"]


def planners() -> Iterator[list[str]]:
    """Yield planners of ops."""
    yield ["planner", "rule", "objective"]
    for name, one in PLACEMENT_PLANNERS.items():
        yield [f"`{name}`", one.rule, "both" if len(one.objectives) > 1 else one.objectives[0]]


def routes() -> Iterator[list[str]]:
    """Yield verbs and paths of the service, by its description."""
    yield ["verb and path", "does"]
    for path, verbs in json.loads((DOCS / "openapi.json").read_text())["paths"].items():
        for verb, one in verbs.items():
            yield [f"`{verb.upper()} {path}`", " ".join(one["description"].split())]


TABLES: dict[str, Callable[[], Iterable[list[str]]]] = {
    "commands": commands,
    "costs": costs,
    "export-options": options,
    "fleet": fleet,
    "layout": layout,
    "metrics": metrics,
    "planners": planners,
    "routes": routes,
}


def filled(text: str) -> str:
    """Return the Markdown of a page with its generated tables."""

    def table(place: re.Match[str]) -> str:
        head, *rows = TABLES[place[1]]()
        lines = [head, ["---"] * len(head), *rows]
        return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)

    return PLACE.sub(table, text)


def with_results(text: str) -> str:
    """Return the page of results with its tables, made from the archive next to it."""
    sys.path.insert(0, str(DOCS.parent))
    from benchmarks.results import STUDY, Study, Tasks
    from benchmarks.results_tables import fill_page

    study = settings.load(Study, DOCS.parent / STUDY)
    with TemporaryDirectory() as folder, tarfile.open(DOCS / "results.tar.xz") as archive:
        archive.extractall(folder, filter="data")
        out, page = Path(folder), Path(folder) / "page.md"
        page.write_text(text)
        tasks = Tasks(study, out, None, out / "absent", False)
        fill_page(page, page, study.tables, out, tasks.policies)
        return page.read_text()


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return "absent" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _words(annotation: Any) -> list[str]:
    """Return the words among which a key has its value, or each of its values."""
    return [word for one in get_args(annotation) for word in ([one] if isinstance(one, str) else _words(one))]
