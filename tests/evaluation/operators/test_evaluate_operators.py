"""The evaluation of operator placement and of tasklets: ratios worked out anew, ties, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.errors import ConfigError, PlanError, PolicyError
from meshwright.evaluation.evaluate import evaluate
from meshwright.evaluation.report.operator_sections import operator_sections
from meshwright.evaluation.report.report import report_html
from meshwright.evaluation.tables import result_cells, to_markdown
from meshwright.evaluation.world_policies import world_policy
from meshwright.evaluation.worlds.evaluated_operators import EvaluatedOperators
from meshwright.evaluation.worlds.evaluated_world import Options
from meshwright.planners.operators.place import place
from meshwright.planners.operators.request import PlacementRequest
from meshwright.simulation.operators import forms
from meshwright.simulation.operators.instance_files import save
from meshwright.worlds.operators.benchmark import load_placement_benchmark
from meshwright.worlds.operators.rules import CONSTANTS
from meshwright.worlds.operators.world import OperatorWorld
from meshwright.worlds.tasklets.world import TaskletWorld, load_tasklet_world

SMALL = [
    "placement.instances.num_ops=[8]",
    "placement.devices.num_devices=[3]",
    "best_known_s=0.01",
    "policies=[heft, fastest-device, round-robin]",
]
SMALL_NETWORKS = ["tasklets.num_devices=[16]", "tasklets.num_stages=[4]", "best_known_s=0.02", "policies=[chain@0.01]"]


def values_s(results, policy):
    """The value of each placement in seconds."""
    (row,) = (each for each in results["rows"] if each["policy"] == policy)
    return np.array(row["per_case"]["over_best_known"]) * results["more"]["known_s"]


def by_name(results):
    return {row["policy"]: row for row in results["rows"]}


def share(row, metric):
    return row["metrics"][metric]["mean"]


def test_figures_are_those_of_the_placements():
    benchmark = load_placement_benchmark("preset:latency-tight", changes=SMALL)
    results = evaluate(benchmark, ["annealing@0.01"], num_seeds=3).results
    rows = by_name(results)
    heft = [place(benchmark.placement.instance("test", seed), "heft", PlacementRequest()).value_s for seed in range(3)]
    assert values_s(results, "heft") == pytest.approx(heft)
    rules = np.array([values_s(results, name) for name in ("heft", "fastest-device", "round-robin")])
    assert rows["heft"]["per_case"]["over_best_rule"] == pytest.approx(heft / rules.min(axis=0))
    assert rows["heft"]["per_case"]["over_bound"] == pytest.approx(heft / np.array(results["more"]["bounds_s"]))
    assert (rows["heft"]["kind"], rows["annealing@0.01"]["kind"]) == ("baseline", "planner")
    assert all(share(row, "over_best_known") >= 1.0 for row in results["rows"])
    head, cells = result_cells(results)
    assert {len(row) for row in cells} == {len(head)}
    assert len(cells) == 4
    assert "| heft |" in to_markdown(results)


@pytest.mark.parametrize(
    ("made_by", "spec", "message"),
    [
        *((lambda spec: world_policy(spec, OperatorWorld("latency")), *each) for each in (
            ("hefty", "heft"),
            ("annealing@0", "above 0"),
            ("annealing@x", "above 0"),
            *((f"{name}@1", "takes no seconds") for name in ("heft", "exhaustive", *CONSTANTS)),
            ("ideals", "latency"),
            ("shipped:nothing", "no such solver, file or shipped policy"),
        )),
        *((lambda spec: world_policy(spec, TaskletWorld()), *each) for each in (
            ("chains", "chain"),
            ("chain@0", "above 0"),
            ("genetic@x", "above 0"),
            ("shipped:nothing", "no such solver, file or shipped policy"),
        )),
    ],
)  # fmt: skip
def test_whoever_is_not_known_is_refused_in_one_line(made_by, spec, message):
    with pytest.raises(PolicyError, match=message) as error:
        made_by(spec)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("load", "name", "changes", "most"),
    [
        (load_placement_benchmark, "preset:latency-tight", SMALL, 1000),
        (load_tasklet_world, "preset:tasklets-64", SMALL_NETWORKS, 100),
    ],
)
def test_one_instance_is_too_few_and_nobody_is_refused(load, name, changes, most):
    with pytest.raises(ConfigError, match=f"2 to {most}"):
        evaluate(load(name, changes=changes), [], num_seeds=1)
    with pytest.raises(PolicyError, match="nothing to compare"):
        evaluate(load(name, changes=[*changes, "policies=[]"]), [])


def test_a_benchmark_of_one_file_is_one_instance(tmp_path):
    instance = load_placement_benchmark("preset:latency-tight", changes=SMALL).placement.instance("test", 0)
    save(instance, tmp_path / "one.json")
    changes = [*SMALL[2:], f"placement.instances={{kind: files, files: [{tmp_path / 'one.json'}]}}", "num_seeds=1"]
    benchmark = load_placement_benchmark("preset:latency-tight", changes=changes)
    results = evaluate(benchmark, ["annealing@0.01"]).results
    assert results["cases"] == [0]
    assert "annealing@0.01" in to_markdown(results)
    with pytest.raises(ConfigError, match="1 to 1"):
        evaluate(benchmark, [], num_seeds=2)


def test_a_world_is_evaluated_as_its_benchmark_is():
    benchmark = load_placement_benchmark("preset:latency-tight", changes=[*SMALL, "policies=[heft]"])
    plain, other = (evaluate(each, num_seeds=2).results for each in (benchmark, OperatorWorld("latency", benchmark)))
    assert (other["world"], other["title"], other["about"]) == (plain["world"], plain["title"], plain["about"])
    assert by_name(other)["heft"]["per_case"]["over_bound"] == by_name(plain)["heft"]["per_case"]["over_bound"]


def test_who_places_nothing_wins_nothing_and_moves_no_figure():
    changes = [*SMALL[1:3], "placement.instances.num_ops=[40]", "policies=[heft]"]
    benchmark = load_placement_benchmark("preset:latency-tight", changes=changes)
    alone = evaluate(benchmark, [], num_seeds=2).results["rows"][0]
    rows = by_name(evaluate(benchmark, ["exhaustive"], num_seeds=2).results)
    for metric in ("over_bound", "over_best_rule"):
        assert rows["heft"]["per_case"][metric] == alone["per_case"][metric]
    assert [share(rows["exhaustive"], name) for name in ("won", "without_value")] == [0.0, 1.0]
    with pytest.raises(PlanError, match=r"no policy that is compared places this instance; exhaustive: has .* placements"):
        evaluate(benchmark.model_copy(update={"policies": ("exhaustive",)}), [], num_seeds=2)


def test_without_a_rule_nothing_is_compared_with_one():
    choice = load_placement_benchmark("preset:latency-tight", changes=SMALL).model_copy(update={"policies": ()})
    results = evaluate(choice, ["annealing@0.01"], num_seeds=2).results
    assert results["rows"][0]["metrics"]["over_best_rule"] is None
    head, (cells,) = result_cells(results)
    assert "over best rule" not in head
    assert cells[head.index("against best baseline")] == "-"


def test_the_default_form_changes_no_figure_and_another_is_named():
    plain, same, shared = (
        evaluate(load_placement_benchmark("preset:latency-tight", changes=[*SMALL, *form]), num_seeds=2).results
        for form in ([], ["placement.form=independent"], ["placement.form=fair"])
    )
    for name in by_name(plain):
        assert values_s(plain, name) == pytest.approx(values_s(same, name))
        assert (values_s(plain, name) <= values_s(shared, name) * (1 + 1e-9)).all()
    assert "fair" in to_markdown(shared)
    assert "independent" not in to_markdown(plain)
    with pytest.raises(ConfigError, match="shown under independent"):
        EvaluatedOperators.load("preset:latency-tight", [*SMALL, "placement.form=fair"], Options(show=(0,)))


def test_who_has_no_value_of_the_form_is_named_and_compared_with_nobody_and_the_page_is_written(monkeypatch):
    """Pipelines of more than one device are too many tasks here."""
    monkeypatch.setattr(forms, "MOST_TASKS", 150)
    changes = [
        *SMALL[:3],
        "placement.instances.kind=layered",
        "placement.form=simulated",
        "placement.devices.communication_to_computation=[0.01, 0.01]",
        "placement.devices.memory_slack=null",
        "policies=[fastest-device, round-robin]",
        "budgets_s=[0.01, 0.02]",
    ]
    benchmark = load_placement_benchmark("preset:throughput-tight", changes=changes)
    evaluation = evaluate(benchmark, ["annealing@0.01"], num_seeds=3)
    results = evaluation.results
    assert share(by_name(results)["fastest-device"], "won") == 1.0
    head, cells = result_cells(results)
    assert cells[0][0] == "fastest-device"
    for name in ("round-robin", "annealing@0.01"):
        assert share(by_name(results)[name], "without_value") == 1.0
        (alone,) = (row for row in cells if name in row[0].split(", "))
        assert (alone[1:3], alone[head.index("none, %")]) == (["-", "-"], "100")
        assert by_name(results)[name]["against"] == {}
        assert f"{name} has no value on 100 % of the instances" in to_markdown(results)
    assert results["more"]["budgets"]["rows"] == []
    html = report_html(results, operator_sections(evaluation))
    assert all(name in html for name in by_name(results))
    alone = benchmark.model_copy(update={"policies": ("round-robin",), "best_known_s": 0.01})
    with pytest.raises(PlanError, match=r"places this instance; round-robin: .* tasks are more than 150"):
        evaluate(alone, [], num_seeds=3)


def test_times_by_the_cpu_clock_are_named():
    benchmark = load_placement_benchmark("preset:latency-tight", changes=[*SMALL, "clock=cpu"])
    results = evaluate(benchmark, ["annealing@0.02"], num_seeds=2).results
    assert results["more"]["clock"] == "cpu"
    assert "CPU seconds" in to_markdown(results)
    assert 0.01 < results["timing"]["decision_s"]["annealing@0.02"]["median"] < 0.1
    with pytest.raises(ConfigError, match="clock"):
        load_placement_benchmark("preset:latency-tight", changes=["clock=sun"])


@pytest.mark.parametrize("form", ["contiguous-accelerator", "simulated", "none"])
def test_a_form_that_does_not_fit_is_refused_with_the_choices(form):
    with pytest.raises(ConfigError, match="choose independent or fair") as error:
        load_placement_benchmark("preset:latency-tight", changes=[f"placement.form={form}"])
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match="learned under independent"):
        load_placement_benchmark("preset:latency-tight", changes=["placement.form=fair"]).placement.check_default_form()


def test_an_optimizer_is_a_name_or_a_number():
    drawn = '{{kind: jobs, jobs: ["zoo:squeezenet"], {0}}}'.format
    read = [
        load_placement_benchmark("preset:latency-tight", changes=[f"placement.instances={drawn(messages)}"]).placement
        for messages in ("optimizer: sgd", "optimizer_bytes: 2")
    ]
    assert read[0] == read[1]
    with pytest.raises(ConfigError, match="not both"):
        load_placement_benchmark(
            "preset:latency-tight", changes=[f"placement.instances={drawn('optimizer: sgd, optimizer_bytes: 2')}"]
        )
