"""The report: valid, self-contained HTML in which every policy and figure is found and nothing hostile acts."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from meshwright.evaluation.evaluate import evaluate
from meshwright.evaluation.report import report
from meshwright.evaluation.report.cluster_sections import cluster_sections
from meshwright.evaluation.report.report import report_html
from meshwright.evaluation.worlds.evaluated_cluster import EvaluatedCluster
from meshwright.evaluation.worlds.evaluated_world import Options
from meshwright.evaluation.worlds.registry import WORLDS

from .samples import OBJECTIVES, results, row, three

pytestmark = pytest.mark.usefixtures("undrawn")

VOID = {"meta", "br", "hr", "img", "link", "input"}
HOSTILE = "<script>alert(1)</script> & \"'</table> \x07"
CURVE = [{"steps": 0, "validation_blocking_rate": 0.3, "training_blocking_rate": None, "elapsed_s": 0.1}]


class Page(HTMLParser):
    """Tags, attributes and text of a page; fails where tags are not balanced."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.attributes, self.texts = [], [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.handle_startendtag(tag, attributes)
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

    def table(self):
        """The texts of the table of policies."""
        return self.texts[self.texts.index("All policies") + 1 : self.texts.index("Figures")]


def scripts_of(html):
    """The scripts that run, the data of figures, and what the policy of the page allows."""
    run = re.findall(r"<script>(.*?)</script>", html, re.S)
    data = re.findall(r'<script type="application/json">(.*?)</script>', html, re.S)
    (allowed,) = re.findall(r"script-src (.*?)\">", html)
    assert len(run) == 2
    assert html.count("<script") == 2 + len(data)
    return run, data, allowed


@pytest.fixture(scope="module")
def found(small, scenario):
    return evaluate(EvaluatedCluster(small, Options(references=("linear-programme",)), scenario), num_seeds=3)


@pytest.fixture(scope="module")
def sections(found):
    return cluster_sections(found)


@pytest.fixture(scope="module")
def full(found, sections):
    """A page with everything on it."""
    return report_html(
        found.results,
        sections,
        learning_curve=CURVE,
        config_yaml="name: toy\nseed: 0\n",
        command="meshwright demo --out runs/demo",
        versions={"numpy": "2.4.6"},
    )


def test_a_page_is_balanced_and_loads_nothing_and_its_figures_have_numbered_captions(full):
    page = Page(full)
    count = page.tags.count("figure")
    assert count == 9
    assert [text for text in page.texts if text.startswith("Figure ")] == [f"Figure {i}." for i in range(1, count + 1)]
    assert not re.search(r"https?://", full)
    assert not {"iframe", "object", "embed", "base"} & set(page.tags)
    assert [value for tag, name, value in page.attributes if (tag, name) == ("link", "href")] == ["data:,"]
    assert [value for _, name, value in page.attributes if name in {"src", "srcset"}] == ["data:,"] * count  # without scripts
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert not re.search(r"url\((?!#)|@import", full)
    assert any("default-src 'none'" in (value or "") for _, name, value in page.attributes if name == "content")


def test_nothing_runs_but_the_scripts_whose_digests_the_page_names(full, sections):
    run, data, allowed = scripts_of(full)
    digests = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in run]
    assert allowed == " ".join(f"'sha256-{digest}'" for digest in digests)
    drawn = [json.loads(text) for text in data]
    assert drawn[-len(sections.drawn) :] == json.loads(json.dumps([one.figure for one in sections.drawn]))
    assert not any("<" in text for text in data)


def test_verdict_seeds_warmup_validation_references_config_command_and_versions_are_there(found, full):
    page = Page(full)
    said = " ".join(page.texts)
    tuned = found.results["tuned"]["best-fixed"]
    for words in (
        found.results["verdict"],
        "same 3 test episodes (seeds 0 to 2)",
        "30 arrivals each",
        "first 5 arrivals",
        f"best-fixed is {tuned['chosen']}: the best of {len(tuned['values'])} on validation episodes ({tuned['cases'][0]}, ",
        "a bound that no policy can pass",
    ):
        assert words in said
    for text in ("name: toy\nseed: 0", "meshwright demo --out runs/demo", "numpy", "2.4.6", "reference"):
        assert text in page.texts
    assert found.results["about"]["digest"] in page.texts


def test_every_policy_has_its_figures_in_the_table():
    known = {"mean_completion_s": [5400.0] * 5, "utilisation": [0.5] * 5, "mean_degree": [4.0] * 5, "mean_slack": [None] * 5}
    result = results(
        "cluster",
        row("cluster", "mine", [0.04, 0.05, 0.06, 0.04, 0.06], "learned", **known, fragmentation=[0.125] * 5),
        row("cluster", "min", [0.1, 0.11, 0.12, 0.1, 0.12], **known),
        row("cluster", "wide", [0.1, 0.12, 0.32, 0.1, 0.12], **known),
    )
    result["timing"]["decision_s"] = {"mine": {"median": 0.0004, "p99": 0.0021}}
    table = Page(report_html(result)).table()
    mine = table[table.index("mine") : table.index("min")]
    # 5400 s are 90 min; nobody has slack, so it has no column
    assert mine == ["mine", "5.0", "[4.0, 6.0]", "-6.0", "[-6.0, -6.0] better", "90.0", "50", "4.00", "12.5", "0.40"]
    assert table[table.index("min") + 3] == "best baseline"
    assert table[-3:-1] == ["-", "-"]
    assert any(text.endswith(" unclear") for text in table)


@pytest.mark.parametrize("world", [name for name in WORLDS if name != "world"])
def test_a_page_of_any_world_has_every_policy_and_no_text_becomes_markup(world):
    plain, result = three(world), three(world)
    for one in result["rows"]:
        one["policy"] = one["policy"].replace("poor", HOSTILE)
    result |= dict.fromkeys(("verdict", "benchmark", "title"), HOSTILE) | {"remarks": [HOSTILE], "about": {"digest": HOSTILE}}
    result["tuned"] = {
        HOSTILE: {"chosen": HOSTILE, "played": HOSTILE, "tied": [HOSTILE], "cases": [100], "values": {HOSTILE: 1.0}}
    }
    result["classes"] = [{"dimension": HOSTILE, "class": HOSTILE, "cases": [0]}]
    named = {HOSTILE: HOSTILE}
    html = report_html(result, config_yaml=HOSTILE, command=HOSTILE, versions=named)
    page = Page(html)
    assert scripts_of(html)[0] == scripts_of(report_html(plain))[0]  # our own, whatever the names
    assert "\x07" not in html
    assert page.texts.count(HOSTILE.replace("\x07", "?")) >= 7
    table = " ".join(page.table())
    assert all(name in table for name in ("mine", "rule", "alert(1)"))
    assert WORLDS[world].question in " ".join(Page(report_html(plain)).texts)


def test_one_episode_alone_decides_nothing():
    result = results("cluster", row("cluster", "mine", [0.1], "learned"), row("cluster", "rule", [0.5]))
    page = Page(report_html(result))
    assert not [text for text in page.texts if text.endswith((" better", " worse"))]
    assert any("One episode alone has no interval." in text for text in page.texts)
    assert result["verdict"].startswith("No winner")


@pytest.mark.parametrize("kind", ["reference", "published"])
def test_what_is_no_policy_is_named_so_and_explained(kind):
    result = results("elastic", row("elastic", "mine", [60.0, 90.0], "learned"), row("elastic", "known", [9.0, 9.0], kind))
    page = Page(report_html(result))
    assert kind in page.table()
    word = {"reference": "References know all arrivals", "published": "A name after published:"}[kind]
    assert any(word in text for text in page.texts)
    assert not any(word in text for text in Page(report_html(three("elastic"))).texts)


def test_policies_that_played_alike_share_a_row_and_others_that_tie_say_so():
    twins = [row("cluster", name, [0.1, 0.2]) for name in ("max", "min")]
    table = Page(report_html(results("cluster", *twins, row("cluster", "poor", [0.5, 0.5])))).table()
    assert "max, min" in table
    assert table.count("best baseline") == 1
    other = row("cluster", "other", [0.2, 0.1])
    table = Page(report_html(results("cluster", *twins, other, row("cluster", "poor", [0.5, 0.5])))).table()
    assert table.count("best baseline, tied") == 2


@pytest.mark.parametrize("world", OBJECTIVES)
def test_figures_that_are_absent_are_a_dash_and_a_page_without_a_baseline_is_made(world):
    others = row(world, "mine", [0.1, 0.2], "learned"), row(world, "nobody", [None, None], "learned")
    page = Page(report_html(results(world, *others)))
    table = page.table()
    assert table[table.index("nobody") + 1] == "-"
    assert "best baseline" not in page.texts


def test_a_learning_curve_is_compared_with_the_best_and_the_best_tuned_baseline():
    tuned = {"chosen": "fixed-4", "played": "fixed-4", "tied": [], "cases": [100], "values": {"fixed-4": 0.2}}
    rows = [row("cluster", name, [x, x]) for name, x in (("min", 0.1), ("max", 0.1), ("best-fixed", 0.2), ("poor", 0.5))]
    result = results("cluster", *rows[:1], *rows[2:], tuned={"best-fixed": tuned})
    assert report.references(result) == {"best baseline, min": 0.1, "best tuned baseline, fixed-4": 0.2}
    assert report.references(result | {"best_baselines": ["best-fixed"]}) == {"best baseline, fixed-4": 0.2}
    assert report.references(results("cluster", *rows))["best baseline, 2 that tie"] == 0.1


def test_the_seconds_of_an_evaluation_and_an_empty_curve_change_nothing():
    result = three("cluster")
    before = json.dumps(result)
    page = report_html(result)
    assert report_html(result | {"timing": {"elapsed_s": 99.0, "decision_s": {}}}, learning_curve=[]) == page
    assert json.dumps(result) == before
