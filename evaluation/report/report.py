"""The report of an evaluation: one self-contained HTML page.

It shows what `evaluation.evaluate` found (``results``, as in ``results.json``), how the policy learned, one episode
and one job's step, and says how the numbers were made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from ...quantities import counted
from ..alike import alike, joined
from ..plots import curves, policies
from ..plots.figure import Figure
from ..plots.style import RUNNING
from ..plots.trade_off import PolicyFigure, policies_figure
from ..statistics import CHALLENGERS, least
from ..tables import beside, best_baselines, chosen_for, mean_figures, mean_text, remarks, verdict_word
from .pages import Cell, Drawn, PageTable, Row, cells, page

Data = Mapping[str, Any]

_HEAD = (
    Cell("policy"),
    Cell("blocking rate", "% [95 % interval]"),
    Cell("against best baseline", "points [95 % interval]"),
    Cell("accepted", "% of jobs"),
    Cell("mean completion", "h"),
    Cell("95th percentile", "h"),
    Cell("slack", "% of allowed"),
    Cell("utilisation", "% of devices"),
    Cell("fragmentation", "% of ranks"),
    Cell("mean degree", "ranks"),
)
_UNDECIDED = " but for the arrival that ends an episode, which the published simulator counts and never decides"
# Shown where jobs wait or are interrupted.
_FURTHER = {"mean_wait_s": Cell("mean wait", "h"), "mean_delay_s": Cell("delay by interruptions", "mean, h")}

BLOCKED = PolicyFigure("blocking_rate", "blocked, % of jobs", 100.0)
COMPLETION = PolicyFigure("mean_completion_s", "mean completion time of accepted jobs, h", 1 / 3600)
"""The two figures that policies trade against each other."""
TRADE_OFF = (
    "Jobs blocked against the mean completion time of those that were accepted, with 95 % intervals of the blocking rate. Down "
    "and to the left is better; a line joins the policies that no other one beats in both."
)


def report_html(
    results: Data,
    *,
    learning_curve: Sequence[Data] | None = None,
    gantt: Figure | None = None,
    timeline: Figure | None = None,
    config_yaml: str | None = None,
    command: str | None = None,
    versions: Mapping[str, str] | None = None,
    exports: Mapping[str, str] | None = None,
) -> str:
    """The page of an evaluation, as HTML.

    Args:
        results: what `evaluation.evaluate` found.
        learning_curve: rows of ``learning_curve.json``.
        gantt: who held which device: `plots.gantt.episode_figure`.
        timeline: one step: `plots.step.step_figure`.
        config_yaml: the resolved config.
        command: the command line.
        versions: of packages, by name.
        exports: what lies where: a description and a path, relative to the page.
    """
    groups = _groups(results)
    rows = named_rows(results)
    has_references = any(row["kind"] == "reference" for row in rows)
    further = [key for key in _FURTHER if any(_is_positive(row.get(key)) for row in rows)]
    scenario = results["scenario"]
    has_command = (("Command", command), ("Config, every default written out", config_yaml))
    return page(
        "report.html",
        title=results["benchmark"],
        heading=f"Benchmark {results['benchmark']}: which policy blocks fewest jobs?",
        facts=f"Cluster {scenario['cluster']}, {counted(scenario['num_devices'], 'device')}; "
        f"job graphs {', '.join(scenario['graphs'])}; "
        f"{counted(len(results['seeds']), 'episode')} of {scenario['num_jobs']} arrivals each.",
        verdict=results["verdict"],
        remarks=[f"{sentence}." for sentence in remarks(results)],
        policies=PageTable(
            (*_HEAD, *(_FURTHER[key] for key in further)),
            [_row(row, beside(results, group[0]), further) for row, group in zip(rows, groups, strict=True)],
            kind="wide",
        ),
        legend="Learned policies are shaded. "
        + ("Policies that decided alike in every episode share a row. " if any(len(group) > 1 for group in groups) else "")
        + ("Clairvoyant references know all arrivals beforehand and are no policies. " if has_references else "")
        + "A policy is called better or worse than the best baseline only where the interval of the paired difference excludes "
        "zero; otherwise the difference is unclear.",
        drawn=_figures(rows, results, learning_curve, gantt, timeline),
        method=_method(results),
        details=[*_validations(results), *_latency(results)],
        links=[(what, path, None if path.startswith("/") else f"./{quote(path)}") for what, path in (exports or {}).items()],
        digest=results["scenario"]["digest"],
        listings=[(title, text.strip()) for title, text in has_command if text is not None],
        versions=None
        if versions is None
        else PageTable(cells(("package", "version")), [Row(cells(pair)) for pair in versions.items()], "texts"),
    )


def named_rows(results: Data) -> list[Data]:
    """Rows from the least blocking rate to the greatest, one for all policies that decided alike.

    A tuned baseline's name tells what was chosen for it.
    """
    return [{**group[0], "policy": joined(group, lambda name: name + chosen_for(results, name))} for group in _groups(results)]


def references(results: Data) -> dict[str, float]:
    """Blocking rates that a learning curve is compared with: the best baseline and the best of the tuned degrees.

    Several that tie are one line.
    """
    found = {}
    known = [row for row in results["rows"] if row["blocking_rate"] is not None]
    best = [row for row in known if row["policy"] in best_baselines(results)]
    fixed = [row for row in known if row["policy"] in results["best_fixed"]]
    tuned = least(fixed, lambda row: float(row["blocking_rate"]["mean"]))
    for word, rows in (("best baseline", best), ("best fixed degree", [row for row in tuned if row not in best])):
        if rows:
            names = [results["best_fixed"].get(row["policy"], {}).get("chosen", row["policy"]) for row in rows]
            named = names[0] if len(names) == 1 else f"{len(names)} that tie"
            found[f"{word}, {named}"] = float(rows[0]["blocking_rate"]["mean"])
    return found


def _is_positive(value: Data | None) -> bool:
    return value is not None and value["mean"] > 0


def _groups(results: Data) -> list[list[Data]]:
    return alike(policies.by_blocking_rate(results["rows"]))


def _row(row: Data, told: str | None, further: Sequence[str] = ()) -> Row:
    """A row of the table; ``told`` is what it shows in place of a difference."""
    if told is not None:
        against = Cell(told) if told == "-" else Cell("", told)
    else:
        difference = row["against_best_baseline"]
        against = Cell(f"{100 * difference['mean']:+.1f}", f"{_ends(difference, 100.0, '+.1f')} {verdict_word(difference)}")
    shown = [
        Cell(row["policy"]),
        _with_interval(row["blocking_rate"]),
        against,
        *cells(
            (
                mean_text(row["acceptance_rate"], 100.0, 1),
                *mean_figures(row),
                *(mean_text(row[key], 1 / 3600, 2) for key in further),
            )
        ),
    ]
    return Row(shown, is_learned=row["kind"] in CHALLENGERS)


def _with_interval(value: Data | None) -> Cell:
    """A share in percent."""
    return Cell("-") if value is None else Cell(mean_text(value, 100.0, 1), _ends(value, 100.0, ".1f"))


def _ends(value: Data, scale: float, form: str) -> str:
    """The interval, or that there is none."""
    if value["low"] is None:
        return "one episode"
    return f"[{scale * value['low']:{form}}, {scale * value['high']:{form}}]"


def _figures(
    rows: Sequence[Data], results: Data, learning_curve: Sequence[Data] | None, gantt: Figure | None, timeline: Figure | None
) -> list[Drawn]:
    drawn: list[tuple[Figure, str]] = [
        (
            policies.blocking_figure(rows),
            "Blocking rate: share of arriving jobs that were turned away, the fewer the better. Bars are means over the "
            "episodes, whiskers their 95 % intervals. Compare policies by the paired difference in the table, not by "
            "whether whiskers overlap: all policies met the same jobs.",
        ),
        (
            policies.reasons_figure(rows),
            "Why jobs were turned away. “No free block”: devices were free, but no set of them that a job may own and "
            "that meets the deadline, which is fragmentation. “No free device”: all were held. “Rejected by choice”: "
            "the policy had somewhere to put the job and did not. “Deadline out of reach”: too short even on an empty "
            "cluster, the same jobs for every policy."
            + (
                " “Running at the end”: placed, but counted as blocked by the rules of this benchmark."
                if any(RUNNING.word in row["outcomes"] for row in rows)
                else ""
            ),
        ),
    ]
    trade_off = policies_figure("Policies by jobs blocked and completion time", rows, COMPLETION, BLOCKED)
    if trade_off is not None:
        drawn.insert(1, (trade_off, TRADE_OFF))
    if learning_curve:
        drawn.append(
            (
                curves.learning_curve_figure(learning_curve, references(results)),
                "How the policy learned. The thick line is its blocking rate on validation episodes, without exploration; the "
                "thin one is measured in training, where it explores. The ring marks the policy that was kept. Dashed lines "
                "are baselines on the test episodes, so their level is a guide, not a test.",
            )
        )
    if gantt is not None:
        drawn.append(
            (
                gantt,
                "The same arrivals under each policy. A bar is a job on the devices that it holds, in the colour of its job "
                "graph and with its number where there is room; a gap is an idle device. A mark above the bars is a job that "
                "was turned away.",
            )
        )
    drawn.append(
        (
            policies.shares_figure(rows, "degrees", "degree (ranks of a job)"),
            "Into how many ranks accepted jobs were cut. A row is a policy's histogram: the darker a cell, the greater "
            "the share of its accepted jobs.",
        )
    )
    if any(row["shapes"] for row in rows):
        drawn.append(
            (
                policies.shares_figure(rows, "shapes", "shape of the block"),
                "On which blocks accepted jobs ran. A row is a policy's histogram over the shapes of the cluster's blocks, from "
                "few ranks to many.",
            )
        )
    if len({rule for row in rows for rule in row["rules"]}) > 1:
        drawn.append(
            (
                policies.shares_figure(rows, "rules", "placement rule"),
                "By which placement rule the blocks were taken. Where several rules take the same block, the first of them in "
                "the benchmark's order stands for all.",
            )
        )
    if any(row["completion_percentiles_s"] for row in rows):
        drawn.append(
            (
                curves.completion_figure(rows),
                "Completion times of accepted jobs, all episodes together: the share that took no longer. Each policy accepts "
                "other jobs, so a curve to the left is no merit by itself.",
            )
        )
    if timeline is not None:
        drawn.append(
            (
                timeline,
                "One training step of one job as the simulator sees it. Each rank has two lanes: above what it computes, below "
                "the messages that it takes part in. Communication that lies under compute costs nothing; the share in "
                "the title is the part of the step in which the busiest rank does not compute.",
            )
        )
    return [Drawn(figure, caption) for figure, caption in drawn]


def _method(results: Data) -> list[str]:
    scenario = results["scenario"]
    cooldown = scenario.get("num_cooldown_jobs", 0)
    counted = scenario["num_jobs"] - scenario["num_warmup_jobs"] - cooldown
    warmup = (
        f"the first {scenario['num_warmup_jobs']} arrivals are a warm-up"
        if scenario["num_warmup_jobs"]
        else "there is no warm-up"
    )
    left_out = f", the last {cooldown} do not count" if cooldown else ""
    ends_block = any(RUNNING.word in row["outcomes"] for row in results["rows"])
    undecided = _UNDECIDED if ends_block else ""
    points = [
        f"Every policy played the same {len(results['seeds'])} test episodes (seeds {_seeds(results['seeds'])}) of "
        f"{scenario['num_jobs']} arrivals. The cluster starts empty; {warmup}{left_out}, so {counted} arrivals of each count.",
        "Intervals are 95 % bootstrap intervals over the episodes (10,000 resamples, bias-corrected and accelerated). "
        "Differences are taken episode by episode."
        + (" One episode alone has no interval." if len(results["seeds"]) == 1 else ""),
        f"Blocking rate and accepted jobs add up to all jobs{undecided}. Completion time runs from arrival to end. Slack is the "
        "share of the allowed time that accepted jobs leave unused. Utilisation is the share of device-time that jobs hold. "
        "Fragmentation is the share of ranks that the free devices would suffice for and no free block has, at the moments "
        "when jobs arrive.",
        *_references(results),
        *_queue(scenario.get("queue_capacity", 0)),
        f"A job may be cut into {_degrees(scenario['degrees'])}.",
    ]
    for name, tuned in results["best_fixed"].items():
        tied = f", as little as {', '.join(tuned['tied'])}, of which it is the smallest" if tuned.get("tied") else ""
        points.append(
            f"{name} is {tuned['chosen']}: the fixed degree that blocked least on {len(tuned['validation_seeds'])} validation "
            f"episodes (seeds {_seeds(tuned['validation_seeds'])}), which are no test episodes{tied}."
        )
    return points


def _validations(results: Data) -> list[tuple[str, PageTable]]:
    """How the fixed degrees did among which a tuned baseline was chosen."""
    return [
        (
            f"Validation of {name}",
            PageTable(
                (Cell("policy"), Cell("blocking rate", "% of jobs after warm-up")),
                [
                    Row(cells((fixed, f"{100 * rate:.1f}")), fixed == tuned["chosen"])
                    for fixed, rate in tuned["blocking_rate"].items()
                ],
            ),
        )
        for name, tuned in results["best_fixed"].items()
    ]


def _references(results: Data) -> list[str]:
    names = [row["policy"] for row in results["rows"] if row["kind"] == "reference"]
    points = {
        "linear-programme": "linear-programme is a bound that no policy can pass: all arrivals are known, jobs may be "
        "accepted in part, and only the number of devices limits them.",
        "clairvoyant-beam": "clairvoyant-beam is what a beam search that knows all arrivals decides, played in the simulator; a "
        "wider search may do better.",
    }
    return [said for name, said in points.items() if any(found.startswith(name) for found in names)]


def _latency(results: Data) -> list[tuple[str, PageTable]]:
    """How long decisions took: measured, so never the same twice."""
    told = results.get("timing", {}).get("decision_latency_s")
    if not told:
        return []
    head = (Cell("policy"), Cell("median", "ms"), Cell("99th percentile", "ms"))
    rows = [Row(cells((name, *(f"{1e3 * taken[p]:.3f}" for p in ("p50", "p99"))))) for name, taken in told.items()]
    return [("Time of a decision on the machine of this evaluation, without the observation", PageTable(head, rows))]


def _queue(capacity: int) -> list[str]:
    if capacity == 0:
        return []
    return [
        f"Up to {capacity} jobs may wait in a queue. One whose deadline expires there counts as turned away; one that still "
        "waits when the episode ends counts neither as accepted nor as turned away."
    ]


def _degrees(degrees: Sequence[int]) -> str:
    if len(degrees) > 20:
        return f"{len(degrees)} different numbers of ranks, {min(degrees)} to {max(degrees)}"
    return f"{', '.join(str(degree) for degree in degrees)} rank{'s' * (max(degrees) > 1)}"


def _seeds(seeds: Sequence[int]) -> str:
    """``0 to 9`` for a run of numbers, else each of them."""
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(str(seed) for seed in seeds)
