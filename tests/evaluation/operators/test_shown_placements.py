"""Parts of the evaluation of operator placement besides its table: time budget, classes, single instances, files, ablations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meshwright import files
from meshwright.cli import run_command_line
from meshwright.errors import ConfigError, InputFileError
from meshwright.evaluation.evaluate import Evaluation, evaluate
from meshwright.evaluation.operators.differences import difference_cells, differences
from meshwright.evaluation.operators.dumped import dump
from meshwright.evaluation.report.operator_sections import operator_sections
from meshwright.evaluation.report.report import report_html
from meshwright.evaluation.sections import ablation_cells, budget_cells, paired_cells, tables_of
from meshwright.evaluation.validation.placements.placed_instance import values_of
from meshwright.evaluation.worlds.evaluated_operators import EvaluatedOperators, classes, facts
from meshwright.evaluation.worlds.evaluated_world import Options
from meshwright.simulation.operators.instance import OperatorInstance
from meshwright.simulation.operators.placement import placed
from meshwright.worlds.operators.benchmark import PlacementBenchmark, load_placement_benchmark
from meshwright.worlds.operators.world import OperatorWorld

pytestmark = pytest.mark.usefixtures("undrawn")

SMALL = [
    "placement.instances.num_ops=[8, 12]",
    "placement.devices.num_devices=[2, 3]",
    "best_known_s=0.01",
    "policies=[heft, round-robin]",
]


def small(*changes: str) -> PlacementBenchmark:
    return load_placement_benchmark("preset:latency-tight", changes=[*SMALL, *changes])


def chain() -> OperatorInstance:
    """Two successive ops of 1 s, 1 GB between them at 1 GB/s, and an independent op of 1 s; a device holds two ops."""
    return OperatorInstance.of_outputs(
        "three", np.ones((3, 2)), [(0, 1)], [1e9, 0.0, 0.0], bandwidth_bytes_per_s=1e9, memory_bytes=2.0, resident_bytes=1.0
    )


def played(*specs: str, changes: Sequence[str] = (), num_seeds: int = 2, options: Options = Options()) -> Evaluation:  # noqa: B008
    return evaluate(EvaluatedOperators(OperatorWorld("latency", small(*changes)), options), specs, num_seeds=num_seeds)


def test_searches_get_each_budget_and_everything_else_none() -> None:
    results = played("annealing@0.1", changes=["budgets_s=[0.001, 0.02]"]).results
    reported = results["more"]["budgets"]
    assert reported["seconds"] == [0.001, 0.02]
    (row,) = reported["rows"]
    assert row["policy"] == "annealing"
    assert len(row["over_best_known"]) == len(row["median_seconds"]) == 2
    assert all(each["mean"] >= 1.0 for each in row["over_best_known"])
    assert 0.01 < row["median_seconds"][1] < 0.2
    head, cells = budget_cells(results) or ([], [])
    assert head == ["policy", "1 ms", "20 ms"]
    assert cells[0][0] == "annealing"
    assert budget_cells(played("annealing@0.01").results) is None


@pytest.mark.parametrize("wrong", ["[0.1, 0.01]", "[0.1, 0.1]", "[0]", "[-1]", "[5000]", "[soon]"])
def test_budgets_that_do_not_rise_or_are_none_are_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="budgets_s") as error:
        small(f"budgets_s={wrong}")
    assert "\n" not in str(error.value)


def test_classes_are_of_what_instances_are_and_each_instance_is_in_one_of_each() -> None:
    placement = small("placement.devices.memory_slack=null").placement
    instances = [placement.instance("test", seed) for seed in range(12)]
    messages = [facts(each) for each in instances]
    assert {each["ops"] for each in messages} == {8, 12}
    assert all(each["memory slack"] is None for each in messages)
    first, mean_bytes = instances[0], instances[0].edge_bytes.mean()
    apart = ~np.eye(first.num_devices, dtype=bool)
    mean_s = (first.latency_s + mean_bytes / first.bandwidth_bytes_per_s)[apart].mean()
    assert messages[0]["communication to computation"] == pytest.approx(mean_s / first.times_s.mean())
    result = classes(messages)
    assert list(result) == ["ops", "devices", "communication to computation"]
    for of in result.values():
        assert sorted(at for rows in of.values() for at in rows) == list(range(12))
    assert [len(rows) for rows in result["communication to computation"].values()] == [4, 4, 4]
    tight = small().placement.instance("test", 0)
    assert facts(tight)["memory slack"] == pytest.approx(1.3)
    assert list(classes([facts(tight), {**facts(tight), "memory slack": None}])["memory slack"]) == ["1.3", "unlimited"]


def test_what_a_decision_costs_by_hand() -> None:
    """All as HEFT has it but the second op, which waits a second for its input: 3 s instead of 2."""
    instance = chain()
    rule = placed(instance, np.array([0, 0, 1]), "latency", "heft")
    mine = placed(instance, np.array([0, 1, 1]), "latency", "mine")
    assert (rule.value_s, mine.value_s) == (2.0, 3.0)
    assert differences(instance, mine, rule) == [{"ops": ["op1"], "device": "device1", "heft_device": "device0", "costs_s": 1.0}]
    other = placed(instance, np.array([1, 1, 0]), "latency", "mine")
    assert {each["costs_s"] for each in differences(instance, other, rule)} == {None, -1.0}  # room for two each
    assert differences(instance, rule, rule) == []


def test_an_instance_that_is_shown_has_both_schedules_and_the_page_draws_them() -> None:
    result = played("annealing@0.01", changes=["budgets_s=[0.001]"], num_seeds=4, options=Options(show=(2,)))
    results = result.results
    (shown,) = results["more"]["shown"]
    assert (shown["number"], shown["policy"]) == (2, "annealing@0.01")
    rows = {each["policy"]: each for each in results["rows"]}
    for made, name in zip(shown["placements"], ("annealing@0.01", "heft"), strict=True):
        assert made["value_s"] == pytest.approx(max(made["end_s"]))
        ratio = rows[name]["per_case"]["over_best_known"][2]
        assert made["value_s"] == pytest.approx(ratio * results["more"]["known_s"][2])
    title, head, cells = difference_cells(shown)
    assert shown["instance"] in title
    assert all(len(row) == len(head) for row in cells)
    drawn = report_html(results, operator_sections(result))
    for text in (">1 ms<", "communication to computation", f"{shown['instance']}: one step", "the last op ends after", title):
        assert text in drawn
    again = replace(result, results=json.loads(json.dumps(results)))
    assert report_html(again.results, operator_sections(again)) == drawn
    with pytest.raises(ConfigError, match=r"--show.*from 0 to 3") as wrong:
        played(num_seeds=4, options=Options(show=(4,)))
    assert "\n" not in str(wrong.value)


def test_what_is_dumped_gives_every_value_again(tmp_path: Path) -> None:
    results = played("annealing@0.01", "shipped:operators-latency", options=Options(dump=tmp_path)).results
    assert sorted(path.name for path in tmp_path.iterdir()) == ["instance-0", "instance-1"]
    for row in results["rows"]:
        for number, over in enumerate(row["per_case"]["over_best_known"]):
            inside = tmp_path / f"instance-{number}"
            file = inside / f"{row['policy'].replace('@', '-').replace(':', '-')}.json"
            values = values_of(inside / "instance.json", file, 1.0)[1]
            again = next(each for each in values if each.form == "independent" and each.note)
            assert again.value_s == pytest.approx(over * results["more"]["known_s"][number])


def test_names_that_make_one_file_name_get_numbers(tmp_path: Path) -> None:
    instance = chain()
    made = placed(instance, np.array([0, 0, 1]), "latency", "x")
    dump(tmp_path, 0, instance, {"a/b": made, "a b": made, "instance": made, "//": made})
    inside = sorted(path.name for path in (tmp_path / "instance-0").iterdir())
    assert inside == ["a-b-1.json", "a-b.json", "instance-1.json", "instance.json", "policy.json"]


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (["op0", "op1"], "each of the 3 ops once"),
        (["op0", "op1", "op1"], "each of the 3 ops once"),
        (["op1", "op0", "op2"], "op1 before op0"),
        (["op0", "op1", "op3"], "no such op"),
        ("op0", "no such op"),
        ([0, 1, 2], "no such op"),
        ([["op0"], "op1", "op2"], "no such op"),
    ],
)
def test_an_order_that_is_none_is_refused(tmp_path: Path, order: object, message: str) -> None:
    instance = chain()
    dump(tmp_path, 0, instance, {})
    files.write_json(tmp_path / "mine.json", {"device_of": [0, 0, 1], "order": order})
    with pytest.raises(InputFileError, match=message) as error:
        values_of(tmp_path / "instance-0" / "instance.json", tmp_path / "mine.json", 1.0)
    assert "\n" not in str(error.value)


def test_an_order_of_the_file_counts(tmp_path: Path) -> None:
    """On one device of room for all: op2 first lets nobody wait, and op1 last or not is the same; two orders, one value each."""
    instance = OperatorInstance.of_outputs("two", np.array([[1.0, 9.0], [1.0, 9.0], [9.0, 1.0]]), [(0, 2)], [0.0] * 3)
    dump(tmp_path, 0, instance, {})
    values = []
    for order in (["op0", "op1", "op2"], ["op1", "op0", "op2"]):  # the op on the other device waits for op0: 2 s or 3 s
        files.write_json(tmp_path / "mine.json", {"device_of": [0, 0, 1], "order": order})
        reported = values_of(tmp_path / "instance-0" / "instance.json", tmp_path / "mine.json", 1.0)[1]
        values.append([each.value_s for each in reported if each.form == "independent" and each.planner == "given"])
    assert values == [[2.0, 2.0], [2.0, 3.0]]


def test_learned_policies_are_paired_with_each_other_and_with_networks_that_leave_something_out() -> None:
    assert paired_cells(played().results) is None
    results = played("shipped:operators-latency").results
    assert ablation_cells(results) is None
    (name, trained) = next(iter(results["more"]["trained"].items()))
    assert trained["benchmark"] == "latency-tight"
    row = next(each for each in results["rows"] if each["policy"] == name)
    worse = [value + 0.2 for value in row["per_case"]["over_best_known"]]
    less = {**row, "policy": "less", "per_case": {**row["per_case"], "over_best_known": worse}}
    network = {**trained["network"], "messages": False}
    more = {"trained": {name: trained, "less": {"network": network}}}
    changed = {**results, "rows": [*results["rows"], less], "more": more}
    head, cells = ablation_cells(changed) or ([], [])
    assert [each[1] for each in cells] == ["nothing", "messages"]
    assert cells[1][3] == "+0.200 [+0.200, +0.200] unclear"  # of few instances
    assert len(head) == 4
    head, paired = paired_cells(changed) or ([], [])
    assert head == ["against", name, "less"]
    assert {each[0]: each[1] for each in paired}["less"] == cells[1][3]
    assert {"Against each learned policy", "Parts left out of the network"} <= set(tables_of(changed))


def test_the_command_shows_dumps_and_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes = [part for change in SMALL for part in ("--set", change)]
    base = ["evaluate", "--benchmark", "preset:latency-tight", "--seeds", "2", *changes]
    assert (
        run_command_line([*base, "annealing@0.01", "--show", "1", "--dump", str(tmp_path / "d"), "--out", str(tmp_path / "o")])
        == 0
    )
    output = capsys.readouterr().out
    assert "HEFT's device" in output
    assert f"written: {tmp_path / 'd'}" in output
    again = ["validate", "placements", str(tmp_path / "d/instance-1/instance.json")]
    assert run_command_line([*again, "--set", f"placement={tmp_path / 'd/instance-1/heft.json'}"]) == 0
    assert "in the order of the file" in capsys.readouterr().out
    for wrong in (["--show", "2"], ["--dump", str(tmp_path / "o")]):
        assert run_command_line([*base, *wrong]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert run_command_line(["evaluate", "--benchmark", "quickstart", "--show", "0"]) == 2
    assert "does not go with a benchmark of one job" in capsys.readouterr().err
