"""Tables and figures of a study from results made by hand, and the page that they fill."""

import re
from pathlib import Path

import pytest

from benchmarks.study.__main__ import resolved
from benchmarks.study.behaviour import loads
from benchmarks.study.contents import Loads, RowSettings, Transfer
from benchmarks.study.findings import BenchmarkResults, joined, read
from benchmarks.study.measures import share, signed
from benchmarks.study.page import part, write_page
from benchmarks.study.places import Places
from benchmarks.study.plan import selected, tasks
from benchmarks.study.runner import carry_out
from benchmarks.study.study import Run, load_study
from benchmarks.study.tables import best_baseline, transfer
from meshwright import files
from meshwright.errors import InputFileError

from .small_study import results, write

MORE = """
  runs:
    kind: seeds
    columns: [A, B]
    evaluations: [nets-<column>]
    ours: net-<column>
  learned:
    kind: learning
    columns: [A]
    ours: net-<column>
  waits:
    kind: latency
    columns: [A]
    evaluations: [nets-<column>]
    ours: net-<column>
  by-state:
    kind: degrees
    columns: [A]
    evaluations: [nets-<column>]
    ours: net-<column>
"""
ALL = ("main", "worth", "times", "runs", "learned", "waits", "by-state")

NETS = {
    "A": {"net-A-seed-0": [0.10, 0.10], "net-A-seed-1": [0.14, 0.14]},
    "B": {"net-B-seed-0": [0.30, 0.30], "net-B-seed-1": [0.40, 0.40]},
}
RULES = {"A": {"max": [0.25, 0.25], "best-fixed": [0.15, 0.15]}, "B": {"max": [0.20, 0.20], "best-fixed": [0.60, 0.60]}}
PARTS = {"parts-full-seed-0": [0.10, 0.30], "parts-blind-seed-0": [0.25, 0.45]}


def given(folder):
    """What the evaluations of the stand-in find."""
    found = {}
    for name in ("A", "B"):
        found[f"rules-{name}"] = results("pair", RULES[name], chosen={"best-fixed": f"fixed-{len(found) + 1}"})
        found[f"nets-{name}"] = results("pair", NETS[name], learned=NETS[name])
    found["parts-played"] = results("pair", PARTS, learned=PARTS)
    found["nets-A"]["rows"][0]["states"] = {
        "free devices": [{"state": "1", "decisions": 1200, "shares": {"1": 0.996, "2": 0.004}}],
        "deadline": [{"state": "looser", "decisions": 4, "shares": {"2": 0.25, "rejected by choice": 0.75}}],
        "graph": [],
    }
    for name, content in found.items():
        files.write_json(folder / f"{name}.json", content)


@pytest.fixture
def folder(tmp_path, monkeypatch, no_processes):
    program = write(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text((tmp_path / "study.yaml").read_text() + MORE)
    given(tmp_path)
    (tmp_path / "program").write_text("\n".join(program))
    places = "\n".join(f"Prose on {name}.\n\n<!-- results: {name} -->\nold\n<!-- end of results: {name} -->\n" for name in ALL)
    (tmp_path / "page.md").write_text(f"# Page\n\n{places}\nThe end.\n")
    return tmp_path


def findings(folder, only=(), quick=False, plays=True):
    """What there is after some of the study was done."""
    study, places = load_study(folder / "study.yaml", quick=quick), Places(folder / "out")
    every = tasks(study, places, resolved)
    if plays:
        program = (folder / "program").read_text().splitlines()
        words = carry_out(selected(every, study, only), places, program=program, num_processes=2)
        assert set(words.values()) <= {"done", "done already"}
    return read(study, every, places)


def lines_of(found, name):
    """The Markdown of one place, its commands left out."""
    lines, _ = part(found, name, found.study.tables[name], set())
    return lines[: lines.index("<details><summary>Commands</summary>")]


def test_tables_of_results_made_by_hand_are_as_worked_by_hand(folder):
    found = findings(folder)
    # A: ours is .10 and .14, .12 in the mean, against .15: -.03. B: .30 and .40, .35, against .20: +.15. All episodes
    # alike, so that every interval is its mean.
    assert lines_of(found, "main") == [
        "",
        "| policy | A | B |",
        "| --- | --- | --- |",
        "| theirs | .300 | - |",
        "| most ranks | .250 [.250, .250] | .200 [.200, .200] |",
        "| tuned | .150 [.150, .150] (1) | .600 [.600, .600] (3) |",
        "| ours, training seed 0 | .100 [.100, .100] | .300 [.300, .300] |",
        "| ours, training seed 1 | .140 [.140, .140] | .400 [.400, .400] |",
        "| **ours, mean over training seeds** | **.120 [.120, .120]** | **.350 [.350, .350]** |",
        "| ours against the best baseline | -.030 [-.030, -.030] better | +.150 [+.150, +.150] worse |",
        "| the best baseline | tuned (1) | most ranks |",
        "",
        "Quoted: Somebody, 2020",
        "",
    ]
    # Blind blocks .15 more in each episode.
    worth = lines_of(found, "worth")
    assert worth[3].startswith("| the whole | .200 [")
    assert worth[3].endswith("| - |")
    assert worth[4].startswith("| blind | .350 [")
    assert worth[4].endswith("| +.150 [+.150, +.150] worse |")
    # The two runs of A differ by .04: a standard deviation of .04 / sqrt 2 = .028.
    assert lines_of(found, "runs")[-5:-1] == [
        "| seed 1 | .250 | .140 [.140, .140] | .250 | .400 [.400, .400] |",
        "| mean | .250 | .120 | .250 | .350 |",
        "| standard deviation | .000 | .028 | .000 | .071 |",
        "| greatest less least | .000 | .040 | .000 | .100 |",
    ]
    assert lines_of(found, "times")[3] == "| net-A-seed-0 | 64 | 1.5 | .250 |"
    assert lines_of(found, "waits")[3:5] == [
        "| A | 2 | net-A-seed-0 | 0.50 | 2.10 |",
        "| A | 2 | net-A-seed-1 | 0.50 | 2.10 |",
    ]
    by_state = lines_of(found, "by-state")
    assert by_state[1] == "**A**, run net-A-seed-0: the most frequent degree, 2, is that of 75 % of the jobs that it places."
    assert by_state[3:6] == [
        "| free devices | decisions | 1, % | 2, % | rejected by choice, % |",
        "| --- | --- | --- | --- | --- |",
        "| 1 | 1,200 | 100 | <1 |  |",
    ]


def test_a_rollout_planner_over_a_scorer_has_a_row_and_is_no_baseline(folder):
    text = (folder / "study.yaml").read_text()
    scorer = "{name: scorer, config: scorer.yaml}"
    played = "{name: plans-<each>, each: [A, B], benchmark: benchmark.yaml, changes: ['policies=[]'], planned: [scorer]}"
    text = text.replace("  - name: parts\n", f"  - {scorer}\n  - name: parts\n")
    text = text.replace("  - name: parts-played\n", f"  - {played}\n  - name: parts-played\n")
    text = text.replace("[rules-<column>, nets-<column>]", "[rules-<column>, nets-<column>, plans-<column>]")
    text = text.replace("    source: Somebody", "    references: [{label: planner, planned: scorer}]\n    source: Somebody")
    (folder / "study.yaml").write_text(text)
    (folder / "scorer.yaml").write_text("method: linear\nname: scorer\nbenchmark: benchmark.yaml\n")
    for name in ("A", "B"):
        found = results("pair", {"rollout(scorer-seed-0)": [0.05, 0.05]})
        found["rows"][0]["kind"] = "planner"
        files.write_json(folder / f"plans-{name}.json", found)
    shown = lines_of(findings(folder), "main")
    assert "| planner | .050 [.050, .050] | .050 [.050, .050] |" in shown
    assert "| the best baseline | tuned (1) | most ranks |" in shown
    # What the planner does is not waited for: ours is held against the others without it.
    (folder / "out" / "evaluations" / "plans-A" / "results.json").unlink()
    assert "| the best baseline | tuned (1) | most ranks |" in lines_of(findings(folder, plays=False), "main")


def test_what_is_absent_is_told_and_the_rest_is_shown(folder):
    empty = findings(folder, plays=False)
    assert lines_of(empty, "times")[1].startswith("Not produced yet: `net-A-seed-0`, `net-A-seed-1`, `net-B-seed-0`")
    assert not any(line.startswith("|") for line in lines_of(empty, "main"))
    some = lines_of(findings(folder, ["nets-A"]), "main")
    assert "| ours, training seed 1 | .140 [.140, .140] | - |" in some
    assert "| ours against the best baseline | - | - |" in some
    assert "Not produced yet: `net-B-seed-0`, `net-B-seed-1`, `rules-A`, `rules-B`, `nets-B`." in some


def test_baselines_that_tie_are_all_named_whatever_they_are_called():
    rows = results("pair", {"max": [0.2, 0.2], "min": [0.1, 0.3], "best-fixed": [0.2, 0.2], "random": [0.3, 0.3]})["rows"]
    played = BenchmarkResults({}, {row["policy"]: row for row in rows}, {"best-fixed": "fixed-4"}, {})
    best = best_baseline(played, {}, {"max": "zest"})
    assert (best.label, best.values) == ("zest, min, best-fixed (4) (tied)", (0.2, 0.2))


def test_nothing_is_called_the_best_baseline_while_an_evaluation_of_the_column_is_absent(folder):
    text = (folder / "study.yaml").read_text()
    (folder / "study.yaml").write_text(
        text.replace("[rules-<column>, nets-<column>]", "[rules-<column>, nets-<column>, parts-played]")
    )
    told = lines_of(findings(folder, ["nets-A", "rules-A"]), "main")
    assert "| tuned | .150 [.150, .150] (1) | - |" in told
    assert "| ours against the best baseline | - | - |" in told
    told = lines_of(findings(folder, ["parts-played"]), "main")
    assert "| ours against the best baseline | -.030 [-.030, -.030] better | - |" in told


def test_what_was_made_with_other_settings_is_told(folder):
    findings(folder, ["nets-A", "rules-A"])
    text = (folder / "study.yaml").read_text()
    (folder / "study.yaml").write_text(text.replace("total_steps=64", "total_steps=48"))
    told = lines_of(findings(folder, plays=False), "main")
    assert "Made with other settings than those of today: `net-A-seed-0`, `net-A-seed-1`." in told
    assert "| ours, training seed 1 | .140 [.140, .140] | - |" in told


def test_everything_of_a_quick_study_is_marked_as_quick(folder):
    found = findings(folder, quick=True, plays=False)
    for name in ALL:
        assert lines_of(found, name)[1].startswith("**Quick run: training cut to a few steps, 2 test episodes."), name
        assert not any("Quick run" in line for line in lines_of(findings(folder, plays=False), name))


def test_results_that_cannot_be_compared_are_refused(folder):
    other = files.read_json(folder / "nets-A.json")
    files.write_json(folder / "nets-A.json", other | {"seeds": [7, 8]})
    with pytest.raises(InputFileError, match="two evaluations of one column differ in their seeds"):
        lines_of(findings(folder), "main")


def test_the_page_keeps_its_prose_and_is_the_same_when_filled_again(folder):
    found = findings(folder)
    page = folder / "out" / "page.md"
    written = write_page(found, folder / "page.md", page)
    text = page.read_text()
    assert [path.name for path in written] == ["page.md", "results-learned-A.svg"]
    assert written[1].read_text().startswith("<svg")
    assert "](_static/results-learned-A.svg){.drawing}" in text
    assert [line for line in text.splitlines() if line.startswith(("Prose on", "The end"))] == [
        *(f"Prose on {name}." for name in ALL),
        "The end.",
    ]
    assert "old" not in text.splitlines()
    assert str(folder) not in text.replace(f"train {folder}", "").replace(f"--benchmark {folder}", "")
    write_page(found, page, page)
    assert page.read_text() == text


def test_commands_stand_once_on_the_page(folder):
    found = findings(folder, plays=False)
    write_page(found, folder / "page.md", folder / "page.md")
    lines = (folder / "page.md").read_text().splitlines()
    for task in found.tasks.values():
        named = [
            line for line in lines if line.startswith("$ meshwright") and line.endswith(f"/{task.name}") and " train " in line
        ]
        assert len(named) == (1 if "seed" in task.name else 0), task.name
    assert '$ make results ARGS="--only runs --graphs PROFILES --trace TRACE"' in lines


def test_a_page_and_a_study_that_do_not_match_are_refused_by_name(folder):
    found = findings(folder, plays=False)
    text = (folder / "page.md").read_text()
    for old, new, told in (
        ("results: worth -->", "results: wort -->", "has no place on the page .*'worth'.*did you mean 'wort'"),
        (
            "The end.",
            "<!-- results: wrth -->\n<!-- end of results: wrth -->",
            "no table of the study fills .*'wrth'.*did you mean 'worth'",
        ),
        ("The end.", "<!-- results: main -->\n<!-- end of results: main -->", "stands twice"),
    ):
        (folder / "page.md").write_text(text.replace(old, new))
        with pytest.raises(InputFileError, match=told):
            write_page(found, folder / "page.md", folder / "page.md")


def test_shares_are_written_without_a_zero_before_the_point():
    assert [share(value) for value in (0.1334, 0.0, 1.0, 0.9996)] == [".133", ".000", "1.000", "1.000"]
    assert [share(value, "+") for value in (-0.0144, 0.2)] == ["-.014", "+.200"]
    assert signed({"mean": -0.01, "low": -0.02, "high": 0.01}) == "-.010 [-.020, +.010] unclear"
    assert signed({"mean": -0.01, "low": None, "high": None}) == "-.010 unclear"


class Family:
    """Two settings: ours .10 against .20, then .30 against .25 and .27, with jobs every 20 and every 40 seconds."""

    def runs(self, name, column=""):
        return [Run(f"{name}-seed-0", name, name, "", ())]

    def asked(self, run, how):
        return run.name

    def played(self, chosen):
        ours = ["x-seed-0", "y-seed-0"]
        rates = {"x-seed-0": [0.1, 0.1], "y-seed-0": [0.15, 0.15], "best-fixed": [0.2, 0.2], "min": [0.05, 0.17]}
        first = results("f/a", rates, ours, {"best-fixed": "fixed-4"})
        rates = {"x-seed-0": [0.3, 0.3], "best-fixed": [0.25, 0.25], "best-fixed@best-fit": [0.27, 0.27], "max": [0.5, 0.5]}
        second = results("f/b", rates, ours, {"best-fixed": "fixed-2", "best-fixed@best-fit": "fixed-8@best-fit"})
        second["scenario"]["mean_interarrival_s"] = 40.0
        return {"a": joined([first]), "b": joined([second])}


def test_transfer_counts_wins_by_mean_and_by_interval():
    lines = transfer(Family(), Transfer(kind="transfer", evaluations=("e",), ours="x"))
    assert lines[2:] == [
        "| a | pair | squeezenet | 20 | .200 [.200, .200] (4) | .100 [.100, .100] | -.100 [-.100, -.100] better | 0.50 "
        "| .110 [.050, .170] min | -.010 [-.070, +.050] unclear |",
        "| b | pair | squeezenet | 40 | .250 [.250, .250] (2) | .300 [.300, .300] | +.050 [+.050, +.050] worse | 1.20 "
        "| .250 [.250, .250] best-fixed (2) | +.050 [+.050, +.050] worse |",
        "",
        "Ours has the lower mean on 1 of 2 settings. The interval of the difference lies below zero on 1, above on 1, and holds "
        "zero on 0; the greatest ratio is 1.20. Against the best of all baselines it lies below zero on 0, above on 1, and holds "
        "zero on 1.",
    ]


def test_loads_stand_in_order_and_are_drawn_where_a_policy_met_several():
    rows = (RowSettings(label="most ranks", policy="max"), RowSettings(label="another | network", trained="y"))
    lines, drawings = loads(Family(), Loads(kind="loads", evaluations=("e",), ours="x", rows=rows))
    assert lines == [
        "| policy | every 20 s | every 40 s |",
        "| --- | --- | --- |",
        "| **ours** | .100 [.100, .100] | .300 [.300, .300] |",
        "| best fixed degree | .200 [.200, .200] | .250 [.250, .250] |",
        "| ours against the best fixed degree | -.100 [-.100, -.100] better | +.050 [+.050, +.050] worse |",
        "| most ranks | - | .500 [.500, .500] |",
        "| another \\| network | .150 [.150, .150] | - |",
    ]
    (svg, _) = drawings[""]
    assert "best fixed degree: 20.0" in svg  # the label stands at the highest load, 180 jobs an hour
    assert "most ranks" not in svg


def test_the_page_of_the_documentation_has_a_place_for_every_table_of_the_study_and_no_other():
    root = Path(__file__).resolve().parents[3]
    places = re.findall(r"<!-- results: (\S+) -->", (root / "docs" / "results.md").read_text())
    assert places == list(load_study(root / "configs" / "results.yaml").tables)
    assert places == re.findall(r"<!-- end of results: (\S+) -->", (root / "docs" / "results.md").read_text())
