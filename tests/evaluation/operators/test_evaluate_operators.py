"""The evaluation of operator placement: ratios worked out anew, ties, what is refused, and the command."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.envs.operators.benchmark import load_placement_benchmark
from meshwright.errors import ConfigError, PlanError, PolicyError
from meshwright.evaluation.operators.evaluate import evaluate_operators
from meshwright.evaluation.operators.policies import operator_policy
from meshwright.evaluation.operators.tables import figure_rows, operator_cells, operator_markdown
from meshwright.evaluation.report.operator_report import operator_report
from meshwright.planners.operators.place import place
from meshwright.planners.operators.request import PlacementRequest
from meshwright.simulation.operators import pipelined

SMALL = [
    "placement.instances.num_ops=[8]",
    "placement.devices.num_devices=[3]",
    "best_known_s=0.01",
    "policies=[heft, fastest-device, round-robin]",
]


def test_figures_are_those_of_the_placements() -> None:
    chosen = load_placement_benchmark("preset:latency-tight", changes=SMALL)
    found = evaluate_operators(chosen, ["annealing@0.01"], num_seeds=3)
    rows = {row["policy"]: row for row in found["rows"]}
    heft = [place(chosen.placement.instance("test", seed), "heft", PlacementRequest()).value_s for seed in range(3)]
    assert rows["heft"]["values_s"] == pytest.approx(heft)
    rules = np.array([rows[name]["values_s"] for name in ("heft", "fastest-device", "round-robin")])
    against = np.mean(np.array(rows["heft"]["values_s"]) / rules.min(axis=0) - 1)
    assert rows["heft"]["against_best_rule"]["mean"] == pytest.approx(against)
    over_bound = np.array(rows["heft"]["values_s"]) / np.array(found["bounds_s"])
    assert rows["heft"]["over_bound"]["mean"] == pytest.approx(over_bound.mean())
    assert not rows["annealing@0.01"]["is_rule"]
    assert all(row["over_best_known"]["mean"] >= 1.0 for row in found["rows"])
    head, cells = operator_cells(found)
    assert len(cells) == 4
    assert len(head) == len(cells[0])
    assert "| heft |" in operator_markdown(found)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("hefty", "heft"),
        ("annealing@0", "above 0"),
        ("heft@x", "above 0"),
        ("ideals", "latency"),
        ("shipped:nothing", "no such shipped policy"),
    ],
)
def test_whoever_is_not_known_is_refused_in_one_line(spec: str, told: str) -> None:
    with pytest.raises(PolicyError, match=told) as found:
        operator_policy(spec, "latency")
    assert "\n" not in str(found.value)


def test_one_instance_is_too_few() -> None:
    with pytest.raises(ConfigError, match="2 to 1000"):
        evaluate_operators(load_placement_benchmark("preset:latency-tight", changes=SMALL), [], num_seeds=1)


def test_who_places_nothing_wins_nothing_and_moves_no_figure() -> None:
    changes = [*SMALL[1:3], "placement.instances.num_ops=[40]", "policies=[heft]"]
    chosen = load_placement_benchmark("preset:latency-tight", changes=changes)
    alone = evaluate_operators(chosen, [], num_seeds=2)["rows"][0]
    rows = {row["policy"]: row for row in evaluate_operators(chosen, ["exhaustive"], num_seeds=2)["rows"]}
    assert rows["heft"]["over_bound"] == alone["over_bound"]
    assert rows["heft"]["against_best_rule"] == alone["against_best_rule"]
    assert (rows["exhaustive"]["won"], rows["exhaustive"]["infeasible"]) == (0.0, 1.0)
    with pytest.raises(PlanError, match=r"no policy that is compared places this instance; exhaustive: has .* placements"):
        evaluate_operators(chosen.model_copy(update={"policies": ("exhaustive",)}), [], num_seeds=2)


def test_without_a_rule_nothing_is_told_against_one() -> None:
    chosen = load_placement_benchmark("preset:latency-tight", changes=SMALL).model_copy(update={"policies": ()})
    found = evaluate_operators(chosen, ["annealing@0.01"], num_seeds=2)
    assert found["rows"][0]["against_best_rule"] is None
    assert operator_cells(found)[1][0][2] == "-"


def test_the_default_form_changes_no_figure_and_another_is_told() -> None:
    chosen = load_placement_benchmark("preset:latency-tight", changes=SMALL)
    named = load_placement_benchmark("preset:latency-tight", changes=[*SMALL, "placement.form=independent"])
    fair = load_placement_benchmark("preset:latency-tight", changes=[*SMALL, "placement.form=fair"])
    plain, same, shared = (evaluate_operators(each, [], num_seeds=2) for each in (chosen, named, fair))
    for one, two, three in zip(plain["rows"], same["rows"], shared["rows"], strict=True):
        assert one["values_s"] == two["values_s"]
        assert all(a <= b * (1 + 1e-9) for a, b in zip(one["values_s"], three["values_s"], strict=True))
    assert "fair" in operator_markdown(shared)
    assert "independent" not in operator_markdown(plain)
    with pytest.raises(ConfigError, match="shown under independent"):
        evaluate_operators(fair, [], num_seeds=2, shown=[0])


def test_who_has_no_value_of_the_form_is_compared_with_nobody_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipelines of more than one device are too many tasks here; the page is written all the same."""
    monkeypatch.setattr(pipelined, "MOST_TASKS", 150)
    changes = [
        *SMALL[:3],
        "placement.instances.kind=layered",
        "placement.form=simulated",
        "placement.devices.communication_to_computation=[0.01, 0.01]",
    ]
    changes += ["placement.devices.memory_slack=null", "policies=[fastest-device, round-robin]", "budgets_s=[0.01, 0.02]"]
    chosen = load_placement_benchmark("preset:throughput-tight", changes=changes)
    found = evaluate_operators(chosen, ["annealing@0.01"], num_seeds=3)
    rows = {row["policy"]: row for row in found["rows"]}
    never = [name for name, row in rows.items() if row["infeasible"] == row["without_form"] == 1.0]
    assert sorted(never) == ["annealing@0.01", "round-robin"]
    assert found["verdict"].startswith("Best is fastest-device;")
    head, cells = operator_cells(found)
    assert cells[0][0] == "fastest-device"
    at = head.index("none, %")
    assert [(row[1:4], row[at]) for row in cells[1:]] == [(["-", "-", "-"], "100")] * 2
    assert not any(name in row["against"] for row in found["rows"] for name in never)
    assert found["budgets"]["rows"] == []
    assert [row["policy"] for row in figure_rows(found)] == ["fastest-device"]
    assert "Every policy placed for max-load" in operator_markdown(found)
    assert "round-robin found a placement that has no value by simulated on 100 % of the instances" in operator_markdown(found)
    assert "<svg" in operator_report(found)
    alone = chosen.model_copy(update={"policies": ("round-robin",), "best_known_s": 0.01})
    with pytest.raises(PlanError, match=r"has a value by simulated; round-robin: .* tasks are more than 150"):
        evaluate_operators(alone, [], num_seeds=3)


def test_times_by_the_cpu_clock_are_told() -> None:
    chosen = load_placement_benchmark("preset:latency-tight", changes=[*SMALL, "clock=cpu"])
    found = evaluate_operators(chosen, ["annealing@0.02"], num_seeds=2)
    assert found["clock"] == "cpu"
    assert "CPU seconds" in operator_markdown(found)
    seconds = {row["policy"]: row["seconds"]["median"] for row in found["rows"]}
    assert 0.01 < seconds["annealing@0.02"] < 0.1
    with pytest.raises(ConfigError, match="clock"):
        load_placement_benchmark("preset:latency-tight", changes=["clock=sun"])


@pytest.mark.parametrize("form", ["contiguous-accelerator", "simulated", "none"])
def test_a_form_that_does_not_fit_is_refused_with_the_choices(form: str) -> None:
    with pytest.raises(ConfigError, match="choose independent or fair") as found:
        load_placement_benchmark("preset:latency-tight", changes=[f"placement.form={form}"])
    assert "\n" not in str(found.value)
    with pytest.raises(ConfigError, match="learned under independent"):
        load_placement_benchmark("preset:latency-tight", changes=["placement.form=fair"]).placement.check_default_form()


def test_an_optimizer_is_a_name_or_a_number() -> None:
    drawn = '{{kind: jobs, jobs: ["zoo:squeezenet"], {0}}}'.format
    read = [
        load_placement_benchmark("preset:latency-tight", changes=[f"placement.instances={drawn(told)}"]).placement
        for told in ("optimizer: sgd", "optimizer_bytes: 2")
    ]
    assert read[0] == read[1]
    with pytest.raises(ConfigError, match="not both"):
        load_placement_benchmark(
            "preset:latency-tight", changes=[f"placement.instances={drawn('optimizer: sgd, optimizer_bytes: 2')}"]
        )
