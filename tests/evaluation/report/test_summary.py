"""Several evaluations, of any worlds, and training runs on one page."""

import json

import pytest

from meshwright import files
from meshwright.cli import run_command_line
from meshwright.errors import InputFileError
from meshwright.evaluation.report import summary

from .samples import results, row, three

pytestmark = pytest.mark.usefixtures("undrawn")

LOADED = {"cluster": "host-8", "jobs": ["alexnet"], "digest_but_arrivals": "1"}
CURVES = {
    "cluster": ("preset:quickstart", [{"steps": s, "validation_blocking_rate": 0.1 - s / 100} for s in range(3)]),
    "fleet": ("preset:llm-256", [{"steps": 1000 * s, "validation": 120.0 - 30 * s, "elapsed_s": 1.0} for s in range(3)]),
    "elastic": ("mine", [{"generation": s, "validation_mean_completion_s": 120.0 - 30 * s} for s in range(3)]),
    "operators": ("mine", [{"update": s, "validation": 1.3 - 0.1 * s} for s in range(3)]),
}


def named(name, shift=0.0, cases=(0, 1), gap_s=700.0, **about):
    """Results of a learned policy and a baseline on a benchmark of `JobPartitioning-v0`."""
    rates = [0.25 + shift, 0.5 + shift]
    rows = row("cluster", name, rates, "learned"), row("cluster", "min", [0.5, 0.75])
    about = LOADED | {"mean_interarrival_s": gap_s} | about
    return results("cluster", *rows, benchmark="small", cases=list(cases), about=about)


@pytest.fixture
def put(tmp_path):
    def write(**of):
        for name, data in of.items():
            files.write_json(tmp_path / name / "results.json", data)
        return summary.read(tmp_path)

    return write


@pytest.fixture
def runs(tmp_path):
    for method, (benchmark, rows) in CURVES.items():
        for seed in range(2):
            run = tmp_path / f"{method}-{seed}"
            run.mkdir()
            files.write_json(run / "learning_curve.json", rows)
            (run / "config.yaml").write_text(f"method: {method}\nname: {run.name}\nseed: {seed}\nbenchmark: {benchmark}\n")
    return tmp_path


def test_each_world_has_a_table_figures_and_its_verdict_and_no_world_is_compared_with_another(runs, put, capsys):
    worlds = ("cluster", "fleet", "elastic", "operators", "tasklets")
    result = put(**{world: three(world, made=[f"mine was made for {world}."]) for world in worlds})
    assert (
        run_command_line(["evaluate", "--summarise", str(runs), "--out", str(runs / "out"), "--json", str(runs / "all.json")])
        == 0
    )
    printed, data = capsys.readouterr().out, json.loads((runs / "all.json").read_text())
    page, text = ((runs / "out" / name).read_text() for name in summary.FILES)
    assert summary.across(result) == {}
    assert data["made"] == summary.made(result) == [f"mine was made for {world}." for world in sorted(worlds)]
    for world in worlds:
        assert data["evaluations"][f"mine-{world}"]["rows"][0][0] == "mine"
        for words in (f"mine-{world}", f"mine was made for {world}."):
            assert all(words in " ".join(where.split()) for where in (printed, page, text)), words
    assert page.count("<figure>") >= 5 + len(CURVES)
    assert "No winner: mine against the best baseline, rule: " in page
    assert "3 episodes are too few; compare 10 or more." in page
    assert "From 5 evaluations and 8 training runs" in page
    assert "http:" not in page


def test_policies_that_met_the_same_cases_are_compared_wherever_they_were_evaluated(put):
    result = put(full=named("full"), blind=named("blind", 0.25))
    ((heading, (head, rows)),) = summary.across(result).items()
    assert heading == "Blocked jobs, % (cluster)"
    assert head == ["policy", "small"]
    assert sorted(cells[0] for cells in rows) == ["blind", "full", "min"]
    ((_, ablated),) = summary.ablations(result, "full").values()
    assert [cells[0] for cells in ablated] == ["full", "blind"]
    assert [cells[2] for cells in ablated] == ["-", "+25.0 [+25.0, +25.0] unclear"]  # of two cases
    # on other episodes, or on another benchmark of this name, it is not compared and has a column of its own
    for other in (named("elsewhere", cases=(7, 8)), named("elsewhere", digest="another")):
        result = put(other=other)
        ((head, rows),) = summary.across(result).values()
        assert head == ["policy", "small (blind)", "small (other)"]
        cells = {each[0]: each[1:] for each in rows}
        assert cells["elsewhere"][0] == cells["full"][1] == "-"
        assert "-" not in cells["min"]
        ((_, ablated),) = summary.ablations(result, "full").values()
        assert [each[0] for each in ablated] == ["full", "blind"]


def test_loads_of_one_cluster_make_a_curve_and_another_scenario_is_no_point_of_it(put):
    assert summary.loads(put(full=named("full"), blind=named("blind"))) == {}
    other = {"digest_but_arrivals": "2"}
    assert summary.loads(put(other=named("full", gap_s=1400.0, **other))) == {}
    result = put(third=named("full", gap_s=2800.0, **other), slow=named("full", gap_s=1400.0))
    curves = summary.loads(result)
    assert sorted([gap_s for gap_s, _ in of["full"]] for of in curves.values()) == [[700.0, 1400.0], [1400.0, 2800.0]]
    assert all(title.startswith("host-8, alexnet (small)") for title in curves)
    assert not any("blind" in of for of in curves.values())
    assert "Blocking rate against load" in summary.to_html(result)


def test_training_runs_that_differ_in_their_seed_share_a_table_by_what_they_validate_by(runs):
    result = summary.read(runs)
    best = {rows[0][0]: rows[0][1] for _, rows in summary.seeds_cells(result).values()}
    # blocked jobs in percent, minutes of mean completion time, a ratio
    assert best == {"cluster-0": "8.0", "fleet-0": "1.0", "elastic-0": "1.0", "operators-0": "1.100"}
    assert {measure.step_name for measure in result.measures.values()} == {"decisions (thousands)", "generations", "updates"}
    assert "mean of 2 runs" in summary.to_html(result)
    assert "| fleet-1 | 1.0 |" in summary.to_markdown(result)
    (runs / "fleet-1" / "config.yaml").write_text("method: fleet\nname: x\nseed: 1\nbenchmark: other\n")
    assert len(summary.read(runs).learning) == len(CURVES) - 1


def test_an_empty_folder_and_a_spoiled_file_are_refused(tmp_path, put):
    with pytest.raises(InputFileError, match="nothing below it"):
        summary.read(tmp_path)
    with pytest.raises(InputFileError, match="no result of evaluate of format 2; evaluate again"):
        put(spoiled=three("fleet", format_version=0))


def test_networks_are_tested_on_other_benchmarks_than_they_were_trained_on_and_without_their_parts(put, tmp_path, capsys):
    network = {"messages": True, "rounds": 4}
    trained = {"benchmark": "latency-tight", "changes": ["placement.instances.kind=mixed"], "network": network}
    less = {"benchmark": "latency-tight", "network": {**network, "messages": False}}
    more = {"trained": {"net": trained, "net@sample-64": trained, "less": less}}
    for number, name in enumerate(("small", "large")):
        rows = [
            row("operators", policy, [over, over], kind)
            for policy, kind, over in (
                ("heft", "planner", 1.02 + number),
                ("net", "learned", 1.1 + number),
                ("net@sample-64", "learned", 1.05),
                ("less", "learned", 1.2),
            )
        ]
        put(**{name: results("operators", *rows[: 3 + (number == 0)], benchmark="placed", about={"number": number}, more=more)})
    made = tmp_path / "made"
    assert (
        run_command_line(
            ["evaluate", "--summarise", str(tmp_path), "--against", "net", "--out", str(made), "--json", f"{made}.json"]
        )
        == 0
    )
    reported = json.loads((tmp_path / "made.json").read_text())["tables"]
    assert reported[summary.TRANSFER]["head"] == ["policy", "trained on", "placed (large)", "placed (small)"]
    assert reported[summary.TRANSFER]["rows"] == [
        ["net", "latency-tight; instances.kind=mixed", "2.100 [2.100, 2.100]", "1.100 [1.100, 1.100]"],
        ["less", "latency-tight", "-", "1.200 [1.200, 1.200]"],
        ["best planner", "", "2.020 [2.020, 2.020] heft", "1.020 [1.020, 1.020] heft"],
    ]
    ablated = reported["Ablations on placed (small)"]["rows"]
    assert [each[:2] for each in ablated] == [["net", "nothing"], ["net@sample-64", "nothing"], ["less", "messages"]]
    assert ablated[2][3] == "+0.100 [+0.100, +0.100] unclear"
    for written in summary.FILES:
        assert summary.TRANSFER in (made / written).read_text()
    assert "trained on" in capsys.readouterr().out
