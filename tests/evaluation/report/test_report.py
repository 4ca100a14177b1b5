"""The report: valid, self-contained HTML in which every policy and figure is found and nothing hostile acts."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from meshwright.evaluation.metrics import PERCENTILES
from meshwright.evaluation.plots.gantt import Lanes, gantt_figure
from meshwright.evaluation.report import report

VOID = {"meta", "br", "hr", "img", "link", "input"}
HOSTILE = "<script>alert(1)</script> & \"'</table> \x07"
GANTT = gantt_figure(HOSTILE, [Lanes(HOSTILE, [], [("h", 0, 1)])], {}, (0.0, 1.0))


pytestmark = pytest.mark.usefixtures("undrawn")


class Page(HTMLParser):
    """Tags, attributes and text of a page; fails where tags are not balanced."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.attributes, self.texts = [], [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attributes]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attributes]

    def handle_endtag(self, tag):
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] not in (["style"], ["script"]) and data.strip():
            self.texts.append(data.strip())


def interval(mean, half=0.01):
    return {"mean": mean, "low": mean - half, "high": mean + half}


def row(policy, rate, kind="baseline", against=None):
    return {
        "policy": policy,
        "kind": kind,
        "benchmark": "toy",
        "num_seeds": 3,
        "blocking_rate": interval(rate),
        "acceptance_rate": interval(1 - rate),
        "mean_completion_s": interval(5400.0),
        "p95_completion_s": interval(9000.0),
        "fragmentation": interval(0.125),
        "mean_slack": interval(0.25),
        "utilisation": interval(0.5),
        "mean_degree": interval(4.0),
        "outcomes": {"accepted": 1 - rate, "no free block": rate},
        "degrees": {"1": 0.0, "4": 1.0},
        "shapes": {"2x2x1": 1.0},
        "rules": {"first-fit": 0.5, "best-fit": 0.5},
        "completion_percentiles_s": [36.0 * p for p in PERCENTILES],
        "per_seed": {"blocking_rate": [rate] * 3},
        "against_best_baseline": against,
    }


def results(*extra, seeds=(0, 1, 2)):
    mine = row("mine", 0.05, "learned", {"policy": "min", "mean": -0.05, "low": -0.06, "high": -0.04})
    tuned = row("best-fixed", 0.2, against={"policy": "min", "mean": 0.1, "low": -0.02, "high": 0.22})
    chosen = {"chosen": "fixed-4", "validation_seeds": [100, 102], "blocking_rate": {"fixed-1": 0.9, "fixed-4": 0.21}}
    return {
        "format_version": 1,
        "benchmark": "toy",
        "scenario": {
            "cluster": "host-8",
            "num_devices": 8,
            "graphs": ["alexnet", "gnmt"],
            "degrees": [1, 2, 4],
            "num_jobs": 40,
            "num_warmup_jobs": 10,
            "digest": "0123abcd",
        },
        "seeds": list(seeds),
        "best_fixed": {"best-fixed": chosen},
        "rows": [tuned, mine, row("min", 0.1), *extra],
        "best_baseline": "min",
        "verdict": "mine blocks fewer jobs than the best baseline, min.",
        "timing": {"elapsed_s": 1.0},
    }


CURVE = [{"steps": 0, "validation_blocking_rate": 0.3, "training_blocking_rate": None, "elapsed_s": 0.1}]


def full_report(found):
    return report.report_html(
        found,
        learning_curve=CURVE,
        gantt=GANTT,
        timeline=GANTT,
        config_yaml="name: toy\nseed: 0\n",
        command="meshwright demo --out runs/demo",
        versions={"numpy": "2.4.6"},
        exports={"Results": "results.json", "Slurm": "exports/slurm"},
    )


@pytest.fixture(scope="module")
def full():
    return full_report(results())


@pytest.fixture(scope="module")
def bare():
    return report.report_html(results())


def test_a_full_report_is_balanced_and_a_bare_one_too(full, bare):
    assert Page(full).tags.count("figure") == 10
    assert Page(bare).tags.count("figure") == 7


def test_every_policy_stands_in_the_table_with_its_figures(full):
    page = Page(full)
    table = page.texts[page.texts.index("policy") : page.texts.index("Figures")]
    assert [text for text in table if text in {"mine", "min", "best-fixed (fixed-4)"}] == ["mine", "min", "best-fixed (fixed-4)"]
    mine = table[table.index("mine") : table.index("min")]
    # 5400 s = 1.50 h, 9000 s = 2.50 h
    assert mine == [
        "mine",
        "5.0",
        "[4.0, 6.0]",
        "-5.0",
        "[-6.0, -4.0] better",
        "95.0",
        "1.50",
        "2.50",
        "25.0",
        "50.0",
        "12.5",
        "4.00",
    ]
    assert "[-2.0, +22.0] unclear" in table
    assert "best baseline" in table[table.index("min") :]


def test_the_verdict_seeds_warmup_and_validation_are_told(full):
    said = " ".join(Page(full).texts)
    assert "mine blocks fewer jobs than the best baseline, min." in said
    assert "same 3 test episodes (seeds 0 to 2) of 40 arrivals" in said
    assert "first 10 arrivals" in said
    assert "best-fixed is fixed-4" in said
    assert "seeds 100, 102" in said


def test_config_command_versions_and_files_are_told(full):
    page = Page(full)
    for text in ("name: toy\nseed: 0", "meshwright demo --out runs/demo", "numpy", "2.4.6", "exports/slurm", "0123abcd"):
        assert text in page.texts
    assert ("a", "href", "./exports/slurm") in page.attributes


def test_one_episode_alone_decides_nothing():
    single = results(seeds=[0])
    for found in single["rows"]:
        found["num_seeds"] = 1
        found["blocking_rate"] |= {"low": None, "high": None}
        if found["against_best_baseline"] is not None:
            found["against_best_baseline"] |= {"low": None, "high": None}
    page = Page(report.report_html(single))
    assert not [text for text in page.texts if text.endswith((" better", " worse"))]
    assert any("One episode alone has no interval." in text for text in page.texts)
    assert page.texts.count("one episode") == 3


def test_a_clairvoyant_reference_is_told_apart_from_policies_and_explained(bare):
    nothing = {"outcomes": {}, "degrees": {}, "shapes": {}, "rules": {}, "completion_percentiles_s": None}
    absent = [
        "acceptance_rate",
        "mean_completion_s",
        "p95_completion_s",
        "mean_slack",
        "utilisation",
        "fragmentation",
        "mean_degree",
    ]
    against = {"policy": "min", "mean": -0.09, "low": -0.1, "high": -0.08}
    bound = row("linear-programme", 0.01, "reference", against) | nothing | dict.fromkeys(absent)
    said = Page(report.report_html(results(bound))).texts
    assert "clairvoyant reference" in said
    assert any("a bound that no policy can pass" in text for text in said)
    assert not any("-10.0, -8.0" in text for text in said)
    assert not any("bound that no policy" in text for text in Page(bare).texts)


def test_the_time_that_decisions_took_is_told_where_it_was_measured():
    found = results()
    found["timing"]["decision_latency_s"] = {"mine": {"p50": 0.0004, "p99": 0.0021}}
    assert {"0.400", "2.100"} <= set(Page(report.report_html(found)).texts)


def test_no_text_of_the_user_becomes_markup():
    found = results(row(HOSTILE, 0.5, against={"policy": "min", "mean": 0.4, "low": 0.3, "high": 0.5}))
    found["verdict"] = found["benchmark"] = found["scenario"]["cluster"] = HOSTILE
    found["scenario"]["graphs"] = [HOSTILE]
    found["best_fixed"]["best-fixed"]["chosen"] = HOSTILE
    html = report.report_html(
        found, learning_curve=CURVE, config_yaml=HOSTILE, command=HOSTILE, versions={HOSTILE: HOSTILE}, exports={HOSTILE: HOSTILE}
    )
    page = Page(html)
    assert scripts_of(html)[0] == scripts_of(report.report_html(results()))[0]  # whatever the names
    assert "\x07" not in html
    assert page.texts.count(HOSTILE.replace("\x07", "?")) >= 5


def test_a_link_leads_to_a_file_beside_the_page_or_nowhere():
    paths = ["javascript:alert(1)", "//elsewhere.example/x", "/root/x", 'a"onclick="x']
    page = Page(report.report_html(results(), exports={str(number): path for number, path in enumerate(paths)}))
    links = [value for tag, name, value in page.attributes if (tag, name) == ("a", "href")]
    assert all(re.fullmatch(r"\./[^:\"]*", link) for link in links)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert set(paths) <= set(page.texts)


def scripts_of(html):
    """The scripts that run, the data of figures, and what the policy of the page allows."""
    run = re.findall(r"<script>(.*?)</script>", html, re.S)
    data = re.findall(r'<script type="application/json">(.*?)</script>', html, re.S)
    (allowed,) = re.findall(r"script-src (.*?)\">", html)
    assert len(run) == 2
    assert html.count("<script") == 2 + len(data)
    return run, data, allowed


def test_nothing_runs_but_the_scripts_whose_digests_the_page_names(full):
    run, data, allowed = scripts_of(full)
    digests = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in run]
    assert allowed == " ".join(f"'sha256-{digest}'" for digest in digests)
    found = [json.loads(text) for text in data]
    assert found[4] == found[-1] == json.loads(json.dumps(GANTT))
    assert not any("<" in text for text in data)


def test_policies_that_decided_alike_share_a_row():
    twice = results(row("max", 0.1)) | {"best_baselines": ["min", "max"]}
    texts = Page(report.report_html(twice)).texts
    assert "max, min" in texts
    assert "max" not in texts
    table = texts[texts.index("All policies") : texts.index("Figures")]
    assert table.count("best baseline") == 1  # they are one, so nothing ties


def test_the_page_loads_nothing(full):
    html, page = full, Page(full)
    assert not re.search(r"https?://", html)
    assert not {"iframe", "object", "embed", "base"} & set(page.tags)
    assert [value for tag, name, value in page.attributes if (tag, name) == ("link", "href")] == ["data:,"]
    assert {value for _, name, value in page.attributes if name in {"src", "srcset"}} == {"data:,"}
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert not re.search(r"url\((?!#)|@import", html)
    assert any("default-src 'none'" in (value or "") for _, name, value in page.attributes if name == "content")


def test_every_drawing_has_a_numbered_caption(full):
    page = Page(full)
    assert [text for text in page.texts if text.startswith("Figure ")] == [f"Figure {i}." for i in range(1, 11)]


def test_an_empty_learning_curve_is_left_out(bare):
    assert report.report_html(results(), learning_curve=[]) == bare


def test_figures_that_are_absent_are_shown_as_a_dash():
    found = row("nobody", 1.0, against={"policy": "min", "mean": 0.9, "low": 0.8, "high": 1.0})
    found |= dict.fromkeys(["mean_completion_s", "p95_completion_s", "mean_slack", "utilisation", "fragmentation", "mean_degree"])
    found["degrees"] = {"1": 0.0, "4": 0.0}
    table = Page(report.report_html(results(found))).texts
    first = table.index("nobody")
    assert table[first + 5 : first + 12] == ["0.0", "-", "-", "-", "-", "-", "-"]


def test_results_without_a_baseline_are_shown():
    found = results()
    found |= {"rows": [row("mine", 0.05, "learned")], "best_baseline": None, "best_fixed": {}}
    page = Page(report.report_html(found, learning_curve=CURVE))
    assert "best baseline" not in page.texts
    assert "mine" in page.texts


def test_references_are_the_best_baseline_and_the_best_fixed_degree():
    assert report.references(results()) == {"best baseline, min": 0.1, "best fixed degree, fixed-4": 0.2}
    same = results()
    same["best_baseline"] = "best-fixed"
    assert report.references(same) == {"best baseline, fixed-4": 0.2}


def test_references_that_tie_are_one_line_that_says_so():
    others = row("max", 0.1) | {"mean_degree": interval(8.0)}, row("best-fixed@best-fit", 0.2) | {"mean_degree": interval(3.0)}
    tied = results(*others) | {"best_baselines": ["min", "max"]}
    tied["best_fixed"]["best-fixed@best-fit"] = {**tied["best_fixed"]["best-fixed"], "chosen": "fixed-4@best-fit"}
    assert report.references(tied) == {"best baseline, 2 that tie": 0.1, "best fixed degree, 2 that tie": 0.2}
    table = Page(full_report(tied)).texts
    assert table.count("best baseline, tied") == 2


def test_times_do_not_change_the_page_and_the_results_stay_as_they_were(full):
    found = results() | {"timing": {"elapsed_s": 99.0}}
    before = json.dumps(found)
    assert full_report(found) == full
    assert json.dumps(found) == before
