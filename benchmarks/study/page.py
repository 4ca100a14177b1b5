"""A page of Markdown with places for the tables and figures of a study, and what fills them.

A place begins with the line ``<!-- results: NAME -->`` and ends with ``<!-- end of results: NAME -->``; what stands between
them is written anew, all else is prose and stays as it is. Figures lie in ``_static`` beside the page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from meshwright import files
from meshwright.errors import InputFileError

from . import behaviour, tables
from .behaviour import Drawings
from .contents import (
    Ablations,
    ComparisonTable,
    Degrees,
    Durations,
    Entries,
    Latency,
    Learning,
    Loads,
    Seeds,
    TableSettings,
    Transfer,
)
from .findings import StudyResults
from .places import SHOWN
from .study import QuickSettings
from .tasks import Task, shown

FIGURES = "_static"
_PLACE = re.compile(r"<!-- results: (?P<name>[^ ]+) -->\n.*?<!-- end of results: (?P=name) -->", re.DOTALL)
_MOST_NAMES = 6


def write_page(findings: StudyResults, template: Path, page: Path) -> list[Path]:
    """Fill the places of a page, and draw the figures.

    Args:
        findings: what there is.
        template: the page as it was; its prose is kept.
        page: where it goes.

    Returns:
        The files written.

    Raises:
        InputFileError: the page has no place for a table of the study, or one for something else.
    """
    text = files.read_text(template)
    _check_places(text, findings, template)
    written: list[Path] = []
    told: set[str] = set()
    for name, table in findings.study.tables.items():
        lines, drawings = part(findings, name, table, told)
        for end, (svg, _) in drawings.items():
            written.append(page.parent / FIGURES / figure_name(name, end))
            files.write_text(written[-1], svg)
        text = _filled(text, name, lines)
    files.write_text(page, text)
    return [page, *written]


def part(findings: StudyResults, name: str, chosen: TableSettings, told: set[str]) -> tuple[list[str], Drawings]:
    """What fills one place: a mark where the study is a quick one, table, figures, what is absent, and the commands.

    Args:
        findings: what there is.
        name: of the table.
        chosen: the table.
        told: tasks whose commands stand further up on the page; those of this place join them.
    """
    tasks = findings.tasks_of(chosen)
    absent = findings.absent(tasks)
    lines: list[str] = ["", quick_mark(findings.study.quick), ""] if findings.study.quick is not None else [""]
    drawings: Drawings = {}
    if len(absent) < len(tasks):
        made = _CONTENTS[type(chosen)](findings, chosen)
        found, drawings = made if isinstance(made, tuple) else (made, {})
        lines += [*found, ""] if found else []
        for end, (_, says) in drawings.items():
            lines += [f"![{says}]({FIGURES}/{figure_name(name, end)}){{.drawing}}", ""]
    if absent:
        lines += [f"Not produced yet: {_listed(absent)}.", ""]
    stale = [task.name for task in tasks if task.name in findings.stale]
    if stale:
        lines += [f"Made with other settings than those of today: {_listed(stale)}.", ""]
    new = [task for task in tasks if task.name not in told]
    told |= {task.name for task in new}
    takes_profiles = any(task.world.takes_profiles for task in tasks)
    return [*lines, *_commands(name, new, takes_profiles, has_others=len(new) < len(tasks)), ""], drawings


def quick_mark(quick: QuickSettings) -> str:
    """The sentence that marks everything of a quick study."""
    seeds = f"{quick.num_seeds} test episode{'s' * (quick.num_seeds > 1)}"
    return f"**Quick run: training cut to a few steps, {seeds}. These figures only show that everything runs.**"


def figure_name(name: str, end: str) -> str:
    """The file of a figure."""
    return f"results-{name}-{end}.svg" if end else f"results-{name}.svg"


_CONTENTS: dict[type[TableSettings], Callable[[StudyResults, Any], list[str] | tuple[list[str], Drawings]]] = {
    ComparisonTable: tables.comparison,
    Transfer: tables.transfer,
    Ablations: tables.ablations,
    Loads: behaviour.loads,
    Learning: behaviour.learning,
    Seeds: behaviour.seeds,
    Degrees: behaviour.degrees,
    Entries: behaviour.entries,
    Latency: behaviour.latency,
    Durations: behaviour.durations,
}


def _commands(name: str, tasks: Sequence[Task], takes_profiles: bool, *, has_others: bool) -> list[str]:
    """All at once, and one by one, folded away."""
    options = f" --graphs {SHOWN.graphs} --trace {SHOWN.trace}" if takes_profiles else ""
    all_at_once = f'$ make results ARGS="--only {name}{options}"'
    lines = ["```console", all_at_once, "```"]
    if tasks:
        one_by_one = [f"$ {line}" for task in tasks for line in shown(task)]
        lines += ["", f"or one by one{', after what stands further up' * has_others}:", "", "```console", *one_by_one, "```"]
    return ["<details><summary>Commands</summary>", "", *lines, "", "</details>"]


def _listed(names: Sequence[str]) -> str:
    """Names, the first of many."""
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(f"`{name}`" for name in names[:_MOST_NAMES]) + more


def _filled(text: str, name: str, lines: Sequence[str]) -> str:
    """The page with one place written anew."""
    new = "\n".join([f"<!-- results: {name} -->", *lines, f"<!-- end of results: {name} -->"])
    return _PLACE.sub(lambda found: new if found["name"] == name else found[0], text)


def _check_places(text: str, findings: StudyResults, template: Path) -> None:
    places = [found["name"] for found in _PLACE.finditer(text)]
    for name in findings.study.tables:
        if places.count(name) != 1:
            times = "stands twice" if name in places else "has no place"
            problem = f"this table of the study {times} on the page (<!-- results: NAME --> to <!-- end of results: NAME -->)"
            raise InputFileError(problem, file=template, value=name, choices=places)
    for name in places:
        if name not in findings.study.tables:
            choices = list(findings.study.tables)
            raise InputFileError(
                "a place on the page that no table of the study fills", file=template, value=name, choices=choices
            )
