"""``meshwright plan --search``."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .... import files
from ....errors import InputFileError
from ....quantities import counted
from ... import is_at_once, output
from ...occupied import Occupied
from ...plans import show_strategies, show_summary, write_plan

if TYPE_CHECKING:
    from rich.console import Console

    from ....costs.settings import CostSettings
    from ....planners.layouts.request import SearchRequest
    from ....planners.layouts.results import Counts, RankedLayout
    from ....planning.search_table import RankedLayouts
    from ...key_models import SearchKeys

NARROW = 100
"""Columns of a terminal below which a table of layouts has fewer columns."""

UNKEPT = (
    "unless --keep says otherwise overlap_tp=false overlap_pp=true in interleaved, eager and DualPipe schedules overlap_dp=true "
    "but for DualPipe"
)
"""See `meshwright.plans.frameworks.defaults.hidden_unrequested`."""


def search_plans(
    job: str,
    cluster: str,
    search_request: SearchRequest,
    keys: SearchKeys,
    costs: CostSettings,
    whole_file: Path | None,
    plot_file: Path | None,
    json_file: str | None,
    occupied: Occupied | None = None,
) -> None:
    """Search, write what was asked for, and show the plan, the best layouts, the front and what became of the others.

    The arguments are what the options of the command say. ``top`` of the request is the number of rows of the table, and
    ``occupied`` is None where nobody holds devices.
    """
    from ....planning.estimate import priced_with
    from ....planning.search import search_layouts

    for option, path, suffixes in (("--all", whole_file, (".json", ".csv")), ("--plot", plot_file, (".svg", ".html"))):
        if path is not None and path.suffix not in suffixes:
            raise InputFileError(f"the name must end in {' or '.join(suffixes)}", field=option, value=str(path))
    top = search_request.top or 0
    is_free = None if occupied is None else occupied.taken.is_free
    with output.progress() as bars:
        request = replace(search_request, top=None if whole_file else top, on_best=_BestSoFar(), progress=output.phases(bars))
        result = search_layouts(job, cluster, request, is_free=is_free, costs=costs, **keys.arguments())
        plan, _, _ = result.plan, result.better_batches, result.references  # each may search again
    write_plan(json_file, plan)
    others, left_out = _write_others(json_file, result)
    if whole_file is not None:
        is_csv = whole_file.suffix == ".csv"
        files.write_text(whole_file, result.to_csv() if is_csv else files.json_text(result.to_data()) + "\n")
    if plot_file is not None:
        from ....evaluation.report.drawing import drawn_layouts

        files.write_text(plot_file, drawn_layouts(result, plot_file.suffix))
    _show(result, top, keys.front, json_file)
    out = output.console(json_file)
    output.print_remarks(out, list(left_out))
    out.print(f"{priced_with(costs.of_layouts)}; {UNKEPT}", soft_wrap=not out.is_terminal)
    if occupied is not None:
        occupied.show(out, json_file)
    output.print_written(out, json_file, *others, whole_file, plot_file)
    is_at_once.set()


def _write_others(json_file: str | None, ranking: RankedLayouts) -> tuple[list[str], tuple[str, ...]]:
    """Write the plan of each other number of devices as ``plan-64.json``; the names, and why a number has none."""
    if json_file is None or json_file == "-" or len(ranking.device_counts) + len(ranking.others) < 2:
        return [], ()
    from ....planning.search import plans_by_devices

    path, names = Path(json_file), []
    plans, left_out = plans_by_devices(ranking)
    for number, plan in plans.items():
        names.append(str(path.with_name(f"{path.stem}-{number}{path.suffix}")))
        output.check_file("--json", names[-1])
        write_plan(names[-1], plan)
    return names, left_out


class _BestSoFar:
    """Prints each layout that is better than all before, where a terminal is there."""

    def __init__(self) -> None:
        self._begin_s = time.perf_counter()
        self._best_s = float("inf")

    def __call__(self, ranked: RankedLayout, counts: Counts) -> None:
        if sys.stderr.isatty() and ranked.step_s < self._best_s:
            self._best_s = ranked.step_s
            passed_s = time.perf_counter() - self._begin_s
            sys.stderr.write(f"{passed_s:6.2f} s: {ranked.step_s:.4g} s a step with {ranked.text}\n")


def _show(ranking: RankedLayouts, top: int, front_rows: int, json_file: str | None) -> None:
    from ....planning.comparisons.references import gain_text

    out = output.console(json_file)
    say = partial(out.print, soft_wrap=not out.is_terminal)
    say(gain_text(ranking))
    if ranking.request.sequence_length is None and (shorter := ranking.maker.shorter_than_positions):
        say(shorter)
    show_summary(out, ranking.plan, f"Plan of the layout taken ({ranking.plan.taken or 'a strategy'}), {ranking.planned.text}")
    if ranking.request.framework is None:
        say(ranking.frameworks_text)
    _show_mechanisms(out, ranking)
    _show_ranking(out, ranking, top)
    exact_s, strategies, refused = ranking.strategies
    title = f"Strategies compared with the best exact layout, {1e3 * exact_s:.3f} ms a step"
    show_strategies(out, title, [(row.price, row.text) for row in strategies], exact_s)
    output.print_remarks(out, list(refused))
    _show_front(out, ranking, front_rows)
    counts, framework = ranking.searched.counts, ranking.request.framework
    say(
        f"{counts.legal:,} legal layouts: {counts.examined:,} priced ({counts.prices:,} prices in different rank orders), "
        f"{counts.pruned:,} pruned by bounds, {counts.infeasible:,} too large for a device; {counts.illegal:,} illegal"
        + ("" if framework is None else f" or not for {framework.title}")
        + (f"; of {counts.unproven:,} interleaved ones the best cut is not proven" if counts.unproven else "")
    )
    if not ranking.cluster.hosts_are_equal:
        say(
            f"the hosts of {ranking.cluster.name} differ: layouts were searched with ranks numbered as "
            f"{', '.join(ranking.search.tried_orders)}; --set arrange=EFFORT searches for a better order of hosts"
        )


def _show_mechanisms(out: Console, ranking: RankedLayouts) -> None:
    """Print the plan's layout without each of its mechanisms, its limiting resource, and its cost."""
    mechanisms, rows = ranking.mechanisms, []
    for text, other, problem in mechanisms.changes:
        if other is None:
            rows.append([text, "", "", "", problem])
        else:
            change = f"{mechanisms.difference(other):+.1%}"
            rows.append([text, f"{other.step_s:.4g}", change, f"{other.memory_bytes / 1e9:.1f}", ""])
    output.table(
        out, "Gain of each mechanism: the layout with one changed", ["", "step s", "change", "GB", ""], rows, numbers_to=4
    )
    output.print_remarks(out, mechanisms.texts)


def _show_ranking(out: Console, ranking: RankedLayouts, top: int) -> None:
    """Print the best layouts, and remarks on them."""
    from ....planning.comparisons.references import reference_texts

    best, places = ranking.best, ranking.plain_first(top)
    rows = [
        (
            "=" * (place in ranking.ties and len(ranking.ties) > 1) + f"{place + 1}" + " plain" * (place == ranking.plain),
            ranking.by_time[place],
        )
        for place in places
    ]
    rows += [(reference.name, reference.ranked) for reference in ranking.references]
    _table(
        out,
        f"Best layouts of {ranking.name} on {ranking.cluster.name}, {ranking.maker.batch_text(ranking.search.global_batch)}",
        ranking,
        rows,
    )
    remarks = ["bubble %: of the step, idle by the schedule alone; with equal stages (p - 1) / (v m) of the ideal time"]
    if len(ranking.ties) > 1:
        remarks.insert(
            0,
            f"=: as fast as the fastest, within the predictions' uncertainty: {len(ranking.ties):,} of all priced layouts, "
            "the plainest first; the number is the rank by time; --take plain writes the plan of the plainest",
        )
    remarks = [*reference_texts(ranking), *remarks]
    if tight := ranking.tight_text(top):
        remarks.insert(len(remarks) - 1, tight)
    for one in ranking.better_batches[:1]:
        (rate, ours), other = ranking.row(best).step.rate, one.row.step.rate[1]
        more = (
            f"{one.gain:.0%} more {rate.removesuffix('_per_s')}/s ({other:,.0f} against {ours:,.0f}), with {one.row.ranked.text}"
        )
        remarks.append(f"--batch {one.global_batch} brings {more}")
    output.print_remarks(out, remarks)


def _show_front(out: Console, ranking: RankedLayouts, front_rows: int) -> None:
    """Print the fastest layout of each number of devices, and the first rows of the front."""
    front = ranking.searched.front
    numbers = sorted({one.devices for one in front}, reverse=True)
    if len(numbers) > 1:
        fastest = [next(one for one in front if one.devices == number) for number in numbers]
        _table(out, "Fastest by devices", ranking, _numbered(fastest))
    left_out = len(front) - front_rows
    title = "Pareto front of time, memory and devices"
    title += f", {left_out} more of less memory or devices (--set front={len(front)})" if left_out > 0 else ""
    if front_rows:
        _table(out, title, ranking, _numbered(front[:front_rows]))


def _shared_switches(texts: Sequence[str]) -> list[str]:
    """Return the switches that all of several layouts have."""
    from ....planners.layouts.space import SEARCHED

    words = [word for word in texts[0].split() if "=" in word and word.partition("=")[0] not in (*SEARCHED, "mb")]
    return [word for word in words if len(texts) > 1 and all(word in text.split() for text in texts)]


def _numbered(layouts: Sequence[RankedLayout]) -> list[tuple[str, RankedLayout]]:
    return [(str(place), one) for place, one in enumerate(layouts, start=1)]


def _table(out: Console, title: str, ranking: RankedLayouts, layouts: Sequence[tuple[str, RankedLayout]]) -> None:
    """Print layouts with their figures; a column that is the same in all rows goes into the title, or, if empty, nowhere.

    Where the terminal is narrow, the rank order is in the layout's column; the rate, which follows from the time, is left out.
    """
    rows = [(label, ranking.row(one)) for label, one in layouts]
    one = rows[0][1]
    orders, devices = ({getattr(row.ranked, name) for _, row in rows} for name in ("order", "devices"))
    is_narrow = out.width < NARROW
    has_order = len(orders) > 1 and not is_narrow
    shared = _shared_switches([row.ranked.text for _, row in rows])
    texts = [" ".join(word for word in row.ranked.text.split() if word not in shared) for _, row in rows]
    if len(orders) > 1 and is_narrow:
        texts = [f"{text} {row.ranked.order}" for text, (_, row) in zip(texts, rows, strict=True)]
    columns: list[tuple[str, list[str]]] = [
        ("", [label for label, _ in rows]),
        ("layout", texts),
        ("rank order", [row.ranked.order for _, row in rows] if has_order else []),
        ("devices", [str(row.ranked.devices) for _, row in rows] if len(devices) > 1 else []),
        ("step s", [f"{row.step.step_s:.4g} {row.step.spread}" for _, row in rows]),
        (f"{one.step.rate[0].removesuffix('_per_s')}/s", [] if is_narrow else [f"{row.step.rate[1]:,.0f}" for _, row in rows]),
        ("MFU\n%", [] if one.step.mfu is None else [f"{100 * (row.step.mfu or 0):.1f}" for _, row in rows]),
        ("GB", [f"{row.ranked.memory_bytes / 1e9:.1f}" + " tight" * row.is_tight for _, row in rows]),
        ("bubble\n%", [f"{100 * row.bubble_share:.1f}" for _, row in rows]),
        ("exposed\n%", [f"{100 * row.exposed_share:.1f}" for _, row in rows]),
    ]
    shown = [column for column in columns if column[1]]
    title += f", {counted(one.ranked.devices, 'device')}" if len(devices) == 1 else ""
    title += f", ranks in the order {one.ranked.order}" if len(orders) == 1 else ""
    title += f", {' '.join(shared)}" if shared else ""
    lines = [list(line) for line in zip(*(cells for _, cells in shown), strict=True)]
    names = [name for name, _ in shown]
    output.table(out, title, names, lines, numbers_from=3 if has_order else 2, breaks_numbers=False)
