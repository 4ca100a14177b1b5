"""The report of an evaluation: one HTML page that needs nothing beside it.

It shows what `evaluation.evaluate` found (``results``, as in ``results.json``), how the policy learned, one episode
and one job's step, and says how the numbers were made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from ..plots import charts, curves
from ..plots.style import RUNNING
from ..statistics import excludes_zero, least
from ..tables import beside, best_baselines, chosen_for, remarks
from .html import escaped_text, figure, folded, listing, page, table

Data = Mapping[str, Any]

_HEAD = (
    "policy",
    "blocking rate <small>% [95 % interval]</small>",
    "against best baseline <small>points [95 % interval]</small>",
    "accepted <small>% of jobs</small>",
    "mean completion <small>h</small>",
    "95th percentile <small>h</small>",
    "slack <small>% of allowed</small>",
    "utilisation <small>% of devices</small>",
    "fragmen&shy;tation <small>% of ranks</small>",
    "mean degree <small>ranks</small>",
)
_UNDECIDED = " but for the arrival that ends an episode, which the published simulator counts and never decides"
# Shown where jobs wait or are interrupted.
_FURTHER = {"mean_wait_s": "mean wait <small>h</small>", "mean_delay_s": "delay by interruptions <small>mean, h</small>"}


def report_html(
    results: Data,
    *,
    learning_curve: Sequence[Data] | None = None,
    gantt: str | None = None,
    timeline: str | None = None,
    config_yaml: str | None = None,
    command: str | None = None,
    versions: Mapping[str, str] | None = None,
    exports: Mapping[str, str] | None = None,
) -> str:
    """The page.

    Args:
        results: what `evaluation.evaluate` found.
        learning_curve: rows of ``learning_curve.json``.
        gantt: a drawing by `evaluation.plots.gantt.occupancy_svg`.
        timeline: a drawing by `evaluation.plots.step_chart.step_svg`.
        config_yaml: the resolved config.
        command: the command line.
        versions: of packages, by name.
        exports: what lies where: a description and a path, relative to the page.
    """
    rows = named_rows(results)
    has_references = any(row["kind"] == "reference" for row in rows)
    further = [key for key in _FURTHER if any(_is_positive(row.get(key)) for row in rows)]
    scenario = results["scenario"]
    facts = (
        f"Cluster {scenario['cluster']}, {scenario['num_devices']} devices; "
        f"job graphs {', '.join(scenario['graphs'])}; {len(results['seeds'])} episodes of {scenario['num_jobs']} arrivals each."
    )
    body = [
        f"<h1>Benchmark {escaped_text(results['benchmark'])}: which policy blocks fewest jobs?</h1>",
        f'<p class="facts">{escaped_text(facts)}</p>',
        f'<p class="verdict">{escaped_text(results["verdict"])}</p>',
        *(f'<p class="facts">{escaped_text(sentence)}.</p>' for sentence in remarks(results)),
        "<h2>All policies</h2>",
        table(
            (*_HEAD, *(_FURTHER[key] for key in further)),
            [_cells(row, beside(results, own), further) for row, own in zip(rows, _in_order(results), strict=True)],
            kind="wide",
        ),
        "<p><small>Learned policies are shaded. "
        + ("Clairvoyant references know all arrivals beforehand and are no policies. " if has_references else "")
        + "A policy is called better or worse than the best baseline only where the "
        "interval of the paired difference excludes zero; otherwise the difference is unclear.</small></p>",
        "<h2>Figures</h2>",
        *_figures(rows, results, learning_curve, gantt, timeline),
        "<h2>How the numbers were made</h2>",
        *_method(results),
        *_files(exports or {}),
        "<h2>To repeat it</h2>",
        *_record(results, config_yaml, command, versions),
    ]
    return page(f"{results['benchmark']} - meshwright", body)


def named_rows(results: Data) -> list[Data]:
    """Rows from the least blocking rate to the greatest; a tuned baseline's name tells what was chosen for it."""
    return [{**row, "policy": row["policy"] + chosen_for(results, row["policy"])} for row in _in_order(results)]


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


def _in_order(results: Data) -> list[Data]:
    return charts.by_blocking_rate(results["rows"])


def _cells(row: Data, told: str | None, further: Sequence[str] = ()) -> tuple[str, list[str]]:
    """A row of the table; ``told`` is what it shows in place of a difference."""
    if told is not None:
        against = told if told == "-" else f"<small>{escaped_text(told)}</small>"
    else:
        difference = row["against_best_baseline"]
        word = ("unclear", "worse", "better")[excludes_zero(difference)]
        against = f"{100 * difference['mean']:+.1f} <small>{_ends(difference, 100.0, '+.1f')} {word}</small>"
    cells = [
        escaped_text(row["policy"]),
        _with_interval(row["blocking_rate"], 100.0, 1),
        against,
        _mean(row["acceptance_rate"], 100.0, 1),
        _mean(row["mean_completion_s"], 1 / 3600, 2),
        _mean(row["p95_completion_s"], 1 / 3600, 2),
        _mean(row["mean_slack"], 100.0, 1),
        _mean(row["utilisation"], 100.0, 1),
        _mean(row["fragmentation"], 100.0, 1),
        _mean(row["mean_degree"], 1.0, 2),
        *(_mean(row[key], 1 / 3600, 2) for key in further),
    ]
    return ("learned" if row["kind"] == "learned" else ""), cells


def _with_interval(value: Data | None, scale: float, digits: int) -> str:
    if value is None:
        return "-"
    return f"{_mean(value, scale, digits)} <small>{_ends(value, scale, f'.{digits}f')}</small>"


def _ends(value: Data, scale: float, form: str) -> str:
    """The interval, or that there is none."""
    if value["low"] is None:
        return "one episode"
    return f"[{scale * value['low']:{form}}, {scale * value['high']:{form}}]"


def _mean(value: Data | None, scale: float, digits: int) -> str:
    return "-" if value is None else f"{scale * value['mean']:.{digits}f}"


def _figures(
    rows: Sequence[Data], results: Data, learning_curve: Sequence[Data] | None, gantt: str | None, timeline: str | None
) -> list[str]:
    drawn = [
        (
            charts.blocking_svg(rows),
            "Blocking rate: share of arriving jobs that were turned away, the fewer the better. Bars are means over the "
            "episodes, whiskers their 95 % intervals. Compare policies by the paired difference in the table, not by "
            "whether whiskers overlap: all policies met the same jobs.",
        ),
        (
            charts.reasons_svg(rows),
            "Why jobs were turned away. <i>No free block</i>: devices were free, but no set of them that a job may own and "
            "that meets the deadline, which is fragmentation. <i>No free device</i>: all were held. <i>Rejected by choice</i>: "
            "the policy had somewhere to put the job and did not. <i>Deadline out of reach</i>: too short even on an empty "
            "cluster, the same jobs for every policy."
            + (
                " <i>Running at the end</i>: placed, but counted as blocked by the rules of this benchmark."
                if any(RUNNING.word in row["outcomes"] for row in rows)
                else ""
            ),
        ),
    ]
    if learning_curve:
        drawn.append(
            (
                charts.learning_curve_svg(learning_curve, references(results)),
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
                "graph and with its number where there is room; a white gap is an idle device. Small strokes above the bars "
                "are arrivals; a mark tells that the job was turned away, and why.",
            )
        )
    drawn.append(
        (
            charts.degrees_svg(rows),
            "Into how many ranks accepted jobs were cut. A row is a policy's histogram: the darker a cell, the greater "
            "the share of its accepted jobs.",
        )
    )
    if any(row["shapes"] for row in rows):
        drawn.append(
            (
                charts.shapes_svg(rows),
                "On which blocks accepted jobs ran. A row is a policy's histogram over the shapes of the cluster's blocks, from "
                "few ranks to many.",
            )
        )
    if len({rule for row in rows for rule in row["rules"]}) > 1:
        drawn.append(
            (
                charts.rules_svg(rows),
                "By which placement rule the blocks were taken. Where several rules take the same block, the first of them in "
                "the benchmark's order stands for all.",
            )
        )
    if any(row["completion_percentiles_s"] for row in rows):
        drawn.append(
            (
                curves.completion_svg(rows),
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
    return [figure(svg, i, caption) for i, (svg, caption) in enumerate(drawn, 1)]


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
    tables = [
        folded(
            f"Validation of {name}",
            table(
                ["policy", "blocking rate <small>% of jobs after warm-up</small>"],
                [
                    ("learned" if fixed == tuned["chosen"] else "", [escaped_text(fixed), f"{100 * rate:.1f}"])
                    for fixed, rate in tuned["blocking_rate"].items()
                ],
            ),
        )
        for name, tuned in results["best_fixed"].items()
    ]
    return ["<ul>", *(f"<li>{escaped_text(point)}</li>" for point in points), "</ul>", *tables, *_latency(results)]


def _references(results: Data) -> list[str]:
    names = [row["policy"] for row in results["rows"] if row["kind"] == "reference"]
    points = {
        "linear-programme": "linear-programme is a bound that no policy can pass: all arrivals are known, jobs may be "
        "accepted in part, and only the number of devices limits them.",
        "clairvoyant-beam": "clairvoyant-beam is what a beam search that knows all arrivals decides, played in the simulator; a "
        "wider search may do better.",
    }
    return [said for name, said in points.items() if any(found.startswith(name) for found in names)]


def _latency(results: Data) -> list[str]:
    """How long decisions took, folded away: measured, so never the same twice."""
    told = results.get("timing", {}).get("decision_latency_s")
    if not told:
        return []
    head = ["policy", "median <small>ms</small>", "99th percentile <small>ms</small>"]
    rows = [("", [escaped_text(name), *(f"{1e3 * taken[p]:.3f}" for p in ("p50", "p99"))]) for name, taken in told.items()]
    return [folded("Time that a decision took, on the machine of this evaluation, what it looks at apart", table(head, rows))]


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


def _files(exports: Mapping[str, str]) -> list[str]:
    if not exports:
        return []
    rows = [("", [escaped_text(what), _link(path)]) for what, path in exports.items()]
    return ["<h2>Files</h2>", table(["what", "where"], rows, kind="texts")]


def _link(path: str) -> str:
    """A relative path as a link; any other as text."""
    shown = f"<code>{escaped_text(path)}</code>"
    return shown if path.startswith("/") else f'<a href="./{quote(path)}">{shown}</a>'


def _record(results: Data, config_yaml: str | None, command: str | None, versions: Mapping[str, str] | None) -> list[str]:
    parts = [f"<p>Scenario digest: <code>{escaped_text(results['scenario']['digest'])}</code></p>"]
    if command is not None:
        parts.append(folded("Command", listing(command)))
    if config_yaml is not None:
        parts.append(folded("Config, every default written out", listing(config_yaml)))
    if versions is not None:
        rows = [("", [escaped_text(name), escaped_text(version)]) for name, version in versions.items()]
        parts.append(folded("Versions", table(["package", "version"], rows, kind="texts")))
    return parts
